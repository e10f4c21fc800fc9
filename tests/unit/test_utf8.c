/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <criterion/criterion.h>
#include <string.h>

static const char *clean(const char *text)
{
	static char out[64];

	return utf8_clean(text, out, sizeof(out));
}

Test(utf8, leaves_well_formed_text_alone)
{
	static const char *const texts[] = {"",
					    "/mnt/mooncake",
					    "\xc3\xbc",
					    "\xe2\x82\xac",
					    "\xf0\x9f\x8c\x99",
					    "\xed\x9f\xbf",
					    "\xf4\x8f\xbf\xbf",
					    "a\n\t\x7f"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		cr_expect_str_eq(clean(texts[i]), texts[i]);
}

Test(utf8, replaces_what_is_not_a_character)
{
	cr_expect_str_eq(clean("a\xff"
			       "b"),
			 "a?b");
	cr_expect_str_eq(clean("\x80"), "?");
	cr_expect_str_eq(clean("\xc3"), "?");
	cr_expect_str_eq(clean("\xe2\x82"), "??");
	cr_expect_str_eq(clean("\xf0\x9f\x8c"), "???");
	/* Longer than needed, a surrogate, above the last character. */
	cr_expect_str_eq(clean("\xc0\xaf"), "??");
	cr_expect_str_eq(clean("\xe0\x80\xaf"), "???");
	cr_expect_str_eq(clean("\xf0\x80\x80\xaf"), "????");
	cr_expect_str_eq(clean("\xed\xa0\x80"), "???");
	cr_expect_str_eq(clean("\xf4\x90\x80\x80"), "????");
	cr_expect_str_eq(clean("\xf5\x80\x80\x80"), "????");
}

Test(utf8, ends_between_characters_where_the_room_ends)
{
	char out[4];

	cr_expect_str_eq(utf8_clean("ab\xc3\xbc", out, sizeof(out)), "ab");
	cr_expect_str_eq(utf8_clean("a\xc3\xbc"
				    "b",
				    out, sizeof(out)),
			 "a\xc3\xbc");
	cr_expect_str_eq(utf8_clean("abcdef", out, 1), "");
}
