/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>

#include "base/counters.h"
#include "base/crc.h"
#include "catalog_fixture.h"
#include "catalog_internal.h"
#include "catalog_key.h"
#include "catalog_record.h"

/* ---- fixture ---- */

static struct catalog *catalog;

static void setup(void)
{
	scratch_create();
	catalog = catalog_must_open();
}

static void teardown(void)
{
	catalog_close(catalog);
	scratch_remove();
}

/* Moves what was written from memory into table files. */
static void reopen(void)
{
	catalog_close(catalog);
	catalog = catalog_must_open();
}

TestSuite(catalog, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void expect_entry(uint64_t parent, const char *name, const struct entry *want)
{
	struct entry got;

	cr_assert_eq(catalog_lookup(catalog, parent, name, &got), 0);
	cr_expect(entries_are_equal(want, &got));
	cr_expect_eq(catalog_exists(catalog, parent, name), 0);
	entry_fini(&got);
}

static void expect_no_entry(uint64_t parent, const char *name)
{
	struct entry got;

	cr_expect_eq(catalog_lookup(catalog, parent, name, &got), -ENOENT);
	cr_expect_eq(catalog_exists(catalog, parent, name), -ENOENT);
}

static void put_entry(uint64_t parent, const char *name, const struct entry *e)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	catalog_batch_put_entry(b, parent, name, e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static int put_entry_error(const char *name, const struct entry *e)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	catalog_batch_put_entry(b, 1, name, e);
	return catalog_batch_commit(b, false);
}

static void put_object(const struct object_record *r)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	catalog_batch_put_object(b, r);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static void put_raw(enum catalog_table t, const void *key, size_t key_len, const void *value,
		    size_t len)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	catalog_batch_put_raw(b, t, key, key_len, value, len);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

/* Puts bytes under the key of a name. */
static void put_raw_entry(uint64_t parent, const char *name, const void *value, size_t len)
{
	uint8_t key[NAMES_KEY_MAX];
	size_t key_len;

	cr_assert_eq(names_key_encode(key, &key_len, parent, name), 0);
	put_raw(CATALOG_NAMES, key, key_len, value, len);
}

static int count_name(void *arg, uint64_t cookie, const char *name, size_t len,
		      const struct entry *e)
{
	++*(int *)arg;
	return 0;
}

struct seen_objects {
	uint64_t ids[16];
	int n, stop_at;
};

static int see_object(void *arg, const struct object_record *r)
{
	struct seen_objects *seen = arg;

	seen->ids[seen->n++] = r->object_id;
	return seen->n == seen->stop_at ? 7 : 0;
}

/* ---- names ---- */

Test(catalog, keeps_every_field_of_an_entry)
{
	struct entry e = rich_entry();

	put_entry(5, "kv", &e);
	expect_entry(5, "kv", &e);
	reopen();
	expect_entry(5, "kv", &e);
}

Test(catalog, keeps_a_symlink)
{
	char target[] = "../v1/\xff\n";
	struct entry e = {
		.ino = 9, .mode = S_IFLNK | 0777, .size = sizeof(target) - 1, .target = target};

	put_entry(5, "current", &e);
	reopen();
	expect_entry(5, "current", &e);
}

Test(catalog, takes_names_of_any_byte_and_255_long)
{
	char name[CATALOG_NAME_MAX + 1] = "";
	struct entry e;

	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		name[0] = (char)byte;
		name[1] = byte == '.' ? 'x' : '\0';
		e = file_entry((uint64_t)byte);
		put_entry(1, name, &e);
	}
	memset(name, '\xfe', CATALOG_NAME_MAX);
	e = file_entry(1000);
	put_entry(1, name, &e);
	reopen();
	expect_entry(1, name, &e);
	name[CATALOG_NAME_MAX - 1] = '\0';
	expect_no_entry(1, name);
	name[1] = '\0';
	for (int byte = 1; byte < 256; byte++) {
		name[0] = (char)byte;
		e = file_entry((uint64_t)byte);
		if (byte != '/' && byte != '.')
			expect_entry(1, name, &e);
	}
}

