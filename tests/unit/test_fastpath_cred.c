/* SPDX-License-Identifier: Apache-2.0 */
/* What a session may do is what its user could do with open(2), no more. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fp_client.h"

#define A fs_box_who(1)
#define OWNER 1000
#define GROUP 100

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dir;

static void setup(void)
{
	fs_box_open(&box);
	dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_cred, .init = setup, .fini = teardown);

/* ---- helpers ---- */

/* Owner and mode of the directory, as chown and chmod leave them. */
static void set_dir(mode_t mode, uid_t uid, gid_t gid)
{
	pthread_mutex_lock(&box.fs.lock);
	dir->e.mode = S_IFDIR | mode;
	dir->e.uid = uid;
	dir->e.gid = gid;
	pthread_mutex_unlock(&box.fs.lock);
}

/* A published file of that owner and mode. */
static void put_file(const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	cr_assert_eq(fs_box_put_file(&box, dir, name, "text", 4, A), 0);
	struct inode *i = fs_box_look(&box, dir, name, A);
	pthread_mutex_lock(&box.fs.lock);
	i->e.mode = S_IFREG | mode;
	i->e.uid = uid;
	i->e.gid = gid;
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert_eq(ns_store_attr(&box.fs, i), 0);
	fs_box_put(&box, i);
}

static struct cred user(uid_t uid, gid_t gid, gid_t other)
{
	struct cred c = fp_user(uid, gid);

	c.groups[0] = 12345;
	c.groups[1] = other;
	c.n_groups = 2;
	return c;
}

/* Status of a READ or WRITE of one name by that user, who has opened the directory. */
static int status_of(uint32_t op, struct cred cred, const char *name)
{
	struct fp_client c;
	struct mcfs_submit io;
	uint64_t id;

	fp_open(&c, &box, cred, 1 << 16);
	struct handle *h = fp_open_dir(&box, dir, cred.uid, &id);
	struct mcfs_item *i = fp_items(&c, op, 1, &io);
	fp_name(&c, i, id, name);
	if (op != MCFS_OP_PREFETCH)
		fp_dense(&c, i, 4);
	cr_assert_eq(fp_submit(&c, &io), 0);
	int status = i->status;
	if (status)
		cr_expect_eq(i->bytes, 0);
	fp_close_handle(&box, h);
	fp_close(&c);
	return status;
}

/* ---- bits ---- */

Test(fastpath_cred, may_do_what_open_allows)
{
	static const struct {
		uint32_t mode;
		uid_t uid, gid, other;
		int want;
		bool may;
	} rows[] = {
		{0400, OWNER, 1, 1, R_OK, true},
		{0040, OWNER, GROUP, 1, R_OK, false}, /* the owner's bits count for the owner */
		{0004, OWNER, 1, 1, R_OK, false},
		{0040, 2, GROUP, 1, R_OK, true},
		{0040, 2, 1, GROUP, R_OK, true},
		{0004, 2, 1, GROUP, R_OK, false},
		{0004, 2, 1, 1, R_OK, true},
		{0440, 2, 1, 1, R_OK, false},
		{0500, OWNER, 1, 1, W_OK | X_OK, false},
		{0300, OWNER, 1, 1, W_OK | X_OK, true},
		{0000, 0, 1, 1, R_OK | W_OK | X_OK, true},
		{0777, 2, 1, 1, R_OK | W_OK | X_OK, true},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct cred c = user(rows[k].uid, rows[k].gid, rows[k].other);
		cr_expect_eq(cred_may(&c, S_IFREG | rows[k].mode, OWNER, GROUP, rows[k].want),
			     rows[k].may, "row %zu", k);
	}
}

Test(fastpath_cred, a_file_is_read_by_whom_its_bits_let)
{
	put_file("f", 0640, OWNER, GROUP);
	set_dir(0711, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(OWNER, 1, 1), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, GROUP, 1), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, 1, GROUP), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, 1, 1), "f"), -EACCES);
	cr_expect_eq(status_of(MCFS_OP_READ, user(0, 1, 1), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_PREFETCH, user(2, 1, 1), "f"), -EACCES);
	set_dir(0700, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(OWNER, 1, 1), "f"), -EACCES);
}

Test(fastpath_cred, chmod_counts_from_the_next_read_on)
{
	put_file("f", 0600, OWNER, GROUP);
	set_dir(0711, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, 1, 1), "f"), -EACCES);
	struct inode *i = fs_box_look(&box, dir, "f", A);
	i->e.mode = S_IFREG | 0604;
	cr_assert_eq(ns_store_attr(&box.fs, i), 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, 1, 1), "f"), 0);
}

Test(fastpath_cred, a_name_is_written_by_who_may_write_the_directory)
{
	set_dir(0755, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, 1), "new"), -EACCES);
	set_dir(0773, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, 1), "new"), 0);
	set_dir(0772, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, 1), "new2"),
		     -EACCES); /* not searchable */
	set_dir(0730, 0, GROUP);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, GROUP), "new3"), 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, 1), "new4"), -EACCES);
}

