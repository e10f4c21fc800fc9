/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish: a draft becomes the object of its name, whole or not at all. Whichever call fails on the
 * way, the old version stays, the books balance and the next close succeeds.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc.h"
#include "fakes/fault_tier.h"
#include "lib/fs_box.h"

#define MIB(n) ((size_t)(n) << 20)
#define A fs_box_who(1)
#define B fs_box_who(2)

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

TestSuite(publish, .init = setup, .fini = teardown);

/* ---- helpers ---- */

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

static bool shows(const char *name, const char *text)
{
	return fs_box_shows(&box, root, name, B, text, strlen(text));
}

/* The record behind a name; release with object_record_fini. */
static struct object_record record_of(const char *name)
{
	struct object_record r;
	struct entry e;

	cr_assert_eq(catalog_lookup(box.fs.catalog, root->key, name, &e), 0);
	cr_assert_eq(catalog_object_get(box.fs.catalog, e.object_id, &r), 0);
	cr_expect_eq(r.size, e.size);
	cr_expect_eq(r.parent, root->key);
	cr_expect_str_eq(r.name, name);
	entry_fini(&e);
	return r;
}

static uint64_t version_of(const char *name)
{
	struct object_record r = record_of(name);
	uint64_t id = r.object_id;

	object_record_fini(&r);
	return id;
}

static int count_record(void *arg, const struct object_record *r)
{
	++*(int *)arg;
	return 0;
}

static int n_records(void)
{
	int n = 0;

	cr_assert_eq(catalog_scan_objects(box.fs.catalog, count_record, &n, NULL), 0);
	return n;
}

