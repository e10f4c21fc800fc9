/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_url.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/host_port.h"
#include "base/parse.h"

#define SCHEME "redis://"

/* %XX becomes a byte, never NUL. */
static int percent_decode(const char *text, size_t len, char out[REDIS_SECRET_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (n + 1 >= REDIS_SECRET_MAX)
			return -EINVAL;
		if (c == '%') {
			int byte = len - i > 2 ? hex_byte(text + i + 1) : -1;
			if (byte <= 0)
				return -EINVAL;
			c = (char)byte;
			i += 2;
		}
		out[n++] = c;
	}
	out[n] = '\0';
	return 0;
}

static int credentials_parse(const char *text, size_t len, struct redis_address *a)
{
	const char *colon = memchr(text, ':', len);
	size_t user_len = colon ? (size_t)(colon - text) : 0;
	const char *password = colon ? colon + 1 : text;
	size_t password_len = len - (size_t)(password - text);

	if (percent_decode(text, user_len, a->user) || percent_decode(password, password_len, a->password))
		return -EINVAL;
	return *a->password ? 0 : -EINVAL;
}

static int place_parse(const char *text, size_t len, struct redis_address *a)
{
	char place[HOST_BYTES + 16], port[PORT_BYTES];
	const char *bracket = memchr(text, ']', len);
	const char *name_end = bracket ? bracket : text;
	bool has_port = memchr(name_end, ':', len - (size_t)(name_end - text));
	uint64_t number;

	if (len >= HOST_BYTES + 2)
		return -EINVAL;
	if (has_port)
		snprintf(place, sizeof(place), "%.*s", (int)len, text);
	else
		snprintf(place, sizeof(place), "%.*s:%d", (int)len, text, REDIS_PORT);
	if (host_port_split(place, a->host, port) || parse_u64(port, 1, UINT16_MAX, &number))
		return -EINVAL;
	a->port = (uint16_t)number;
	return 0;
}

int redis_url_parse(const char *url, struct redis_address *out)
{
	struct redis_address a = {.db = 0};
	uint64_t db = 0;

	if (strncmp(url, SCHEME, strlen(SCHEME)))
		return -EINVAL;
	url += strlen(SCHEME);
	/* A password may hold a '/' or an '@' as it is: the last '@' ends it. */
	const char *at = strrchr(url, '@');
	if (at && credentials_parse(url, (size_t)(at - url), &a))
		return -EINVAL;
	const char *place = at ? at + 1 : url;
	const char *slash = strchr(place, '/');
	size_t len = slash ? (size_t)(slash - place) : strlen(place);
	if (slash && slash[1] && parse_u64(slash + 1, 0, INT32_MAX, &db))
		return -EINVAL;
	a.db = (uint32_t)db;
	if (place_parse(place, len, &a))
		return -EINVAL;
	*out = a;
	return 0;
}
