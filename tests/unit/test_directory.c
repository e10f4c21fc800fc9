/* SPDX-License-Identifier: Apache-2.0 */
/* The directory against a real server of the test's own. Server trouble is in test_directory_away.c. */
#include "mcfs/directory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/directory_box.h"
#include "mcfs/catalog.h"

TestSuite(directory, .init = directory_box_init, .fini = directory_box_fini, .timeout = 60);

/* ---- helpers ---- */

static struct directory_value get(struct directory *d, const char *name)
{
	struct directory_value v = {.kind = DIRECTORY_NONE};

	cr_assert_eq(directory_box_lookup(d, "/kv", name, &v), 0);
	return v;
}

static void expect_holders(struct directory *d, const char *name, uint64_t version, uint32_t n, int first,
			   int second)
{
	struct directory_value v = get(d, name);

	cr_expect_eq(v.version, version, "%s has version %llu", name, (unsigned long long)v.version);
	cr_expect_eq(v.n_holders, n, "%s has %u holders", name, v.n_holders);
	if (n > 0)
		cr_expect_eq(v.holders[0], first);
	if (n > 1)
		cr_expect_eq(v.holders[1], second);
}

static int announce(struct directory *d, const char *name, uint64_t version, struct directory_value *before)
{
	struct directory_value v = directory_box_file(version, 100 + version);

	return directory_box_announce(d, "/kv", name, &v, before);
}

/* ---- announce ---- */

Test(directory, finds_what_was_announced)
{
	struct directory *d = directory_box_node(0);
	struct directory_value v = directory_box_file(5, 1234), before, got;

	v.uid = 7;
	v.gid = 8;
	v.mtime_ns = 999;
	cr_assert_eq(directory_box_announce(d, "/kv", "a", &v, &before), 0);
	cr_expect_eq(before.kind, DIRECTORY_NONE);
	got = get(d, "a");
	cr_expect_eq(got.kind, DIRECTORY_FILE);
	cr_expect_eq(got.version, 5);
	cr_expect_eq(got.size, 1234);
	cr_expect_eq(got.mode, v.mode);
	cr_expect_eq(got.uid, 7);
	cr_expect_eq(got.gid, 8);
	cr_expect_eq(got.mtime_ns, 999);
	cr_expect_eq(got.n_holders, 1);
	cr_expect_eq(got.holders[0], directory_slot(d));
	cr_expect_eq(get(d, "b").kind, DIRECTORY_NONE);
	cr_assert_eq(directory_box_lookup(d, "/kv2", "a", &got), 0);
	cr_expect_eq(got.kind, DIRECTORY_NONE);
}

Test(directory, the_highest_version_wins_and_the_same_object_gains_a_holder)
{
	struct directory *a = directory_box_node(0), *b = directory_box_node(1);
	struct directory_value before;
	int sa = directory_slot(a), sb = directory_slot(b);

	cr_assert_neq(sa, sb);
	cr_assert_eq(announce(a, "x", 5, NULL), 0);
	cr_expect_eq(announce(b, "x", 5, &before), 0);
	cr_expect_eq(before.n_holders, 1);
	expect_holders(a, "x", 5, 2, sa, sb);
	cr_expect_eq(announce(b, "x", 5, NULL), 0, "again");
	expect_holders(b, "x", 5, 2, sa, sb);

	cr_expect_eq(announce(b, "x", 6, &before), 0);
	cr_expect_eq(before.version, 5);
	cr_expect_eq(before.n_holders, 2, "they have to be told");
	expect_holders(a, "x", 6, 1, sb, 0);

	cr_expect_eq(announce(a, "x", 5, &before), -ESTALE);
	cr_expect_eq(before.version, 6);
	cr_expect_eq(before.size, 106);
	expect_holders(a, "x", 6, 1, sb, 0);
	struct directory_stats s;
	directory_get_stats(a, &s);
	cr_expect_eq(s.n_stale, 1);
	cr_expect_eq(s.n_announced, 1);
}

