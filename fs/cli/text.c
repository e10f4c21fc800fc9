/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *text_count(uint64_t n, char buf[TEXT_BYTES])
{
	char digits[TEXT_BYTES];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	char *out = buf;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
	return buf;
}

char *text_latency(uint64_t ns, char buf[TEXT_BYTES])
{
	double us = (double)ns / 1e3;

	if (us < 1e3)
		snprintf(buf, TEXT_BYTES, "%.1f us", us);
	else if (us < 1e6)
		snprintf(buf, TEXT_BYTES, "%.2f ms", us / 1e3);
	else
		snprintf(buf, TEXT_BYTES, "%.2f s", us / 1e6);
	return buf;
}

char *text_duration(double seconds, char buf[TEXT_BYTES])
{
	uint64_t s = seconds > 0 ? (uint64_t)seconds : 0;

	if (s < 60)
		snprintf(buf, TEXT_BYTES, "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(buf, TEXT_BYTES, "%" PRIu64 " min %02u s", s / 60, (unsigned)(s % 60));
	else if (s < 86400)
		snprintf(buf, TEXT_BYTES, "%" PRIu64 " h %02u min", s / 3600,
			 (unsigned)(s / 60 % 60));
	else
		snprintf(buf, TEXT_BYTES, "%" PRIu64 " d %02u h", s / 86400,
			 (unsigned)(s / 3600 % 24));
	return buf;
}

char *text_percent(uint64_t part, uint64_t whole, char buf[TEXT_BYTES])
{
	if (!whole)
		strcpy(buf, "-");
	else
		snprintf(buf, TEXT_BYTES, "%.2f %%", 100.0 * (double)part / (double)whole);
	return buf;
}

json_t *text_json(const char *name)
{
	json_t *value = json_string(name);

	if (value)
		return value;
	char *escaped = malloc(strlen(name) * 4 + 1);
	if (!escaped)
		return NULL;
	char *out = escaped;
	for (const char *p = name; *p; p++) {
		if ((unsigned char)*p < 0x80)
			*out++ = *p;
		else
			out += sprintf(out, "\\x%02x", (unsigned char)*p);
	}
	*out = '\0';
	value = json_string(escaped);
	free(escaped);
	return value;
}
