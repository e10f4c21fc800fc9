/* SPDX-License-Identifier: Apache-2.0 */
/* writeback: DRAM spills to the ssd ahead of need, nothing is lost on the way, and what moves is right. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "fakes/fault_tier.h"
#include "lib/fs_box.h"
#include "object/durable.h"
#include "object/residency.h"
#include "object/writeback.h"

#define MIB(n) ((size_t)(n) << 20)
#define A fs_box_who(1)
#define B fs_box_who(2)
#define MS(n) ((uint64_t)(n) * 1000000)

enum { RESTART = false, REBOOT = true };

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;
static char *bytes;

static void begin(enum writeback_mode mode, size_t ssd_bytes)
{
	fs_box_init(&box);
	box.opt.dram_bytes = MIB(8);
	box.opt.ssds[0].bytes = ssd_bytes;
	box.opt.has_ssd = true;
	box.opt.writeback = mode;
	box.opt.space_wait_ms = 5000;
	fs_box_start(&box);
	root = fs_box_root(&box);
	bytes = malloc(MIB(8));
}

static void teardown(void)
{
	fs_box_close(&box);
	free(bytes);
}

TestSuite(writeback, .fini = teardown);

/* ---- helpers ---- */

static const char *content(int k, size_t len)
{
	memset(bytes, k * 37 + 1, len);
	memcpy(bytes, &k, sizeof(k));
	return bytes;
}

static int put(int k, size_t len)
{
	char name[24];

	snprintf(name, sizeof(name), "f%d", k);
	return fs_box_put_file(&box, root, name, content(k, len), len, A);
}

static void put_many(int from, int to)
{
	for (int k = from; k < to; k++, usleep(2500)) /* each a request of its own */
		cr_assert_eq(put(k, MIB(1)), 0, "f%d", k);
}

static bool is_there(int k)
{
	char name[24];

	snprintf(name, sizeof(name), "f%d", k);
	return !catalog_exists(box.fs.catalog, root->key, name);
}

static bool is_whole(int k)
{
	char name[24];

	snprintf(name, sizeof(name), "f%d", k);
	return fs_box_shows(&box, root, name, B, content(k, MIB(1)), MIB(1));
}

static struct object *object_of(int k)
{
	char name[24];

	snprintf(name, sizeof(name), "f%d", k);
	return fs_box_look(&box, root, name, B)->object;
}

static void set_policy(int k, const struct policy_attr *p)
{
	struct object *o = object_of(k);

	guard_lock(&box.fs.lock);
	object_set_policy_locked(&box.fs, o, p);
}

static bool wait_until(bool (*is_so)(void))
{
	for (int k = 0; k < 500; k++, usleep(10000))
		if (is_so())
			return true;
	return false;
}

static struct residency_stats stats(void)
{
	struct residency_stats s;

	residency_stats_get(&box.fs, &s);
	return s;
}

static bool is_idle(void)
{
	guard_lock(&box.fs.lock);
	const struct residency *r = box.fs.residency;

	return !r->copies.n && !r->promotions.n && !r->n_copying && !r->n_promoting;
}

static void add_ssd(void *arg, struct object *o)
{
	*(uint64_t *)arg += o->ssd_frame ? (o->size + 4095) & ~4095ull : 0;
}

static uint64_t charged_on_ssd(void)
{
	uint64_t charged = 0;

	pthread_mutex_lock(&box.fs.lock);
	object_visit_locked(&box.fs, add_ssd, &charged);
	pthread_mutex_unlock(&box.fs.lock);
	return charged;
}

/* An idle worker may still trim the ssd: it is asked until nothing moves. */
static bool books_agree(void)
{
	return is_idle() && fs_box_ssd(&box).used_bytes == charged_on_ssd() &&
	       fs_box_n_files(box.fs.ssd) == (int)fs_box_ssd(&box).n_sealed;
}

/* Both tiers hold what the objects say, and nothing else. */
static void expect_books(void)
{
	cr_expect(wait_until(books_agree), "%llu bytes on the ssd, objects have %llu; %d files, %llu frames",
		  (unsigned long long)fs_box_ssd(&box).used_bytes, (unsigned long long)charged_on_ssd(),
		  fs_box_n_files(box.fs.ssd), (unsigned long long)fs_box_ssd(&box).n_sealed);
	cr_expect(fs_box_books_balance(&box));
}

