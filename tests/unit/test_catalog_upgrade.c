/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/crc.h"
#include "catalog_fixture.h"
#include "catalog_internal.h"
#include "catalog_key.h"
#include "catalog_record.h"
#include "catalog_upgrade.h"

TestSuite(catalog_upgrade, .init = scratch_create, .fini = scratch_remove, .timeout = 120);

/* ---- helpers ---- */

static void seal(uint8_t *buf, size_t body)
{
	uint32_t crc = crc32c(0, buf, body);

	for (int i = 0; i < 4; i++)
		buf[body + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

/* The record as format 1 has it. */
static void put_old_object(struct catalog *c, const struct object_record *r)
{
	uint8_t key[OBJECTS_KEY_BYTES], buf[1024];
	struct catalog_batch *b = catalog_batch_create(c);
	size_t len;

	cr_assert_eq(object_record_encode(r, buf, sizeof(buf), &len), 0);
	memmove(buf + 66, buf + 70, len - 70);
	buf[0] = 1;
	seal(buf, len - 8);
	objects_key_encode(key, r->object_id);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, key, sizeof(key), buf, len - 4);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

#define N_OLD 10000

/* Every third name has a time to live. */
static void make_old_catalog(void)
{
	struct catalog *c = catalog_must_open();

	for (uint64_t id = 1; id <= N_OLD; id++) {
		struct catalog_batch *b = catalog_batch_create(c);
		struct entry e = file_entry(id);
		struct object_record r = file_object(id);
		e.policy.ttl_s = id % 3 ? 0 : (uint32_t)id;
		r.parent = 1;
		r.name_len = (uint8_t)snprintf(r.name, sizeof(r.name), "%llu", (unsigned long long)id);
		catalog_batch_put_entry(b, 1, r.name, &e);
		cr_assert_eq(catalog_batch_commit(b, false), 0);
		put_old_object(c, &r);
	}
	cr_assert_eq(catalog_control_put(c, CATALOG_FORMAT_KEY, 1, true), 0);
	catalog_close(c);
}

static uint64_t control(struct catalog *c, const char *key)
{
	uint64_t value = UINT64_MAX;

	catalog_control_get(c, key, &value);
	return value;
}

static int count_old(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
		     size_t value_len)
{
	*(int *)arg += object_record_is_old(value, value_len);
	return 0;
}

/* ---- the step that there is ---- */

Test(catalog_upgrade, gives_objects_of_format_1_the_ttl_of_their_names)
{
	int n_old = 0;

	make_old_catalog();
	struct catalog *c = catalog_must_open();
	for (uint64_t id = 1; id <= N_OLD; id++) {
		struct object_record r;
		cr_assert_eq(catalog_object_get(c, id, &r), 0);
		cr_assert_eq(r.ttl_s, id % 3 ? 0 : id);
		object_record_fini(&r);
	}
	cr_assert_eq(catalog_scan_raw(c, CATALOG_OBJECTS, count_old, &n_old), 0);
	cr_expect_eq(n_old, 0);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), CATALOG_FORMAT);
	cr_expect_eq(control(c, "upgrading_from"), UINT64_MAX);
	catalog_close(c);
}

Test(catalog_upgrade, is_not_needed_to_read)
{
	struct catalog_conf conf = {.path = catalog_path, .read_only = true};
	struct object_record r;
	struct catalog *c;

	make_old_catalog();
	cr_assert_eq(catalog_open(&conf, &c), 0);
	cr_assert_eq(catalog_object_get(c, 3, &r), 0);
	cr_expect_eq(r.ttl_s, 0);
	object_record_fini(&r);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 1);
	catalog_close(c);
}

Test(catalog_upgrade, leaves_damaged_records_as_they_are)
{
	struct object_record r;

	make_old_catalog();
	struct catalog *c = catalog_must_open();
	struct catalog_batch *b = catalog_batch_create(c);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, "\0\0\0\0\0\0\0\5", 8, "rubbish", 7);
	catalog_batch_put_control(b, CATALOG_FORMAT_KEY, 1);
	cr_assert_eq(catalog_batch_commit(b, true), 0);
	catalog_close(c);
	c = catalog_must_open();
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), CATALOG_FORMAT);
	cr_expect_eq(catalog_object_get(c, 5, &r), -EIO);
	cr_assert_eq(catalog_object_get(c, 6, &r), 0);
	cr_expect_eq(r.ttl_s, 6);
	object_record_fini(&r);
	catalog_close(c);
}

/* ---- any step: a table of two, from 100 to 102 ---- */

static int n_slices, fails_at; /* the slice that fails, counted from 1; 0: none */
static uint64_t slices[32];    /* the cursors that came in */

/* Each slice writes one control value; ten make a step. */
static int test_slice(struct catalog *c, struct catalog_batch *b, uint64_t *cursor)
{
	char key[32];

	cr_assert_lt((size_t)n_slices, sizeof(slices) / sizeof(*slices));
	slices[n_slices++] = *cursor;
	snprintf(key, sizeof(key), "test_%llu", (unsigned long long)*cursor);
	catalog_batch_put_control(b, key, *cursor * 7);
	if (n_slices == fails_at)
		return -EIO;
	return ++*cursor < 10;
}

static const struct catalog_step test_steps[] = {
	{100, "a test", test_slice},
	{101, "another", test_slice},
};

static struct catalog *open_at_100(void)
{
	struct catalog *c = catalog_must_open();

	cr_assert_eq(catalog_control_put(c, CATALOG_FORMAT_KEY, 100, true), 0);
	return c;
}

Test(catalog_upgrade, takes_every_step_in_order)
{
	struct catalog *c = open_at_100();

	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), 0);
	cr_expect_eq(n_slices, 20);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 102);
	cr_expect_eq(control(c, "test_9"), 63);
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), 0);
	cr_expect_eq(n_slices, 20, "there is nothing left to do");
	catalog_close(c);
}

Test(catalog_upgrade, goes_on_where_it_was_interrupted)
{
	struct catalog *c = open_at_100();

	fails_at = 5;
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), -EIO);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 101, "an older program must not take it");
	cr_expect_eq(control(c, "upgrading_from"), 100);
	cr_expect_eq(control(c, "test_3"), 21);
	cr_expect_eq(control(c, "test_4"), UINT64_MAX, "a slice is all or nothing");
	fails_at = 0;
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), 0);
	cr_expect_eq(slices[5], 4, "the slice that failed comes again, none before it");
	cr_expect_eq(n_slices, 5 + 6 + 10);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 102);
	cr_expect_eq(control(c, "upgrading_from"), UINT64_MAX);
	catalog_close(c);
}

Test(catalog_upgrade, finishes_an_interrupted_last_step)
{
	struct catalog *c = open_at_100();

	fails_at = 15;
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), -EIO);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 102);
	fails_at = 0;
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), 0);
	cr_expect_eq(n_slices, 15 + 6);
	cr_expect_eq(control(c, "upgrading_from"), UINT64_MAX);
	catalog_close(c);
}

Test(catalog_upgrade, refuses_a_format_that_no_step_leads_from)
{
	struct catalog *c = open_at_100();

	cr_assert_eq(catalog_control_put(c, CATALOG_FORMAT_KEY, 99, true), 0);
	cr_expect_eq(catalog_upgrade(c, test_steps, 2, 102), -EPROTO);
	cr_expect_eq(control(c, CATALOG_FORMAT_KEY), 99);
	cr_expect_eq(n_slices, 0);
	catalog_close(c);
}
