/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latency.h"

#include <criterion/criterion.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>

/* ---- helpers ---- */

static struct latency read_of(enum latency_op op)
{
	struct latency l;

	latency_read(op, &l);
	return l;
}

static void *record_many(void *arg)
{
	for (int i = 1; i <= 50000; i++)
		latency_record(FUSE_WRITE, i);
	return NULL;
}

/* ---- buckets ---- */

Test(latency, buckets_follow_one_another_and_hold_their_upper_bound)
{
	for (unsigned b = 0; b + 1 < LATENCY_BUCKETS; b++) {
		uint64_t end = latency_bucket_end_ns(b);
		cr_assert_eq(latency_bucket_of(end), b, "end %llu", (unsigned long long)end);
		cr_assert_eq(latency_bucket_of(end + 1), b + 1, "after %llu",
			     (unsigned long long)end);
		cr_assert_lt(end, latency_bucket_end_ns(b + 1));
	}
	cr_assert_eq(latency_bucket_of(0), 0);
	cr_assert_eq(latency_bucket_of(UINT64_MAX), LATENCY_BUCKETS - 1);
	cr_assert_eq(latency_bucket_end_ns(LATENCY_BUCKETS - 1), UINT64_MAX);
}

Test(latency, buckets_end_at_every_power_of_two)
{
	for (unsigned bits = LATENCY_FIRST_BITS; bits <= LATENCY_LAST_BITS; bits++) {
		unsigned b = latency_bucket_of(UINT64_C(1) << bits);
		cr_assert_eq(latency_bucket_end_ns(b), UINT64_C(1) << bits);
	}
}

Test(latency, buckets_are_at_most_a_fourth_of_their_lower_bound_wide)
{
	for (unsigned b = 1; b + 1 < LATENCY_BUCKETS; b++) {
		uint64_t low = latency_bucket_end_ns(b - 1), high = latency_bucket_end_ns(b);
		cr_assert_leq((high - low) * 4, low);
	}
}

/* ---- recording ---- */

Test(latency, counts_by_operation)
{
	latency_record(FUSE_LOOKUP, 1000);
	latency_record(FUSE_LOOKUP, 3000);
	latency_record(FUSE_READ, 5);

	struct latency l = read_of(LATENCY_lookup);
	cr_assert_eq(l.count, 2);
	cr_assert_eq(l.sum_ns, 4000);
	cr_assert_eq(l.buckets[latency_bucket_of(1000)], 1);
	cr_assert_eq(l.buckets[latency_bucket_of(3000)], 1);
	cr_assert_eq(read_of(LATENCY_read).count, 1);
	cr_assert_eq(read_of(LATENCY_write).count, 0);
}

Test(latency, takes_any_opcode_and_any_duration)
{
	latency_record(0, 1);
	latency_record(UINT32_MAX, INT64_MAX);
	latency_record(CUSE_INIT, 1);
	latency_record(FUSE_GETATTR, -5);
	latency_record(FUSE_GETATTR, INT64_MIN);

	cr_assert_eq(read_of(LATENCY_other).count, 3);
	cr_assert_eq(read_of(LATENCY_other).buckets[LATENCY_BUCKETS - 1], 1);
	cr_assert_eq(read_of(LATENCY_getattr).count, 2);
	cr_assert_eq(read_of(LATENCY_getattr).sum_ns, 0);
}

Test(latency, puts_both_forms_of_an_operation_together)
{
	cr_assert_eq(latency_op_of(FUSE_RENAME), latency_op_of(FUSE_RENAME2));
	cr_assert_eq(latency_op_of(FUSE_FORGET), latency_op_of(FUSE_BATCH_FORGET));
	cr_assert_eq(latency_op_of(FUSE_SETLK), latency_op_of(FUSE_SETLKW));
	cr_assert_str_eq(latency_name(latency_op_of(FUSE_COPY_FILE_RANGE)), "copy_file_range");
}

Test(latency, loses_nothing_between_more_threads_than_shards)
{
	enum {
		N = 40
	};
	pthread_t threads[N];

	for (int i = 0; i < N; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, record_many, NULL), 0);
	for (int i = 0; i < N; i++)
		pthread_join(threads[i], NULL);

	struct latency l = read_of(LATENCY_write);
	cr_assert_eq(l.count, N * UINT64_C(50000));
	cr_assert_eq(l.sum_ns, N * (UINT64_C(50000) * 50001 / 2));
}

/* ---- quantiles ---- */

Test(latency, quantile_of_nothing_is_zero)
{
	struct latency l = {0};

	cr_assert_eq(latency_quantile_ns(&l, 0.5), 0);
}

Test(latency, quantiles_are_within_a_bucket_of_the_truth)
{
	for (int i = 1; i <= 10000; i++)
		latency_record(FUSE_OPEN, i * 100);

	struct latency l = read_of(LATENCY_open);
	for (int percent = 1; percent <= 99; percent++) {
		double truth = percent * 10000.0, have = latency_quantile_ns(&l, percent / 100.0);
		cr_assert_eq(latency_bucket_of((uint64_t)have), latency_bucket_of((uint64_t)truth),
			     "p%d: %f, %f", percent, have, truth);
	}
	cr_assert_leq(latency_quantile_ns(&l, 0), 256);
	cr_assert_geq(latency_quantile_ns(&l, 1), 1e6);
}

Test(latency, quantile_of_the_endless_bucket_is_its_lower_end)
{
	latency_record(FUSE_FLUSH, INT64_MAX);

	struct latency l = read_of(LATENCY_flush);
	cr_assert_eq(latency_quantile_ns(&l, 0.5), (double)(UINT64_C(1) << LATENCY_LAST_BITS));
}
