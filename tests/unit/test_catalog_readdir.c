/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

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

TestSuite(catalog_readdir, .init = setup, .fini = teardown, .timeout = 120);

/* ---- helpers ---- */

#define SEEN_MAX 4096

struct seen {
	int n, room; /* room 0: all */
	uint64_t cookies[SEEN_MAX];
	char names[SEEN_MAX][24];
};

static int see(void *arg, uint64_t cookie, const char *name, size_t name_len, const struct entry *e)
{
	struct seen *seen = arg;

	if (seen->room && seen->n == seen->room)
		return 1;
	cr_assert_lt(seen->n, SEEN_MAX);
	cr_assert_eq(strlen(name), name_len);
	cr_assert_eq(cookie, catalog_name_cookie(name));
	seen->cookies[seen->n] = cookie;
	snprintf(seen->names[seen->n++], sizeof(*seen->names), "%s", name);
	return 0;
}

static void put_numbers(uint64_t parent, int from, int to)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	for (int i = from; i < to; i++) {
		struct entry e = file_entry((uint64_t)i + 1);
		char name[24];
		snprintf(name, sizeof(name), "%d", i);
		catalog_batch_put_entry(b, parent, name, &e);
	}
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

/* Whether every number below n was seen, once. */
static bool saw_numbers_once(const struct seen *seen, int n)
{
	static int times[SEEN_MAX];

	memset(times, 0, sizeof(times));
	for (int i = 0; i < seen->n; i++)
		if (seen->names[i][0] != 'x')
			times[atoi(seen->names[i])]++;
	for (int i = 0; i < n; i++)
		if (times[i] != 1)
			return false;
	return true;
}

/* ---- order and pages ---- */

Test(catalog_readdir, lists_each_name_once_in_order_of_cookie)
{
	static struct seen seen;

	put_numbers(7, 0, 1000);
	cr_assert_eq(catalog_readdir(catalog, 7, 0, see, &seen), 0);
	cr_expect_eq(seen.n, 1000);
	cr_expect(saw_numbers_once(&seen, 1000));
	for (int i = 1; i < seen.n; i++)
		cr_assert_lt(seen.cookies[i - 1], seen.cookies[i]);
}

Test(catalog_readdir, goes_on_after_a_cookie_with_any_page_size)
{
	static struct seen seen, page;
	const int sizes[] = {1, 2, 7, 99, 100, 101};

	put_numbers(7, 0, 100);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		uint64_t after = 0;
		int rc = 1;
		seen.n = 0;
		while (rc > 0) {
			page.n = 0, page.room = sizes[s];
			rc = catalog_readdir(catalog, 7, after, see, &page);
			cr_assert_geq(rc, 0);
			for (int i = 0; i < page.n; i++)
				memcpy(seen.names[seen.n++], page.names[i], sizeof(*page.names));
			if (page.n)
				after = page.cookies[page.n - 1];
		}
		cr_expect_eq(seen.n, 100, "pages of %d", sizes[s]);
		cr_expect(saw_numbers_once(&seen, 100), "pages of %d", sizes[s]);
		page.n = 0;
		cr_expect_eq(catalog_readdir(catalog, 7, after, see, &page), 0);
		cr_expect_eq(page.n, 0, "something after the last");
	}
}

Test(catalog_readdir, goes_on_at_a_cookie_whose_name_is_gone)
{
	static struct seen seen, rest;

	put_numbers(7, 0, 100);
	cr_assert_eq(catalog_readdir(catalog, 7, 0, see, &seen), 0);
	must_del(catalog, 7, seen.names[50]);
	cr_assert_eq(catalog_readdir(catalog, 7, seen.cookies[50], see, &rest), 0);
	cr_assert_eq(rest.n, 49);
	cr_expect_str_eq(rest.names[0], seen.names[51]);
}

Test(catalog_readdir, has_the_same_cookies_after_reopen)
{
	static struct seen before, after;

	put_numbers(7, 0, 500);
	cr_assert_eq(catalog_readdir(catalog, 7, 0, see, &before), 0);
	catalog_close(catalog);
	catalog = catalog_must_open();
	cr_assert_eq(catalog_readdir(catalog, 7, 0, see, &after), 0);
	cr_assert_eq(before.n, after.n);
	cr_expect_arr_eq(before.cookies, after.cookies, (size_t)before.n * sizeof(*before.cookies));
}

Test(catalog_readdir, ends_at_the_end_of_the_cookies)
{
	static struct seen seen;

	put_numbers(7, 0, 10);
	cr_expect_eq(catalog_readdir(catalog, 7, CATALOG_COOKIE_END - 1, see, &seen), 0);
	cr_expect_eq(catalog_readdir(catalog, 7, UINT64_MAX, see, &seen), 0);
	cr_expect_eq(seen.n, 0);
}

Test(catalog_readdir, stays_inside_its_directory)
{
	const uint64_t parents[] = {0, 6, 7, 8, 255, 256, UINT64_MAX - 1, UINT64_MAX};

	for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); i++)
		put_numbers(parents[i], 0, (int)i + 1);
	for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); i++) {
		static struct seen seen;
		seen.n = 0;
		cr_assert_eq(catalog_readdir(catalog, parents[i], 0, see, &seen), 0);
		cr_expect_eq(seen.n, (int)i + 1);
	}
}

static int answer(void *arg, uint64_t cookie, const char *name, size_t name_len,
		  const struct entry *e)
{
	cr_expect_str_eq(e->target, "to");
	return *(int *)arg;
}