Test(directory, versions_are_compared_as_64_bits_without_a_sign)
{
	static const uint64_t rising[] = {1,
					  255,
					  256,
					  UINT64_C(1) << 31,
					  (UINT64_C(1) << 32) - 1,
					  UINT64_C(1) << 32,
					  (UINT64_C(1) << 53),
					  (UINT64_C(1) << 53) + 1,
					  INT64_MAX,
					  UINT64_C(1) << 63,
					  UINT64_MAX - 1,
					  UINT64_MAX};
	struct directory *d = directory_box_node(0);

	for (size_t i = 0; i < sizeof(rising) / sizeof(*rising); i++) {
		cr_expect_eq(announce(d, "v", rising[i], NULL), 0, "row %zu", i);
		if (i)
			cr_expect_eq(announce(d, "v", rising[i - 1], NULL), -ESTALE, "row %zu", i);
	}
	cr_expect_eq(get(d, "v").version, UINT64_MAX);
}

Test(directory, the_later_metadata_of_one_object_stay_and_its_holders_too)
{
	struct directory *a = directory_box_node(0), *b = directory_box_node(1);
	struct directory_value v = directory_box_file(5, 10), got;

	cr_assert_eq(directory_box_announce(a, "/kv", "m", &v, NULL), 0);
	v.mode = 0100600;
	v.version = 4;
	cr_assert_eq(directory_box_announce(b, "/kv", "m", &v, NULL), 0);
	got = get(a, "m");
	cr_expect_eq(got.mode, 0100644, "an older look at it adds a holder alone");
	cr_expect_eq(got.version, 5);
	v.version = 6;
	cr_assert_eq(directory_box_announce(a, "/kv", "m", &v, NULL), 0);
	got = get(a, "m");
	cr_expect_eq(got.mode, 0100600);
	cr_expect_eq(got.version, 6);
	cr_expect_eq(got.object, 5);
	cr_expect_eq(got.n_holders, 2);
	cr_expect_eq(got.holders[1], directory_slot(b));
}

Test(directory, copies_of_one_size_are_holders_of_the_first_object)
{
	struct directory *a = directory_box_node(0), *b = directory_box_node(1);
	struct directory_value first = directory_box_file(5, 300), second = directory_box_file(9, 300), before, got;

	second.is_copy = true;
	cr_assert_eq(directory_box_announce(a, "/kv", "c", &first, NULL), 0);
	cr_expect_eq(directory_box_announce(b, "/kv", "c", &second, &before), 0);
	got = get(a, "c");
	cr_expect_eq(got.object, 5);
	cr_expect_eq(got.n_holders, 2);
	second.size = 301;
	cr_expect_eq(directory_box_announce(b, "/kv", "c", &second, &before), 0);
	got = get(a, "c");
	cr_expect_eq(got.object, 9, "another size is another file");
	cr_expect_eq(got.n_holders, 1);
	cr_expect_eq(before.n_holders, 2);
}

Test(directory, directories_have_holders_and_yield_to_no_file)
{
	struct directory *a = directory_box_node(0), *b = directory_box_node(1);
	struct directory_value dir = {.kind = DIRECTORY_DIR, .mode = 040755, .version = 3, .object = 3}, before;

	cr_expect_eq(directory_box_announce(a, "/kv", "d", &dir, NULL), 0);
	dir.version = dir.object = 2;
	cr_expect_eq(directory_box_announce(b, "/kv", "d", &dir, NULL), 0, "one directory, whoever made it");
	expect_holders(a, "d", 3, 2, directory_slot(a), directory_slot(b));
	cr_expect_eq(announce(a, "d", 9, &before), -ESTALE);
	cr_expect_eq(before.kind, DIRECTORY_DIR);
	cr_assert_eq(announce(a, "f", 9, NULL), 0);
	dir.version = dir.object = 10;
	cr_expect_eq(directory_box_announce(a, "/kv", "f", &dir, &before), -ESTALE);
	cr_expect_eq(before.kind, DIRECTORY_FILE);

	cr_expect_eq(directory_box_retract(a, "/kv", "d", NULL), 0);
	expect_holders(a, "d", 3, 1, directory_slot(b), 0);
	cr_expect_eq(directory_box_remove(a, "/kv", "d", 77, &before), 0);
	cr_expect_eq(before.kind, DIRECTORY_DIR);
	cr_expect_eq(directory_box_announce(a, "/kv", "d", &dir, NULL), -ESTALE, "made before it was removed");
	dir.version = dir.object = 78;
	cr_expect_eq(directory_box_announce(a, "/kv", "d", &dir, NULL), 0);
	cr_expect_eq(get(a, "d").kind, DIRECTORY_DIR);
}

