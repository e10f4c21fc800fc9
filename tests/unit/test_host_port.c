/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host_port.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(host_port, splits_names_and_addresses)
{
	static const struct {
		const char *text, *host, *port;
	} rows[] = {
		{"localhost:9100", "localhost", "9100"},       {"127.0.0.1:1", "127.0.0.1", "1"},
		{"0.0.0.0:65535", "0.0.0.0", "65535"},	       {"[::1]:9100", "::1", "9100"},
		{"[fe80::1%eth0]:0080", "fe80::1%eth0", "80"},
	};
	char host[HOST_BYTES], port[PORT_BYTES];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		cr_assert_eq(host_port_split(rows[i].text, host, port), 0, "%s", rows[i].text);
		cr_expect_str_eq(host, rows[i].host);
		cr_expect_str_eq(port, rows[i].port);
	}
}

Test(host_port, refuses_what_is_neither)
{
	static const char *const texts[] = {
		"",	      ":",	   "host",	"host:",       ":9100",	   "host:0",
		"host:65536", "host:-1",   "host:http", "host:91 ",    "::1:9100", "[]:9100",
		"[::1]",      "[::1:9100", "::1]:9100", "[[::1]]:9100"};
	char host[HOST_BYTES] = "same", port[PORT_BYTES] = "1";
	char longest[HOST_BYTES + 8];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		cr_expect_eq(host_port_split(texts[i], host, port), -EINVAL, "%s", texts[i]);
	memset(longest, 'a', HOST_BYTES);
	strcpy(longest + HOST_BYTES, ":9100");
	cr_expect_eq(host_port_split(longest, host, port), -EINVAL);
	cr_expect_eq(host_port_split(longest + 1, host, port), 0, "the longest that fits");
	cr_expect_str_eq(port, "9100");
}
