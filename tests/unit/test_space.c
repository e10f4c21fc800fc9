/* SPDX-License-Identifier: Apache-2.0 */
/* space: what leaves when the budget is full, and what a writer is told when nothing may. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fs_box.h"
#include "object/durable.h"

#define MIB(n) ((size_t)(n) << 20)
#define A fs_box_who(1)
#define B fs_box_who(2)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;
static char *bytes; /* one MiB */

static void setup(void)
{
	fs_box_init(&box);
	box.opt.dram_bytes = MIB(8);
	fs_box_start(&box);
	root = fs_box_root(&box);
	bytes = malloc(MIB(8));
	memset(bytes, 'x', MIB(8));
}

static void teardown(void)
{
	fs_box_close(&box);
	free(bytes);
}

TestSuite(space, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static int put_sized(const char *name, size_t len)
{
	return fs_box_put_file(&box, root, name, bytes, len, A);
}

static void put_file(const char *name)
{
	cr_assert_eq(put_sized(name, MIB(1)), 0, "%s", name);
	usleep(2500); /* of another request: its own place in the order */
}

static void read_file(const char *name)
{
	cr_assert(fs_box_shows(&box, root, name, B, bytes, MIB(1)));
	usleep(2500);
}

static bool is_there(const char *name)
{
	struct entry e;

	if (catalog_lookup(box.fs.catalog, root->key, name, &e))
		return false;
	entry_fini(&e);
	return true;
}

static struct object *object_of(const char *name)
{
	return fs_box_look(&box, root, name, B)->object;
}

static void set_policy(const char *name, int class, int pin)
{
	struct policy_attr p = { .class = (uint8_t)class, .pin = (uint8_t)pin };
	struct object *o = object_of(name);

	pthread_mutex_lock(&box.fs.lock);
	object_set_policy_locked(&box.fs, o, &p);
	pthread_mutex_unlock(&box.fs.lock);
}

static int64_t ms_since(int64_t start_ns)
{
	return (now_mono_ns() - start_ns) / 1000000;
}

/* Seven files of one MiB: an eighth finds no room. */
static void fill_up(void)
{
	char name[24];

	for (int k = 0; k < 7; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		put_file(name);
	}
	for (int k = 0; k < 7; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		cr_assert(is_there(name), "%s", name);
	}
}

/* ---- the order ---- */

Test(space, the_least_recently_used_goes_first)
{
	fill_up();
	read_file("f0");
	read_file("f1");
	put_file("new");
	cr_expect_not(is_there("f2"), "the oldest that nobody read");
	cr_expect(is_there("f0") && is_there("f1"));
	cr_expect(is_there("f4") && is_there("f5") && is_there("f6"));
	cr_expect_leq(fs_box_dram(&box).used_bytes, MIB(8));
	cr_expect(fs_box_books_balance(&box));
}

Test(space, writing_without_end_keeps_the_budget)
{
	char name[24];

	for (int k = 0; k < 60; k++) {
		snprintf(name, sizeof(name), "g%d", k);
		cr_assert_eq(put_sized(name, MIB(1) - (size_t)k * 1000), 0);
		cr_assert_leq(fs_box_dram(&box).used_bytes, MIB(8));
	}
	cr_expect(is_there("g59") && is_there("g56"));
	cr_expect_not(is_there("g0"));
	cr_expect(fs_box_books_balance(&box));
}

Test(space, replaced_versions_go_before_live_ones)
{
	fill_up();
	struct inode *seen = fs_box_look(&box, root, "f6", B); /* known to the kernel: grace time */
	cr_assert_not_null(fs_box_look(&box, root, "f5", B));
	cr_assert_eq(put_sized("f5", 4096), 0);
	cr_assert_eq(put_sized("f6", 4096), 0);
	cr_assert_eq(seen->state, INODE_REPLACED);
	usleep(120000); /* no open is on its way any more */
	put_file("new");
	for (int k = 0; k < 7; k++) {
		char name[24];
		snprintf(name, sizeof(name), "f%d", k);
		cr_expect(is_there(name), "%s", name);
	}
	cr_expect_eq(seen->state, INODE_GONE);
}

Test(space, an_evicted_name_is_gone_and_free)
{
	fill_up();
	struct inode *i = fs_box_look(&box, root, "f0", B);
	struct object *o;

	put_file("new");
	cr_assert_not(is_there("f0"));
	cr_expect_null(fs_box_look(&box, root, "f0", B));
	cr_expect_eq(fs_box_hold(&box, i, B, &o), -ESTALE);
	put_file("f0");
	cr_expect(fs_box_shows(&box, root, "f0", B, bytes, MIB(1)));
}

/* ---- what may not go ---- */

Test(space, open_objects_stay)
{
	fill_up();
	struct inode *i = fs_box_look(&box, root, "f0", B);
	struct object *o;
	char c = 0;

	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	for (int k = 0; k < 12; k++)
		put_file(k % 2 ? "new1" : "new2"), put_file(k % 2 ? "new3" : "new4");
	put_file("n5"), put_file("n6"), put_file("n7"), put_file("n8"), put_file("n9");
	cr_expect(is_there("f0"));
	cr_assert_eq(fs_box_pread(&box, o, &c, 1, MIB(1) - 1), 0);
	cr_expect_eq(c, 'x');
	fs_box_drop(&box, i, o);
}

Test(space, pinned_and_kept_objects_stay)
{
	fill_up();
	set_policy("f0", MCFS_CLASS_CACHE, 1);
	set_policy("f1", MCFS_CLASS_PINNED, 0);
	set_policy("f2", MCFS_CLASS_KEEP, 0); /* without a copy on the ssd */
	for (int k = 0; k < 8; k++) {
		char name[24];
		snprintf(name, sizeof(name), "n%d", k);
		put_file(name);
	}
	cr_expect(is_there("f0"));
	cr_expect(is_there("f1"));
	cr_expect(is_there("f2"));
	cr_expect_not(is_there("f3"));
	set_policy("f0", MCFS_CLASS_CACHE, 0);
	for (int k = 0; k < 8; k++) {
		char name[24];
		snprintf(name, sizeof(name), "m%d", k);
		put_file(name);
	}
	cr_expect_not(is_there("f0"), "no longer pinned");
}

Test(space, a_durable_copy_goes_on_serving)
{
	fill_up();
	struct object *o = object_of("f0");

	cr_assert_eq(durable_object(&box.fs, o), 0);
	cr_assert_neq(o->ssd_frame, 0);
	usleep(2500);
	for (int k = 0; k < 8; k++) {
		char name[24];
		snprintf(name, sizeof(name), "n%d", k);
		put_file(name);
	}
	cr_expect(is_there("f0"));
	cr_expect_eq(o->dram_frame, 0, "it left the dram");
	cr_expect_eq(o->charged_bytes, 0);
	cr_expect(fs_box_shows(&box, root, "f0", B, bytes, MIB(1)));
	cr_expect(fs_box_books_balance(&box));
}

Test(space, a_failing_catalog_evicts_nothing)
{
	fill_up();
	fs_box_catalog_writable(&box, false);
	struct space_wait w = { 0 };
	cr_expect_eq(space_make(&box.fs, MIB(1), &w), -ENOSPC);
	fs_box_catalog_writable(&box, true);
	cr_expect(is_there("f0") && is_there("f1"));
	cr_expect(fs_box_shows(&box, root, "f0", B, bytes, MIB(1)));
	cr_expect_eq(space_make(&box.fs, MIB(1), &w), 0, "evictable again");
}

/* ---- the number of objects ---- */

Test(space, the_number_of_objects_is_bounded)
{
	char name[24];

	box.opt.max_objects = 20;
	for (int k = 0; k < 50; k++) {
		snprintf(name, sizeof(name), "o%d", k);
		cr_assert_eq(put_sized(name, 100), 0);
		cr_assert_leq(fs_box_n_objects(&box), 20);
	}
	cr_expect(is_there("o49"));
	cr_expect_not(is_there("o0"));
}

Test(space, a_bound_full_of_pinned_objects_is_enospc)
{
	char name[24];

	box.opt.max_objects = 5;
	for (int k = 0; k < 5; k++) {
		snprintf(name, sizeof(name), "o%d", k);
		cr_assert_eq(put_sized(name, 100), 0);
		set_policy(name, MCFS_CLASS_CACHE, 1);
	}
	cr_expect_eq(put_sized("one", 100), -ENOSPC);
	cr_expect_eq(fs_box_unlink(&box, root, "o0", A), 0);
	cr_expect_eq(put_sized("one", 100), 0);
}

/* ---- waiting ---- */

static void pin_all(void)
{
	char name[24];

	fill_up();
	for (int k = 0; k < 7; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		set_policy(name, MCFS_CLASS_CACHE, 1);
	}
}

Test(space, a_writer_waits_and_then_gets_enospc)
{
	pin_all();
	int64_t start = now_mono_ns();

	cr_expect_eq(put_sized("new", MIB(2)), -ENOSPC);
	cr_expect_lt(ms_since(start), 100, "told not to wait");
	box.opt.space_wait_ms = 200;
	start = now_mono_ns();
	cr_expect_eq(put_sized("new", MIB(2)), -ENOSPC);
	cr_expect_geq(ms_since(start), 195);
	cr_expect_lt(ms_since(start), 1000);
	cr_expect_not(is_there("new"));
	cr_expect(fs_box_books_balance(&box));
}

Test(space, what_can_never_fit_is_not_waited_for)
{
	struct space_wait w = { .deadline_ns = now_mono_ns() + 5000000000 };
	int64_t start = now_mono_ns();

	cr_expect_eq(space_make(&box.fs, MIB(9), &w), -ENOSPC);
	cr_expect_lt(ms_since(start), 500);
}

static void *unlink_later(void *arg)
{
	usleep(100000);
	fs_box_unlink(&box, root, "f3", B);
	fs_box_unlink(&box, root, "f4", B);
	return NULL;
}

Test(space, a_writer_goes_on_when_room_comes_free)
{
	pthread_t thread;

	pin_all();
	box.opt.space_wait_ms = 5000;
	int64_t start = now_mono_ns();
	pthread_create(&thread, NULL, unlink_later, NULL);
	cr_expect_eq(put_sized("new", MIB(2)), 0);
	cr_expect_geq(ms_since(start), 90);
	cr_expect_lt(ms_since(start), 2000);
	pthread_join(thread, NULL);
}

static bool is_interrupted_after_50_ms(void *arg)
{
	return ms_since(*(int64_t *)arg) >= 50;
}

Test(space, an_interrupt_ends_the_wait)
{
	pin_all();
	int64_t start = now_mono_ns();
	struct space_wait w = { .deadline_ns = start + 5000000000,
				.is_interrupted = is_interrupted_after_50_ms, .arg = &start };
	struct handle *h = NULL;

	cr_assert_eq(fs_box_create(&box, root, "new", 0, A, &h), 0);
	cr_expect_eq(draft_write(&box.fs, h->draft, bytes, MIB(2), 0, &w), -EINTR);
	cr_expect_lt(ms_since(start), 1000);
	fs_box_kill(&box, h);
	fs_box_release(&box, h);
	cr_expect(fs_box_books_balance(&box));
}

/* ---- expiry ---- */

Test(space, removing_by_id_takes_the_name_along)
{
	put_file("f");
	uint64_t id = object_of("f")->id;

	cr_expect_eq(space_remove_by_id(&box.fs, id), 0);
	cr_expect_not(is_there("f"));
	cr_expect_eq(space_remove_by_id(&box.fs, id), -ENOENT);
	cr_expect_eq(fs_box_n_objects(&box), 0);
}
