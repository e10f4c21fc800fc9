/* SPDX-License-Identifier: Apache-2.0 */
/* durable, adopt: what a restart and a reboot leave, and the promises of fsync. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "lib/fs_box.h"
#include "object/durable.h"
#include "object/sweep.h"

#define MIB(n) ((size_t)(n) << 20)
#define A fs_box_who(1)
#define B fs_box_who(2)

enum { RESTART = false, REBOOT = true };

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;

static void setup(void)
{
	fs_box_open(&box);
	root = fs_box_root(&box);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(durable, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void restart(bool loses_dram)
{
	fs_box_restart(&box, loses_dram);
	root = fs_box_root(&box);
}

static struct handle *create(const char *name)
{
	struct handle *h = NULL;

	cr_assert_eq(fs_box_create(&box, root, name, BOX_TRUNC, A, &h), 0);
	return h;
}

static void write_text(struct handle *h, const char *text)
{
	cr_assert_eq(fs_box_write(&box, h, text, strlen(text), 0), 0);
}

static void put_file(const char *name, const char *text)
{
	cr_assert_eq(fs_box_put_file(&box, root, name, text, strlen(text), A), 0);
}

static int sync_file(const char *name)
{
	return fs_box_sync(&box, root, name, B);
}

static bool shows(const char *name, const char *text)
{
	if (!text)
		return !fs_box_look(&box, root, name, B);
	return fs_box_shows(&box, root, name, B, text, strlen(text));
}

static uint64_t n_frames(struct tier *t)
{
	struct tier_stats s;

	tier_call(t, get_stats, &s);
	return s.n_sealed + s.n_open;
}

/* ---- adoption ---- */

Test(durable, a_restart_keeps_the_cache)
{
	size_t len = 2 * MIB(1) + 99;
	char *big = malloc(len);

	for (size_t k = 0; k < len; k++)
		big[k] = (char)(k * 31 + k / 777);
	put_file("small", "text");
	put_file("empty", "");
	cr_assert_eq(fs_box_put_file(&box, root, "big", big, len, A), 0);
	struct inode *sub = fs_box_mkdir(&box, root, "sub");
	cr_assert_eq(fs_box_put_file(&box, sub, "f", "deep", 4, A), 0);
	uint64_t used = fs_box_dram(&box).used_bytes - fs_box_dram(&box).free_list_bytes;
	restart(RESTART);
	cr_expect_eq(box.fs.n_adopted, 4);
	cr_expect_eq(fs_box_dram(&box).used_bytes, used);
	cr_expect(shows("small", "text"));
	cr_expect(shows("empty", ""));
	cr_expect(fs_box_shows(&box, root, "big", B, big, len));
	cr_expect(fs_box_shows(&box, fs_box_dir(&box, root, "sub"), "f", B, "deep", 4));
	cr_expect(fs_box_books_balance(&box));
	put_file("small", "newer");
	cr_expect(shows("small", "newer"));
	free(big);
}

Test(durable, a_reboot_loses_what_was_in_dram_alone_with_its_names)
{
	put_file("cached", "c");
	put_file("synced", "s");
	put_file("empty", "");
	cr_assert_eq(sync_file("synced"), 0);
	restart(REBOOT);
	cr_expect(shows("cached", NULL));
	cr_expect(shows("synced", "s"));
	cr_expect(shows("empty", ""));
	cr_expect_eq(fs_box_n_objects(&box), 2);
	cr_expect_eq(fs_box_dram(&box).used_bytes, 0);
	put_file("cached", "again");
	cr_expect(shows("cached", "again"));
}

Test(durable, a_lost_frame_takes_its_name_along)
{
	char path[160];

	put_file("lost", "l");
	put_file("kept", "k");
	uint64_t id = fs_box_look(&box, root, "lost", B)->object->dram_frame;
	snprintf(path, sizeof(path), "%s/dram/%016llx", box.top, (unsigned long long)id);
	cr_assert_eq(unlink(path), 0);
	restart(RESTART);
	cr_expect(shows("lost", NULL));
	cr_expect_eq(catalog_exists(box.fs.catalog, root->key, "lost"), -ENOENT);
	cr_expect(shows("kept", "k"));
}