Test(directory, symlinks_have_targets)
{
	struct directory *d = directory_box_node(0);
	char target[DIRECTORY_TARGET_MAX + 1] = {0};
	struct directory_value v = {.kind = DIRECTORY_SYMLINK, .version = 3, .object = 3, .mode = 0120777, .target = target}, got;

	memset(target, 't', DIRECTORY_TARGET_MAX);
	cr_assert_eq(directory_box_announce(d, "/kv", "current", &v, NULL), 0);
	got = get(d, "current");
	cr_expect_str_eq(got.target, target);
	directory_value_fini(&got);
}

Test(directory, lists_sixteen_holders_and_no_more)
{
	struct directory *d = directory_box_node(0);
	struct directory_value got;
	uint8_t bytes[64];

	cr_assert_eq(announce(d, "many", 5, NULL), 0);
	size_t len = directory_box_raw_get("/kv", "many", bytes, sizeof(bytes));
	len -= 2;
	bytes[9] = 16;
	for (int i = 0; i < 16; i++) {
		bytes[len++] = 1;
		bytes[len++] = (uint8_t)(100 + i);
	}
	directory_box_raw_set("/kv", "many", bytes, len);
	cr_expect_eq(announce(d, "many", 5, NULL), 0);
	got = get(d, "many");
	cr_expect_eq(got.n_holders, 16);
	cr_expect_eq(got.holders[15], 256 + 115);
	cr_expect_eq(directory_box_retract(d, "/kv", "many", NULL), 0, "it is not listed");
	cr_expect_eq(get(d, "many").n_holders, 16);
}

/* ---- retract, remove ---- */

Test(directory, a_name_goes_with_its_last_holder)
{
	struct directory *a = directory_box_node(0), *b = directory_box_node(1);
	struct directory_value before;

	announce(a, "r", 5, NULL);
	announce(b, "r", 5, NULL);
	cr_expect_eq(directory_box_retract(a, "/kv", "r", &before), 0);
	cr_expect_eq(before.n_holders, 2);
	expect_holders(a, "r", 5, 1, directory_slot(b), 0);
	cr_expect_eq(directory_box_retract(a, "/kv", "r", NULL), 0, "again");
	expect_holders(a, "r", 5, 1, directory_slot(b), 0);
	cr_expect_eq(directory_box_retract(b, "/kv", "r", NULL), 0);
	cr_expect_eq(get(a, "r").kind, DIRECTORY_NONE);
	cr_expect_eq(directory_box_retract(b, "/kv", "r", &before), 0);
	cr_expect_eq(before.kind, DIRECTORY_NONE);
}

Test(directory, what_a_node_has_no_more_is_told_apart_from_what_it_has_since)
{
	struct directory *d = directory_box_node(0);

	announce(d, "n", 5, NULL);
	announce(d, "n", 6, NULL);
	directory_retract(d, "/kv", "n", 5, NULL, NULL);
	cr_assert_eq(directory_flush(d, directory_box_in_ms(5000)), 0);
	expect_holders(d, "n", 6, 1, directory_slot(d), 0);
	directory_retract(d, "/kv", "n", 6, NULL, NULL);
	cr_assert_eq(directory_flush(d, directory_box_in_ms(5000)), 0);
	cr_expect_eq(get(d, "n").kind, DIRECTORY_NONE);
}

Test(directory, a_removed_name_stays_removed_for_older_versions)
{
	struct directory *d = directory_box_node(0);
	struct directory_value before;

	announce(d, "t", 5, NULL);
	cr_expect_eq(directory_box_remove(d, "/kv", "t", 5, &before), -ESTALE, "not higher");
	cr_expect_eq(directory_box_remove(d, "/kv", "t", 6, &before), 0);
	cr_expect_eq(before.version, 5);
	cr_expect_eq(get(d, "t").kind, DIRECTORY_TOMBSTONE);
	cr_expect_eq(get(d, "t").version, 6);
	cr_expect_eq(directory_box_remove(d, "/kv", "t", 6, &before), 0, "again");
	cr_expect_eq(before.kind, DIRECTORY_TOMBSTONE);
	cr_expect_eq(announce(d, "t", 5, &before), -ESTALE);
	cr_expect_eq(before.kind, DIRECTORY_TOMBSTONE);
	cr_expect_eq(announce(d, "t", 6, NULL), -ESTALE);
	cr_expect_eq(directory_box_remove(d, "/kv", "t", 4, NULL), -ESTALE);
	cr_expect_eq(announce(d, "t", 7, NULL), 0);
	cr_expect_eq(get(d, "t").kind, DIRECTORY_FILE);
	cr_expect_eq(directory_box_remove(d, "/kv", "never", 1, &before), 0, "a late announce must lose");
	cr_expect_eq(before.kind, DIRECTORY_NONE);
	cr_expect_eq(get(d, "never").kind, DIRECTORY_TOMBSTONE);
}

