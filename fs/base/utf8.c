/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static int is_tail(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

/* Bytes of the well-formed character at p, 0 when there is none. */
static size_t character_bytes(const unsigned char *p)
{
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		return is_tail(p[1]) ? 2 : 0;
	if ((p[0] & 0xf0) == 0xe0) {
		/* Neither longer than needed nor a surrogate. */
		if (!is_tail(p[1]) || (p[0] == 0xe0 && p[1] < 0xa0) ||
		    (p[0] == 0xed && p[1] > 0x9f))
			return 0;
		return is_tail(p[2]) ? 3 : 0;
	}
	if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		/* Neither longer than needed nor above U+10FFFF. */
		if (!is_tail(p[1]) || (p[0] == 0xf0 && p[1] < 0x90) ||
		    (p[0] == 0xf4 && p[1] > 0x8f))
			return 0;
		return is_tail(p[2]) && is_tail(p[3]) ? 4 : 0;
	}
	return 0;
}

char *utf8_clean(const char *text, char *out, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t used = 0;

	while (*p) {
		size_t n = character_bytes(p), take = n ? n : 1;
		if (used + take >= len)
			break;
		if (n)
			memcpy(out + used, p, n);
		else
			out[used] = '?';
		used += take;
		p += take;
	}
	out[used] = '\0';
	return out;
}