static void expect_crc(const char *name, const char *bytes, size_t len)
{
	struct object_record r = record_of(name);

	cr_assert_eq(r.size, len);
	cr_assert_eq(r.n_crc, (len + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	for (uint32_t k = 0; k < r.n_crc; k++) {
		size_t off = (size_t)k * CATALOG_CRC_CHUNK;
		size_t n = len - off < CATALOG_CRC_CHUNK ? len - off : CATALOG_CRC_CHUNK;
		cr_expect_eq(r.crc[k], crc32c(0, bytes + off, n), "chunk %u of \"%s\"", k, name);
	}
	object_record_fini(&r);
}

/* ---- what it does ---- */

Test(publish, a_clean_draft_is_no_version)
{
	put_file("f", "one");
	uint64_t id = version_of("f");
	struct handle *h;
	struct published published;

	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	cr_assert_eq(fs_box_flush(&box, h, &published), 0);
	cr_expect_null(published.dir);
	fs_box_release(&box, h);
	cr_expect_eq(version_of("f"), id);
}

Test(publish, an_empty_file_appears)
{
	struct handle *h = create("f");

	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", ""));
	struct object_record r = record_of("f");
	cr_expect_eq(r.dram_frame, 0);
	cr_expect_eq(r.n_crc, 0);
	object_record_fini(&r);
}

Test(publish, a_later_write_and_close_publishes_again)
{
	struct handle *h = create("f");
	struct inode *seen = NULL;

	write_text(h, "one");
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	uint64_t first = version_of("f"), ino = h->inode->e.ino;
	seen = fs_box_look(&box, root, "f", B);
	write_text(h, "two");
	cr_expect(shows("f", "one"));
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	fs_box_release(&box, h);
	cr_expect(shows("f", "two"));
	cr_expect_gt(version_of("f"), first);
	cr_expect_eq(seen->e.ino, ino, "st_ino stays");
	cr_expect_eq(fs_box_look(&box, root, "f", B)->e.ino, ino);
	cr_expect_eq(n_records(), 1, "the replaced version has no record");
}

Test(publish, a_replaced_version_stays_openable_for_a_while)
{
	char buf[3];
	struct object *o;

	put_file("f", "one");
	struct inode *old = fs_box_look(&box, root, "f", B);
	put_file("f", "two");
	cr_assert_eq(old->state, INODE_REPLACED);
	cr_assert_eq(fs_box_hold(&box, old, B, &o), 0);
	cr_assert_eq(fs_box_pread(&box, o, buf, 3, 0), 0);
	cr_expect(!memcmp(buf, "one", 3));
	fs_box_drop(&box, old, o);
	pthread_mutex_lock(&box.fs.lock);
	bool must_free = false;
	o = object_grace_pop_locked(&box.fs, now_mono_ns() - REPLACED_GRACE_NS, &must_free);
	cr_expect_null(o, "the grace time is not over");
	o = object_grace_pop_locked(&box.fs, INT64_MAX, &must_free);
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert(o && must_free);
	object_free_unlocked(&box.fs, o);
	cr_expect_eq(fs_box_hold(&box, old, B, &o), -ESTALE);
	cr_expect_eq(old->state, INODE_GONE);
	cr_expect(fs_box_books_balance(&box));
}

Test(publish, what_nobody_looks_at_has_no_grace_time)
{
	put_file("f", "one");
	put_file("f", "two");
	cr_expect_eq(fs_box_n_objects(&box), 1);
}

Test(publish, an_unlinked_draft_keeps_its_bytes_and_no_name)
{
	struct handle *h = create("f");
	char buf[4];
	size_t n;

	write_text(h, "text");
	cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	cr_expect_null(fs_box_look(&box, root, "f", A));
	cr_assert_eq(draft_read(&box.fs, h->draft, buf, 4, 0, &n), 0);
	cr_expect(n == 4 && !memcmp(buf, "text", 4));
	write_text(h, "more");
	fs_box_release(&box, h);
	cr_expect_null(fs_box_look(&box, root, "f", A));
	cr_expect_eq(n_records(), 0);
	cr_expect_eq(fs_box_n_objects(&box), 0);
	cr_expect(fs_box_books_balance(&box));
}

Test(publish, a_renamed_draft_publishes_under_its_new_name)
{
	struct caller_id who = A;

	put_file("g", "old g");
	struct handle *h = create("f");
	write_text(h, "new");
	cr_assert_eq(ns_rename(&box.fs, root, "f", root, "g", 0, &who), 0);
	cr_expect(shows("g", "old g"), "visible until the close");
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("g", "new"));
	cr_expect_null(fs_box_look(&box, root, "f", A));
}

Test(publish, over_a_directory_it_fails)
{
	struct handle *h = create("f");

	write_text(h, "x");
	fs_box_mkdir(&box, root, "f");
	cr_expect_eq(fs_box_flush(&box, h, NULL), -EISDIR);
	fs_box_kill(&box, h);
	fs_box_release(&box, h);
	cr_expect_eq(fs_box_look(&box, root, "f", B)->kind, INODE_DIR);
	cr_expect(fs_box_books_balance(&box));
}

Test(publish, the_last_to_publish_is_the_newest_version)
{
	struct caller_id who = A;
	struct entry e = { .ino = 77, .mode = S_IFREG | 0644 };
	struct object_record late = { .object_id = 1000 }; /* numbered long before it commits */
	struct commit c = { .dir_ino = root->key, .name = "f", .entry = &e, .record = &late };

	put_file("f", "one");
	uint64_t first = version_of("f");
	pthread_mutex_t *stripe = ns_lock_name(&box.fs, root->key, "f");
	cr_assert_eq(publish_commit(&box.fs, &c), 0);
	pthread_mutex_unlock(stripe);
	cr_expect(c.has_replaced);
	cr_expect_gt(version_of("f"), first, "versions of a name only grow");
	cr_expect_eq(ns_unlink(&box.fs, root, "f", &who), 0);
}

/* ---- checksums ---- */

Test(publish, checksums_are_those_of_the_bytes)
{
	size_t len = 2 * MIB(1) + 12345;
	char *bytes = malloc(len);
	struct handle *h = create("f");

	for (size_t k = 0; k < len; k++)
		bytes[k] = (char)(k * 13 + k / 1000);
	/* Backwards, with a part written twice. */
	for (size_t off = len; off > 0;) {
		size_t n = off < 300000 ? off : 300000;
		off -= n;
		cr_assert_eq(fs_box_write(&box, h, bytes + off, n, off), 0);
	}
	cr_assert_eq(fs_box_write(&box, h, bytes + 5, 1000, 5), 0);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_crc("f", bytes, len);
	/* A copy with one byte changed. */
	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	bytes[MIB(1) + 1] ^= 0x40;
	cr_assert_eq(fs_box_write(&box, h, bytes + MIB(1) + 1, 1, MIB(1) + 1), 0);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_crc("f", bytes, len);
	/* A hole. */
	struct space_wait w = { 0 };
	cr_assert_eq(fs_box_reopen(&box, root, "f", 0, A, &h), 0);
	cr_assert_eq(draft_resize(&box.fs, h->draft, 100, &w), 0);
	memset(bytes + 100, 0, len - 100);
	cr_assert_eq(fs_box_write(&box, h, "end", 3, len - 3), 0);
	memcpy(bytes + len - 3, "end", 3);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_crc("f", bytes, len);
	cr_expect(fs_box_shows(&box, root, "f", B, bytes, len));
	free(bytes);
}

/* ---- truncate(2) by path ---- */

Test(publish, a_resize_by_path_makes_a_version)
{
	struct space_wait w = { 0 };
	struct published p;

	put_file("f", "12345");
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(publish_resized(&box.fs, i, 2, 1, &w, &p), 0);
	cr_expect(p.has_replaced);
	published_fini(&box.fs, &p);
	cr_expect(shows("f", "12"));
	i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(publish_resized(&box.fs, i, 4, 1, &w, &p), 0);
	published_fini(&box.fs, &p);
	cr_expect(fs_box_shows(&box, root, "f", B, "12\0\0", 4));
	i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(publish_resized(&box.fs, i, 0, 1, &w, &p), 0);
	published_fini(&box.fs, &p);
	cr_expect(shows("f", ""));
	cr_expect_eq(fs_box_n_drafts(&box), 0);
	cr_expect(fs_box_books_balance(&box));
}

/* ---- classes ---- */

static void set_class(struct inode *dir, int class)
{
	pthread_mutex_lock(&box.fs.lock);
	dir->e.policy.class = (uint8_t)class;
	pthread_mutex_unlock(&box.fs.lock);
}

Test(publish, keep_makes_a_copy_on_the_ssd)
{
	struct inode *weights = fs_box_mkdir(&box, root, "weights");

	cr_assert_eq(weights->e.policy.class, MCFS_CLASS_KEEP, "the default under weights/");
	cr_assert_eq(fs_box_put_file(&box, weights, "w", "bytes", 5, A), 0);
	cr_expect_eq(fs_box_ssd(&box).n_sealed, 1);
	struct inode *i = fs_box_look(&box, weights, "w", B);
	cr_expect_neq(i->object->ssd_frame, 0);
	cr_expect_eq(i->object->class, MCFS_CLASS_KEEP);
	put_file("c", "cached");
	cr_expect_eq(fs_box_ssd(&box).n_sealed, 1, "cache makes none");
	cr_assert_eq(fs_box_put_file(&box, weights, "w", "other", 5, A), 0);
	pthread_mutex_lock(&box.fs.lock);
	bool must_free = false;
	struct object *o = object_grace_pop_locked(&box.fs, INT64_MAX, &must_free);
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert(o && must_free);
	object_free_unlocked(&box.fs, o);
	cr_expect_eq(fs_box_ssd(&box).n_sealed, 1, "the copy went with its version");
}

/* ---- failures: nothing happened, and the next close succeeds ---- */

/* The n-th call of op fails while a version of "f" is published; true: it came to that. */
static bool fail_at(struct inode *dir, struct tier *t, enum fault_op op, uint64_t nth)
{
	struct handle *h = NULL;
	uint64_t ssd_used = fs_box_ssd(&box).used_bytes;

	cr_assert_eq(fs_box_reopen(&box, dir, "f", 0, A, &h), 0);
	cr_assert_eq(fs_box_write(&box, h, "new", 3, 0), 0);
	uint64_t calls = fault_tier_calls(t, op);
	fault_tier_fail(t, op, nth, EIO);
	int rc = fs_box_flush(&box, h, NULL);
	bool failed = fault_tier_calls(t, op) - calls >= nth;
	fault_tier_fail(t, op, 0, 0);
	cr_expect_eq(rc, failed ? -EIO : 0, "%s %d: %d", fault_op_name(op), (int)nth, rc);
	if (failed) {
		cr_expect(fs_box_shows(&box, dir, "f", B, "old", 3), "%s", fault_op_name(op));
		cr_expect_eq(fs_box_ssd(&box).used_bytes, ssd_used, "%s: ssd bytes lost",
			     fault_op_name(op));
		cr_expect_eq(fs_box_ssd(&box).n_open, 0);
	}
	cr_expect_eq(fs_box_flush(&box, h, NULL), 0, "after %s", fault_op_name(op));
	fs_box_release(&box, h);
	cr_expect(fs_box_shows(&box, dir, "f", B, "new", 3), "after %s", fault_op_name(op));
	cr_expect(fs_box_books_balance(&box), "after %s", fault_op_name(op));
	cr_assert_eq(fs_box_put_file(&box, dir, "f", "old", 3, A), 0);
	return failed;
}

static void walk(struct inode *dir, struct tier *t, const enum fault_op *ops, size_t n_ops)
{
	cr_assert_eq(fs_box_put_file(&box, dir, "f", "old", 3, A), 0);
	for (size_t k = 0; k < n_ops; k++) {
		uint64_t nth = 1;
		while (fail_at(dir, t, ops[k], nth))
			nth++;
	}
}

Test(publish, a_failing_dram_tier_changes_nothing)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_resize, FAULT_zero,
					     FAULT_read, FAULT_seal };

	fs_box_fault_dram(&box);
	walk(root, box.fs.dram, ops, sizeof(ops) / sizeof(*ops));
	cr_expect_geq(fault_tier_calls(box.fs.dram, FAULT_seal), 2);
}

