/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_url.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(redis_url, is_taken_apart)
{
	static const struct {
		const char *url, *host;
		unsigned port, db;
		const char *user, *password;
	} rows[] = {
		{"redis://h", "h", 6379, 0, "", ""},
		{"redis://h:7000", "h", 7000, 0, "", ""},
		{"redis://h/3", "h", 6379, 3, "", ""},
		{"redis://h/", "h", 6379, 0, "", ""},
		{"redis://10.0.0.1:1/15", "10.0.0.1", 1, 15, "", ""},
		{"redis://[::1]", "::1", 6379, 0, "", ""},
		{"redis://[fe80::1%eth0]:99/1", "fe80::1%eth0", 99, 1, "", ""},
		{"redis://secret@h", "h", 6379, 0, "", "secret"},
		{"redis://:secret@h", "h", 6379, 0, "", "secret"},
		{"redis://u:secret@h:1", "h", 1, 0, "u", "secret"},
		{"redis://u:a:b@h", "h", 6379, 0, "u", "a:b"},
		{"redis://a%40b:%3a%2F%25@h", "h", 6379, 0, "a@b", ":/%"},
		{"redis://u:p@ss/w@h", "h", 6379, 0, "u", "p@ss/w"},
	};
	struct redis_address a;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		cr_assert_eq(redis_url_parse(rows[i].url, &a), 0, "%s", rows[i].url);
		cr_expect_str_eq(a.host, rows[i].host);
		cr_expect_eq(a.port, rows[i].port, "%s", rows[i].url);
		cr_expect_eq(a.db, rows[i].db);
		cr_expect_str_eq(a.user, rows[i].user);
		cr_expect_str_eq(a.password, rows[i].password);
	}
}

Test(redis_url, that_is_none_is_refused)
{
	static const char *const urls[] = {
		"",
		"h:6379",
		"rediss://h",
		"http://h",
		"redis://",
		"redis://:1",
		"redis://h:",
		"redis://h:0",
		"redis://h:x",
		"redis://h/x",
		"redis://h/-1",
		"redis://@h",
		"redis://u:@h",
		"redis://u:%@h",
		"redis://u:%4@h",
		"redis://u:%zz@h",
		"redis://u:%00@h",
		"redis://::1",
		"redis://[::1",
		"redis://h/1/2",
		"redis://p@",
	};
	struct redis_address a;

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++)
		cr_expect_eq(redis_url_parse(urls[i], &a), -EINVAL, "%s", urls[i]);
}