Test(directory, a_tombstone_older_than_a_week_is_none)
{
	static const uint8_t old[14] = {0, 0, 0, 0, 0, 0, 0, 9, DIRECTORY_TOMBSTONE, 0, 0, 0, 0, 1};
	struct directory *d = directory_box_node(0);
	struct directory_value before;

	directory_box_raw_set("/kv", "old", old, sizeof(old));
	cr_expect_eq(announce(d, "old", 5, &before), 0);
	cr_expect_eq(before.kind, DIRECTORY_NONE);
	cr_expect_eq(get(d, "old").kind, DIRECTORY_FILE);
	/* One that nobody asks for again goes when its neighbours change. */
	directory_box_raw_set_beside("/kv", "old", "zz", old, sizeof(old));
	for (uint64_t v = 10; v < 20; v++)
		directory_box_remove(d, "/kv", "old", v, NULL);
	cr_expect_eq(directory_box_raw_count("/kv", "old"), 1);
}

Test(directory, a_value_that_makes_no_sense_hides_one_name)
{
	struct directory *d = directory_box_node(0);

	directory_box_raw_set("/kv", "bad", "hello, this is nothing", 22);
	cr_expect_eq(get(d, "bad").kind, DIRECTORY_NONE);
	directory_box_raw_set("/kv", "short", "x", 1);
	cr_expect_eq(announce(d, "short", 1, NULL), 0, "it counts as nothing");
	cr_expect_eq(get(d, "short").version, 1);
}

Test(directory, what_cannot_be_is_refused_on_its_thread)
{
	struct directory *d = directory_box_node(0);
	struct directory_value v = directory_box_file(1, 1);
	char name[300];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_expect_eq(directory_box_announce(d, "/kv", name, &v, NULL), -ENAMETOOLONG);
	cr_expect_eq(directory_box_announce(d, "/kv", "", &v, NULL), -EINVAL);
	cr_expect_eq(directory_box_remove(d, "/kv", "a/b", 1, NULL), -EINVAL);
	v.kind = DIRECTORY_TOMBSTONE;
	cr_expect_eq(directory_box_announce(d, "/kv", "x", &v, NULL), -EINVAL);
	v.kind = DIRECTORY_NONE;
	cr_expect_eq(directory_box_announce(d, "/kv", "x", &v, NULL), -EINVAL);
	cr_expect_eq(directory_box_lookup(d, "/kv", "", &v), -EINVAL);
}

/* ---- many names ---- */

static void announce_many(struct directory *d, const char *dir, const char *format, int n)
{
	char name[128];

	for (int i = 0; i < n; i++) {
		struct directory_value v = directory_box_file(1 + (uint64_t)i, (uint64_t)i);
		snprintf(name, sizeof(name), format, i);
		directory_announce(d, dir, name, &v, 5, NULL, NULL);
	}
	cr_assert_eq(directory_flush(d, directory_box_in_ms(20000)), 0);
}

Test(directory, looks_up_4096_names_at_once)
{
	enum {
		N = 4096
	};
	struct directory *d = directory_box_node(0);
	struct directory_name *names = calloc(N, sizeof(*names));
	struct directory_value *values = calloc(N, sizeof(*values));
	char(*texts)[80] = calloc(N, sizeof(*texts));

	announce_many(d, "/kv/m", "%064x", N);
	for (int i = 0; i < N; i++) {
		/* Every other one in a directory where it is not. */
		snprintf(texts[i], sizeof(*texts), "%064x", i);
		names[i] = (struct directory_name){.dir = i % 2 ? "/kv/other" : "/kv/m", .name = texts[i]};
	}
	cr_assert_eq(directory_lookup(d, names, N, values, directory_box_in_ms(5000)), 0);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(values[i].kind, i % 2 ? DIRECTORY_NONE : DIRECTORY_FILE, "name %d", i);
		cr_assert(i % 2 || values[i].size == (uint64_t)i);
	}
	struct directory_stats s;
	directory_get_stats(d, &s);
	cr_expect_eq(s.n_announced, N);
	cr_expect_eq(s.n_queued, 0);
	cr_expect_eq(s.queue_bytes, 0);
	cr_expect_gt(s.rtt_ns, 0);
	free(texts);
	free(values);
	free(names);
}

