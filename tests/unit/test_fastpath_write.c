/* SPDX-License-Identifier: Apache-2.0 */
/* WRITE of the fast path: what becomes of names, groups that are all or none, and whatever fails on the way. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fakes/fault_tier.h"
#include "lib/fp_client.h"
#include "object/durable.h"

#define A fs_box_who(1)
#define N 5

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dir;
static struct fp_client c;
static uint64_t dir_id;

static void open_client(void)
{
	dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	fp_open(&c, &box, fp_root(), 16 << 20);
	fp_open_dir(&box, dir, 0, &dir_id);
}

static void setup(void)
{
	fs_box_open(&box);
	open_client();
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_write, .init = setup, .fini = teardown);

/* ---- helpers ---- */

/* A WRITE of n objects "n0", "n1", ... of 5000 bytes that hold their name. */
static struct mcfs_item *writes(uint32_t n, uint32_t flags, struct mcfs_submit *io)
{
	fp_reset(&c);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, n, io);

	io->flags = flags;
	for (uint32_t k = 0; k < n; k++) {
		char name[16];
		snprintf(name, sizeof(name), "n%u", k);
		fp_name(&c, &i[k], dir_id, name);
		strcpy(fp_dense(&c, &i[k], 5000), name);
	}
	return i;
}

static bool is_there(const char *name)
{
	struct entry e;

	if (catalog_lookup(box.fs.catalog, dir->key, name, &e))
		return false;
	entry_fini(&e);
	return true;
}

static uint32_t n_there(uint32_t n)
{
	uint32_t found = 0;

	for (uint32_t k = 0; k < n; k++) {
		char name[16];
		snprintf(name, sizeof(name), "n%u", k);
		found += is_there(name);
	}
	return found;
}

static struct entry entry_of(const char *name)
{
	struct entry e;

	cr_assert_eq(catalog_lookup(box.fs.catalog, dir->key, name, &e), 0);
	return e;
}

static bool is_true(void *arg)
{
	return true;
}

/* ---- names ---- */

Test(fastpath_write, many_objects_are_published_in_one_call)
{
	struct mcfs_submit io;
	struct mcfs_item *i = writes(200, 0, &io);

	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 200);
	cr_expect_eq(n_there(200), 200);
	for (int k = 0; k < 200; k++) {
		cr_expect_eq(i[k].bytes, 5000);
		cr_expect_eq(i[k].size, 5000);
		cr_expect_neq(i[k].version, 0);
	}
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

Test(fastpath_write, the_last_of_two_items_with_one_name_wins)
{
	struct mcfs_submit io;
	struct mcfs_item *i = writes(3, 0, &io);

	for (int k = 0; k < 3; k++)
		i[k].name = i[0].name;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 3);
	cr_expect_lt(i[0].version, i[1].version);
	cr_expect_lt(i[1].version, i[2].version);
	cr_expect_eq(entry_of("n0").object_id, i[2].version);
	cr_expect_eq(strcmp(fp_at(&c, i[2].base), "n2"), 0);
	cr_expect_eq(fs_box_n_objects(&box), 1);
}

Test(fastpath_write, a_new_file_is_the_sessions_users_with_the_given_mode)
{
	struct mcfs_submit io;
	struct fp_client user;
	uint64_t id;

	dir->e.mode = S_IFDIR | 0777;
	fp_open(&user, &box, fp_user(1000, 1001), 1 << 20);
	fp_open_dir(&box, dir, 1000, &id);
	struct mcfs_item *i = fp_items(&user, MCFS_OP_WRITE, 1, &io);
	fp_name(&user, i, id, "f");
	fp_dense(&user, i, 10);
	i->mode = 0640;
	cr_assert_eq(fp_submit(&user, &io), 0);
	cr_assert_eq(i->status, 0);
	struct entry e = entry_of("f");
	cr_expect_eq(e.mode, S_IFREG | 0640);
	cr_expect_eq(e.uid, 1000);
	cr_expect_eq(e.gid, 1001);
	cr_expect_neq(e.ino, 0);
	cr_expect_neq(e.mtime_ns, 0);
}

Test(fastpath_write, a_set_group_directory_hands_its_group_down_without_the_right_to_it)
{
	struct mcfs_submit io;
	struct fp_client user;
	uint64_t id;

	dir->e.mode = S_IFDIR | S_ISGID | 0777;
	dir->e.gid = 50;
	fp_open(&user, &box, fp_user(1000, 1000), 1 << 20);
	fp_open_dir(&box, dir, 1000, &id);
	struct mcfs_item *i = fp_items(&user, MCFS_OP_WRITE, 1, &io);
	fp_name(&user, i, id, "f");
	i->mode = 06755;
	cr_assert_eq(fp_submit(&user, &io), 0);
	cr_assert_eq(i->status, 0);
	cr_expect_eq(entry_of("f").gid, 50);
	cr_expect_eq(entry_of("f").mode, S_IFREG | S_ISUID | 0755);
}

