/* SPDX-License-Identifier: Apache-2.0 */
/* namespace: what names show, and to whom, while they are made, moved and removed. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fs_box.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#define RENAME_EXCHANGE (1 << 1)
#endif

#define A fs_box_who(1)
#define B fs_box_who(2)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root, *sub;

static void setup(void)
{
	fs_box_open(&box);
	root = fs_box_root(&box);
	sub = fs_box_mkdir(&box, root, "sub");
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(ns, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static struct handle *create(struct inode *dir, const char *name, struct caller_id who)
{
	struct handle *h = NULL;

	cr_assert_eq(fs_box_create(&box, dir, name, 0, who, &h), 0);
	return h;
}

static void put_file(struct inode *dir, const char *name)
{
	cr_assert_eq(fs_box_put_file(&box, dir, name, name, strlen(name), A), 0);
}

/* The name shows a file of this text (files are born with their name as text); NULL: nothing. */
static bool shows(struct inode *dir, const char *name, const char *text)
{
	if (!text)
		return !fs_box_look(&box, dir, name, B);
	return fs_box_shows(&box, dir, name, B, text, strlen(text));
}

static int make(struct inode *dir, const char *name, mode_t mode, const char *target)
{
	struct caller_id who = B;
	struct ns_new n = { .mode = mode, .target = target };
	struct inode *i = NULL;

	return ns_make(&box.fs, dir, name, &n, &who, &i);
}

static int move(struct inode *dir, const char *name, struct inode *dir2, const char *name2,
		unsigned int flags, struct caller_id who)
{
	return ns_rename(&box.fs, dir, name, dir2, name2, flags, &who);
}

static int removed(struct inode *dir, const char *name)
{
	return ns_rmdir(&box.fs, dir, name);
}

/* ---- lookup and making ---- */

Test(ns, what_is_not_there_is_enoent)
{
	struct caller_id who = A;
	struct inode *i;
	bool has_draft;

	cr_expect_eq(ns_lookup(&box.fs, root, "f", &who, &i, &has_draft), -ENOENT);
	cr_expect_eq(fs_box_unlink(&box, root, "f", A), -ENOENT);
	cr_expect_eq(removed(root, "f"), -ENOENT);
	cr_expect_eq(move(root, "f", root, "g", 0, A), -ENOENT);
}

Test(ns, a_lookup_tells_of_drafts_of_others)
{
	struct caller_id who = B;
	struct inode *i;
	bool has_draft = true;

	put_file(root, "f");
	cr_assert_eq(ns_lookup(&box.fs, root, "f", &who, &i, &has_draft), 0);
	cr_expect_not(has_draft);
	struct handle *h = NULL;
	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	cr_assert_eq(ns_lookup(&box.fs, root, "f", &who, &i, &has_draft), 0);
	cr_expect_eq(i->kind, INODE_OBJECT);
	cr_expect(has_draft, "the kernel must not cache the name");
	fs_box_release(&box, h);
}

Test(ns, makes_what_it_is_told)
{
	cr_assert_eq(make(root, "d", S_IFDIR | 0750, NULL), 0);
	cr_assert_eq(make(root, "l", S_IFLNK | 0777, "target"), 0);
	cr_assert_eq(make(root, "f", S_IFREG | 0600, NULL), 0);
	cr_expect_eq(make(root, "p", S_IFIFO | 0600, NULL), -EPERM);
	struct inode *d = fs_box_look(&box, root, "d", A), *l = fs_box_look(&box, root, "l", A);
	cr_expect_eq(d->e.mode, S_IFDIR | 0750);
	cr_expect_str_eq(l->e.target, "target");
	cr_expect_eq(l->e.size, 6);
	cr_expect(shows(root, "f", ""));
	cr_expect(shows(root, "p", NULL));
}

Test(ns, makes_nothing_twice)
{
	static const mode_t modes[] = { S_IFDIR | 0755, S_IFLNK | 0777, S_IFREG | 0644 };

	put_file(root, "f");
	cr_assert_eq(make(root, "l", S_IFLNK | 0777, "t"), 0);
	for (size_t k = 0; k < 3; k++) {
		const char *target = S_ISLNK(modes[k]) ? "t" : NULL;
		cr_expect_eq(make(root, "f", modes[k], target), -EEXIST);
		cr_expect_eq(make(root, "l", modes[k], target), -EEXIST);
		cr_expect_eq(make(root, "sub", modes[k], target),
			     S_ISREG(modes[k]) ? -EISDIR : -EEXIST);
	}
	struct handle *h = create(root, "draft", B);
	cr_expect_eq(make(root, "draft", S_IFDIR | 0755, NULL), -EEXIST, "its own draft");
	fs_box_shut(&box, h);
}

