/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/histogram.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- fixture ---- */

static struct histogram *h;

static void setup(void)
{
	h = calloc(1, sizeof(*h));
	cr_assert(h);
}

static void teardown(void)
{
	free(h);
}

TestSuite(histogram, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static double relative_error(uint64_t have, uint64_t want)
{
	double difference = have > want ? (double)(have - want) : (double)(want - have);

	return want ? difference / (double)want : difference;
}

/* ---- success ---- */

Test(histogram, of_nothing_answers_zero)
{
	cr_assert_eq(histogram_quantile(h, 0.5), 0);
	cr_assert_eq(histogram_quantile(h, 1), 0);
	cr_assert_eq(h->n, 0);
}

Test(histogram, one_value_is_every_quantile)
{
	histogram_add(h, 123456789);

	cr_assert_eq(histogram_quantile(h, 0), 123456789);
	cr_assert_eq(histogram_quantile(h, 0.5), 123456789);
	cr_assert_eq(histogram_quantile(h, 0.99), 123456789);
	cr_assert_eq(histogram_quantile(h, 1), 123456789);
}

Test(histogram, small_values_are_exact)
{
	for (uint64_t value = 0; value < 100; value++)
		histogram_add(h, value);

	cr_assert_eq(histogram_quantile(h, 0.5), 49);
	cr_assert_eq(histogram_quantile(h, 0.99), 98);
	cr_assert_eq(h->min, 0);
	cr_assert_eq(h->max, 99);
	cr_assert_eq(h->sum, 4950);
}

Test(histogram, every_value_is_found_within_one_percent)
{
	/* Two neighbours far apart keep min and max from hiding the bucket's own error. */
	for (unsigned bit = 0; bit < 64; bit++) {
		for (unsigned step = 0; step < 64; step++) {
			uint64_t value = (UINT64_C(1) << bit) + ((UINT64_C(1) << bit) >> 6) * step;
			*h = (struct histogram){0};
			histogram_add(h, 0);
			histogram_add(h, value);
			histogram_add(h, UINT64_MAX);
			cr_assert_lt(relative_error(histogram_quantile(h, 0.5), value), 0.01,
				     "value %lu", (unsigned long)value);
		}
	}
}

Test(histogram, quantiles_agree_with_sorted_values)
{
	enum {
		N = 20000
	};
	static const double shares[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999};
	uint64_t *values = calloc(N, sizeof(*values));
	uint64_t state = 1;

	cr_assert(values);
	for (size_t i = 0; i < N; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		values[i] = (state >> 20) >> (state >> 59); /* some twelve orders of magnitude */
		histogram_add(h, values[i]);
	}
	qsort(values, N, sizeof(*values), compare);

	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		uint64_t want = values[(size_t)(shares[i] * N + 0.5) - 1];
		cr_assert_lt(relative_error(histogram_quantile(h, shares[i]), want), 0.01,
			     "share %g", shares[i]);
	}
	cr_assert_eq(histogram_quantile(h, 0), values[0]);
	cr_assert_eq(histogram_quantile(h, 1), values[N - 1]);
	free(values);
}

Test(histogram, merge_equals_adding_all_to_one)
{
	struct histogram *even = calloc(1, sizeof(*even));
	struct histogram *odd = calloc(1, sizeof(*odd));

	cr_assert(even && odd);
	for (uint64_t i = 0; i < 5000; i++) {
		histogram_add(h, i * i + 7);
		histogram_add(i % 2 ? odd : even, i * i + 7);
	}
	histogram_merge(even, odd);

	cr_assert_arr_eq((const unsigned char *)even, (const unsigned char *)h, sizeof(*h));
	free(even);
	free(odd);
}

Test(histogram, merge_of_nothing_changes_nothing)
{
	struct histogram *empty = calloc(1, sizeof(*empty));

	cr_assert(empty);
	histogram_add(h, 50);
	histogram_merge(h, empty);
	histogram_merge(empty, h);

	cr_assert_eq(h->min, 50);
	cr_assert_eq(h->n, 1);
	cr_assert_eq(empty->min, 50);
	free(empty);
}

/* ---- failure ---- */

Test(histogram, takes_shares_out_of_range_as_the_nearer_end)
{
	histogram_add(h, 10);
	histogram_add(h, 20);

	cr_assert_eq(histogram_quantile(h, -1), 10);
	cr_assert_eq(histogram_quantile(h, 7), 20);
	cr_assert_eq(histogram_quantile(h, __builtin_nan("")), 10);
}
