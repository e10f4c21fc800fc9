/* SPDX-License-Identifier: Apache-2.0 */
/* What mooncakectl top makes of two readings, and how it lays it out. */
#include "cli/text_table.h"
#include "cli/top.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- fixture ---- */

static json_t *before, *now;
static struct top_round r;

static json_t *reading(int pid, double uptime_s, const char *latency, const char *counters)
{
	json_t *status = json_pack(
		"{s:s, s:i, s:s, s:f, s:[{s:s, s:I, s:I, s:I, s:I, s:I}, {s:s, s:I, s:I, s:I, s:I, s:I}],"
		" s:{s:I}, s:{s:i}, s:{s:f, s:I, s:i, s:i}, s:{s:{s:I, s:I}}, s:o, s:o}",
		"version", "1.2.3", "pid", pid, "node", "node-with-a-name", "uptime_s", uptime_s, "tiers",
		"name", "dram", "budget_bytes", (json_int_t)64 << 30, "used_bytes", (json_int_t)63 << 30,
		"free_list_bytes", (json_int_t)1023 << 20, "zombie_bytes", (json_int_t)1023 << 20,
		"objects", (json_int_t)12345678, "name", "ssd", "budget_bytes", (json_int_t)999 << 40,
		"used_bytes", (json_int_t)99 << 40, "free_list_bytes", (json_int_t)0, "zombie_bytes",
		(json_int_t)0, "objects", (json_int_t)123456789, "objects", "count",
		(json_int_t)123456789, "drafts", "open", 1234, "process", "cpu_s", uptime_s / 2,
		"rss_bytes", (json_int_t)1023 << 20, "threads", 1024, "open_fds", 123456, "residency",
		"writeback_queue", "objects", (json_int_t)1234567, "bytes", (json_int_t)1023 << 30, "latency",
		json_loads(latency, 0, NULL), "counters", json_loads(counters, 0, NULL));

	cr_assert(status);
	return status;
}

static void setup(void)
{
	before = reading(7, 100,
			 "{\"read\": {\"count\": 3, \"sum_ns\": 3000, \"buckets\": [[1024, 3]]},"
			 " \"open\": {\"count\": 9, \"sum_ns\": 9000, \"buckets\": [[1024, 9]]}}",
			 "{\"lookups\": 100, \"lookup_misses\": 50, \"read_bytes\": 0, \"opens\": 9,"
			 " \"publishes\": 4}");
	now = reading(7, 102,
		      "{\"read\": {\"count\": 13, \"sum_ns\": 43000, \"buckets\": [[1024, 3], [4096, 9],"
		      " [null, 1]]},"
		      " \"open\": {\"count\": 9, \"sum_ns\": 9000, \"buckets\": [[1024, 9]]},"
		      " \"copy_file_range\": {\"count\": 2000000, \"sum_ns\": 9000,"
		      " \"buckets\": [[60000000000, 2000000]]}}",
		      "{\"lookups\": 300, \"lookup_misses\": 100, \"read_bytes\": 4000000000,"
		      " \"opens\": 9, \"publishes\": 12345678}");
}

static void teardown(void)
{
	json_decref(before);
	json_decref(now);
}

TestSuite(top, .init = setup, .fini = teardown);

static char *view(size_t columns, size_t rows)
{
	char *text = top_view(&r, columns, rows);

	cr_assert(text);
	return text;
}

/* ---- rounds ---- */

Test(top, rates_are_differences_by_the_daemons_clock)
{
	top_round_take(&r, "/m", before, now);

	cr_assert(r.has_rates && !r.is_restarted);
	cr_assert_float_eq(r.seconds, 2, 1e-9);
	cr_assert_float_eq(top_counter_rate(&r, "read_bytes"), 2e9, 1);
	cr_assert_float_eq(top_counter_rate(&r, "lookups"), 100, 1e-6);
	cr_assert_float_eq(top_counter_rate(&r, "opens"), 0, 1e-9);
	cr_assert_float_eq(top_lookup_hit_share(&r), 0.75, 1e-9);
	cr_assert_float_eq(r.cpu_share, 0.5, 1e-9);
}

Test(top, quantiles_are_those_of_the_round_alone)
{
	top_round_take(&r, "/m", before, now);

	cr_assert_eq(r.n_ops, 2, "an operation that nobody asked for is left out");
	cr_assert_str_eq(r.ops[0].name, "copy_file_range");
	cr_assert_str_eq(r.ops[1].name, "read");
	cr_assert_float_eq(r.ops[1].per_s, 5, 1e-9);
	cr_assert_float_eq(r.ops[1].mean_ns, 4000, 1e-6);
	cr_assert(r.ops[1].p50_ns > 3072 && r.ops[1].p50_ns <= 4096, "%f", r.ops[1].p50_ns);
	cr_assert(r.ops[1].p99_ns > 6e10, "%f", r.ops[1].p99_ns);
	cr_assert_float_eq(r.requests_per_s, 1000005, 1e-6);
}