Test(ns, a_write_open_of_a_symlink_walks_again)
{
	struct handle *h = NULL;

	cr_assert_eq(make(root, "l", S_IFLNK | 0777, "t"), 0);
	cr_expect_eq(fs_box_create(&box, root, "l", 0, A, &h), -ESTALE);
	cr_expect_eq(fs_box_create(&box, root, "l", BOX_EXCL, A, &h), -EEXIST);
	cr_expect_eq(fs_box_create(&box, root, "sub", 0, A, &h), -EISDIR);
}

Test(ns, groups_and_policies_are_inherited)
{
	pthread_mutex_lock(&box.fs.lock);
	sub->e.mode |= S_ISGID;
	sub->e.gid = 77;
	sub->e.policy.class = MCFS_CLASS_KEEP;
	sub->e.policy.class_is_set = 1;
	sub->e.policy.ttl_s = 9;
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert_eq(make(sub, "d", S_IFDIR | 0755, NULL), 0);
	struct inode *d = fs_box_look(&box, sub, "d", A);
	cr_expect_eq(d->e.gid, 77);
	cr_expect(d->e.mode & S_ISGID);
	cr_expect_eq(d->e.policy.class, MCFS_CLASS_KEEP);
	cr_expect_eq(d->e.policy.class_is_set, 0, "inherited, not set");
	cr_expect_eq(d->e.policy.ttl_s, 9);
}

Test(ns, names_of_any_bytes_and_255_of_them)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	name[0] = '\xff';
	name[1] = '\n';
	name[2] = ' ';
	put_file(root, name);
	cr_expect(shows(root, name, name));
	cr_expect_eq(move(root, name, sub, name, 0, A), 0);
	cr_expect(shows(sub, name, name));
	cr_expect_eq(fs_box_unlink(&box, sub, name, A), 0);
}

/* ---- unlink, rmdir ---- */

Test(ns, unlink_takes_the_name_and_not_what_is_open)
{
	struct object *o;
	char c = 0;

	put_file(root, "f");
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_assert_eq(fs_box_unlink(&box, root, "f", B), 0);
	cr_expect(shows(root, "f", NULL));
	cr_expect_eq(i->state, INODE_GONE);
	cr_assert_eq(fs_box_pread(&box, o, &c, 1, 0), 0);
	cr_expect_eq(c, 'f');
	cr_expect_eq(fs_box_n_objects(&box), 1, "its bytes count while it is open");
	fs_box_drop(&box, i, o);
	cr_expect_eq(fs_box_n_objects(&box), 0);
	cr_expect(fs_box_books_balance(&box));
}

/* Between another's LOOKUP and its OPEN: that the name went meanwhile must not make its open fail. */
Test(ns, what_another_has_just_looked_up_can_be_opened_though_it_is_unlinked)
{
	struct object *o;
	char c = 0;

	put_file(root, "f");
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(fs_box_look(&box, root, "f", A), i, "as unlink(2) does");
	cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	cr_expect(shows(root, "f", NULL));
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_assert_eq(fs_box_pread(&box, o, &c, 1, 0), 0);
	cr_expect_eq(c, 'f');
	fs_box_drop(&box, i, o);
	i->replaced_ns -= 2 * REPLACED_GRACE_NS;
	cr_expect_eq(fs_box_hold(&box, i, B, &o), -ESTALE);

	put_file(root, "f");
	i = fs_box_look(&box, root, "f", B);
	i->looked_s -= 10;
	cr_assert_eq(fs_box_look(&box, root, "f", A), i);
	cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	cr_expect_eq(i->state, INODE_GONE, "that was long ago");
	cr_expect(fs_box_books_balance(&box));
}