Test(durable, a_frame_lost_on_the_ssd_costs_nothing_while_it_is_in_dram)
{
	char path[160];

	put_file("f", "bytes");
	cr_assert_eq(sync_file("f"), 0);
	uint64_t id = fs_box_look(&box, root, "f", B)->object->ssd_frame;
	snprintf(path, sizeof(path), "%s/%02x/%02x/%016llx", box.ssd,
		 (unsigned int)(id >> 18 & 0xff), (unsigned int)(id >> 10 & 0xff),
		 (unsigned long long)id);
	cr_assert_eq(unlink(path), 0);
	restart(RESTART);
	cr_expect(shows("f", "bytes"));
	cr_expect_eq(fs_box_look(&box, root, "f", B)->object->ssd_frame, 0);
	cr_assert_eq(sync_file("f"), 0);
	restart(REBOOT);
	cr_expect(shows("f", "bytes"), "a later fsync makes a copy again");
}

Test(durable, frames_of_nobody_are_removed)
{
	struct frame f = FRAME_NONE;
	uint64_t charged;

	put_file("f", "x");
	cr_assert_eq(tier_call(box.fs.dram, take, 4096, &f), 0);
	cr_assert_eq(tier_call(box.fs.dram, seal, &f, &charged), 0);
	f = FRAME_NONE;
	cr_assert_eq(tier_call(box.fs.ssd, take, 4096, &f), 0);
	cr_assert_eq(tier_call(box.fs.ssd, seal, &f, &charged), 0);
	struct handle *h = create("draft");
	write_text(h, "never closed");
	restart(RESTART);
	cr_expect(shows("draft", NULL), "its writer died with the daemon");
	sweep_start(&box.fs);
	for (int k = 0; k < 500 && sweep_left(&box.fs); k++)
		usleep(10000);
	cr_expect_eq(fs_box_n_files(box.fs.dram), 1);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 0);
	cr_expect(shows("f", "x"));
}

Test(durable, replaced_and_unlinked_versions_do_not_come_back)
{
	put_file("f", "one");
	fs_box_look(&box, root, "f", B); /* its old version is in grace at the restart */
	put_file("f", "two");
	put_file("g", "gone");
	struct inode *i = fs_box_look(&box, root, "g", B);
	struct object *o;
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_assert_eq(fs_box_unlink(&box, root, "g", A), 0);
	restart(RESTART);
	cr_expect(shows("f", "two"));
	cr_expect(shows("g", NULL));
	cr_expect_eq(fs_box_n_objects(&box), 1);
	cr_expect_eq(fs_box_n_files(box.fs.dram), 1);
}

Test(durable, a_smaller_budget_is_kept_after_a_restart)
{
	char *bytes = calloc(1, MIB(1)), name[24];

	for (int k = 0; k < 12; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		cr_assert_eq(fs_box_put_file(&box, root, name, bytes, MIB(1), A), 0);
	}
	fs_box_stop(&box, RESTART);
	box.opt.dram_bytes = MIB(8);
	fs_box_start(&box);
	root = fs_box_root(&box);
	cr_expect_leq(fs_box_dram(&box).used_bytes, MIB(8));
	cr_expect(shows("f0", NULL), "the oldest went");
	cr_expect_not_null(fs_box_look(&box, root, "f11", B));
	free(bytes);
}

Test(durable, a_name_whose_object_record_is_lost_can_be_used_again)
{
	put_file("f", "x");
	struct inode *i = fs_box_look(&box, root, "f", B);
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);
	catalog_batch_del_object(b, i->key);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	restart(RESTART);
	cr_expect(shows("f", NULL));
	cr_expect_eq(fs_box_unlink(&box, root, "f", A), 0);
	put_file("f", "new");
	cr_expect(shows("f", "new"));
}

/* ---- fsync of objects ---- */

Test(durable, fsync_of_an_object_makes_one_copy)
{
	put_file("f", "bytes");
	cr_assert_eq(sync_file("f"), 0);
	cr_assert_eq(sync_file("f"), 0);
	cr_expect_eq(n_frames(box.fs.ssd), 1);
	cr_assert_eq(fs_box_unlink(&box, root, "f", B), 0);
	cr_expect_eq(n_frames(box.fs.ssd), 0, "it goes with the object");
}

/* A publish over a name deletes its record first, and says so in memory a moment later. */
Test(durable, fsync_of_an_object_that_is_being_replaced_succeeds)
{
	put_file("f", "bytes");
	struct inode *i = fs_box_look(&box, root, "f", B);
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);
	catalog_batch_del_object(b, i->key);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	cr_assert_eq(i->object->state, OBJECT_LIVE);
	cr_expect_eq(durable_object(&box.fs, i->object), 0);
	cr_expect_eq(n_frames(box.fs.ssd), 0, "nobody needs the copy");
}

static void *sync_f(void *arg)
{
	*(int *)arg = sync_file("f");
	return NULL;
}