Test(fastpath_write, overwriting_keeps_number_owner_and_mode_and_gives_a_version)
{
	struct mcfs_submit io;
	uint64_t old_id;

	cr_assert_eq(fs_box_put_file(&box, dir, "n0", "old", 3, A), 0);
	struct inode *inode = fs_box_look(&box, dir, "n0", A);
	cr_assert_not_null(fp_open_file(&box, dir, "n0", 0, &old_id));
	pthread_mutex_lock(&box.fs.lock);
	inode->e.mode = S_IFREG | 06751;
	inode->e.uid = 7;
	inode->e.gid = 8;
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert_eq(ns_store_attr(&box.fs, inode), 0);
	struct entry old = entry_of("n0");
	struct mcfs_item *i = writes(1, 0, &io);
	i->mode = 0600;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_assert_eq(i->status, 0);
	struct entry e = entry_of("n0");
	cr_expect_eq(e.ino, old.ino);
	cr_expect_eq(e.mode, S_IFREG | 0751, "%o", e.mode); /* without the set-id bits */
	cr_expect_eq(e.uid, 7);
	cr_expect_eq(e.gid, 8);
	cr_expect_eq(e.btime_ns, old.btime_ns);
	cr_expect_gt(e.object_id, old.object_id);
	cr_expect_eq(e.object_id, i->version);
	cr_expect_eq(e.size, 5000);

	struct mcfs_item *read = fp_items(&c, MCFS_OP_READ, 1, &io);
	read->object = old_id;
	fp_dense(&c, read, 3);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(read->bytes, 3);
	cr_expect_eq(memcmp(fp_at(&c, read->base), "old", 3), 0);
}

Test(fastpath_write, what_is_no_file_is_not_overwritten)
{
	struct caller_id who = A;
	struct ns_new n = {.mode = S_IFLNK | 0777, .target = "a"};
	struct inode *link;

	fs_box_mkdir(&box, dir, "dir");
	cr_assert_eq(ns_make(&box.fs, dir, "link", &n, &who, &link), 0);
	cr_expect_eq(fp_put(&c, dir_id, "dir", "x", 1), -EISDIR);
	cr_expect_eq(fp_put(&c, dir_id, "link", "x", 1), -ELOOP);
	cr_expect_eq(fs_box_n_objects(&box), 0);
}

Test(fastpath_write, the_control_directorys_name_is_not_to_be_had)
{
	uint64_t root_id;

	fp_open_dir(&box, fs_box_root(&box), 0, &root_id);
	cr_expect_eq(fp_put(&c, root_id, ".mooncake", "x", 1), -EPERM);
	cr_expect_eq(fp_put(&c, dir_id, ".mooncake", "x", 1), 0);
}

Test(fastpath_write, a_removed_directory_takes_no_names)
{
	struct inode *gone = fs_box_mkdir(&box, dir, "gone");
	uint64_t id;

	fp_open_dir(&box, gone, 0, &id);
	cr_assert_eq(ns_rmdir(&box.fs, dir, "gone"), 0);
	cr_expect_eq(fp_put(&c, id, "f", "x", 1), -ENOENT);
	cr_expect_eq(fs_box_n_objects(&box), 0);
}

Test(fastpath_write, a_directory_about_to_get_a_name_is_not_empty)
{
	struct inode *d = fs_box_mkdir(&box, dir, "d");

	pthread_mutex_lock(&box.fs.lock);
	d->n_publishing++;
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect_eq(ns_rmdir(&box.fs, dir, "d"), -ENOTEMPTY);
	pthread_mutex_lock(&box.fs.lock);
	d->n_publishing--;
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect_eq(ns_rmdir(&box.fs, dir, "d"), 0);
}

Test(fastpath_write, no_directory_is_left_held)
{
	struct mcfs_submit io;
	struct mcfs_item *i = writes(3, 0, &io);

	i[1].object = 99;
	cr_assert_eq(fp_submit(&c, &io), 0);
	writes(3, MCFS_GROUP, &io)[1].segment_bytes = 0;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(dir->n_publishing, 0);
}

/* ---- durability ---- */

