/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"
#include "cli/text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

static const struct table_column columns[] = {
	{.title = "NAME", .is_elastic = true},
	{.title = "SIZE", .is_right = true},
	{.title = "NOTE"},
};

/* What the table prints, to be freed; the table is destroyed. */
static char *printed(struct table *t, size_t limit)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	cr_assert(out);
	table_print(t, out, limit);
	fclose(out);
	table_destroy(t);
	return text;
}

/* ---- success ---- */

Test(table, aligns_text_left_and_numbers_right)
{
	struct table *t = table_create(columns, 3);

	cr_assert(t);
	table_row(t, "a", "1", "x");
	table_row(t, "long name", "12,345", "yy");
	char *text = printed(t, 0);

	cr_assert_str_eq(text, "NAME         SIZE  NOTE\n"
			       "a               1  x\n"
			       "long name  12,345  yy\n");
	free(text);
}

Test(table, leaves_no_blanks_at_line_ends)
{
	struct table *t = table_create(columns, 3);

	cr_assert(t);
	table_row(t, "a", "1", "");
	table_row(t, "b", "", "");
	char *text = printed(t, 0);

	cr_assert_null(strstr(text, " \n"));
	free(text);
}

Test(table, without_titles_has_no_header)
{
	static const struct table_column plain[] = {{0}, {.is_right = true}};
	struct table *t = table_create(plain, 2);

	cr_assert(t);
	table_row(t, "hits", "7");
	char *text = printed(t, 0);

	cr_assert_str_eq(text, "hits  7\n");
	free(text);
}

Test(table, shows_a_missing_cell_as_a_dash)
{
	struct table *t = table_create(columns, 3);

	cr_assert(t);
	table_row(t, "a", NULL, NULL);
	char *text = printed(t, 0);

	cr_assert_str_eq(text, "NAME  SIZE  NOTE\na        -  -\n");
	free(text);
}

Test(table, cuts_the_elastic_column_to_the_limit)
{
	struct table *t = table_create(columns, 3);
	char path[200];

	cr_assert(t);
	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[198] = 'e';
	path[199] = '\0';
	table_row(t, path, "1", "x");
	char *text = printed(t, 80);
	char *row = strchr(text, '\n') + 1;

	cr_assert_eq(strlen(row), 80 - strlen("NOTE") + strlen("x") + 1);
	cr_assert_eq(row[0], '/');
	cr_assert(strstr(row, "ppp...ppp"));
	cr_assert(strstr(row, "pe     1  x\n"));
	free(text);
}

Test(table, counts_characters_not_bytes)
{
	struct table *t = table_create(columns, 3);

	cr_assert(t);
	table_row(t, "\xc3\xa9\xc3\xa9", "1", "x");
	table_row(t, "ab", "1", "x");
	char *text = printed(t, 0);

	cr_assert_str_eq(text, "NAME  SIZE  NOTE\n"
			       "\xc3\xa9\xc3\xa9       1  x\n"
			       "ab       1  x\n");
	free(text);
}

Test(table, makes_control_characters_harmless)
{
	struct table *t = table_create(columns, 3);

	cr_assert(t);
	table_row(t, "a\033[2J\n\tb", "1", "x");
	char *text = printed(t, 0);

	cr_assert(strstr(text, "a?[2J??b"));
	free(text);
}

Test(table, cuts_nothing_when_no_column_may_be)
{
	static const struct table_column stiff[] = {{.title = "A"}};
	struct table *t = table_create(stiff, 1);

	cr_assert(t);
	table_row(t, "longer than the limit");
	char *text = printed(t, 10);

	cr_assert_str_eq(text, "A\nlonger than the limit\n");
	free(text);
}

Test(text, counts_have_separators)
{
	char buf[TEXT_BYTES];

	cr_assert_str_eq(text_count(0, buf), "0");
	cr_assert_str_eq(text_count(999, buf), "999");
	cr_assert_str_eq(text_count(1000, buf), "1,000");
	cr_assert_str_eq(text_count(UINT64_MAX, buf), "18,446,744,073,709,551,615");
}

Test(text, latencies_and_durations_pick_their_unit)
{
	char buf[TEXT_BYTES];

	cr_assert_str_eq(text_latency(1500, buf), "1.5 us");
	cr_assert_str_eq(text_latency(2345678, buf), "2.35 ms");
	cr_assert_str_eq(text_latency(UINT64_C(61000000000), buf), "61.00 s");
	cr_assert_str_eq(text_duration(59.9, buf), "59 s");
	cr_assert_str_eq(text_duration(184, buf), "3 min 04 s");
	cr_assert_str_eq(text_duration(7500, buf), "2 h 05 min");
	cr_assert_str_eq(text_duration(-1, buf), "0 s");
	cr_assert_str_eq(text_percent(1, 0, buf), "-");
	cr_assert_str_eq(text_percent(1, 3, buf), "33.33 %");
}

Test(text, json_takes_any_file_name)
{
	json_t *plain = text_json("\xc3\xa9"), *odd = text_json("a\xff");

	cr_assert_str_eq(json_string_value(plain), "\xc3\xa9");
	cr_assert_str_eq(json_string_value(odd), "a\\xff");
	json_decref(plain);
	json_decref(odd);
}