struct listed {
	uint64_t cookies[4096];
	char last[256];
	int n, stop_at;
};

static int list_one(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	struct listed *l = arg;

	cr_assert_eq(cookie, catalog_name_cookie(name));
	cr_assert_eq(v->kind, DIRECTORY_FILE);
	if (l->n == l->stop_at)
		return 77;
	l->cookies[l->n++] = cookie;
	snprintf(l->last, sizeof(l->last), "%s", name);
	return 0;
}

Test(directory, lists_in_the_order_of_cookies_and_goes_on_where_it_stopped)
{
	struct directory *d = directory_box_node(0);
	struct listed *whole = calloc(1, sizeof(*whole)), *part = calloc(1, sizeof(*part));

	announce_many(d, "/kv/l", "plain name %d\n", 2000);
	announce_many(d, "/kv/l", "%032x", 2000);
	directory_box_remove(d, "/kv/l", "plain name 7\n", 1000000, NULL);
	whole->stop_at = part->stop_at = 5000;
	cr_assert_eq(directory_list(d, "/kv/l", 0, list_one, whole, directory_box_in_ms(5000)), 0);
	cr_expect_eq(whole->n, 3999, "the tombstone is left out");
	for (int i = 1; i < whole->n; i++)
		cr_assert_gt(whole->cookies[i], whole->cookies[i - 1]);

	for (int stop = 1; stop < whole->n; stop += 997) {
		part->n = 0;
		part->stop_at = stop;
		cr_assert_eq(directory_list(d, "/kv/l", 0, list_one, part, directory_box_in_ms(5000)), 77);
		cr_assert_eq(part->n, stop);
		part->stop_at = 5000;
		uint64_t after = part->cookies[stop - 1];
		cr_assert_eq(directory_list(d, "/kv/l", after, list_one, part, directory_box_in_ms(5000)), 0);
		cr_expect_eq(part->n, whole->n);
		cr_expect_arr_eq(part->cookies, whole->cookies, (size_t)whole->n * sizeof(*whole->cookies));
	}
	part->n = 0;
	cr_expect_eq(directory_list(d, "/empty", 0, list_one, part, directory_box_in_ms(5000)), 0);
	cr_expect_eq(part->n, 0);
	cr_expect_eq(directory_list(d, "/kv/l", INT64_MAX, list_one, part, directory_box_in_ms(5000)), 0);
	cr_expect_eq(part->n, 0);
	free(part);
	free(whole);
}

/*
 * XXH3 of 16 bytes adds the two halves, each mixed with a constant, and their product: where one mixed half is 0
 * it may change places with the other. These are such names.
 */
static const char *const equal_names[2] = {
	"\xb9\x39\x42\xea\x7b\x73\x82\x67\x3b\x53\x97\x08\x3a\xbd\x57\xae",
	"\xb8\x38\x43\xeb\x7a\x72\x83\x66\x3a\x52\x96\x09\x3b\xbc\x56\xaf",
};

Test(directory, lists_names_of_equal_cookies_in_one_run)
{
	const char *const *names = equal_names;
	struct directory *d = directory_box_node(0);
	struct listed *l = calloc(1, sizeof(*l));

	cr_assert_eq(catalog_name_cookie(names[0]), catalog_name_cookie(names[1]));
	l->stop_at = 10;
	announce_many(d, "/kv/e", "%d", 3);
	announce(d, "other", 1, NULL);
	for (int i = 0; i < 2; i++) {
		struct directory_value v = directory_box_file(1, 1);
		cr_assert_eq(directory_box_announce(d, "/kv/e", names[i], &v, NULL), 0);
	}
	cr_assert_eq(directory_list(d, "/kv/e", 0, list_one, l, directory_box_in_ms(5000)), 0);
	cr_expect_eq(l->n, 5);
	int n_equal = 0;
	for (int i = 1; i < l->n; i++)
		n_equal += l->cookies[i] == l->cookies[i - 1];
	cr_expect_eq(n_equal, 1);
	l->n = 0;
	cr_assert_eq(directory_list(d, "/kv/e", catalog_name_cookie(names[0]) - 1, list_one, l,
				    directory_box_in_ms(5000)),
		     0);
	cr_expect_eq(l->cookies[0], l->cookies[1], "from one before, both come");
	free(l);
}