Test(durable, two_fsyncs_at_a_time_leave_one_copy_that_lasts)
{
	pthread_t threads[4];
	int rc[4];

	put_file("f", "bytes");
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_sync, 30000000); /* so that all of them copy */
	for (int k = 0; k < 4; k++)
		cr_assert_eq(pthread_create(&threads[k], NULL, sync_f, &rc[k]), 0);
	for (int k = 0; k < 4; k++) {
		pthread_join(threads[k], NULL);
		cr_expect_eq(rc[k], 0);
	}
	cr_expect_gt(fault_tier_calls(box.fs.ssd, FAULT_take), 1, "the test needs several copies");
	cr_expect_eq(n_frames(box.fs.ssd), 1);
	restart(REBOOT);
	cr_expect(shows("f", "bytes"));
}

Test(durable, a_copy_follows_its_object_over_a_rename)
{
	struct caller_id who = A;

	put_file("f", "bytes");
	cr_assert_eq(sync_file("f"), 0);
	cr_assert_eq(ns_rename(&box.fs, root, "f", root, "g", 0, &who), 0);
	restart(REBOOT);
	cr_expect(shows("g", "bytes"));
	cr_expect(shows("f", NULL));
}

Test(durable, a_failing_ssd_is_told_and_costs_nothing)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_sync, FAULT_seal };

	put_file("f", "bytes");
	fs_box_fault_ssd(&box);
	for (size_t k = 0; k < sizeof(ops) / sizeof(*ops); k++) {
		fault_tier_fail(box.fs.ssd, ops[k], 1, EIO);
		cr_expect_eq(sync_file("f"), -EIO, "%s", fault_op_name(ops[k]));
		cr_expect_eq(n_frames(box.fs.ssd), 0, "%s", fault_op_name(ops[k]));
		cr_expect_eq(fs_box_ssd(&box).used_bytes, 0, "%s", fault_op_name(ops[k]));
		cr_expect(shows("f", "bytes"));
	}
	cr_expect_eq(sync_file("f"), 0);
	restart(REBOOT);
	cr_expect(shows("f", "bytes"));
}

Test(durable, a_failing_catalog_is_told_and_costs_nothing)
{
	put_file("f", "bytes");
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(sync_file("f"), -EROFS);
	fs_box_catalog_writable(&box, true);
	cr_expect_eq(n_frames(box.fs.ssd), 0);
	cr_expect_eq(sync_file("f"), 0);
}

Test(durable, old_copies_make_room_on_a_full_ssd)
{
	char *bytes = calloc(1, MIB(1)), name[24];

	fs_box_close(&box);
	fs_box_init(&box);
	box.opt.ssds[0].bytes = MIB(3);
	fs_box_start(&box);
	root = fs_box_root(&box);
	for (int k = 0; k < 6; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		cr_assert_eq(fs_box_put_file(&box, root, name, bytes, MIB(1), A), 0);
		cr_assert_eq(sync_file(name), 0, "%s", name);
		cr_assert_leq(fs_box_ssd(&box).used_bytes, MIB(3));
	}
	cr_expect_not_null(fs_box_look(&box, root, "f0", B), "it is in dram still");
	/* Nothing can be recorded, hence nothing given up: an error, and in time. */
	cr_assert_eq(fs_box_put_file(&box, root, "g", bytes, MIB(1), A), 0);
	fs_box_catalog_writable(&box, false);
	cr_expect_lt(sync_file("g"), 0);
	fs_box_catalog_writable(&box, true);
	restart(REBOOT);
	cr_expect(shows("f0", NULL));
	cr_expect(fs_box_shows(&box, root, "f5", B, bytes, MIB(1)));
	free(bytes);
}

/* ---- promises ---- */

Test(durable, a_promise_is_kept_when_the_writer_dies)
{
	struct handle *h = create("f");

	write_text(h, "synced");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "later!");
	cr_expect(shows("f", NULL), "not before it dies");
	cr_assert_eq(fs_box_kill(&box, h), 0);
	fs_box_release(&box, h);
	cr_expect(shows("f", "synced"));
	restart(REBOOT);
	cr_expect(shows("f", "synced"));
	cr_expect_eq(n_frames(box.fs.ssd), 1);
}

Test(durable, a_promise_is_kept_when_the_daemon_dies)
{
	put_file("f", "old");
	struct handle *h = create("f"), *h2 = create("g");

	write_text(h, "first");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "second");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "never");
	write_text(h2, "not synced");
	cr_expect_eq(n_frames(box.fs.ssd), 1, "the newer promise replaces the older");
	restart(REBOOT);
	cr_expect(shows("f", "second"));
	cr_expect(shows("g", NULL));
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_expect_eq(i->e.mode & 07777, 0644);
	restart(REBOOT);
	cr_expect(shows("f", "second"), "an object like any other now");
	cr_expect_eq(n_frames(box.fs.ssd), 1);
}

