/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/letter.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define HEAD_BYTES 3u
#define RECORD_BYTES 12u

_Static_assert(HEAD_BYTES + RECORD_BYTES + PEER_PATH_MAX + PEER_NAME_MAX + 2 <= LETTER_BYTES_MAX, "one fits");
_Static_assert(PEER_PATH_MAX <= UINT16_MAX && PEER_NAME_MAX <= UINT8_MAX, "the byte map's widths");

static uint8_t *put(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * (n - 1 - i));
	return p + n;
}

static uint64_t get(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

size_t letter_encode(const struct peer_invalidation *v, size_t n, uint8_t buf[LETTER_BYTES_MAX], size_t *len_out)
{
	uint8_t *p = buf + HEAD_BYTES;
	size_t k;

	for (k = 0; k < n && k < PEER_INVALIDATE_MAX; k++) {
		size_t dir_len = strlen(v[k].dir), name_len = strlen(v[k].name);
		if (RECORD_BYTES + dir_len + name_len + 2 > LETTER_BYTES_MAX - (size_t)(p - buf))
			break;
		p = put(p, v[k].version, 8);
		p = put(p, v[k].is_removed, 1);
		p = put(p, dir_len, 2);
		p = put(p, name_len, 1);
		p = (uint8_t *)memcpy(p, v[k].dir, dir_len + 1) + dir_len + 1;
		p = (uint8_t *)memcpy(p, v[k].name, name_len + 1) + name_len + 1;
	}
	put(put(buf, LETTER_INVALIDATE, 1), k, 2);
	*len_out = (size_t)(p - buf);
	return k;
}

/* A text of len bytes and its NUL; NULL: it is none. */
static const char *text_get(const uint8_t *p, size_t len)
{
	return !p[len] && !memchr(p, '\0', len) ? (const char *)p : NULL;
}

static bool name_is_sound(const char *name, size_t len)
{
	return len && len <= PEER_NAME_MAX && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* The bytes that the record takes; 0: it is none. */
static size_t record_get(const uint8_t *p, size_t left, struct peer_invalidation *out)
{
	if (left < RECORD_BYTES)
		return 0;
	uint64_t flags = get(p + 8, 1);
	size_t dir_len = get(p + 9, 2), name_len = get(p + 11, 1), bytes = RECORD_BYTES + dir_len + name_len + 2;
	if (flags > 1 || dir_len > PEER_PATH_MAX || left < bytes)
		return 0;
	const char *dir = text_get(p + RECORD_BYTES, dir_len);
	const char *name = text_get(p + RECORD_BYTES + dir_len + 1, name_len);
	if (!dir || *dir != '/' || !name || !name_is_sound(name, name_len))
		return 0;
	*out = (struct peer_invalidation){ dir, name, get(p, 8), flags };
	return bytes;
}

int letter_decode(const void *bytes, size_t len, struct peer_invalidation v_out[PEER_INVALIDATE_MAX],
		  size_t *n_out)
{
	const uint8_t *p = bytes, *end = p + len;

	if (len < HEAD_BYTES || p[0] != LETTER_INVALIDATE)
		return -EPROTO;
	size_t n = get(p + 1, 2);
	if (!n || n > PEER_INVALIDATE_MAX)
		return -EPROTO;
	p += HEAD_BYTES;
	for (size_t k = 0; k < n; k++) {
		size_t took = record_get(p, (size_t)(end - p), &v_out[k]);
		if (!took)
			return -EPROTO;
		p += took;
	}
	if (p != end)
		return -EPROTO;
	*n_out = n;
	return 0;
}
