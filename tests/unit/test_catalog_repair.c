/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "catalog_fixture.h"
#include "catalog_internal.h"
#include "catalog_key.h"
#include "mcfs/catalog_repair.h"

TestSuite(catalog_repair, .init = scratch_create, .fini = scratch_remove, .timeout = 120);

/* ---- helpers ---- */

#define N_WRITTEN 3000

static void put_pair(struct catalog *c, uint64_t id)
{
	struct catalog_batch *b = catalog_batch_create(c);
	struct entry e = file_entry(id);
	struct object_record r = file_object(id);
	char name[24];

	snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
	catalog_batch_put_entry(b, 1, name, &e);
	catalog_batch_put_object(b, &r);
	if (catalog_batch_commit(b, false))
		abort();
}

/* Writes in a process that is killed: only the log has it, if nothing was closed before. */
static void write_and_be_killed(void)
{
	pid_t pid = fork();
	int status;

	cr_assert_geq(pid, 0);
	if (!pid) {
		struct catalog_conf conf = {.path = catalog_path};
		struct catalog *c;
		if (catalog_open(&conf, &c))
			_exit(1);
		for (uint64_t id = 1; id <= N_WRITTEN; id++)
			put_pair(c, id);
		raise(SIGKILL);
	}
	waitpid(pid, &status, 0);
	cr_assert(WIFSIGNALED(status));
}

static void remove_files(const char *part)
{
	struct dirent **list;
	int n = scandir(catalog_path, &list, NULL, NULL), n_removed = 0;

	for (int i = 0; i < n; i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/%s", catalog_path, list[i]->d_name);
		if (strstr(list[i]->d_name, part))
			n_removed += !unlink(path);
		free(list[i]);
	}
	free(list);
	cr_assert_gt(n_removed, 0, "no %s", part);
}

static int open_error(void)
{
	struct catalog_conf conf = {.path = catalog_path};
	struct catalog *c;
	int rc = catalog_open(&conf, &c);

	if (!rc)
		catalog_close(c);
	return rc;
}

static uint64_t count_pairs(struct catalog *c)
{
	uint64_t n = 0;

	for (uint64_t id = 1; id <= N_WRITTEN; id++) {
		struct object_record r;
		char name[24];
		snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
		if (catalog_object_get(c, id, &r))
			continue;
		object_record_fini(&r);
		n += !catalog_exists(c, 1, name);
	}
	return n;
}

static void expect_all_after_repair(void)
{
	struct catalog_conf conf = {.path = catalog_path, .repairs = true};
	char copy[PATH_MAX];
	struct stat st;
	struct catalog *c;

	cr_assert_eq(catalog_repair(catalog_path, copy), 0);
	cr_expect_eq(stat(copy, &st), 0, "%s", copy);
	cr_assert_eq(catalog_open(&conf, &c), 0);
	cr_expect_eq(count_pairs(c), N_WRITTEN);
	catalog_close(c);
	cr_expect_eq(open_error(), 0);
}

/* ---- the database ---- */

Test(catalog_repair, does_without_a_manifest)
{
	struct catalog *c = catalog_must_open();

	for (uint64_t id = 1; id <= N_WRITTEN; id++)
		put_pair(c, id);
	catalog_close(c);
	remove_files("MANIFEST-");
	cr_assert_eq(open_error(), -EIO);
	expect_all_after_repair();
}

Test(catalog_repair, finds_what_only_the_log_of_a_new_catalog_has)
{
	write_and_be_killed();
	remove_files("MANIFEST-");
	cr_assert_eq(open_error(), -EIO);
	expect_all_after_repair();
}

Test(catalog_repair, is_asked_for_when_the_file_that_holds_all_together_is_missing)
{
	write_and_be_killed();
	remove_files("CURRENT");
	cr_assert_eq(open_error(), -EIO, "a new database there would remove what is left");
	expect_all_after_repair();
}

Test(catalog_repair, is_asked_for_then_after_a_clean_end_too)
{
	struct catalog *c = catalog_must_open();

	for (uint64_t id = 1; id <= N_WRITTEN; id++)
		put_pair(c, id);
	catalog_close(c);
	remove_files("CURRENT");
	remove_files(".log"); /* empty; RocksDB itself looks for these and for nothing else */
	cr_assert_eq(open_error(), -EIO);
	expect_all_after_repair();
}

Test(catalog_repair, loses_what_a_missing_table_file_had_and_no_more)
{
	struct catalog *c = catalog_must_open();
	char copy[PATH_MAX];

	put_pair(c, 1);
	catalog_close(c);
	remove_files(".sst");
	cr_assert_eq(open_error(), -EIO);
	cr_assert_eq(catalog_repair(catalog_path, copy), 0);
	cr_expect_eq(open_error(), 0);
}

Test(catalog_repair, keeps_each_copy)
{
	char first[PATH_MAX], second[PATH_MAX];

	cr_assert_eq(open_error(), 0);
	cr_assert_eq(catalog_repair(catalog_path, first), 0);
	cr_assert_eq(catalog_repair(catalog_path, second), 0);
	cr_expect_str_neq(first, second);
}

/* ---- records ---- */

struct damage {
	int n_damaged, n_newer;
	struct catalog_batch *b;
};

static int see_damage(void *arg, const struct catalog_damage *d)
{
	struct damage *x = arg;

	*(d->error == -EPROTO ? &x->n_newer : &x->n_damaged) += 1;
	if (d->error == -EIO)
		catalog_batch_del_damaged(x->b, d);
	return 0;
}

Test(catalog_repair, finds_damaged_records_of_every_table_and_removes_them)
{
	struct catalog *c = catalog_must_open();
	struct catalog_batch *b = catalog_batch_create(c);
	struct damage found = {0}, again = {0};
	uint8_t key[OBJECTS_KEY_BYTES];

	put_pair(c, 1);
	objects_key_encode(key, 7);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, key, sizeof(key), "bad", 3);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, "odd key", 7, "", 0);
	catalog_batch_put_raw(b, CATALOG_NAMES, "short", 5, "", 0);
	catalog_batch_put_raw(b, CATALOG_CONTROL, "some", 4, "bad", 3);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	found.b = catalog_batch_create(c);
	cr_assert_eq(catalog_scan_damaged(c, see_damage, &found), 0);
	cr_expect_eq(found.n_damaged, 4);
	cr_expect_eq(found.n_newer, 0);
	cr_assert_eq(catalog_batch_commit(found.b, false), 0);
	cr_assert_eq(catalog_scan_damaged(c, see_damage, &again), 0);
	cr_expect_eq(again.n_damaged, 0);
	cr_expect_eq(catalog_exists(c, 1, "1"), 0);
	catalog_close(c);
}
