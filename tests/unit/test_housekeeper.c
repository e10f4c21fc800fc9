/* SPDX-License-Identifier: Apache-2.0 */
/* housekeeper: a disk that fails takes its copies along, and nothing else. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "housekeeper.h"
#include "lib/fs_box.h"
#include "object/residency.h"
#include "object/version.h"

#define A fs_box_who(1)
#define B fs_box_who(2)
#define N_FILES 40

/* ---- fixture: an ssd tier of which half the frames are on a disk that can fail ---- */

static struct fs_box box;
static struct inode *root;
static struct housekeeper *keeper;
static struct tier_ops ops;
static const struct tier_ops *good_ops;
static _Atomic bool has_failed;

static bool is_lost(struct tier *t, uint64_t frame_id)
{
	(void)t;
	return has_failed && frame_id % 2;
}

static void get_stats(struct tier *t, struct tier_stats *out)
{
	good_ops->get_stats(t, out);
	out->n_disks = 2;
	out->n_failed_disks = has_failed;
}

static void setup(void)
{
	fs_box_init(&box);
	box.opt.has_ssd = true;
	box.opt.writeback = WRITEBACK_ALWAYS;
	fs_box_start(&box);
	root = fs_box_root(&box);
	has_failed = false;
	good_ops = box.fs.ssd->ops;
	ops = *good_ops;
	ops.is_lost = is_lost;
	ops.get_stats = get_stats;
	box.fs.ssd->ops = &ops;
	cr_assert_eq(housekeeper_start(&box.fs, &keeper), 0);
}

static void teardown(void)
{
	housekeeper_stop(keeper);
	box.fs.ssd->ops = good_ops;
	fs_box_close(&box);
}

TestSuite(housekeeper, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static const char *name_of(int k)
{
	static char name[24];

	snprintf(name, sizeof(name), "f%d", k);
	return name;
}

static bool is_idle(void)
{
	guard_lock(&box.fs.lock);
	return !box.fs.residency->copies.n && !box.fs.residency->n_copying;
}

static void put_all(void)
{
	for (int k = 0; k < N_FILES; k++)
		cr_assert_eq(fs_box_put_file(&box, root, name_of(k), name_of(k), 3, A), 0);
	for (int n = 0; n < 500 && !is_idle(); n++)
		usleep(10000);
	cr_assert(is_idle());
}

/* The dram frames of all objects are given up, as eviction does. */
static void drop_from_dram(void *arg, struct object *o)
{
	uint64_t frame = o->dram_frame, charged = o->charged_bytes;

	object_set_frames_locked(&box.fs, o, 0, o->ssd_frame);
	o->charged_bytes = 0;
	tier_call(box.fs.dram, drop, frame, o->size, charged);
	*(int *)arg += o->ssd_frame % 2;
}

static bool wait_for_names(uint64_t n)
{
	for (int k = 0; k < 500; k++, usleep(10000))
		if (fs_box_n_objects(&box) == n)
			return true;
	return false;
}

/* ---- success ---- */

Test(housekeeper, what_a_failed_disk_had_alone_loses_its_name)
{
	int n_lost = 0, n_left = 0;

	put_all();
	pthread_mutex_lock(&box.fs.lock);
	object_visit_locked(&box.fs, drop_from_dram, &n_lost);
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert(n_lost > 0 && n_lost < N_FILES, "both disks have some");
	has_failed = true;
	cr_expect(wait_for_names((uint64_t)(N_FILES - n_lost)));
	for (int k = 0; k < N_FILES; k++)
		if (!catalog_exists(box.fs.catalog, root->key, name_of(k))) {
			n_left++;
			cr_expect(fs_box_shows(&box, root, name_of(k), B, name_of(k), 3));
		}
	cr_expect_eq(n_left, N_FILES - n_lost);
	cr_expect_eq(counter_get(COUNTER_lost), (uint64_t)n_lost);
}

Test(housekeeper, what_is_in_dram_too_lives_on_and_is_copied_again)
{
	put_all();
	uint64_t n_copied = counter_get(COUNTER_writeback_objects);
	has_failed = true;
	for (int n = 0; n < 500 && !counter_get(COUNTER_lost); n++)
		usleep(10000);
	for (int n = 0; n < 500 && !is_idle(); n++)
		usleep(10000);
	cr_expect_gt(counter_get(COUNTER_lost), 0);
	cr_expect_gt(counter_get(COUNTER_writeback_objects), n_copied);
	for (int k = 0; k < N_FILES; k++)
		cr_expect(fs_box_shows(&box, root, name_of(k), B, name_of(k), 3));
	cr_expect_eq(fs_box_n_objects(&box), N_FILES);
	cr_expect(fs_box_books_balance(&box));
}

Test(housekeeper, objects_expire)
{
	cr_assert_eq(fs_box_put_file(&box, root, "f", "x", 1, A), 0);
	cr_assert_eq(fs_box_put_file(&box, root, "g", "y", 1, A), 0);
	struct object *o = fs_box_look(&box, root, "f", B)->object;
	pthread_mutex_lock(&box.fs.lock);
	object_set_ttl_locked(&box.fs, o, 1);
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect(wait_for_names(1));
	cr_expect_null(fs_box_look(&box, root, "f", B));
	cr_expect(fs_box_shows(&box, root, "g", B, "y", 1));
	cr_expect_eq(counter_get(COUNTER_expired), 1);
}