Test(directory, keeps_the_order_of_one_names_changes)
{
	struct directory *d = directory_box_node(0);
	struct directory_value v = directory_box_file(5, 1);

	for (int i = 0; i < 500; i++) {
		directory_announce(d, "/kv", "o", &v, 5, NULL, NULL);
		directory_retract(d, "/kv", "o", 0, NULL, NULL);
	}
	cr_assert_eq(directory_flush(d, directory_box_in_ms(10000)), 0);
	cr_expect_eq(get(d, "o").kind, DIRECTORY_NONE);
	directory_retract(d, "/kv", "o", 0, NULL, NULL);
	directory_announce(d, "/kv", "o", &v, 5, NULL, NULL);
	cr_assert_eq(directory_flush(d, directory_box_in_ms(10000)), 0);
	cr_expect_eq(get(d, "o").kind, DIRECTORY_FILE);
}

Test(directory, waits_with_an_announcement_no_longer_than_told)
{
	struct directory *d = directory_box_node(0);
	struct directory_value v = directory_box_file(5, 1);

	directory_announce(d, "/kv", "late", &v, 300, NULL, NULL);
	usleep(100000);
	cr_expect_eq(get(d, "late").kind, DIRECTORY_NONE);
	usleep(400000);
	cr_expect_eq(get(d, "late").kind, DIRECTORY_FILE);
}

Test(directory, keeps_to_its_rate)
{
	struct directory_conf conf = directory_box_conf(0);

	conf.announce_rate = 200;
	struct directory *d = directory_box_open(0, &conf);
	int64_t begin_ns = directory_box_in_ms(0);
	announce_many(d, "/kv", "%d", 100);
	int64_t took_ms = (directory_box_in_ms(0) - begin_ns) / 1000000;
	cr_expect(took_ms >= 400 && took_ms < 2000, "%lld ms", (long long)took_ms);
}

Test(directory, runs_forgotten_scripts_again)
{
	struct directory *d = directory_box_node(0);
	struct redis_reply reply;

	cr_assert_eq(announce(d, "s", 1, NULL), 0);
	cr_assert_eq(redis_server_run(&directory_box.server, &reply, "SCRIPT", "FLUSH", NULL), 0);
	announce_many(d, "/kv", "%d", 1000);
	cr_expect_eq(get(d, "999").version, 1000);
	cr_expect_eq(directory_box_state(d), 0);
}

/* ---- many callers ---- */

struct caller {
	pthread_t thread;
	struct directory *d;
	int n_wrong;
};

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	for (int i = 0; i < 200; i++) {
		struct directory_value v;
		char name[16];
		snprintf(name, sizeof(name), "%d", i);
		int rc = directory_box_lookup(c->d, "/kv", name, &v);
		c->n_wrong += rc || v.version != (uint64_t)i + 1;
	}
	return NULL;
}

Test(directory, serves_more_callers_than_it_has_connections)
{
	struct directory_conf conf = directory_box_conf(0);
	struct caller callers[40];

	conf.lookup_ms = 5000;
	struct directory *d = directory_box_open(0, &conf);
	announce_many(d, "/kv", "%d", 200);
	for (int i = 0; i < 40; i++) {
		callers[i] = (struct caller){.d = d};
		cr_assert_eq(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
	}
	for (int i = 0; i < 40; i++) {
		pthread_join(callers[i].thread, NULL);
		cr_expect_eq(callers[i].n_wrong, 0);
	}
	int64_t n = redis_server_info(&directory_box.server, "clients", "connected_clients");
	cr_expect(n <= 16 + 3, "%lld connections", (long long)n);
}

/* ---- configuration ---- */

Test(directory, refuses_a_bad_url_or_prefix)
{
	struct directory_conf conf = directory_box_conf(0);
	struct directory *d = NULL;

	conf.url = "http://127.0.0.1";
	cr_expect_eq(directory_create(&conf, &d), -EINVAL);
	conf = directory_box_conf(0);
	conf.prefix = "a b";
	cr_expect_eq(directory_create(&conf, &d), -EINVAL);
	cr_expect_null(d);
}

Test(directory, of_one_cluster_knows_nothing_of_another)
{
	struct directory_conf conf = directory_box_conf(1);

	conf.prefix = "other";
	struct directory *a = directory_box_node(0), *b = directory_box_open(1, &conf);
	cr_assert_eq(announce(a, "x", 1, NULL), 0);
	cr_expect_eq(get(b, "x").kind, DIRECTORY_NONE);
	cr_expect_eq(get(a, "x").kind, DIRECTORY_FILE);
}
