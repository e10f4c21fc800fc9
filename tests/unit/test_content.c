/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/content.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

static unsigned char *block(uint64_t id, size_t len)
{
	unsigned char *buf = malloc(len ? len : 1);

	cr_assert(buf);
	content_fill(id, buf, len);
	return buf;
}

/* ---- success ---- */

Test(content, what_was_filled_checks)
{
	static const size_t lengths[] = {0, 1, 8, 23, 24, 25, 32, 4095, 4096, 4097, 8192, 65536};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		unsigned char *buf = block(42, lengths[i]);
		cr_assert_eq(content_check(42, buf, lengths[i]), lengths[i]);
		free(buf);
	}
}

Test(content, works_at_any_alignment)
{
	unsigned char space[5000 + 8];

	for (size_t shift = 0; shift < 8; shift++) {
		content_fill(7, space + shift, 5000);
		cr_assert_eq(content_check(7, space + shift, 5000), 5000);
	}
}

Test(content, writes_no_byte_beyond_the_length)
{
	unsigned char space[4200];

	memset(space, 0xee, sizeof(space));
	content_fill(7, space, 4099);

	for (size_t i = 4099; i < sizeof(space); i++)
		cr_assert_eq(space[i], 0xee);
}

Test(content, begins_with_magic_id_and_length)
{
	unsigned char *buf = block(0x0102, 64);
	static const unsigned char want[24] = {'M', 'C', 'F', 'S', 'B', 'L', 'K', '1', 2, 1, 0, 0,
					       0,   0,	 0,   0,   64,	0,   0,	  0,   0, 0, 0, 0};

	cr_assert_arr_eq(buf, want, sizeof(want));
	free(buf);
}

Test(content, differs_by_id_in_every_page)
{
	unsigned char *first = block(1, 65536), *second = block(2, 65536);

	for (size_t page = 0; page < 65536; page += 4096)
		cr_assert_neq(memcmp(first + page, second + page, 4096), 0);
	free(first);
	free(second);
}

Test(content, repeats_no_page_within_a_block)
{
	unsigned char *buf = block(3, 65536);

	for (size_t page = 4096; page < 65536; page += 4096)
		cr_assert_neq(memcmp(buf, buf + page, 4096), 0);
	free(buf);
}

Test(content, names_are_32_hex_digits_and_differ)
{
	char first[CONTENT_NAME_BYTES], second[CONTENT_NAME_BYTES], again[CONTENT_NAME_BYTES];

	content_name(0, first);
	content_name(1, second);
	content_name(0, again);

	cr_assert_eq(strlen(first), 32);
	cr_assert_eq(strspn(first, "0123456789abcdef"), 32);
	cr_assert_str_neq(first, second);
	cr_assert_str_eq(first, again);
}

/* ---- failure ---- */

Test(content, any_flipped_bit_is_found_at_its_offset)
{
	enum {
		LEN = 9001
	};
	unsigned char *buf = block(99, LEN);

	for (size_t at = 0; at < LEN; at++) {
		unsigned char bit = (unsigned char)(1U << (at % 8));
		buf[at] ^= bit;
		cr_assert_eq(content_check(99, buf, LEN), at);
		buf[at] ^= bit;
	}
	free(buf);
}

Test(content, another_id_is_noticed_in_the_header)
{
	unsigned char *buf = block(1, 4096);

	cr_assert_eq(content_check(2, buf, 4096), 8);
	free(buf);
}

Test(content, another_length_is_noticed_in_the_header)
{
	unsigned char *buf = block(1, 4096);

	cr_assert_eq(content_check(1, buf, 2048), 17);
	free(buf);
}

Test(content, zeros_in_place_of_a_page_are_noticed)
{
	unsigned char *buf = block(5, 16384);

	memset(buf + 8192, 0, 4096);
	size_t at = content_check(5, buf, 16384);

	cr_assert_geq(at, 8192);
	cr_assert_lt(at, 8192 + 8);
	free(buf);
}