Test(ns, unlink_takes_ones_own_draft_and_none_of_others)
{
	struct handle *a = create(root, "f", A), *b = create(root, "f", B);

	cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	cr_expect_null(fs_box_look(&box, root, "f", A));
	cr_expect_not_null(fs_box_look(&box, root, "f", B));
	fs_box_shut(&box, a);
	cr_expect_null(fs_box_look(&box, root, "f", A));
	cr_assert_eq(fs_box_shut(&box, b), 0);
	cr_expect(shows(root, "f", ""));
}

Test(ns, unlink_of_a_published_name_takes_its_shared_draft)
{
	struct handle *h = NULL;

	put_file(root, "f");
	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	cr_assert_eq(fs_box_write(&box, h, "X", 1, 0), 0);
	cr_assert_eq(fs_box_unlink(&box, root, "f", B), 0);
	fs_box_shut(&box, h);
	cr_expect(shows(root, "f", NULL), "a removed file does not come back at close");
	cr_expect(fs_box_books_balance(&box));
}

Test(ns, unlink_and_rmdir_tell_types_apart)
{
	cr_assert_eq(make(root, "l", S_IFLNK | 0777, "t"), 0);
	put_file(root, "f");
	cr_expect_eq(fs_box_unlink(&box, root, "sub", A), -EISDIR);
	cr_expect_eq(removed(root, "f"), -ENOTDIR);
	cr_expect_eq(removed(root, "l"), -ENOTDIR);
	cr_expect_eq(fs_box_unlink(&box, root, "l", A), 0);
	cr_expect_eq(removed(root, "sub"), 0);
	cr_expect(shows(root, "sub", NULL));
}

Test(ns, rmdir_wants_it_empty_also_of_drafts_of_others)
{
	put_file(sub, "f");
	cr_expect_eq(removed(root, "sub"), -ENOTEMPTY);
	cr_assert_eq(fs_box_unlink(&box, sub, "f", A), 0);
	struct handle *h = create(sub, "g", A);
	cr_expect_eq(removed(root, "sub"), -ENOTEMPTY, "a draft will publish there");
	put_file(sub, "f");
	cr_assert_eq(fs_box_unlink(&box, sub, "f", A), 0);
	fs_box_kill(&box, h);
	fs_box_release(&box, h);
	cr_expect_eq(removed(root, "sub"), 0);
	cr_expect_eq(fs_box_create(&box, sub, "late", 0, A, &h), -ENOENT, "no new names in it");
	cr_expect_eq(make(sub, "late", S_IFDIR | 0755, NULL), -ENOENT);
	cr_expect_eq(move(root, "sub", sub, "late", 0, A), -ENOENT);
}

Test(ns, a_failed_rmdir_leaves_a_directory_that_works)
{
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(removed(root, "sub"), -EROFS);
	fs_box_catalog_writable(&box, true);
	put_file(sub, "f");
	cr_expect(shows(sub, "f", "f"));
}

/* ---- rename: what moves, onto what ---- */

enum thing { NOTHING, FILE_, LINK, EMPTY_DIR, FULL_DIR, N_THINGS };

static void make_thing(const char *name, enum thing t)
{
	switch (t) {
	case FILE_: put_file(root, name); break;
	case LINK: cr_assert_eq(make(root, name, S_IFLNK | 0777, "t"), 0); break;
	case EMPTY_DIR: fs_box_mkdir(&box, root, name); break;
	case FULL_DIR: put_file(fs_box_mkdir(&box, root, name), "in"); break;
	default: break;
	}
}

static enum inode_kind kind_of(enum thing t)
{
	return t == FILE_ ? INODE_OBJECT : t == LINK ? INODE_SYMLINK : INODE_DIR;
}

static int expected(enum thing from, enum thing to, bool no_replace)
{
	bool from_dir = from >= EMPTY_DIR, to_dir = to >= EMPTY_DIR;

	if (from == NOTHING)
		return -ENOENT;
	if (to == NOTHING)
		return 0;
	if (no_replace)
		return -EEXIST;
	if (to_dir && !from_dir)
		return -EISDIR;
	if (from_dir && !to_dir)
		return -ENOTDIR;
	return to == FULL_DIR ? -ENOTEMPTY : 0;
}