Test(catalog, tells_names_that_cannot_be)
{
	char name[CATALOG_NAME_MAX + 2];
	struct entry e = file_entry(1);

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_expect_eq(put_entry_error(name, &e), -ENAMETOOLONG);
	cr_expect_eq(put_entry_error("", &e), -EINVAL);
	cr_expect_eq(put_entry_error(".", &e), -EINVAL);
	cr_expect_eq(put_entry_error("..", &e), -EINVAL);
	cr_expect_eq(put_entry_error("a/b", &e), -EINVAL);
	cr_expect_eq(catalog_lookup(catalog, 1, name, &e), -ENAMETOOLONG);
	cr_expect_eq(catalog_exists(catalog, 1, name), -ENAMETOOLONG);
}

Test(catalog, keeps_one_name_of_two_directories_apart)
{
	struct entry a = file_entry(1), b = file_entry(2);

	put_entry(10, "x", &a);
	put_entry(11, "x", &b);
	must_del(catalog, 10, "x");
	expect_no_entry(10, "x");
	expect_entry(11, "x", &b);
}

Test(catalog, replaces_and_deletes)
{
	struct entry a = file_entry(1), b = rich_entry();

	put_entry(1, "x", &a);
	put_entry(1, "x", &b);
	expect_entry(1, "x", &b);
	reopen();
	must_del(catalog, 1, "x");
	must_del(catalog, 1, "never was");
	expect_no_entry(1, "x");
	reopen();
	expect_no_entry(1, "x");
}

/* ---- objects ---- */

Test(catalog, keeps_every_field_of_a_promise)
{
	struct object_record want = rich_object(), got;

	put_object(&want);
	reopen();
	cr_assert_eq(catalog_object_get(catalog, want.object_id, &got), 0);
	cr_expect(objects_are_equal(&want, &got));
	object_record_fini(&got);
	cr_expect_eq(catalog_object_get(catalog, want.object_id + 1, &got), -ENOENT);
	object_record_fini(&want);
}

Test(catalog, keeps_the_checksums_of_a_big_object)
{
	const uint32_t n = 100000;
	struct object_record want = file_object(1), got;

	want.size = (uint64_t)n * CATALOG_CRC_CHUNK - 1;
	want.n_crc = n;
	want.crc = calloc(n, sizeof(*want.crc));
	want.crc[n - 1] = 0xdeadbeef;
	put_object(&want);
	cr_assert_eq(catalog_object_get(catalog, 1, &got), 0);
	cr_expect(objects_are_equal(&want, &got));
	object_record_fini(&got);
	object_record_fini(&want);
}

Test(catalog, scans_objects_in_order_of_id_until_told_to_stop)
{
	const uint64_t ids[] = {256, 1, UINT64_MAX, 255};
	struct seen_objects seen = {.n = 0};
	uint64_t n_corrupt = 99;

	for (int i = 0; i < 4; i++) {
		struct object_record r = file_object(ids[i]);
		put_object(&r);
	}
	cr_assert_eq(catalog_scan_objects(catalog, see_object, &seen, &n_corrupt), 0);
	cr_assert_eq(seen.n, 4);
	cr_expect(seen.ids[0] == 1 && seen.ids[1] == 255 && seen.ids[2] == 256 &&
		  seen.ids[3] == UINT64_MAX);
	cr_expect_eq(n_corrupt, 0);
	seen = (struct seen_objects){.stop_at = 2};
	cr_expect_eq(catalog_scan_objects(catalog, see_object, &seen, NULL), 7);
	cr_expect_eq(seen.n, 2);
}

/* ---- batches ---- */

Test(catalog, applies_nothing_of_a_batch_with_an_error)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry good = file_entry(1), bad = {.mode = 0};
	struct object_record r = file_object(1), got;

	put_entry(1, "old", &good);
	catalog_batch_put_entry(b, 1, "new", &good);
	catalog_batch_put_object(b, &r);
	catalog_batch_put_entry(b, 1, "bad", &bad);
	catalog_batch_put_entry(b, 1, "", &good);
	catalog_batch_del_entry(b, 1, "old");
	cr_expect_eq(catalog_batch_commit(b, true), -EINVAL);
	expect_no_entry(1, "new");
	expect_entry(1, "old", &good);
	cr_expect_eq(catalog_object_get(catalog, 1, &got), -ENOENT);
}

