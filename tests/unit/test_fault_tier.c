/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_tier: delays and failures as asked, and what failures leave behind: whichever call of a
 * frame's life fails, the books are balanced afterwards.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "lib/tier_test.h"

/* ---- fixture ---- */

static struct tier_box box;

static void setup(void)
{
	cr_assert_null(tier_box_open(&box, TIER_FAULT, MIB(16)));
}

static void teardown(void)
{
	tier_box_close(&box);
}

TestSuite(fault_tier, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* A draft until it is sealed; a failure throws it away. */
static int write_object(uint64_t size, struct sealed *out)
{
	static const char bytes[8192] = "object";
	struct frame f = FRAME_NONE;
	int rc = tier_call(box.t, take, size, &f);

	if (rc)
		return rc;
	struct sealed s = {.id = f.id, .size = size};
	rc = tier_call(box.t, charge, &f, size);
	for (uint64_t off = 0; !rc && off < size; off += sizeof(bytes))
		rc = tier_call(box.t, write, &f, bytes, sizeof(bytes), off);
	if (!rc)
		rc = tier_call(box.t, zero, &f, size / 2, 100);
	if (!rc)
		rc = tier_call(box.t, resize, &f, size);
	if (!rc)
		rc = tier_call(box.t, sync, &f);
	if (!rc)
		rc = tier_call(box.t, seal, &f, &s.charge);
	if (rc) {
		tier_call(box.t, discard, &f);
		return rc;
	}
	*out = s;
	return 0;
}

static int read_object(struct sealed s)
{
	char buf[64];
	int fd = tier_call(box.t, open, s.id);

	if (fd < 0)
		return fd;
	struct frame view = {.id = s.id, .fd = fd, .size_bytes = s.size};
	int rc = tier_call(box.t, read, &view, buf, sizeof(buf), 0);
	close(fd);
	return rc;
}

/* Three objects live, and die. Returns the first error met. */
static int live(void)
{
	int first_rc = 0;

	for (int i = 0; i < 3; i++) {
		struct sealed s;
		int rc = write_object(KIB(20) + 1, &s);
		if (!rc) {
			rc = read_object(s);
			tier_call(box.t, drop, s.id, s.size, s.charge);
		}
		if (rc && !first_rc)
			first_rc = rc;
	}
	return first_rc;
}

/* ---- tests ---- */

Test(fault_tier, passes_on_and_counts)
{
	cr_expect_eq(live(), 0);
	cr_expect_eq(fault_tier_calls(box.t, FAULT_take), 3);
	cr_expect_eq(fault_tier_calls(box.t, FAULT_write), 9);
	cr_expect_eq(fault_tier_calls(box.t, FAULT_seal), 3);
	cr_expect_str_eq(fault_op_name(FAULT_remove_orphan), "remove_orphan");
	cr_expect_str_eq(fault_tier_inner(box.t)->ops->name, "dram");
}

Test(fault_tier, fails_the_nth_call_and_no_other)
{
	struct frame f = FRAME_NONE;

	fault_tier_fail(box.t, FAULT_take, 2, EMFILE);
	cr_expect_eq(tier_call(box.t, take, 0, &f), 0);
	tier_call(box.t, discard, &f);
	cr_expect_eq(tier_call(box.t, take, 0, &f), -EMFILE);
	cr_expect_eq(f.id, 0, "nothing written");
	cr_expect_eq(tier_call(box.t, take, 0, &f), 0);
	tier_call(box.t, discard, &f);
	fault_tier_fail(box.t, FAULT_take, 1, EIO);
	fault_tier_fail(box.t, FAULT_take, 0, 0);
	cr_expect_eq(tier_call(box.t, take, 0, &f), 0, "taken back");
	tier_call(box.t, discard, &f);
}

Test(fault_tier, waits_as_long_as_told)
{
	struct frame f = FRAME_NONE;
	int64_t start = now_ns();

	fault_tier_delay(box.t, FAULT_take, 20000000);
	cr_expect_eq(tier_call(box.t, take, 0, &f), 0);
	cr_expect_geq(now_ns() - start, 20000000);
	fault_tier_delay(box.t, FAULT_take, 0);
	tier_call(box.t, discard, &f);
}

Test(fault_tier, any_failure_leaves_the_books_balanced)
{
	for (enum fault_op op = FAULT_take; op <= FAULT_open; op++) {
		uint64_t before = fault_tier_calls(box.t, op);
		cr_assert_eq(live(), 0);
		uint64_t n_calls = fault_tier_calls(box.t, op) - before;
		cr_assert_gt(n_calls, 0, "%s", fault_op_name(op));
		for (uint64_t nth = 1; nth <= n_calls; nth++) {
			fault_tier_fail(box.t, op, nth, ENOSPC);
			cr_expect_eq(live(), -ENOSPC, "%s %d", fault_op_name(op), (int)nth);
			struct tier_stats stats = tier_box_stats(&box);
			cr_expect_eq(stats.n_open, 0);
			cr_expect_eq(stats.n_sealed, 0);
			cr_expect_eq(stats.n_zombies, 0);
			cr_expect_eq(stats.used_bytes, stats.free_list_bytes);
		}
	}
	tier_call(box.t, reclaim, 0);
	cr_expect_eq(tier_box_stats(&box).used_bytes, 0);
	cr_expect_eq(tier_box_stats(&box).n_free_list, 0);
}

static void *live_often(void *arg)
{
	for (int i = 0; i < 50; i++)
		live();
	return NULL;
}

Test(fault_tier, threads_and_faults_leave_the_books_balanced)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, live_often, NULL), 0);
	for (int i = 0; i < 200; i++) {
		fault_tier_fail(box.t, (enum fault_op)(i % (FAULT_open + 1)), 3, EIO);
		tier_call(box.t, reclaim, KIB(32));
		usleep(200);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	struct tier_stats stats = tier_box_stats(&box);
	cr_expect_eq(stats.n_open, 0);
	cr_expect_eq(stats.n_sealed, 0);
	tier_call(box.t, reclaim, 0);
	cr_expect_eq(tier_box_stats(&box).used_bytes, 0);
}