Test(fastpath_cred, a_file_is_written_over_by_whom_its_bits_let)
{
	put_file("f", 0624, OWNER, GROUP);
	set_dir(0777, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(2, 1, 1), "f"), -EACCES);
	cr_expect(fs_box_shows(&box, dir, "f", A, "text", 4));
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(2, 1, GROUP), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(OWNER, 1, 1), "f"), 0);
	cr_expect_eq(status_of(MCFS_OP_WRITE, user(0, 0, 0), "f"), 0);
}

Test(fastpath_cred, an_adopted_object_has_its_owner)
{
	put_file("f", 0600, OWNER, GROUP);
	set_dir(0711, 0, 0);
	fs_box_restart(&box, false);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	set_dir(0711, 0, 0);
	cr_expect_eq(status_of(MCFS_OP_READ, user(2, 1, 1), "f"), -EACCES);
	cr_expect_eq(status_of(MCFS_OP_READ, user(OWNER, 1, 1), "f"), 0);
	fs_box_restart(&box, false);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	cr_expect_eq(status_of(MCFS_OP_READ, user(0, 0, 0), "f"), 0);
}

Test(fastpath_cred, an_adopted_object_has_its_time_to_live)
{
	put_file("f", 0644, 0, 0);
	struct inode *i = fs_box_look(&box, dir, "f", A);
	i->e.policy.ttl_s = 1;
	cr_assert_eq(ns_store_attr(&box.fs, i), 0);
	usleep(2100000);
	fs_box_restart(&box, false);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	cr_expect_eq(status_of(MCFS_OP_READ, user(0, 0, 0), "f"), -ENOENT);
}

/* ---- handles ---- */

Test(fastpath_cred, a_handle_is_good_for_its_user_and_root)
{
	struct fp_client c;
	struct mcfs_submit io;
	uint64_t id, again;

	put_file("f", 0600, OWNER, GROUP);
	struct handle *h = fp_open_file(&box, dir, "f", OWNER, &id);
	cr_expect_eq(handle_make_public(&box.fs, h, OWNER, &again), 0);
	cr_expect_eq(again, id);
	cr_expect_eq(handle_make_public(&box.fs, h, OWNER + 1, &again), -EPERM);
	static const struct {
		uid_t uid;
		int status;
	} rows[] = {{OWNER, 0}, {OWNER + 1, -EPERM}, {0, 0}};
	for (size_t k = 0; k < 3; k++) {
		fp_open(&c, &box, fp_user(rows[k].uid, 1), 1 << 16);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
		i->object = id;
		fp_dense(&c, i, 4);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].status, "uid %u: %d", rows[k].uid, i->status);
		fp_close(&c);
	}
}

Test(fastpath_cred, only_open_files_have_a_handle)
{
	struct fp_client c;
	struct mcfs_submit io;
	uint64_t file_id, dir_id;

	put_file("f", 0644, 0, 0);
	struct handle *f = fp_open_file(&box, dir, "f", 0, &file_id);
	fp_open_dir(&box, dir, 0, &dir_id);
	fp_open(&c, &box, fp_root(), 1 << 16);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 6, &io);
	for (int k = 0; k < 6; k++)
		fp_dense(&c, &i[k], 4);
	i[0].object = file_id;
	i[1].object = dir_id;
	i[2].object = c.main.id;
	i[3].object = 0;
	i[4].object = file_id + 1;
	fp_name(&c, &i[5], file_id, "f"); /* a name in a file */
	cr_assert_eq(fp_submit(&c, &io), 0);
	static const int expected[] = {0, -EISDIR, -EINVAL, -ENOENT, -ENOENT, -ENOTDIR};
	for (int k = 0; k < 6; k++)
		cr_expect_eq(i[k].status, expected[k], "item %d: %d", k, i[k].status);
	fp_close_handle(&box, f);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, -ENOENT);
}

Test(fastpath_cred, handles_are_found_among_many)
{
	enum {
		N = 5000
	};
	static struct handle *h[N];
	static uint64_t id[N];

	for (int k = 0; k < N; k++)
		h[k] = fp_open_dir(&box, dir, 1, &id[k]);
	for (int k = 0; k < N; k += 2)
		fp_close_handle(&box, h[k]);
	for (int k = 0; k < N; k++) {
		pthread_mutex_lock(&box.fs.lock);
		struct handle *found = handle_find_locked(&box.fs, id[k]);
		pthread_mutex_unlock(&box.fs.lock);
		cr_expect_eq(found, k % 2 ? h[k] : NULL);
	}
	handle_revoke(&box.fs, h[1]);
	pthread_mutex_lock(&box.fs.lock);
	cr_expect_null(handle_find_locked(&box.fs, id[1]));
	pthread_mutex_unlock(&box.fs.lock);
	fp_close_handle(&box, h[1]); /* once more is no harm */
}