Test(top, counters_that_moved_come_fastest_first_and_bytes_last)
{
	top_round_take(&r, "/m", before, now);

	cr_assert_eq(r.n_counters, 4);
	cr_assert_str_eq(r.counters[0].name, "publishes");
	cr_assert_str_eq(r.counters[3].name, "read_bytes");
}

Test(top, the_first_reading_has_no_rates)
{
	top_round_take(&r, "/m", NULL, now);

	cr_assert(!r.has_rates && !r.is_restarted);
	cr_assert_eq(r.n_ops + r.n_counters, 0);
	cr_assert_float_eq(top_lookup_hit_share(&r), -1, 1e-9);
}

Test(top, another_daemon_is_no_difference)
{
	json_object_set_new(now, "pid", json_integer(8));
	top_round_take(&r, "/m", before, now);
	cr_assert(r.is_restarted && !r.has_rates);

	/* The same pid again, in a container, but younger. */
	json_object_set_new(now, "pid", json_integer(7));
	json_object_set_new(now, "uptime_s", json_real(1));
	top_round_take(&r, "/m", before, now);
	cr_assert(r.is_restarted && !r.has_rates);
}

Test(top, a_daemon_that_tells_nothing_is_shown_all_the_same)
{
	json_t *empty = json_object(), *older = json_pack("{s:f}", "uptime_s", -1.0);

	top_round_take(&r, "/m", older, empty);
	free(view(80, 24));
	json_t *object = top_json(&r);
	cr_assert(object);
	json_decref(object);
	json_decref(empty);
	json_decref(older);
}

/* ---- view ---- */

Test(top, no_line_is_wider_than_asked_at_any_width)
{
	for (int has_rates = 0; has_rates <= 1; has_rates++) {
		top_round_take(&r, "/mnt/a/rather/long/path/to/a/mount/point/of/this/node",
			       has_rates ? before : NULL, now);
		r.silent_s = 12345;
		for (size_t columns = TOP_MIN_COLUMNS; columns <= 220; columns++) {
			char *text = view(columns, 0);
			cr_assert_leq(text_widest_line(text), columns, "%zu:\n%s", columns, text);
			free(text);
		}
	}
}

Test(top, no_view_has_more_lines_than_rows)
{
	top_round_take(&r, "/m", before, now);
	for (size_t columns = TOP_MIN_COLUMNS; columns <= 220; columns += 47) {
		char *all = view(columns, 0);
		for (size_t rows = 20; rows <= 40; rows++) {
			char *text = view(columns, rows);
			cr_assert_leq(text_lines(text), rows, "%zu by %zu:\n%s", columns, rows, text);
			if (text_lines(all) <= rows)
				cr_assert_str_eq(text, all);
			free(text);
		}
		free(all);
	}
}

Test(top, narrow_views_leave_columns_out_and_keep_numbers_whole)
{
	top_round_take(&r, "/m", before, now);

	char *narrow = view(40, 0), *wide = view(200, 0);
	cr_expect(strstr(narrow, "1,000,000"), "%s", narrow);
	cr_expect(strstr(narrow, "P50") && !strstr(narrow, "MEAN"), "%s", narrow);
	cr_expect(strstr(narrow, "63.0 GiB") && !strstr(narrow, "ZOMBIE"), "%s", narrow);
	cr_expect(strstr(narrow, "98 %"), "%s", narrow);
	cr_expect(strstr(wide, "MEAN") && strstr(wide, "ZOMBIE"), "%s", wide);
	/* Operations and counters share their lines where there is room. */
	cr_expect_lt(text_lines(wide), text_lines(narrow));
	free(narrow);
	free(wide);
}

Test(top, shows_what_matters)
{
	top_round_take(&r, "/mnt/m", before, now);

	char *text = view(80, 0);
	cr_expect(strstr(text, "/mnt/m"));
	cr_expect(strstr(text, "read 2.00 GB/s"), "%s", text);
	cr_expect(strstr(text, "found 75.0 %"), "%s", text);
	cr_expect(strstr(text, "lookups 100/s"), "%s", text);
	cr_expect(strstr(text, "cpu 50 %"), "%s", text);
	cr_expect(strstr(text, "write-back queue 1,234,567") && strstr(text, "queued 1023.0 GiB"), "%s", text);
	cr_expect(!strstr(text, "NO ANSWER"));
	free(text);
	r.silent_s = 3;
	text = view(80, 0);
	cr_expect(strstr(text, "NO ANSWER for 3 s"), "%s", text);
	free(text);
}