/* ---- eviction spills ---- */

Test(writeback, eviction_loses_nothing_while_the_ssd_has_room)
{
	begin(WRITEBACK_EVICT, MIB(64));
	put_many(0, 40);
	for (int k = 0; k < 40; k++)
		cr_expect(is_whole(k), "f%d", k);
	cr_expect_eq(counter_get(COUNTER_evicted_names), 0);
	cr_expect_geq(counter_get(COUNTER_writeback_objects), 32);
	cr_expect_leq(fs_box_dram(&box).used_bytes, MIB(8));
	expect_books();
}

static bool has_reserve(void)
{
	return stats().reserve_objects > 0 && is_idle();
}

Test(writeback, clean_frames_wait_for_the_next_writer)
{
	begin(WRITEBACK_EVICT, MIB(64));
	for (int k = 0; k < 31; k++)
		cr_assert_eq(put(k, MIB(1) / 4), 0);
	cr_assert(wait_until(has_reserve), "the coldest are copied before anybody needs room");
	cr_expect_neq(object_of(0)->dram_frame, 0);
	cr_expect_neq(object_of(0)->ssd_frame, 0);
	uint64_t waits = counter_get(COUNTER_spill_waits);
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_take, MS(300));
	int64_t start = now_mono_ns();
	cr_expect_eq(put(31, MIB(1) / 4), 0);
	cr_expect_lt(now_mono_ns() - start, (int64_t)MS(200), "it does not wait for the disk");
	cr_expect_eq(counter_get(COUNTER_spill_waits), waits);
}

Test(writeback, the_oldest_go_when_both_tiers_are_full)
{
	begin(WRITEBACK_EVICT, MIB(16));
	put_many(0, 48);
	int first = 0;
	while (!is_there(first))
		first++;
	cr_expect_geq(first, 22);
	cr_expect_leq(first, 32);
	for (int k = first; k < 48; k++)
		cr_expect(is_whole(k), "f%d", k);
	cr_expect_eq(counter_get(COUNTER_evicted_names), (uint64_t)first);
	cr_expect_leq(fs_box_ssd(&box).used_bytes, MIB(16));
	cr_expect_gt(stats().ssd_age.count, 0);
	cr_expect_gt(stats().dram_age.count, 0);
	expect_books();
}

Test(writeback, reading_keeps_an_object_on_the_ssd)
{
	begin(WRITEBACK_EVICT, MIB(16));
	for (int k = 0; k < 60; k++) {
		cr_assert_eq(put(k, MIB(1)), 0);
		if (k >= 12)
			cr_assert(is_whole(1), "after f%d", k);
	}
	cr_expect(is_there(1));
	cr_expect_not(is_there(0));
	cr_expect_not(is_there(2));
	expect_books();
}

