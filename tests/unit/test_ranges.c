/* SPDX-License-Identifier: Apache-2.0 */
/* ranges: against a plain array of flags, and the corners by hand. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "object/ranges.h"

/* ---- helpers ---- */

static void expect_range(const struct ranges *r, size_t k, uint64_t start, uint64_t end)
{
	cr_assert_lt(k, r->n);
	cr_expect_eq(r->v[k].start, start, "range %zu starts at %llu", k,
		     (unsigned long long)r->v[k].start);
	cr_expect_eq(r->v[k].end, end, "range %zu ends at %llu", k,
		     (unsigned long long)r->v[k].end);
}

/* Sorted, disjoint, not touching, total right. */
static void expect_valid(const struct ranges *r)
{
	uint64_t total = 0;

	for (size_t k = 0; k < r->n; k++) {
		cr_assert_lt(r->v[k].start, r->v[k].end);
		if (k)
			cr_assert_gt(r->v[k].start, r->v[k - 1].end);
		total += r->v[k].end - r->v[k].start;
	}
	cr_assert_eq(r->total, total);
}

/* ---- tests ---- */

Test(ranges, sequential_writes_stay_one_range)
{
	struct ranges r = { 0 };

	for (uint64_t k = 0; k < 1000; k++)
		ranges_add(&r, k * 4096, (k + 1) * 4096);
	cr_expect_eq(r.n, 1);
	expect_range(&r, 0, 0, 4096000);
	cr_expect_eq(r.total, 4096000);
	ranges_fini(&r);
}

Test(ranges, backward_writes_stay_one_range)
{
	struct ranges r = { 0 };

	for (uint64_t k = 100; k-- > 0;)
		ranges_add(&r, k * 10, (k + 1) * 10);
	cr_expect_eq(r.n, 1);
	expect_range(&r, 0, 0, 1000);
	ranges_fini(&r);
}

Test(ranges, a_range_over_several_swallows_them)
{
	struct ranges r = { 0 };

	ranges_add(&r, 10, 20);
	ranges_add(&r, 30, 40);
	ranges_add(&r, 50, 60);
	ranges_add(&r, 70, 80);
	ranges_add(&r, 15, 55);
	cr_assert_eq(r.n, 2);
	expect_range(&r, 0, 10, 60);
	expect_range(&r, 1, 70, 80);
	cr_expect_eq(r.total, 60);
	ranges_fini(&r);
}

Test(ranges, touching_ranges_become_one)
{
	struct ranges r = { 0 };

	ranges_add(&r, 10, 20);
	ranges_add(&r, 30, 40);
	ranges_add(&r, 20, 30);
	cr_assert_eq(r.n, 1);
	expect_range(&r, 0, 10, 40);
	ranges_fini(&r);
}

Test(ranges, empty_ranges_are_ignored)
{
	struct ranges r = { 0 };

	ranges_add(&r, 5, 5);
	ranges_add(&r, 9, 3);
	cr_expect_eq(r.n, 0);
	cr_expect_eq(r.total, 0);
	ranges_fini(&r);
}

Test(ranges, cut_forgets_what_is_behind)
{
	struct ranges r = { 0 };

	ranges_add(&r, 10, 20);
	ranges_add(&r, 30, 40);
	ranges_cut(&r, 35);
	expect_range(&r, 1, 30, 35);
	ranges_cut(&r, 30);
	cr_expect_eq(r.n, 1, "a range that starts at the cut goes");
	ranges_cut(&r, 20);
	expect_range(&r, 0, 10, 20);
	ranges_cut(&r, 0);
	cr_expect_eq(r.n, 0);
	cr_expect_eq(r.total, 0);
	ranges_fini(&r);
}

Test(ranges, next_walks_covered_and_missing_pieces)
{
	struct ranges r = { 0 };
	uint64_t end;

	ranges_add(&r, 10, 20);
	ranges_add(&r, 30, 40);
	cr_expect_not(ranges_next(&r, 0, 100, &end));
	cr_expect_eq(end, 10);
	cr_expect(ranges_next(&r, 10, 100, &end));
	cr_expect_eq(end, 20);
	cr_expect_not(ranges_next(&r, 20, 100, &end), "the byte at an end is not covered");
	cr_expect_eq(end, 30);
	cr_expect(ranges_next(&r, 35, 38, &end));
	cr_expect_eq(end, 38);
	cr_expect_not(ranges_next(&r, 40, 100, &end));
	cr_expect_eq(end, 100);
	cr_expect_eq(ranges_missing(&r, 0, 100), 80);
	cr_expect_eq(ranges_missing(&r, 12, 18), 0);
	cr_expect_eq(ranges_missing(&r, 15, 35), 10);
	ranges_fini(&r);
}

enum { N = 200 };

static void compare(const struct ranges *r, const bool *flags)
{
	uint64_t missing = 0, end;

	expect_valid(r);
	for (uint64_t at = 0; at < N; at++) {
		cr_assert_eq(ranges_next(r, at, N, &end), flags[at], "byte %d", (int)at);
		missing += !flags[at];
		for (uint64_t k = at; k < end; k++)
			cr_assert_eq(flags[k], flags[at], "piece from %d to %d", (int)at, (int)end);
		cr_assert(end == N || flags[end] != flags[at], "piece from %d ends early", (int)at);
	}
	cr_assert_eq(ranges_missing(r, 0, N), missing);
}

Test(ranges, agrees_with_an_array_of_flags)
{
	for (unsigned int seed = 1; seed <= 40; seed++) {
		struct ranges r = { 0 };
		bool flags[N] = { false };
		for (int step = 0; step < 60; step++) {
			uint64_t a = (uint64_t)rand_r(&seed) % N;
			uint64_t b = (uint64_t)rand_r(&seed) % 30 + a;
			b = b < N ? b : N;
			if (rand_r(&seed) % 10 == 0) {
				ranges_cut(&r, a);
				memset(flags + a, 0, N - a);
			} else {
				ranges_add(&r, a, b);
				memset(flags + a, 1, b - a);
			}
			compare(&r, flags);
		}
		ranges_fini(&r);
	}
}