Test(fastpath_write, an_object_to_be_kept_is_durable_when_it_is_visible)
{
	struct mcfs_submit io;

	dir->e.policy.class = MCFS_CLASS_KEEP;
	struct mcfs_item *i = writes(2, 0, &io);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 2);
	fs_box_restart(&box, true);
	cr_expect(fs_box_shows(&box, fs_box_dir(&box, fs_box_root(&box), "kv"), "n1", A,
			       fp_at(&c, i[1].base), 5000));
}

Test(fastpath_write, what_replaces_an_object_to_be_kept_is_kept)
{
	struct mcfs_submit io;

	dir->e.policy.class = MCFS_CLASS_KEEP;
	cr_assert_eq(fs_box_put_file(&box, dir, "n0", "old", 3, A), 0);
	dir->e.policy.class = MCFS_CLASS_CACHE;
	struct mcfs_item *i = writes(1, 0, &io);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_assert_eq(i->status, 0);
	cr_expect_eq(entry_of("n0").policy.class, MCFS_CLASS_KEEP);
	fs_box_restart(&box, true);
	cr_expect(fs_box_shows(&box, fs_box_dir(&box, fs_box_root(&box), "kv"), "n0", A,
			       fp_at(&c, i->base), 5000));
}

/* ---- groups ---- */

Test(fastpath_write, a_group_becomes_visible_whole)
{
	struct mcfs_submit io;

	writes(300, MCFS_GROUP, &io);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 300);
	cr_expect_eq(n_there(300), 300);
}

/* How the item in the middle of a group is spoilt, and what it says. */
enum spoilt {
	NO_DIR,
	BAD_FIELD,
	BAD_MEMORY,
	IS_DIR,
	SAME_NAME,
	N_SPOILT
};
static const int spoilt_status[N_SPOILT] = {-ENOENT, -EINVAL, -EFAULT, -EISDIR, -EEXIST};

Test(fastpath_write, a_group_with_one_bad_item_publishes_nothing)
{
	fs_box_mkdir(&box, dir, "is-dir");
	struct tier_stats before = fs_box_dram(&box);

	for (int kind = 0; kind < N_SPOILT; kind++) {
		struct mcfs_submit io;
		struct mcfs_item *i = writes(N, MCFS_GROUP, &io);
		switch (kind) {
		case NO_DIR:
			i[2].object = 99;
			break;
		case BAD_FIELD:
			i[2].reserved = 1;
			break;
		case BAD_MEMORY:
			i[2].base = UINT64_MAX - 10;
			break;
		case IS_DIR:
			fp_name(&c, &i[2], dir_id, "is-dir");
			break;
		case SAME_NAME:
			i[2].name = i[1].name;
			break;
		}
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(io.n_ok, 0, "kind %d", kind);
		for (int k = 0; k < N; k++)
			cr_expect_eq(i[k].status, k == 2 ? spoilt_status[kind] : -ECANCELED,
				     "kind %d item %d: %d", kind, k, i[k].status);
		cr_expect_eq(n_there(N), 0, "kind %d", kind);
		cr_expect_eq(fs_box_dram(&box).n_sealed, before.n_sealed);
		cr_expect_eq(fs_box_dram(&box).n_open, before.n_open);
	}
}

Test(fastpath_write, a_group_is_at_most_1024_objects)
{
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1025, &io);

	io.flags = MCFS_GROUP;
	for (int k = 0; k < 1025; k++) {
		char name[16];
		snprintf(name, sizeof(name), "g%d", k);
		fp_name(&c, &i[k], dir_id, name);
	}
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 0);
	cr_expect_eq(i[0].status, -E2BIG);
	cr_expect_eq(i[1024].status, -E2BIG);
	io.n_items = 1024;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 1024);
}

/* ---- failure ---- */

static const enum fault_op ops[] = {FAULT_take, FAULT_charge, FAULT_write, FAULT_seal};
#define N_OPS (sizeof(ops) / sizeof(*ops))

