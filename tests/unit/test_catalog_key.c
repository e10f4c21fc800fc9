/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "catalog_key.h"

Test(catalog_key, of_a_name_goes_there_and_back)
{
	char name[CATALOG_NAME_MAX + 1];
	uint8_t key[NAMES_KEY_MAX];
	uint64_t parent, cookie;
	const char *got;
	size_t key_len, got_len;

	for (int i = 0; i < CATALOG_NAME_MAX; i++)
		name[i] = (char)(i + 1 == '/' ? 'x' : i + 1);
	name[CATALOG_NAME_MAX] = '\0';
	cr_assert_eq(names_key_encode(key, &key_len, UINT64_MAX, name), 0);
	cr_assert_eq(names_key_decode(key, key_len, &parent, &cookie, &got, &got_len), 0);
	cr_expect_eq(parent, UINT64_MAX);
	cr_expect_eq(cookie, catalog_name_cookie(name));
	cr_expect_eq(got_len, CATALOG_NAME_MAX);
	cr_expect_arr_eq(got, name, CATALOG_NAME_MAX);
}

Test(catalog_key, refuses_names_that_cannot_be)
{
	char name[CATALOG_NAME_MAX + 2];
	uint8_t key[NAMES_KEY_MAX];
	size_t key_len;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_expect_eq(names_key_encode(key, &key_len, 1, name), -ENAMETOOLONG);
	cr_expect_eq(names_key_encode(key, &key_len, 1, ""), -EINVAL);
}

Test(catalog_key, refuses_bytes_that_are_no_key)
{
	uint8_t key[NAMES_KEY_MAX + 1];
	uint64_t parent, cookie;
	const char *got;
	size_t got_len;

	memset(key, 'k', sizeof(key));
	cr_expect_eq(names_key_decode(key, NAMES_KEY_PREFIX, &parent, &cookie, &got, &got_len),
		     -EIO);
	cr_expect_eq(names_key_decode(key, sizeof(key), &parent, &cookie, &got, &got_len), -EIO);
	cr_expect_eq(names_key_decode(key, 20, &parent, &cookie, &got, &got_len), 0);
	key[18] = '\0';
	cr_expect_eq(names_key_decode(key, 20, &parent, &cookie, &got, &got_len), -EIO, "NUL");
	key[18] = 'k', key[8] = 0x80;
	cr_expect_eq(names_key_decode(key, 20, &parent, &cookie, &got, &got_len), -EIO, "cookie");
	cr_expect_eq(objects_key_decode(key, 7, &parent), -EIO);
	cr_expect_eq(objects_key_decode(key, 9, &parent), -EIO);
}

/* Cookies are on disk and in clients' hands: a changed hash would lose both. */
Test(catalog_key, has_the_cookies_of_XXH3)
{
	cr_expect_eq(catalog_name_cookie("a"), UINT64_C(0xe6c632b61e964e1f) >> 1);
	cr_expect_eq(catalog_name_cookie("abc"), UINT64_C(0x78af5f94892f3950) >> 1);
	for (int i = 0; i < 10000; i++) {
		char name[16];
		snprintf(name, sizeof(name), "%d", i);
		uint64_t cookie = catalog_name_cookie(name);
		cr_assert(cookie > 2 && cookie < CATALOG_COOKIE_END);
	}
}

Test(catalog_key, sorts_by_parent_then_cookie)
{
	uint8_t a[NAMES_KEY_PREFIX], b[NAMES_KEY_PREFIX];

	names_position_encode(a, 255, CATALOG_COOKIE_END);
	names_position_encode(b, 256, 0);
	cr_expect_lt(memcmp(a, b, sizeof(a)), 0);
	names_position_encode(a, 256, 255);
	names_position_encode(b, 256, 256);
	cr_expect_lt(memcmp(a, b, sizeof(a)), 0);
}
