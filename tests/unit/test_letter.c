/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/letter.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

static uint8_t buf[LETTER_BYTES_MAX];

static size_t encode(const struct peer_invalidation *v, size_t n)
{
	size_t len;

	cr_assert_eq(letter_encode(v, n, buf, &len), n);
	return len;
}

static int decode_copy(size_t len)
{
	struct peer_invalidation out[PEER_INVALIDATE_MAX];
	uint8_t *copy = malloc(len ? len : 1); /* of that size, for what watches memory */
	size_t n;

	memcpy(copy, buf, len);
	int rc = letter_decode(copy, len, out, &n);
	free(copy);
	return rc;
}

static const struct peer_invalidation two[] = {
	{ "/", "a", UINT64_MAX, true },
	{ "/dir/of it", "name\xff", 1, false },
};

/* ---- success ---- */

Test(letter, comes_back_as_it_was)
{
	struct peer_invalidation out[PEER_INVALIDATE_MAX];
	size_t n, len = encode(two, 2);

	cr_assert_eq(letter_decode(buf, len, out, &n), 0);
	cr_assert_eq(n, 2);
	for (size_t k = 0; k < 2; k++) {
		cr_expect_str_eq(out[k].dir, two[k].dir);
		cr_expect_str_eq(out[k].name, two[k].name);
		cr_expect_eq(out[k].version, two[k].version);
		cr_expect_eq(out[k].is_removed, two[k].is_removed);
	}
}

Test(letter, takes_as_many_of_the_longest_as_fit)
{
	static char dir[PEER_PATH_MAX + 1], name[PEER_NAME_MAX + 1];
	struct peer_invalidation v[PEER_INVALIDATE_MAX], out[PEER_INVALIDATE_MAX];
	size_t n, len;

	memset(dir, 'd', PEER_PATH_MAX);
	for (size_t i = 0; i < PEER_PATH_MAX; i += 200)
		dir[i] = '/';
	memset(name, 'n', PEER_NAME_MAX);
	for (size_t k = 0; k < PEER_INVALIDATE_MAX; k++)
		v[k] = (struct peer_invalidation){ dir, name, k, false };
	size_t n_taken = letter_encode(v, PEER_INVALIDATE_MAX, buf, &len);
	cr_expect(n_taken >= 10 && n_taken < PEER_INVALIDATE_MAX, "%zu", n_taken);
	cr_assert_eq(letter_decode(buf, len, out, &n), 0);
	cr_expect_eq(n, n_taken);
	cr_expect_str_eq(out[n - 1].name, name);
}

/* ---- failure ---- */

Test(letter, cut_short_or_followed_by_more_is_none)
{
	size_t len = encode(two, 2);

	for (size_t k = 0; k < len; k++)
		cr_expect_eq(decode_copy(k), -EPROTO, "%zu of %zu bytes", k, len);
	cr_expect_eq(decode_copy(len), 0);
	cr_expect_eq(decode_copy(len + 1), -EPROTO);
}

Test(letter, of_what_cannot_be_is_none)
{
	const struct peer_invalidation bad[] = {
		{ "", "a", 1, false },	   { "relative", "a", 1, false }, { "/", "", 1, false },
		{ "/", ".", 1, false },	   { "/", "..", 1, false },	  { "/", "a/b", 1, false },
	};

	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		cr_expect_eq(decode_copy(encode(&bad[k], 1)), -EPROTO, "%zu", k);
	size_t len = encode(two, 1);
	buf[0] = LETTER_INVALIDATE + 1;
	cr_expect_eq(decode_copy(len), -EPROTO, "of a later version");
	len = encode(two, 1);
	buf[2] = 0;
	cr_expect_eq(decode_copy(len), -EPROTO, "empty");
	len = encode(two, 1);
	buf[3 + 8] = 2;
	cr_expect_eq(decode_copy(len), -EPROTO, "a flag that is none");
	len = encode(&two[1], 1);
	buf[3 + 12 + 2] = '\0';
	cr_expect_eq(decode_copy(len), -EPROTO, "a text within a text");
}