/* Walks the nth call of an operation that fails; what is not written stays as it was. */
static void fail_each_call(uint32_t flags)
{
	fs_box_fault_dram(&box);
	for (size_t op = 0; op < N_OPS; op++)
		for (uint64_t nth = 1; nth <= N; nth++) {
			struct mcfs_submit io;
			for (uint32_t k = 0; k < N; k++) {
				char name[16];
				snprintf(name, sizeof(name), "n%u", k);
				fs_box_unlink(&box, dir, name, A);
			}
			struct mcfs_item *i = writes(N, flags, &io);
			fault_tier_fail(box.fs.dram, ops[op], nth, EIO);
			cr_assert_eq(fp_submit(&c, &io), 0);
			fault_tier_fail(box.fs.dram, ops[op], 0, 0);
			uint32_t n_ok = flags & MCFS_GROUP ? 0 : N - 1, n_io = 0;
			cr_expect_eq(io.n_ok, n_ok, "%s %d: %u", fault_op_name(ops[op]), (int)nth,
				     io.n_ok);
			for (int k = 0; k < N; k++)
				n_io += i[k].status == -EIO;
			cr_expect_eq(n_io, 1, "%s %d", fault_op_name(ops[op]), (int)nth);
			cr_expect_eq(n_there(N), n_ok);
			cr_expect_eq(dir->n_publishing, 0);
		}
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

Test(fastpath_write, an_item_whose_tier_fails_fails_alone)
{
	fail_each_call(0);
}

Test(fastpath_write, a_group_whose_tier_fails_once_publishes_nothing)
{
	fail_each_call(MCFS_GROUP);
}

Test(fastpath_write, a_failing_catalog_publishes_nothing)
{
	for (int flags = 0; flags <= MCFS_GROUP; flags += MCFS_GROUP) {
		struct mcfs_submit io;
		struct mcfs_item *i = writes(N, (uint32_t)flags, &io);
		fs_box_catalog_writable(&box, false);
		cr_assert_eq(fp_submit(&c, &io), 0);
		fs_box_catalog_writable(&box, true);
		cr_expect_eq(io.n_ok, 0);
		for (int k = 0; k < N; k++)
			cr_expect(i[k].status == -EROFS || (flags && i[k].status == -ECANCELED),
				  "%d", i[k].status);
		cr_expect_eq(n_there(N), 0);
	}
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

Test(fastpath_write, a_failing_durable_copy_fails_its_item_alone)
{
	struct mcfs_submit io;

	dir->e.policy.class = MCFS_CLASS_KEEP;
	fs_box_fault_ssd(&box);
	struct mcfs_item *i = writes(3, 0, &io);
	fault_tier_fail(box.fs.ssd, FAULT_seal, 2, EIO);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, -EIO);
	cr_expect_eq(i[2].status, 0);
	cr_expect_eq(fs_box_ssd(&box).n_sealed, 2);
	cr_expect_eq(fs_box_ssd(&box).n_open, 0);
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

Test(fastpath_write, more_than_there_is_room_for_evicts_the_oldest)
{
	char *bytes = calloc(1, 8 << 20);

	for (int k = 0; k < 20; k++) { /* 160 MiB into 64 */
		char name[16];
		snprintf(name, sizeof(name), "n%d", k);
		cr_assert_eq(fp_put(&c, dir_id, name, bytes, 8 << 20), 0, "%s", name);
	}
	cr_expect(is_there("n19"));
	cr_expect_not(is_there("n0"));
	free(bytes);
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

Test(fastpath_write, without_room_an_item_says_so_and_the_others_go_through)
{
	struct fp_buffer big;
	struct mcfs_submit io;

	/* What buffers take cannot be evicted, pinned objects neither. */
	fp_buffer_open(&box, "big", 0, 16 << 20, &big);
	cr_assert_eq(fp_register(&c, &big, 0, 0), 0);
	dir->e.policy.pin = 1;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 4, &io);
	for (int k = 0; k < 4; k++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", k);
		fp_name(&c, &i[k], dir_id, name);
		i[k].buffer = big.number;
		i[k].segment_bytes = k < 3 ? 14 << 20 : 4096;
		i[k].segment_count = 1;
	}
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, 0);
	cr_expect_eq(i[2].status, -ENOSPC);
	cr_expect_eq(i[3].status, 0);
	fp_buffer_close(&box, &big);
	fp_close(&c);
	cr_expect(fs_box_books_balance(&box));
}

/* ---- stopping ---- */

Test(fastpath_write, an_interrupt_stops_before_the_next_item)
{
	struct mcfs_submit io;
	struct mcfs_item *i = writes(N, 0, &io);

	cr_expect_eq(fp_submit_until(&c, &io, is_true, NULL), -EINTR);
	cr_expect_eq(n_there(N), 0);
	for (int k = 0; k < N; k++)
		cr_expect_eq(i[k].status, -EINTR);
}

Test(fastpath_write, a_deadline_that_passed_is_told_by_each_item)
{
	struct mcfs_submit io;
	struct mcfs_item *i = writes(N, 0, &io);

	io.deadline_us = 1;
	cr_expect_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 0);
	cr_expect_eq(n_there(N), 0);
	for (int k = 0; k < N; k++)
		cr_expect_eq(i[k].status, -ETIMEDOUT);
}