Test(ns, rename_of_anything_onto_anything)
{
	for (int c = 0; c < 2 * N_THINGS * N_THINGS; c++) {
		enum thing from = (enum thing)(c % N_THINGS);
		enum thing to = (enum thing)(c / N_THINGS % N_THINGS);
		unsigned int flags = c >= N_THINGS * N_THINGS ? RENAME_NOREPLACE : 0;
		char a[16], b[16];
		snprintf(a, sizeof(a), "a%d", c);
		snprintf(b, sizeof(b), "b%d", c);
		make_thing(a, from);
		make_thing(b, to);
		struct inode *before = from ? fs_box_look(&box, root, a, B) : NULL;
		int rc = move(root, a, root, b, flags, B), want = expected(from, to, flags);
		cr_expect_eq(rc, want, "%d onto %d, flags %u: %d", from, to, flags, rc);
		struct inode *ia = fs_box_look(&box, root, a, B);
		struct inode *ib = fs_box_look(&box, root, b, B);
		cr_expect_eq(!ia, want == 0 || from == NOTHING, "%d onto %d", from, to);
		if (want == 0) {
			cr_assert_not_null(ib);
			cr_expect_eq(ib, before, "the same inode under its new name");
			cr_expect_eq(ib->kind, kind_of(from));
		} else if (to) {
			cr_assert_not_null(ib);
			cr_expect_eq(ib->kind, kind_of(to));
		}
		if (want == 0 && from == FILE_)
			cr_expect(shows(root, b, a));
		if (want == 0 && from == FULL_DIR)
			cr_expect(shows(ib, "in", "in"));
		/* What stayed still works. */
		if (ib && ib->kind == INODE_DIR)
			put_file(ib, "more");
	}
}

Test(ns, rename_takes_no_other_flags)
{
	put_file(root, "f");
	cr_expect_eq(move(root, "f", root, "g", RENAME_EXCHANGE, A), -EINVAL);
	cr_expect_eq(move(root, "f", root, "f", 0, A), 0);
	cr_expect(shows(root, "f", "f"));
}

Test(ns, rename_between_directories_keeps_the_version)
{
	put_file(root, "f");
	put_file(sub, "g");
	struct inode *old = fs_box_look(&box, sub, "g", B), *i = fs_box_look(&box, root, "f", B);
	uint64_t id = i->key;

	cr_assert_eq(move(root, "f", sub, "g", 0, A), 0);
	cr_expect_eq(fs_box_look(&box, sub, "g", B)->key, id);
	cr_expect_eq(i->parent, sub->key);
	cr_expect_eq(old->state, INODE_REPLACED);
	struct object_record r;
	cr_assert_eq(catalog_object_get(box.fs.catalog, id, &r), 0);
	cr_expect_eq(r.parent, sub->key);
	cr_expect_str_eq(r.name, "g");
	object_record_fini(&r);
}

Test(ns, a_failed_rename_over_a_directory_leaves_it_working)
{
	fs_box_mkdir(&box, root, "d");
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(move(root, "d", root, "sub", 0, A), -EROFS);
	fs_box_catalog_writable(&box, true);
	put_file(sub, "f");
	cr_expect(shows(sub, "f", "f"));
	cr_expect_not_null(fs_box_look(&box, root, "d", A));
}

/* ---- rename with drafts ---- */

Test(ns, an_open_draft_takes_its_name_along)
{
	struct handle *h = create(root, "f", A);

	cr_assert_eq(fs_box_write(&box, h, "x", 1, 0), 0);
	cr_expect_eq(move(root, "f", sub, "g", 0, B), -ENOENT, "another's draft");
	cr_assert_eq(move(root, "f", sub, "g", 0, A), 0);
	cr_expect_null(fs_box_look(&box, root, "f", A));
	cr_expect(fs_box_shows(&box, sub, "g", A, "x", 1));
	cr_expect(shows(sub, "g", NULL));
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows(sub, "g", "x"));
}

Test(ns, noreplace_sees_ones_own_drafts)
{
	struct handle *h = create(root, "f", A), *h2 = create(root, "g", A);

	cr_expect_eq(move(root, "f", root, "g", RENAME_NOREPLACE, A), -EEXIST);
	cr_expect_eq(move(root, "f", root, "new", RENAME_NOREPLACE, A), 0);
	fs_box_shut(&box, h);
	fs_box_shut(&box, h2);
	cr_expect(shows(root, "new", "") && shows(root, "g", ""));
}