Test(durable, a_promise_of_an_empty_file)
{
	struct handle *h = create("f");

	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "later");
	restart(REBOOT);
	cr_expect(shows("f", ""));
}

Test(durable, a_close_takes_the_promise_back_and_is_durable)
{
	struct handle *h = create("f");

	write_text(h, "synced");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "closed");
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect_eq(n_frames(box.fs.ssd), 1);
	restart(REBOOT);
	cr_expect(shows("f", "closed"));
	cr_expect_eq(n_frames(box.fs.ssd), 1);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 1);
}

Test(durable, an_unlinked_file_does_not_come_back_by_its_promise)
{
	struct handle *h = create("f"), *empty = create("e");

	write_text(h, "synced");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	cr_assert_eq(durable_draft(&box.fs, empty->draft), 0);
	cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	cr_assert_eq(fs_box_unlink(&box, root, "e", A), 0);
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0, "fsync of an unlinked file is fine");
	restart(RESTART); /* while it is still open */
	cr_expect(shows("f", NULL));
	cr_expect(shows("e", NULL));
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 0);
}

Test(durable, a_file_renamed_over_does_not_come_back_by_its_promise)
{
	struct caller_id who = A;
	struct handle *h = create("g");

	write_text(h, "synced");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	put_file("f", "over");
	cr_assert_eq(ns_rename(&box.fs, root, "f", root, "g", 0, &who), 0);
	restart(RESTART);
	cr_expect(shows("g", "over"));
}

Test(durable, a_promise_follows_its_file_over_renames)
{
	struct caller_id a = A, b = B;
	struct handle *h = create("f"), *shared = NULL;

	write_text(h, "private");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	cr_assert_eq(ns_rename(&box.fs, root, "f", root, "g", 0, &a), 0);
	put_file("x", "base..");
	cr_assert_eq(fs_box_reopen(&box, root, "x", 0, A, &shared), 0);
	write_text(shared, "shared");
	cr_assert_eq(durable_draft(&box.fs, shared->draft), 0);
	cr_assert_eq(ns_rename(&box.fs, root, "x", root, "y", 0, &b), 0, "by another process");
	restart(REBOOT);
	cr_expect(shows("f", NULL));
	cr_expect(shows("g", "private"));
	cr_expect(shows("x", NULL));
	cr_expect(shows("y", "shared"));
}

Test(durable, a_failed_promise_leaves_the_one_before)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_write, FAULT_sync,
					     FAULT_seal };
	struct handle *h = create("f");

	write_text(h, "first");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	write_text(h, "other");
	fs_box_fault_ssd(&box);
	for (size_t k = 0; k < sizeof(ops) / sizeof(*ops); k++) {
		fault_tier_fail(box.fs.ssd, ops[k], 1, EIO);
		cr_expect_eq(durable_draft(&box.fs, h->draft), -EIO, "%s", fault_op_name(ops[k]));
		cr_expect_eq(n_frames(box.fs.ssd), 1, "%s", fault_op_name(ops[k]));
	}
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(durable_draft(&box.fs, h->draft), -EROFS);
	fs_box_catalog_writable(&box, true);
	cr_expect_eq(n_frames(box.fs.ssd), 1);
	restart(REBOOT);
	cr_expect(shows("f", "first"));
}

Test(durable, fsync_of_a_clean_draft_syncs_what_it_published)
{
	struct handle *h = create("f");

	write_text(h, "bytes");
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	restart(REBOOT);
	cr_expect(shows("f", "bytes"));
}

Test(durable, a_poisoned_draft_cannot_be_synced)
{
	struct handle *h = create("f");

	write_text(h, "bytes");
	cr_assert_eq(fs_box_kill(&box, h), 0);
	cr_expect_eq(durable_draft(&box.fs, h->draft), -EIO);
	fs_box_release(&box, h);
	cr_expect_eq(n_frames(box.fs.ssd), 0);
}

Test(durable, a_promise_under_a_name_that_became_a_directory_harms_nobody)
{
	struct handle *h = create("f");

	write_text(h, "bytes");
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	fs_box_mkdir(&box, root, "f");
	restart(REBOOT);
	cr_expect_eq(fs_box_look(&box, root, "f", B)->kind, INODE_DIR);
	restart(REBOOT);
	cr_expect_eq(fs_box_look(&box, root, "f", B)->kind, INODE_DIR);
}
