/* SPDX-License-Identifier: Apache-2.0 */
/* adopt, adopt_promise, sweep: what a start makes of the catalog and the frames. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/counters.h"
#include "catalog_internal.h"
#include "lib/fs_box.h"
#include "object/durable.h"
#include "object/sweep.h"
#include "object/version.h"

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

TestSuite(adopt, .init = setup, .fini = teardown, .timeout = 120);

/* ---- helpers ---- */

static void start(void)
{
	fs_box_start(&box);
	root = fs_box_root(&box);
}

static void put_file(const char *name, const char *text)
{
	cr_assert_eq(fs_box_put_file(&box, root, name, text, strlen(text), A), 0);
}

static bool shows(const char *name, const char *text)
{
	return fs_box_shows(&box, root, name, B, text, strlen(text));
}

static int fsync_file(const char *name)
{
	return fs_box_sync(&box, root, name, B);
}

static int see_id(void *arg, uint64_t id)
{
	*(uint64_t *)arg = id;
	return 0;
}

/* A file beside the ssd frame of some object, of an id before its. The box is stopped. */
static void make_ssd_orphans(uint64_t beside, int n)
{
	for (int k = 1; k <= n; k++) {
		uint64_t id = beside - (uint64_t)k * 7;
		char path[256];
		for (int part = 0; part < 3; part++) {
			snprintf(path, sizeof(path), "%s/%02x", box.ssd, (int)(id >> 18 & 0xff));
			if (part > 0)
				snprintf(path + strlen(path), 8, "/%02x", (int)(id >> 10 & 0xff));
			if (part < 2)
				mkdir(path, 0700);
		}
		snprintf(path + strlen(path), 32, "/%016llx", (unsigned long long)id);
		FILE *f = fopen(path, "wx");
		cr_assert_not_null(f, "%s", path);
		fclose(f);
	}
}

static void put_raw_object(uint64_t id)
{
	struct object_record r = { .object_id = id, .size = 5, .dram_frame = 77, .parent = 1,
				   .name_len = 4, .name = "lost" };
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);

	r.name_len = (uint8_t)snprintf(r.name, sizeof(r.name), "lost-%llu", (unsigned long long)id);
	struct entry e = { .ino = id, .object_id = id, .size = 5, .mode = S_IFREG | 0644 };
	catalog_batch_put_entry(b, CATALOG_ROOT_INO, r.name, &e);
	catalog_batch_put_object(b, &r);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

/* ---- orphans ---- */

Test(adopt, orphans_on_the_ssd_go_in_the_background_and_nothing_else_does)
{
	uint64_t frame = 0, before = counter_get(COUNTER_orphans);

	put_file("keep", "bytes");
	cr_assert_eq(fsync_file("keep"), 0);
	cr_assert_eq(tier_call(box.fs.ssd, scan, see_id, &frame), 0);
	fs_box_stop(&box, false);
	make_ssd_orphans(frame, 200);
	start();
	cr_expect_eq(sweep_left(&box.fs), 200);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 201, "the start does not wait for them");
	put_file("new", "made before the sweep");
	cr_assert_eq(fsync_file("new"), 0);
	sweep_start(&box.fs);
	for (int k = 0; k < 500 && sweep_left(&box.fs); k++)
		usleep(10000);
	cr_expect_eq(sweep_left(&box.fs), 0);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 2);
	cr_expect_eq(counter_get(COUNTER_orphans), before + 200);
	cr_expect(shows("keep", "bytes"));
	cr_expect(shows("new", "made before the sweep"));
}

Test(adopt, a_stop_ends_the_sweep_and_the_next_start_goes_on)
{
	uint64_t frame = 0;

	put_file("keep", "bytes");
	cr_assert_eq(fsync_file("keep"), 0);
	cr_assert_eq(tier_call(box.fs.ssd, scan, see_id, &frame), 0);
	fs_box_stop(&box, false);
	make_ssd_orphans(frame, 2000);
	start();
	sweep_start(&box.fs);
	usleep(50000);
	int64_t begin = now_mono_ns();
	fs_box_stop(&box, false);
	cr_expect_lt(now_mono_ns() - begin, 2000000000ll);
	start();
	cr_expect(sweep_left(&box.fs) > 0 && sweep_left(&box.fs) < 2000, "%d left",
		  (int)sweep_left(&box.fs));
}

Test(adopt, no_frame_is_an_orphan_while_a_record_is_damaged)
{
	uint64_t frame = 0;
	struct object_record r = { .object_id = 1 };

	put_file("keep", "bytes");
	cr_assert_eq(fsync_file("keep"), 0);
	cr_assert_eq(tier_call(box.fs.ssd, scan, see_id, &frame), 0);
	/* Whole, under the key of another: as damaged as any. */
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);

	catalog_batch_put_raw(b, CATALOG_OBJECTS, "\0\0\0\0\0\0\0\7", 8, &r, sizeof(r));
	cr_assert_eq(catalog_batch_commit(b, true), 0);
	fs_box_stop(&box, false);
	make_ssd_orphans(frame, 5);
	start();
	cr_expect_eq(sweep_left(&box.fs), 0);
	sweep_start(&box.fs);
	cr_expect_eq(fs_box_n_files(box.fs.ssd), 6);
	cr_expect(shows("keep", "bytes"));
}