Test(ns, a_draft_under_the_new_name_is_replaced)
{
	struct handle *old = create(root, "g", A);

	cr_assert_eq(fs_box_write(&box, old, "old", 3, 0), 0);
	put_file(root, "f");
	cr_assert_eq(move(root, "f", root, "g", 0, A), 0);
	cr_expect(shows(root, "g", "f"));
	fs_box_shut(&box, old);
	cr_expect(shows(root, "g", "f"), "a replaced draft does not publish");
	cr_expect(fs_box_books_balance(&box));
}

Test(ns, a_shared_draft_moves_with_its_file)
{
	struct handle *h = NULL;

	put_file(root, "f");
	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	cr_assert_eq(fs_box_write(&box, h, "F", 1, 0), 0);
	cr_assert_eq(move(root, "f", sub, "g", 0, B), 0);
	cr_expect(shows(sub, "g", "f"));
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows(sub, "g", "F"));
	cr_expect(shows(root, "f", NULL), "the old name does not come back");
}

Test(ns, a_draft_moves_without_the_directory_that_another_made_there)
{
	struct handle *h = create(root, "x", A);

	cr_assert_eq(fs_box_write(&box, h, "x", 1, 0), 0);
	struct inode *d = fs_box_mkdir(&box, root, "x");
	put_file(d, "in");
	cr_assert_eq(move(root, "x", root, "y", 0, A), 0);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows(root, "y", "x"));
	cr_assert_not_null(fs_box_look(&box, root, "x", B), "another process's directory stays");
	cr_expect(shows(d, "in", "in"));
}

Test(ns, a_closed_draft_with_stores_publishes_before_it_moves)
{
	struct handle *h = create(root, "f", A);

	cr_assert_eq(fs_box_write(&box, h, "one", 3, 0), 0);
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	/* A store through a mapping that comes after the close. */
	cr_assert_eq(fs_box_write(&box, h, "two", 3, 0), 0);
	cr_assert_eq(move(root, "f", root, "g", 0, A), 0);
	cr_expect(shows(root, "g", "two"));
	cr_expect(shows(root, "f", NULL));
	fs_box_release(&box, h);
	cr_expect(shows(root, "g", "two"));
}

/* ---- expiry, attributes, restarts ---- */

Test(ns, what_outlived_its_ttl_is_gone)
{
	struct entry e = { .ino = 77, .mode = S_IFREG | 0644, .policy.ttl_s = 1 };
	struct object_record r = { .object_id = 1000ull << 12 }; /* a millisecond after 1970 */
	struct commit c = { .dir_ino = root->key, .name = "f", .entry = &e, .record = &r };

	pthread_mutex_t *stripe = ns_lock_name(&box.fs, root->key, "f");
	cr_assert_eq(publish_commit(&box.fs, &c), 0);
	pthread_mutex_unlock(stripe);
	cr_expect_eq(fs_box_n_objects(&box), 1);
	cr_expect(shows(root, "f", NULL));
	cr_expect_eq(fs_box_n_objects(&box), 0);
	cr_expect_eq(catalog_exists(box.fs.catalog, root->key, "f"), -ENOENT);
	pthread_mutex_lock(&box.fs.lock);
	sub->e.policy.ttl_s = 3600;
	pthread_mutex_unlock(&box.fs.lock);
	put_file(sub, "young");
	cr_expect(shows(sub, "young", "young"));
}

Test(ns, attributes_are_stored_under_the_name_they_belong_to)
{
	put_file(root, "f");
	struct inode *i = fs_box_look(&box, root, "f", B);

	cr_assert_eq(move(root, "f", sub, "g", 0, A), 0);
	pthread_mutex_lock(&box.fs.lock);
	i->e.mode = S_IFREG | 0400;
	root->e.mode = S_IFDIR | 0711;
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert_eq(ns_store_attr(&box.fs, i), 0);
	cr_assert_eq(ns_store_attr(&box.fs, root), 0);
	fs_box_restart(&box, false);
	root = fs_box_root(&box);
	cr_expect_eq(root->e.mode, S_IFDIR | 0711);
	sub = fs_box_dir(&box, root, "sub");
	cr_expect_eq(fs_box_look(&box, sub, "g", B)->e.mode, S_IFREG | 0400);
	cr_expect(shows(root, "f", NULL));
}
