/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int address_split(const char *text, char host_out[HOST_BYTES], uint16_t *port_out)
{
	char copy[TRANSPORT_ADDRESS_BYTES], port[PORT_BYTES];
	size_t len = strlen(text);
	bool is_any_port = len > 2 && !strcmp(text + len - 2, ":0");

	if (len >= sizeof(copy))
		return -EINVAL;
	memcpy(copy, text, len + 1);
	if (is_any_port)
		copy[len - 1] = '1'; /* host_port knows no port 0 */
	int rc = host_port_split(copy, host_out, port);
	if (rc)
		return rc;
	*port_out = is_any_port ? 0 : (uint16_t)strtoul(port, NULL, 10);
	return 0;
}

int address_join(const char *host, uint16_t port, char out[TRANSPORT_ADDRESS_BYTES])
{
	const char *format = strchr(host, ':') ? "[%s]:%u" : "%s:%u";
	int n = snprintf(out, TRANSPORT_ADDRESS_BYTES, format, host, (unsigned)port);

	return n < 0 || n >= TRANSPORT_ADDRESS_BYTES ? -ENAMETOOLONG : 0;
}

bool address_host_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!strcmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool address_host_is_any(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return v4.s_addr == htonl(INADDR_ANY);
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