Test(publish, a_failing_ssd_changes_nothing_of_a_keep_object)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_resize, FAULT_write,
					     FAULT_sync, FAULT_seal };
	struct inode *dir = fs_box_mkdir(&box, root, "kept");

	set_class(dir, MCFS_CLASS_KEEP);
	fs_box_fault_ssd(&box);
	walk(dir, box.fs.ssd, ops, sizeof(ops) / sizeof(*ops));
	cr_expect_geq(fault_tier_calls(box.fs.ssd, FAULT_seal), 2);
}

Test(publish, a_failing_seal_gives_the_copy_on_the_ssd_back)
{
	static const enum fault_op ops[] = { FAULT_seal };
	struct inode *dir = fs_box_mkdir(&box, root, "kept");

	set_class(dir, MCFS_CLASS_KEEP);
	fs_box_fault_dram(&box);
	walk(dir, box.fs.dram, ops, 1);
}

Test(publish, a_failing_catalog_changes_nothing)
{
	put_file("f", "old");
	uint64_t id = version_of("f"), n = fs_box_n_objects(&box);
	struct handle *h = create("f");

	write_text(h, "new");
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(fs_box_flush(&box, h, NULL), -EROFS);
	cr_expect(shows("f", "old"));
	cr_expect(fs_box_shows(&box, root, "f", A, "new", 3), "the writer still has its bytes");
	fs_box_catalog_writable(&box, true);
	cr_expect_eq(version_of("f"), id);
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	fs_box_release(&box, h);
	cr_expect(shows("f", "new"));
	cr_expect_eq(fs_box_n_objects(&box), n);
	cr_expect(fs_box_books_balance(&box));
}

Test(publish, a_new_file_that_cannot_be_recorded_can_be_later)
{
	struct handle *h = create("f");

	write_text(h, "new");
	fs_box_catalog_writable(&box, false);
	cr_expect_eq(fs_box_flush(&box, h, NULL), -EROFS);
	cr_expect_null(fs_box_look(&box, root, "f", B));
	fs_box_catalog_writable(&box, true);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", "new"));
	cr_expect_eq(fs_box_n_objects(&box), 1);
}