Test(catalog_readdir, hands_on_what_stopped_it_and_shows_targets)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry e = {.mode = S_IFLNK | 0777, .size = 2, .target = (char[]){"to"}};
	int stop = 5, error = -EINTR;

	catalog_batch_put_entry(b, 7, "link", &e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	cr_expect_eq(catalog_readdir(catalog, 7, 0, answer, &stop), 5);
	cr_expect_eq(catalog_readdir(catalog, 7, 0, answer, &error), -EINTR);
}

/* ---- equal cookies ---- */

#define RUN_COOKIE UINT64_C(1000)

struct run {
	int n, room, n_in_run;
	uint64_t last;
};

static int see_run(void *arg, uint64_t cookie, const char *name, size_t name_len,
		   const struct entry *e)
{
	struct run *run = arg;

	if (run->room && run->n == run->room)
		return 1;
	run->n++;
	run->n_in_run += cookie == RUN_COOKIE;
	run->last = cookie;
	return 0;
}

/* No two names of equal XXH3 are at hand, so their keys are made by hand. */
static void put_at(uint64_t parent, uint64_t cookie, const char *name)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	uint8_t key[NAMES_KEY_MAX], value[ENTRY_RECORD_MAX];
	struct entry e = file_entry(1);
	size_t name_len = strlen(name), value_len;

	names_position_encode(key, parent, cookie);
	memcpy(key + NAMES_KEY_PREFIX, name, name_len);
	cr_assert_eq(entry_record_encode(&e, value, sizeof(value), &value_len), 0);
	catalog_batch_put_raw(b, CATALOG_NAMES, key, NAMES_KEY_PREFIX + name_len, value, value_len);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

Test(catalog_readdir, offers_names_of_equal_cookies_as_one_run_again_and_again)
{
	struct run run = {.n = 0};

	put_at(7, RUN_COOKIE - 1, "before");
	for (int i = 0; i < 5; i++)
		put_at(7, RUN_COOKIE, (char[]){(char)('a' + i), '\0'});
	put_at(7, RUN_COOKIE + 1, "behind");

	run = (struct run){.room = 3}; /* stops inside the run */
	cr_assert_eq(catalog_readdir(catalog, 7, 0, see_run, &run), 1);
	cr_expect_eq(run.last, RUN_COOKIE);
	run = (struct run){.n = 0};
	cr_assert_eq(catalog_readdir(catalog, 7, RUN_COOKIE - 1, see_run, &run), 0);
	cr_expect(run.n == 6 && run.n_in_run == 5, "resumed at its start");
	run = (struct run){.n = 0};
	cr_assert_eq(catalog_readdir(catalog, 7, RUN_COOKIE, see_run, &run), 0);
	cr_expect(run.n == 1 && run.n_in_run == 0, "nothing of it comes after it");
}

/* ---- changes while listing ---- */

static atomic_bool done;

/* Puts and deletes x<i>, spread over all cookies, and leaves the numbers alone. */
static void *churn(void *arg)
{
	int id = (int)(intptr_t)arg, round = 0;

	for (; !atomic_load(&done); round++) {
		struct catalog_batch *b = catalog_batch_create(catalog);
		struct entry e = file_entry(1);
		char name[24];
		for (int i = 0; i < 50; i++) {
			snprintf(name, sizeof(name), "x%d.%d", id, (round * 50 + i) % 700);
			if (round % 3)
				catalog_batch_put_entry(b, 7, name, &e);
			else
				catalog_batch_del_entry(b, 7, name);
		}
		if (catalog_batch_commit(b, false))
			return (void *)1;
	}
	return NULL;
}

Test(catalog_readdir, shows_what_stays_once_while_other_names_come_and_go)
{
	static struct seen seen, page;
	pthread_t threads[2];

	put_numbers(7, 0, 300);
	for (intptr_t i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
	for (int pass = 0; pass < 40; pass++) {
		uint64_t after = 0;
		int rc = 1;
		for (seen.n = 0; rc > 0;) {
			page.n = 0, page.room = 23;
			rc = catalog_readdir(catalog, 7, after, see, &page);
			for (int i = 0; i < page.n; i++)
				memcpy(seen.names[seen.n++], page.names[i], sizeof(*page.names));
			if (page.n)
				after = page.cookies[page.n - 1];
		}
		cr_assert_eq(rc, 0);
		cr_assert(saw_numbers_once(&seen, 300), "pass %d", pass);
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++) {
		void *failed;
		pthread_join(threads[i], &failed);
		cr_expect_null(failed);
	}
}

/* ---- empty directories ---- */

Test(catalog_readdir, knows_an_empty_directory)
{
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 1);
	put_numbers(6, 0, 1);
	put_numbers(8, 0, 1);
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 1);
	put_numbers(7, 0, 1);
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 0);
	must_del(catalog, 7, "0");
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 1);
}

/* More deletions than the table is flushed after, so that files of tombstones come and are merged. */
Test(catalog_readdir, finds_a_big_directory_empty_after_its_names_went)
{
	const int n = 140000, step = 1000;

	for (int i = 0; i < n; i += step)
		put_numbers(7, i, i + step);
	for (int i = 0; i < n; i += step) {
		struct catalog_batch *b = catalog_batch_create(catalog);
		char name[24];
		for (int k = i; k < i + step; k++) {
			snprintf(name, sizeof(name), "%d", k);
			catalog_batch_del_entry(b, 7, name);
		}
		cr_assert_eq(catalog_batch_commit(b, false), 0);
		cr_assert_eq(catalog_exists(catalog, 7, name), -ENOENT);
	}
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 1);
	must_put(catalog, 7, "one", 1);
	cr_expect_eq(catalog_dir_is_empty(catalog, 7), 0);
}