/* ---- what is lost ---- */

static void expect_lost_objects_go(uint64_t n)
{
	struct entry e;

	put_file("stays", "bytes");
	for (uint64_t id = 1; id <= n; id++)
		put_raw_object(id << 12);
	fs_box_stop(&box, false);
	start();
	cr_expect_eq(fs_box_n_objects(&box), 1);
	cr_expect(shows("stays", "bytes"));
	for (uint64_t id = 1; id <= n; id += n / 10) {
		struct object_record r;
		unsigned long long lost = id << 12;
		char name[32];
		snprintf(name, sizeof(name), "lost-%llu", lost);
		cr_expect_eq(catalog_lookup(box.fs.catalog, CATALOG_ROOT_INO, name, &e), -ENOENT);
		cr_expect_eq(catalog_object_get(box.fs.catalog, lost, &r), -ENOENT);
	}
}

Test(adopt, a_few_lost_objects_go_with_their_names)
{
	expect_lost_objects_go(100);
}

Test(adopt, many_lost_objects_go_with_their_names)
{
	expect_lost_objects_go(20000);
}

Test(adopt, a_name_that_shows_another_object_outlives_a_lost_one)
{
	put_file("f", "bytes");
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);
	struct object_record r = { .object_id = 5 << 12, .size = 5, .dram_frame = 77, .parent = 1,
				   .name_len = 1, .name = "f" };
	catalog_batch_put_object(b, &r);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	fs_box_stop(&box, false);
	start();
	cr_expect_eq(catalog_object_get(box.fs.catalog, 5 << 12, &r), -ENOENT);
	cr_expect(shows("f", "bytes"));
}

/* ---- time to live ---- */

static void see_ttl(void *arg, struct object *o)
{
	*(uint32_t *)arg = o->ttl_s;
}

Test(adopt, an_adopted_object_has_its_time_to_live_before_anybody_looks_it_up)
{
	uint32_t ttl_s = 0;

	put_file("f", "bytes");
	struct inode *i = fs_box_look(&box, root, "f", B);
	pthread_mutex_lock(&box.fs.lock);
	i->e.policy.ttl_s = 1234;
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert_eq(ns_store_attr(&box.fs, i), 0);
	fs_box_put(&box, i);
	fs_box_stop(&box, false);
	start();
	pthread_mutex_lock(&box.fs.lock);
	cr_expect(object_any_ttl_locked(&box.fs));
	object_visit_locked(&box.fs, see_ttl, &ttl_s);
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect_eq(ttl_s, 1234);
}

/* ---- promises ---- */

struct found_name {
	char name[CATALOG_NAME_MAX + 1];
	int n;
};

static int find_fsynced(void *arg, uint64_t cookie, const char *name, size_t len,
			const struct entry *e)
{
	struct found_name *f = arg;

	if (strstr(name, ".fsynced-")) {
		strcpy(f->name, name);
		f->n++;
	}
	return 0;
}

static void expect_kept_beside_a_directory(const char *name)
{
	struct handle *h = NULL;
	struct found_name found = { .n = 0 };
	struct entry e = { .ino = 4242, .mode = S_IFDIR | 0755 };

	cr_assert_eq(fs_box_create(&box, root, name, 0, A, &h), 0);
	cr_assert_eq(fs_box_write(&box, h, "promised", 8, 0), 0);
	cr_assert_eq(durable_draft(&box.fs, h->draft), 0);
	/* Another process, which does not see the draft, makes a directory. */
	struct catalog_batch *b = catalog_batch_create(box.fs.catalog);
	catalog_batch_put_entry(b, CATALOG_ROOT_INO, name, &e);
	cr_assert_eq(catalog_batch_commit(b, true), 0);
	fs_box_stop(&box, false);
	start();
	cr_assert_eq(catalog_lookup(box.fs.catalog, CATALOG_ROOT_INO, name, &e), 0);
	cr_expect(S_ISDIR(e.mode), "the directory stays");
	cr_assert_eq(catalog_readdir(box.fs.catalog, CATALOG_ROOT_INO, 0, find_fsynced, &found), 0);
	cr_assert_eq(found.n, 1);
	cr_expect(shows(found.name, "promised"), "%s", found.name);
	fs_box_stop(&box, false);
	start();
	cr_expect(shows(found.name, "promised"), "it is an object like others from then on");
}

Test(adopt, a_promise_whose_name_became_a_directory_is_kept_beside_it)
{
	expect_kept_beside_a_directory("f");
}

Test(adopt, the_name_beside_a_directory_fits_where_the_first_was_as_long_as_can_be)
{
	char name[CATALOG_NAME_MAX + 1];

	memset(name, 'n', CATALOG_NAME_MAX);
	name[CATALOG_NAME_MAX] = '\0';
	expect_kept_beside_a_directory(name);
}