Test(catalog, applies_nothing_of_a_destroyed_batch)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry e = file_entry(1);

	catalog_batch_put_entry(b, 1, "x", &e);
	catalog_batch_destroy(b);
	expect_no_entry(1, "x");
}

Test(catalog, applies_a_batch_in_its_order)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry e = file_entry(1), f = file_entry(2);

	catalog_batch_put_entry(b, 1, "gone", &e);
	catalog_batch_del_entry(b, 1, "gone");
	catalog_batch_del_entry(b, 1, "there");
	catalog_batch_put_entry(b, 1, "there", &e);
	catalog_batch_put_entry(b, 1, "there", &f);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	expect_no_entry(1, "gone");
	expect_entry(1, "there", &f);
}

Test(catalog, commits_an_empty_batch_and_reports_one_that_got_no_memory)
{
	struct entry e = file_entry(1);

	cr_expect_eq(catalog_batch_commit(catalog_batch_create(catalog), false), 0);
	cr_expect_eq(catalog_batch_commit(catalog_batch_create(catalog), true), 0);
	catalog_batch_put_entry(NULL, 1, "x", &e);
	catalog_batch_del_object(NULL, 1);
	cr_expect_eq(catalog_batch_commit(NULL, false), -ENOMEM);
	catalog_batch_destroy(NULL);
}

#define N_WRITERS 4
#define N_WRITES 500

/* Each commits pairs of an entry and its object, and looks at once for what it wrote. */
static void *write_pairs(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg * N_WRITES;
	uintptr_t n_bad = 0;

	for (uint64_t id = base + 1; id <= base + N_WRITES; id++) {
		struct catalog_batch *b = catalog_batch_create(catalog);
		struct entry e = file_entry(id);
		struct object_record r = file_object(id);
		char name[32];
		snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
		catalog_batch_put_entry(b, 1, name, &e);
		catalog_batch_put_object(b, &r);
		n_bad += catalog_batch_commit(b, id % 100 == 0) != 0;
		n_bad += catalog_lookup(catalog, 1, name, &e) != 0 || e.object_id != id;
	}
	return (void *)n_bad;
}

Test(catalog, takes_batches_of_several_threads)
{
	pthread_t threads[N_WRITERS];
	struct object_record r;
	int n_names = 0;

	for (uintptr_t i = 0; i < N_WRITERS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, write_pairs, (void *)i), 0);
	for (int i = 0; i < N_WRITERS; i++) {
		void *n_bad;
		pthread_join(threads[i], &n_bad);
		cr_expect_null(n_bad);
	}
	cr_assert_eq(catalog_readdir(catalog, 1, 0, count_name, &n_names), 0);
	cr_expect_eq(n_names, N_WRITERS * N_WRITES);
	for (uint64_t id = 1; id <= N_WRITERS * N_WRITES; id++) {
		cr_assert_eq(catalog_object_get(catalog, id, &r), 0);
		object_record_fini(&r);
	}
}

/* ---- control and statistics ---- */

Test(catalog, keeps_control_values)
{
	static char long_key[10000];
	uint64_t value = 1;

	cr_expect_eq(catalog_control_get(catalog, "node_id", &value), -ENOENT);
	cr_expect_eq(value, 1);
	cr_assert_eq(catalog_control_put(catalog, "node_id", UINT64_MAX, true), 0);
	cr_assert_eq(catalog_control_put(catalog, "clock", 5, false), 0);
	cr_assert_eq(catalog_control_put(catalog, "clock", 6, false), 0);
	reopen();
	cr_assert_eq(catalog_control_get(catalog, "node_id", &value), 0);
	cr_expect_eq(value, UINT64_MAX);
	cr_assert_eq(catalog_control_get(catalog, "clock", &value), 0);
	cr_expect_eq(value, 6);
	cr_assert_eq(catalog_control_get(catalog, CATALOG_FORMAT_KEY, &value), 0);
	cr_expect_eq(value, CATALOG_FORMAT);
	memset(long_key, 'k', sizeof(long_key) - 1);
	long_key[sizeof(long_key) - 1] = '\0';
	cr_expect_eq(catalog_control_put(catalog, long_key, 1, false), -EINVAL);
	cr_expect_eq(catalog_control_put(catalog, "", 1, false), -EINVAL);
}