Test(writeback, keep_objects_and_what_is_open_stay_on_the_ssd)
{
	struct object *o;

	begin(WRITEBACK_EVICT, MIB(12));
	put_many(0, 10);
	cr_assert(wait_until(is_idle));
	struct inode *i = fs_box_look(&box, root, "f1", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	struct policy_attr keep = { .class = MCFS_CLASS_KEEP };
	set_policy(0, &keep);
	put_many(10, 60);
	cr_expect(is_whole(0), "keep");
	cr_expect(is_whole(1), "open");
	cr_expect_not(is_there(2));
	fs_box_drop(&box, i, o);
	expect_books();
}

/* ---- slow and broken disks ---- */

Test(writeback, a_failed_copy_costs_that_object_alone)
{
	begin(WRITEBACK_EVICT, MIB(64));
	fs_box_fault_ssd(&box);
	fault_tier_fail(box.fs.ssd, FAULT_seal, 1, EIO);
	put_many(0, 24);
	int n = 0;
	for (int k = 0; k < 24; k++)
		n += !is_there(k);
	cr_expect_eq(n, 1);
	cr_expect_eq(counter_get(COUNTER_writeback_failures), 1);
	cr_expect_eq(counter_get(COUNTER_evicted_names), 1);
	expect_books();
}

Test(writeback, what_lacks_descriptors_is_tried_again)
{
	begin(WRITEBACK_EVICT, MIB(64));
	fs_box_fault_ssd(&box);
	fault_tier_fail(box.fs.ssd, FAULT_take, 1, EMFILE);
	put_many(0, 24);
	for (int k = 0; k < 24; k++)
		cr_expect(is_whole(k), "f%d", k);
	cr_expect_eq(counter_get(COUNTER_writeback_failures), 0);
}

Test(writeback, an_ssd_full_of_keep_objects_makes_dram_a_cache_without_one)
{
	struct policy_attr keep = { .class = MCFS_CLASS_KEEP };

	begin(WRITEBACK_EVICT, MIB(3));
	for (int k = 0; k < 3; k++) {
		cr_assert_eq(put(k, MIB(1) - 8192), 0);
		cr_assert_eq(durable_object(&box.fs, object_of(k)), 0);
		set_policy(k, &keep);
	}
	put_many(3, 30);
	cr_expect(is_there(0) && is_there(1) && is_there(2));
	cr_expect(is_whole(29));
	cr_expect_not(is_there(3));
	expect_books();
}

static void *write_some(void *arg)
{
	int first = *(int *)arg, *failed = arg;

	*failed = 0;
	for (int k = first; k < first + 6; k++) {
		char *mine = malloc(MIB(1)), name[24];
		memset(mine, k * 37 + 1, MIB(1));
		memcpy(mine, &k, sizeof(k));
		snprintf(name, sizeof(name), "f%d", k);
		int rc = fs_box_put_file(&box, root, name, mine, MIB(1), fs_box_who(first + 1));
		if (rc)
			*failed |= rc == -ENOSPC ? 1 : 2;
		free(mine);
	}
	return NULL;
}

Test(writeback, writers_wait_for_a_slow_disk_and_lose_nothing, .timeout = 60)
{
	pthread_t threads[8];
	int args[8];

	begin(WRITEBACK_EVICT, MIB(128));
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_seal, MS(15));
	for (int k = 0; k < 8; k++) {
		args[k] = k * 6;
		cr_assert_eq(pthread_create(&threads[k], NULL, write_some, &args[k]), 0);
	}
	for (int k = 0; k < 8; k++)
		pthread_join(threads[k], NULL);
	for (int k = 0; k < 8; k++)
		cr_expect_eq(args[k], 0, "writer %d: %d", k, args[k]);
	for (int k = 0; k < 48; k++)
		cr_expect(is_whole(k), "f%d", k);
	cr_expect_gt(counter_get(COUNTER_spill_waits), 0);
	cr_expect_eq(counter_get(COUNTER_evicted_names), 0);
	expect_books();
}

Test(writeback, a_disk_that_hangs_is_waited_for_in_bounded_time)
{
	begin(WRITEBACK_EVICT, MIB(128));
	box.opt.space_wait_ms = 300;
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_take, MS(2000));
	int rc = 0, k = 0;
	int64_t start = now_mono_ns();
	for (; !rc && k < 20; k++) {
		start = now_mono_ns();
		rc = put(k, MIB(1));
	}
	cr_expect_eq(rc, -ENOSPC);
	cr_expect_geq(now_mono_ns() - start, (int64_t)MS(290));
	cr_expect_lt(now_mono_ns() - start, (int64_t)MS(1500));
	fault_tier_delay(box.fs.ssd, FAULT_take, 0);
	for (int n = 0; n < k - 1; n++)
		cr_expect(is_whole(n), "f%d", n);
}

Test(writeback, who_may_not_wait_for_clients_waits_for_the_disk)
{
	struct space_wait w = { 0 };

	begin(WRITEBACK_EVICT, MIB(128));
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_seal, MS(30));
	put_many(0, 7);
	for (int k = 7; k < 14; k++) {
		cr_expect_eq(space_make(&box.fs, MIB(2), &w), 0);
		cr_expect_eq(put(k, MIB(1)), 0);
	}
	for (int k = 0; k < 14; k++)
		cr_expect(is_whole(k), "f%d", k);
}

/* ---- others meanwhile ---- */

