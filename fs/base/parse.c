/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int parse_size(const char *text, uint64_t *bytes_out)
{
	static const char units[] = "KMGTP";
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	double value = strtod(text, &end);
	if (errno || !isfinite(value))
		return -ERANGE;
	for (const char *p = text; p < end; p++)
		if ((*p < '0' || *p > '9') && *p != '.')
			return -EINVAL; /* no exponents or hexadecimal floats */
	if (*end) {
		const char *unit = strchr(units, *end & ~0x20);
		if (unit && *unit) {
			for (const char *u = units; u <= unit; u++)
				value *= 1024;
			end++;
			if (*end == 'i')
				end++;
		}
		if (*end == 'B' || *end == 'b')
			end++;
	}
	if (*end)
		return -EINVAL;
	if (value >= 9223372036854775808.0)
		return -ERANGE;
	*bytes_out = (uint64_t)value;
	return 0;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno || value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

char *format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double value = (double)bytes;
	int unit = 0;

	while (value >= 1024 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(buf, len, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buf;
}
