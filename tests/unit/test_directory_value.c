/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_value.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- fixture ---- */

static struct directory_value file_value(void)
{
	return (struct directory_value){.kind = DIRECTORY_FILE, .version = 0xfedcba9876543210,
					.object = 0xf0e1d2c3b4a59687, .size = UINT64_MAX,
					.mode = 0100644, .uid = UINT32_MAX, .gid = 1000, .mtime_ns = -5,
					.n_holders = 3, .holders = {0, 4095, 17}};
}

/* In memory of exactly its size, for the sanitizer to see what is read beyond. */
static int decode_exact(const void *buf, size_t len, struct directory_value *out)
{
	void *copy = malloc(len ? len : 1);

	memcpy(copy, buf, len);
	int rc = directory_value_decode(copy, len, out);
	free(copy);
	return rc;
}

/* ---- success ---- */

Test(directory_value, of_a_file_comes_back)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	struct directory_value v = file_value(), got;
	size_t len;

	cr_assert_eq(directory_value_encode(&v, buf, &len), 0);
	cr_assert_eq(decode_exact(buf, len, &got), 0);
	cr_expect_eq(got.kind, v.kind);
	cr_expect_eq(got.version, v.version);
	cr_expect_eq(got.object, v.object);
	cr_expect_eq(got.size, v.size);
	cr_expect_eq(got.mode, v.mode);
	cr_expect_eq(got.uid, v.uid);
	cr_expect_eq(got.gid, v.gid);
	cr_expect_eq(got.mtime_ns, v.mtime_ns);
	cr_expect_eq(got.n_holders, 3);
	cr_expect_arr_eq(got.holders, v.holders, sizeof(v.holders));
	cr_expect_null(got.target);
}

Test(directory_value, of_a_usual_file_is_small)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	struct directory_value v = {.kind = DIRECTORY_FILE, .version = 1, .object = 1, .size = 1 << 20, .mode = 0100644,
				    .uid = 1000, .gid = 1000, .mtime_ns = INT64_C(1) << 60, .n_holders = 1};
	size_t len;

	cr_assert_eq(directory_value_encode(&v, buf, &len), 0);
	cr_expect_leq(len, 40);
}

Test(directory_value, of_a_symlink_keeps_its_target)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	char target[DIRECTORY_TARGET_MAX + 2] = {0};
	struct directory_value v = {.kind = DIRECTORY_SYMLINK, .version = 9, .object = 9, .mode = 0120777, .n_holders = 16,
				    .target = target}, got;
	size_t len;

	memset(target, 'x', DIRECTORY_TARGET_MAX);
	cr_assert_eq(directory_value_encode(&v, buf, &len), 0);
	cr_assert_eq(decode_exact(buf, len, &got), 0);
	cr_expect_str_eq(got.target, target);
	cr_expect_eq(got.n_holders, 16);
	directory_value_fini(&got);
	target[DIRECTORY_TARGET_MAX] = 'x';
	cr_expect_eq(directory_value_encode(&v, buf, &len), -EINVAL);
}

Test(directory_value, of_a_tombstone_has_its_time)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	struct directory_value v = {.kind = DIRECTORY_TOMBSTONE,
				    .version = 7,
				    .mtime_ns = INT64_C(4000000000) * 1000000000},
			       got;
	size_t len;

	cr_assert_eq(directory_value_encode(&v, buf, &len), 0);
	cr_expect_eq(len, 14);
	cr_assert_eq(decode_exact(buf, len, &got), 0);
	cr_expect_eq(got.mtime_ns, v.mtime_ns);
	cr_expect_eq(got.n_holders, 0);
}

/* ---- failure ---- */

Test(directory_value, that_breaks_a_rule_is_not_encoded)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	size_t len;
	static char text[] = "x";
	struct directory_value bad[] = {
		{.kind = DIRECTORY_NONE, .version = 1},
		{.kind = DIRECTORY_FILE, .version = 1, .object = 1, .mode = 0100644},
		{.kind = DIRECTORY_FILE, .version = 0, .object = 1, .mode = 0100644, .n_holders = 1},
		{.kind = DIRECTORY_FILE, .version = 1, .object = 1, .mode = 040755, .n_holders = 1},
		{.kind = DIRECTORY_FILE, .version = 1, .object = 1, .mode = 0100644, .n_holders = 1, .holders = {4096}},
		{.kind = DIRECTORY_FILE, .version = 1, .object = 1, .mode = 0100644, .n_holders = 17},
		{.kind = DIRECTORY_FILE, .version = 1, .object = 1, .mode = 0100644, .n_holders = 1, .target = text},
		{.kind = DIRECTORY_DIR, .version = 1, .mode = 040755, .n_holders = 1},
		{.kind = DIRECTORY_SYMLINK, .version = 1, .object = 1, .mode = 0120777, .n_holders = 1},
		{.kind = DIRECTORY_TOMBSTONE, .version = 0},
		{.kind = DIRECTORY_TOMBSTONE, .version = 1, .n_holders = 1},
		{.kind = DIRECTORY_TOMBSTONE, .version = 1, .mtime_ns = -1},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_eq(directory_value_encode(&bad[i], buf, &len), -EINVAL, "row %zu", i);
}

Test(directory_value, cut_short_or_followed_by_more_is_damaged)
{
	uint8_t buf[DIRECTORY_VALUE_MAX];
	struct directory_value v = file_value(), got;
	size_t len;

	cr_assert_eq(directory_value_encode(&v, buf, &len), 0);
	buf[len] = 0;
	for (size_t cut = 0; cut <= len + 1; cut++)
		if (cut != len)
			cr_expect_eq(decode_exact(buf, cut, &got), -EIO, "%zu bytes", cut);
}

Test(directory_value, with_a_number_longer_than_it_need_be_is_damaged)
{
	uint8_t buf[DIRECTORY_VALUE_MAX] = {0, 0, 0, 0, 0, 0, 0, 1, DIRECTORY_FILE, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x80,
					    0x00};
	struct directory_value got;

	cr_expect_eq(decode_exact(buf, 40, &got), -EIO);
}
