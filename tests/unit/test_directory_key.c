/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_key.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "mcfs/catalog.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static size_t field_bytes(const char *name)
{
	uint8_t field[DIRECTORY_FIELD_MAX];
	char back[DIRECTORY_NAME_MAX + 1];
	size_t len = 0;

	cr_assert_eq(directory_field_encode(name, field, &len), 0, "%s", name);
	cr_assert_eq(directory_field_decode(field, len, back), 0, "%s", name);
	cr_expect_str_eq(back, name);
	return len;
}

Test(directory_key, packs_hex_names_and_no_others)
{
	static const struct {
		const char *name;
		size_t bytes;
	} rows[] = {
		{HEX64, 33},
		{"0123456789abcdef0123456789abcdef", 17},
		{"0123456789abcdef0123456789abcdefa", 33},
		{"0123456789abcdef0123456789abcdea", 17},
		{"0123456789abcdef0123456789abcde", 31},
		{"0123456789ABCDEF0123456789ABCDEF", 32},
		{"0123456789abcdeg0123456789abcdef", 32},
		{HEX64 "ab", 66},
		{"00000000000000000000000000000000", 17},
		{"a", 1},
		{"\x01\xff \n{}", 6},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		cr_expect_eq(field_bytes(rows[i].name), rows[i].bytes, "%s", rows[i].name);
}

Test(directory_key, takes_names_of_255_bytes)
{
	char name[DIRECTORY_NAME_MAX + 2] = {0};
	uint8_t field[DIRECTORY_FIELD_MAX];
	size_t len;

	memset(name, 'f', DIRECTORY_NAME_MAX);
	cr_expect_eq(field_bytes(name), 255);
	name[DIRECTORY_NAME_MAX] = 'f';
	cr_expect_eq(directory_field_encode(name, field, &len), -ENAMETOOLONG);
	cr_expect_eq(directory_field_encode("", field, &len), -EINVAL);
	cr_expect_eq(directory_field_encode("a/b", field, &len), -EINVAL);
}

Test(directory_key, refuses_fields_of_no_name)
{
	char name[DIRECTORY_NAME_MAX + 1];
	uint8_t long_field[256] = {'a'};

	cr_expect_eq(directory_field_decode("", 0, name), -EIO);
	cr_expect_eq(directory_field_decode("a/b", 3, name), -EIO);
	cr_expect_eq(directory_field_decode("a\0b", 3, name), -EIO);
	cr_expect_eq(directory_field_decode(HEX64, 64, name), -EIO, "it would have been packed");
	cr_expect_eq(directory_field_decode("/123456789abcdef", 16, name), -EIO, "too short");
	cr_expect_eq(directory_field_decode("/" HEX64, 34, name), -EIO, "too long");
	cr_expect_eq(directory_field_decode(long_field, 256, name), -EIO);
}

Test(directory_key, has_one_hash_tag_and_fits)
{
	char key[DIRECTORY_KEY_BYTES], prefix[DIRECTORY_PREFIX_MAX + 2] = {0};

	memset(prefix, 'p', DIRECTORY_PREFIX_MAX);
	cr_expect_eq(directory_prefix_check(prefix), 0);
	size_t len = directory_bucket_key(key, prefix, directory_path_hash("/kv"), 255);
	cr_expect_eq(len, strlen(key));
	cr_expect_lt(len, sizeof(key));
	directory_bucket_key(key, "c", (struct directory_hash){.high = 1, .low = 2}, 10);
	cr_expect_str_eq(key, "c:d:{00000000000000010000000000000002:0a}");
	len = directory_ack_key(key, prefix, DIRECTORY_SLOTS - 1, UINT64_MAX);
	cr_expect_eq(len, strlen(key));
	cr_expect_lt(len, sizeof(key));
	directory_ack_key(key, "c", 12, 0xab);
	cr_expect_str_eq(key, "c:box:{12}:00000000000000ab");
	prefix[DIRECTORY_PREFIX_MAX] = 'p';
	cr_expect_eq(directory_prefix_check(prefix), -EINVAL);
	cr_expect_eq(directory_prefix_check(""), -EINVAL);
	cr_expect_eq(directory_prefix_check("a{b}"), -EINVAL);
}

Test(directory_key, has_buckets_in_the_order_of_cookies)
{
	cr_expect_eq(directory_bucket_of(0), 0);
	cr_expect_eq(directory_bucket_of((UINT64_C(1) << 55) - 1), 0);
	cr_expect_eq(directory_bucket_of(UINT64_C(1) << 55), 1);
	cr_expect_eq(directory_bucket_of(INT64_MAX), 255);
}
