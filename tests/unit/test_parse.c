/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/parse.h"

#define UNTOUCHED UINT64_C(0xabcdef)

static void expect_size(const char *text, uint64_t bytes)
{
	uint64_t got = UNTOUCHED;

	cr_expect_eq(parse_size(text, &got), 0, "'%s'", text);
	cr_expect_eq(got, bytes, "'%s' gave %llu", text, (unsigned long long)got);
}

static void expect_size_error(const char *text, int error)
{
	uint64_t got = UNTOUCHED;
	int rc = parse_size(text, &got);

	cr_expect_eq(rc, error, "'%s' gave %d", text, rc);
	cr_expect_eq(got, UNTOUCHED, "'%s' wrote its output", text);
}

Test(parse_size, takes_plain_bytes)
{
	expect_size("0", 0);
	expect_size("1", 1);
	expect_size("4096", 4096);
	expect_size("4096B", 4096);
	expect_size("007", 7);
}

Test(parse_size, takes_powers_of_1024_in_either_case)
{
	expect_size("512K", 512u << 10);
	expect_size("512k", 512u << 10);
	expect_size("64M", UINT64_C(64) << 20);
	expect_size("3G", UINT64_C(3) << 30);
	expect_size("2T", UINT64_C(2) << 40);
	expect_size("1P", UINT64_C(1) << 50);
}

Test(parse_size, takes_the_long_forms_of_a_unit)
{
	expect_size("64MB", UINT64_C(64) << 20);
	expect_size("64MiB", UINT64_C(64) << 20);
	expect_size("64mib", UINT64_C(64) << 20);
}

Test(parse_size, takes_fractions)
{
	expect_size("1.5G", UINT64_C(3) << 29);
	expect_size("0.5K", 512);
}

Test(parse_size, refuses_what_is_no_size)
{
	const char *const bad[] = {"",	  " ",	 " 1",	 "1 ",	 "-1",	   "+1",  "K",
				   ".5K", "1X",	 "1KK",	 "1KX",	 "1.2.3",  "1e3", "0x10",
				   "inf", "nan", "1K 1", "1,5G", "64MiBs", "64iB"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_size_error(bad[i], -EINVAL);
}

Test(parse_size, refuses_what_does_not_fit_63_bits)
{
	expect_size_error("8192P", -ERANGE);
	expect_size_error("9223372036854775808", -ERANGE);
	expect_size_error("99999999999999999999999999", -ERANGE);
	expect_size("8191P", UINT64_C(8191) << 50);
}

static void expect_u64_error(const char *text, uint64_t min, uint64_t max, int error)
{
	uint64_t got = UNTOUCHED;
	int rc = parse_u64(text, min, max, &got);

	cr_expect_eq(rc, error, "'%s' gave %d", text, rc);
	cr_expect_eq(got, UNTOUCHED, "'%s' wrote its output", text);
}

Test(parse_u64, takes_the_whole_range_and_its_ends)
{
	uint64_t got;

	cr_expect_eq(parse_u64("0", 0, UINT64_MAX, &got), 0);
	cr_expect_eq(got, 0);
	cr_expect_eq(parse_u64("18446744073709551615", 0, UINT64_MAX, &got), 0);
	cr_expect_eq(got, UINT64_MAX);
	cr_expect_eq(parse_u64("10", 10, 20, &got), 0);
	cr_expect_eq(got, 10);
	cr_expect_eq(parse_u64("20", 10, 20, &got), 0);
	cr_expect_eq(got, 20);
}

Test(parse_u64, refuses_what_is_out_of_range)
{
	expect_u64_error("9", 10, 20, -ERANGE);
	expect_u64_error("21", 10, 20, -ERANGE);
	expect_u64_error("18446744073709551616", 0, UINT64_MAX, -ERANGE);
}

Test(parse_u64, refuses_what_is_no_number)
{
	const char *const bad[] = {"", " 1", "1 ", "-1", "+1", "1k", "0x10", "one", "1.0"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_u64_error(bad[i], 0, UINT64_MAX, -EINVAL);
}

Test(format_size, picks_the_unit)
{
	static const struct {
		uint64_t bytes;
		char text[16];
	} cases[] = {
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1.0 KiB"},
		{1536, "1.5 KiB"},
		{UINT64_C(64) << 20, "64.0 MiB"},
		{UINT64_C(3) << 40, "3.0 TiB"},
		{UINT64_MAX, "16384.0 PiB"},
	};
	char buf[16];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		cr_expect_str_eq(format_size(cases[i].bytes, buf, sizeof(buf)), cases[i].text);
}

Test(format_size, never_writes_past_its_buffer)
{
	char buf[16];

	memset(buf, '#', sizeof(buf));
	format_size(UINT64_MAX, buf, 5);
	cr_expect_eq(buf[4], '\0');
	cr_expect_eq(buf[5], '#');
}