Test(catalog, counts_about_what_it_holds)
{
	struct catalog_stats s;

	for (uint64_t id = 1; id <= 100; id++) {
		struct object_record r = file_object(id);
		put_object(&r);
		must_put(catalog, 1,
			 (char[]){'x', (char)('0' + id / 10), (char)('0' + id % 10), '\0'}, id);
	}
	catalog_get_stats(catalog, &s);
	cr_expect(s.n_entries_estimate >= 90 && s.n_entries_estimate <= 110);
	cr_expect(s.n_objects_estimate >= 90 && s.n_objects_estimate <= 110);
	cr_expect_gt(s.disk_bytes, 0);
	cr_expect_gt(s.memtable_bytes, 0);
}

/* ---- damage ---- */

Test(catalog, misses_damaged_entries_fails_newer_ones_and_lists_the_others)
{
	uint8_t record[ENTRY_RECORD_MAX], newer[] = {2, 'n', 'e', 'w', 0, 0, 0, 0};
	uint32_t crc = crc32c(0, newer, 4);
	struct entry e = file_entry(1), got;
	size_t len;
	int n = 0;

	put_entry(1, "good", &e);
	cr_assert_eq(entry_record_encode(&e, record, sizeof(record), &len), 0);
	record[20] ^= 1;
	put_raw_entry(1, "bad\n\x1b[2J", record, len);
	put_raw_entry(1, "empty", "", 0);
	cr_expect_eq(catalog_lookup(catalog, 1, "bad\n\x1b[2J", &got), -ENOENT);
	cr_expect_eq(catalog_lookup(catalog, 1, "empty", &got), -ENOENT);
	cr_expect_eq(catalog_exists(catalog, 1, "empty"), -ENOENT);
	cr_expect_eq(counter_get(COUNTER_catalog_errors), 3);
	for (int i = 0; i < 4; i++)
		newer[4 + i] = (uint8_t)(crc >> 8 * i);
	put_raw_entry(1, "newer", newer, sizeof(newer));
	cr_expect_eq(catalog_lookup(catalog, 1, "newer", &got), -EPROTO);
	put_raw(CATALOG_NAMES, "\0\0\0\0\0\0\0\1\0\0\0\0", 12, record, len);
	cr_assert_eq(catalog_readdir(catalog, 1, 0, count_name, &n), 0);
	cr_expect_eq(n, 1);
	must_del(catalog, 1, "empty");
	expect_no_entry(1, "empty");
}

Test(catalog, leaves_damaged_objects_out_of_a_scan_and_counts_them)
{
	uint8_t record[256], key[OBJECTS_KEY_BYTES];
	struct object_record r = file_object(5), got;
	struct seen_objects seen = {.n = 0};
	uint64_t n_corrupt = 0;
	size_t len;

	put_object(&r);
	cr_assert_eq(object_record_encode(&r, record, sizeof(record), &len), 0);
	objects_key_encode(key, 4);
	put_raw(CATALOG_OBJECTS, key, sizeof(key), record, len); /* whole, but object 5's */
	objects_key_encode(key, 6);
	put_raw(CATALOG_OBJECTS, key, sizeof(key), record, len - 1);
	put_raw(CATALOG_OBJECTS, "short", 5, record, len);
	cr_expect_eq(catalog_object_get(catalog, 4, &got), -EIO);
	cr_expect_eq(catalog_object_get(catalog, 6, &got), -EIO);
	cr_assert_eq(catalog_scan_objects(catalog, see_object, &seen, &n_corrupt), 0);
	cr_expect(seen.n == 1 && seen.ids[0] == 5);
	cr_expect_eq(n_corrupt, 3);
}
