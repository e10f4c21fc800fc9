/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

/* Bit by bit, from the polynomial in RFC 3720. */
static uint32_t reference(const unsigned char *p, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void fill(unsigned char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 131 + (i >> 8) * 17 + 5);
}

Test(crc, of_the_standard_check_string)
{
	cr_expect_eq(crc32c(0, "123456789", 9), 0xe3069283);
}

/* RFC 3720, section B.4. */
Test(crc, of_the_rfc_examples)
{
	unsigned char buf[32];

	memset(buf, 0, sizeof(buf));
	cr_expect_eq(crc32c(0, buf, sizeof(buf)), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	cr_expect_eq(crc32c(0, buf, sizeof(buf)), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		buf[i] = (unsigned char)i;
	cr_expect_eq(crc32c(0, buf, sizeof(buf)), 0x46dd794e);
	for (int i = 0; i < 32; i++)
		buf[i] = (unsigned char)(31 - i);
	cr_expect_eq(crc32c(0, buf, sizeof(buf)), 0x113fdb5c);
}

Test(crc, of_nothing_is_zero_and_changes_nothing)
{
	cr_expect_eq(crc32c(0, "", 0), 0);
	cr_expect_eq(crc32c(0, NULL, 0), 0);
	cr_expect_eq(crc32c(0x12345678, NULL, 0), 0x12345678);
}

Test(crc, agrees_with_the_polynomial_at_every_length_and_alignment)
{
	unsigned char buf[1024 + 16];

	fill(buf, sizeof(buf));
	for (size_t len = 0; len <= 1024; len++)
		cr_assert_eq(crc32c(0, buf + len % 16, len), reference(buf + len % 16, len),
			     "length %zu", len);
}

Test(crc, chains_at_every_split)
{
	unsigned char buf[600];

	fill(buf, sizeof(buf));
	uint32_t whole = crc32c(0, buf, sizeof(buf));
	for (size_t split = 0; split <= sizeof(buf); split++)
		cr_assert_eq(crc32c(crc32c(0, buf, split), buf + split, sizeof(buf) - split), whole,
			     "split at %zu", split);
}

Test(crc, of_a_mebibyte_at_once_and_in_pieces)
{
	size_t len = 1u << 20, step = 4093;
	unsigned char *buf = malloc(len);
	uint32_t crc = 0;

	cr_assert_not_null(buf);
	fill(buf, len);
	for (size_t at = 0; at < len; at += step)
		crc = crc32c(crc, buf + at, len - at < step ? len - at : step);
	cr_expect_eq(crc32c(0, buf, len), crc);
	cr_expect_eq(crc, reference(buf, len));
	free(buf);
}
