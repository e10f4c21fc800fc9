/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host_port.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

int host_port_split(const char *text, char host_out[HOST_BYTES], char port_out[PORT_BYTES])
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	if (!colon || parse_u64(colon + 1, 1, 65535, &port))
		return -EINVAL;
	size_t len = (size_t)(colon - text);
	if (*text == '[') {
		if (len < 3 || text[len - 1] != ']')
			return -EINVAL;
		text++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return -EINVAL;
	}
	if (!len || len >= HOST_BYTES || memchr(text, '[', len) || memchr(text, ']', len))
		return -EINVAL;
	memcpy(host_out, text, len);
	host_out[len] = '\0';
	snprintf(port_out, PORT_BYTES, "%u", (unsigned)port);
	return 0;
}