static void spill_slowly(void)
{
	begin(WRITEBACK_ALWAYS, MIB(64));
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_seal, MS(200));
	cr_assert_eq(put(0, MIB(1)), 0);
	usleep(100000);
	cr_assert_not(is_idle(), "f0 is being copied");
}

Test(writeback, an_object_may_be_unlinked_while_it_is_copied)
{
	spill_slowly();
	cr_expect_eq(fs_box_unlink(&box, root, "f0", A), 0);
	cr_expect(wait_until(is_idle));
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 0);
	cr_expect_eq(fs_box_n_objects(&box), 0);
	expect_books();
}

Test(writeback, an_object_may_be_replaced_while_it_is_copied)
{
	spill_slowly();
	fs_box_look(&box, root, "f0", B);
	cr_expect_eq(fs_box_put_file(&box, root, "f0", "new", 3, A), 0);
	cr_expect(wait_until(is_idle));
	cr_expect(fs_box_shows(&box, root, "f0", B, "new", 3));
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 1, "the new one's");
	fs_box_restart(&box, REBOOT);
	root = fs_box_root(&box);
	cr_expect(fs_box_shows(&box, root, "f0", B, "new", 3));
}

Test(writeback, an_object_may_be_renamed_and_opened_while_it_is_copied)
{
	struct caller_id who = A;
	struct object *o;

	spill_slowly();
	struct inode *i = fs_box_look(&box, root, "f0", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_expect_eq(ns_rename(&box.fs, root, "f0", root, "f7", 0, &who), 0);
	cr_expect(wait_until(is_idle));
	cr_expect_neq(o->ssd_frame, 0);
	fs_box_drop(&box, i, o);
	fs_box_restart(&box, REBOOT);
	root = fs_box_root(&box);
	cr_expect(fs_box_shows(&box, root, "f7", B, content(0, MIB(1)), MIB(1)));
	cr_expect_not(is_there(0));
}

Test(writeback, an_object_may_be_fsynced_while_it_is_copied)
{
	spill_slowly();
	cr_expect_eq(durable_object(&box.fs, object_of(0)), 0);
	cr_expect(wait_until(is_idle));
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 1);
	cr_expect(object_of(0)->is_ssd_synced);
	expect_books();
}

Test(writeback, fsync_syncs_the_copy_that_a_worker_made)
{
	begin(WRITEBACK_ALWAYS, MIB(64));
	fs_box_fault_ssd(&box);
	cr_assert_eq(put(0, MIB(1)), 0);
	cr_assert(wait_until(is_idle));
	cr_expect_eq(fault_tier_calls(box.fs.ssd, FAULT_sync), 0, "a cache object is not synced");
	cr_expect_eq(durable_object(&box.fs, object_of(0)), 0);
	cr_expect_eq(fault_tier_calls(box.fs.ssd, FAULT_sync), 1);
	cr_expect_eq(durable_object(&box.fs, object_of(0)), 0);
	cr_expect_eq(fault_tier_calls(box.fs.ssd, FAULT_sync), 1, "once is enough");
	fault_tier_fail(box.fs.ssd, FAULT_sync, 1, EIO);
	cr_assert_eq(put(1, MIB(1)), 0);
	cr_assert(wait_until(is_idle));
	cr_expect_eq(durable_object(&box.fs, object_of(1)), -EIO, "an error is told");
}

Test(writeback, a_failing_catalog_leaves_dram_as_it_is)
{
	begin(WRITEBACK_EVICT, MIB(64));
	box.opt.space_wait_ms = 200;
	put_many(0, 6);
	cr_assert(wait_until(is_idle));
	fs_box_catalog_writable(&box, false);
	cr_expect_lt(put(9, MIB(4)), 0);
	writeback_stop(&box.fs); /* it must not be in the catalog that goes */
	fs_box_catalog_writable(&box, true);
	cr_assert_eq(writeback_start(&box.fs), 0);
	put_many(6, 20);
	for (int k = 0; k < 20; k++)
		cr_expect(is_whole(k), "f%d", k);
	expect_books();
}

/* ---- the other modes ---- */

Test(writeback, second_copies_what_is_used_twice_and_drops_the_rest)
{
	begin(WRITEBACK_SECOND, MIB(64));
	put_many(0, 4);
	cr_assert(is_whole(1));
	cr_assert(wait_until(is_idle));
	cr_expect_neq(object_of(1)->ssd_frame, 0);
	cr_expect_eq(object_of(0)->ssd_frame, 0);
	usleep(3000);
	put_many(4, 20);
	cr_expect(is_whole(1));
	cr_expect_not(is_there(0));
	cr_expect_eq(counter_get(COUNTER_writeback_objects), 1);
	expect_books();
}

Test(writeback, always_copies_at_once_and_a_reboot_costs_nothing)
{
	begin(WRITEBACK_ALWAYS, MIB(64));
	put_many(0, 6);
	cr_assert(wait_until(is_idle));
	cr_expect_eq(counter_get(COUNTER_writeback_objects), 6);
	fs_box_restart(&box, REBOOT);
	root = fs_box_root(&box);
	for (int k = 0; k < 6; k++)
		cr_expect(is_whole(k), "f%d", k);
}

static uint64_t n_written;

static bool writes_no_more(void)
{
	uint64_t before = n_written;

	n_written = counter_get(COUNTER_writeback_objects);
	return is_idle() && n_written == before;
}

Test(writeback, always_comes_to_rest_with_an_ssd_smaller_than_dram)
{
	begin(WRITEBACK_ALWAYS, MIB(4));
	put_many(0, 6);
	cr_expect(wait_until(writes_no_more));
	cr_expect_leq(counter_get(COUNTER_writeback_objects), 6);
	for (int k = 0; k < 6; k++)
		cr_expect(is_whole(k), "f%d", k);
	put_many(6, 30);
	cr_expect(is_whole(29));
	expect_books();
}

Test(writeback, no_ssd_option_no_spilling)
{
	begin(WRITEBACK_EVICT, MIB(64));
	fs_box_stop(&box, REBOOT);
	box.opt.has_ssd = false;
	fs_box_start(&box);
	root = fs_box_root(&box);
	put_many(0, 20);
	cr_expect_not(is_there(0));
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 0);
}

/* ---- class keep ---- */

Test(writeback, an_object_that_becomes_keep_gets_a_copy)
{
	struct policy_attr keep = { .class = MCFS_CLASS_KEEP };

	begin(WRITEBACK_EVICT, MIB(64));
	cr_assert_eq(put(0, MIB(1)), 0);
	set_policy(0, &keep);
	cr_expect(wait_until(is_idle));
	cr_expect_neq(object_of(0)->ssd_frame, 0);
}

/* ---- the end ---- */

static volatile sig_atomic_t never, at_once = 1;

Test(writeback, the_end_finishes_the_queue)
{
	begin(WRITEBACK_ALWAYS, MIB(64));
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_seal, MS(200)); /* the queue is not empty before all are put */
	put_many(0, 6);
	writeback_stop(&box.fs);
	cr_assert_gt(stats().queue_objects, 0);
	writeback_drain(&box.fs, false, &never);
	cr_expect_eq(stats().queue_objects, 0);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 6);
}

Test(writeback, the_end_saves_what_is_in_dram_alone)
{
	begin(WRITEBACK_EVICT, MIB(64));
	put_many(0, 6);
	struct policy_attr pinned = { .pin = 1 };
	set_policy(3, &pinned);
	writeback_stop(&box.fs);
	writeback_drain(&box.fs, false, &never);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 0, "it stays in dram for the next start");
	writeback_drain(&box.fs, true, &never);
	fs_box_restart(&box, REBOOT);
	root = fs_box_root(&box);
	for (int k = 0; k < 6; k++)
		cr_expect(is_whole(k), "f%d", k);
}

Test(writeback, the_end_can_be_hurried)
{
	begin(WRITEBACK_ALWAYS, MIB(64));
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_take, MS(400));
	put_many(0, 6);
	writeback_stop(&box.fs);
	int64_t start = now_mono_ns();
	writeback_drain(&box.fs, true, &at_once);
	cr_expect_lt(now_mono_ns() - start, (int64_t)MS(1200));
	cr_expect_gt(stats().queue_objects, 0);
	for (int k = 0; k < 6; k++)
		cr_expect(is_whole(k), "f%d", k);
}
