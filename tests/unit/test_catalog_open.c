/* SPDX-License-Identifier: Apache-2.0 */
/* How a catalog comes up after good and bad ends, and when it refuses to. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/log.h"
#include "catalog_fixture.h"
#include "catalog_internal.h"

TestSuite(catalog_open, .init = scratch_create, .fini = scratch_remove, .timeout = 120);

/* ---- helpers ---- */

static int open_error(const char *path, bool read_only)
{
	struct catalog_conf conf = {.path = path, .read_only = read_only};
	struct catalog *c = NULL;
	int rc = catalog_open(&conf, &c);

	if (!rc)
		catalog_close(c);
	else
		cr_expect_null(c);
	return rc;
}

/* Runs fn in a child that then waits to be killed; returns once fn is done. */
static pid_t child_start(void (*fn)(void))
{
	int fds[2];
	char byte;

	cr_assert_eq(pipe(fds), 0);
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		fn();
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	cr_assert_eq(read(fds[0], &byte, 1), 1, "the child failed");
	close(fds[0]);
	return pid;
}

static void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define N_WRITTEN 2000

static struct catalog *written;

/* The first half is synced, the other is only in the log's tail. */
static void write_and_leave_open(void)
{
	struct catalog_conf conf = {.path = catalog_path};
	struct catalog *c;

	if (catalog_open(&conf, &c))
		_exit(1);
	written = c;
	for (uint64_t id = 1; id <= N_WRITTEN; id++) {
		struct catalog_batch *b = catalog_batch_create(c);
		struct entry e = file_entry(id);
		struct object_record r = file_object(id);
		char name[24];
		snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
		catalog_batch_put_entry(b, 1, name, &e);
		catalog_batch_put_object(b, &r);
		if (catalog_batch_commit(b, id == N_WRITTEN / 2))
			_exit(1);
	}
}

/* The highest id such that it and all before it are there as a pair; no half of one may be. */
static uint64_t count_whole_pairs(struct catalog *c)
{
	uint64_t n = 0;

	for (uint64_t id = 1; id <= N_WRITTEN; id++) {
		struct object_record r;
		struct entry e;
		char name[24];
		snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
		int entry_rc = catalog_lookup(c, 1, name, &e);
		int object_rc = catalog_object_get(c, id, &r);
		cr_assert_eq(entry_rc, object_rc, "half of batch %llu", (unsigned long long)id);
		if (entry_rc)
			continue;
		object_record_fini(&r);
		cr_assert_eq(++n, id, "a hole before %llu", (unsigned long long)id);
	}
	return n;
}

/* The newest file of the catalog whose name ends or starts so. */
static void newest_file(const char *part, char *path, size_t len)
{
	DIR *dir = opendir(catalog_path);
	struct dirent *d;
	char best[256] = "";

	while ((d = readdir(dir)))
		if (strstr(d->d_name, part) && strcmp(d->d_name, best) > 0)
			snprintf(best, sizeof(best), "%s", d->d_name);
	closedir(dir);
	cr_assert(best[0], "no %s file", part);
	snprintf(path, len, "%s/%s", catalog_path, best);
}

static void overwrite_file(const char *part)
{
	char path[512];

	newest_file(part, path, sizeof(path));
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs("this is not what RocksDB wrote\n", f);
	fclose(f);
}

/* ---- creation and ends ---- */

Test(catalog_open, creates_a_private_folder)
{
	struct stat st;

	cr_assert_eq(open_error(catalog_path, false), 0);
	cr_assert_eq(stat(catalog_path, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0700);
}

Test(catalog_open, finds_everything_after_close)
{
	write_and_leave_open();
	catalog_close(written);
	struct catalog *c = catalog_must_open();
	cr_expect_eq(count_whole_pairs(c), N_WRITTEN);
	catalog_close(c);
}

Test(catalog_open, finds_everything_after_kill_9)
{
	child_kill(child_start(write_and_leave_open));
	struct catalog *c = catalog_must_open();
	cr_expect_eq(count_whole_pairs(c), N_WRITTEN);
	catalog_close(c);
}

/* What a power cut leaves: the log ends in the middle of a record. */
Test(catalog_open, finds_whole_batches_after_the_log_was_torn)
{
	char log[512];
	struct stat st;

	child_kill(child_start(write_and_leave_open));
	newest_file(".log", log, sizeof(log));
	cr_assert_eq(stat(log, &st), 0);
	cr_assert_eq(truncate(log, st.st_size * 4 / 5 + 3), 0);
	struct catalog *c = catalog_must_open();
	uint64_t n = count_whole_pairs(c);
	cr_expect(n >= N_WRITTEN / 2 && n < N_WRITTEN, "%llu pairs", (unsigned long long)n);
	must_put(c, 1, "goes on", 5);
	catalog_close(c);
	c = catalog_must_open();
	cr_expect_eq(count_whole_pairs(c), n);
	cr_expect_eq(catalog_exists(c, 1, "goes on"), 0);
	catalog_close(c);
}

/* ---- two at once ---- */

Test(catalog_open, is_busy_while_another_process_has_it)
{
	pid_t pid = child_start(write_and_leave_open);

	cr_expect_eq(open_error(catalog_path, false), -EBUSY);
	child_kill(pid);
	cr_expect_eq(open_error(catalog_path, false), 0);
}

Test(catalog_open, is_busy_while_this_process_has_it)
{
	struct catalog *c = catalog_must_open();

	cr_expect_eq(open_error(catalog_path, false), -EBUSY);
	catalog_close(c);
}

static void list_folder(char *text, size_t len)
{
	struct dirent **list;
	int n = scandir(catalog_path, &list, NULL, alphasort);

	text[0] = '\0';
	for (int i = 0; i < n; i++) {
		strncat(text, list[i]->d_name, len - strlen(text) - 2);
		strcat(text, " ");
		free(list[i]);
	}
	free(list);
}

Test(catalog_open, read_only_sees_a_live_catalog_and_changes_nothing)
{
	struct catalog_conf conf = {.path = catalog_path, .read_only = true};
	char before[4096], after[4096];
	struct catalog *c;
	struct entry e = file_entry(1);
	pid_t pid = child_start(write_and_leave_open);

	list_folder(before, sizeof(before));
	cr_assert_eq(catalog_open(&conf, &c), 0);
	cr_expect_eq(count_whole_pairs(c), N_WRITTEN);
	struct catalog_batch *b = catalog_batch_create(c);
	catalog_batch_put_entry(b, 1, "x", &e);
	cr_expect_eq(catalog_batch_commit(b, false), -EROFS);
	cr_expect_eq(catalog_control_put(c, "k", 1, true), -EROFS);
	cr_expect_eq(catalog_sync(c), 0);
	catalog_close(c);
	list_folder(after, sizeof(after));
	cr_expect_str_eq(before, after);
	child_kill(pid);
}

Test(catalog_open, read_only_does_not_create)
{
	cr_expect_eq(open_error(catalog_path, true), -ENOENT);
	cr_expect_eq(access(catalog_path, F_OK), -1);
	cr_assert_eq(mkdir(catalog_path, 0700), 0);
	cr_expect_eq(open_error(catalog_path, true), -ENOENT);
	cr_expect_eq(rmdir(catalog_path), 0, "something was written");
}

/* ---- formats ---- */

static void set_format(uint64_t format)
{
	struct catalog *c = catalog_must_open();

	cr_assert_eq(catalog_control_put(c, CATALOG_FORMAT_KEY, format, true), 0);
	catalog_close(c);
}

Test(catalog_open, refuses_a_newer_format_and_names_both)
{
	char log[128], text[4096] = "";

	set_format(CATALOG_FORMAT + 5);
	snprintf(log, sizeof(log), "%s/log", scratch);
	cr_assert_eq(log_init(log, "test"), 0);
	cr_expect_eq(open_error(catalog_path, false), -EPROTO);
	cr_expect_eq(open_error(catalog_path, true), -EPROTO);
	log_fini();
	FILE *f = fopen(log, "r");
	cr_assert_not_null(f);
	cr_assert_gt(fread(text, 1, sizeof(text) - 1, f), 0);
	fclose(f);
	cr_expect_not_null(strstr(text, "format 7"), "%s", text);
	cr_expect_not_null(strstr(text, "format 2"), "%s", text);
}

/* Changes the database behind the catalog's back. */
static void with_rocksdb(void (*fn)(rocksdb_t *db, rocksdb_options_t *o,
				    rocksdb_column_family_handle_t **families))
{
	static const char *const names[] = {"default", "names", "objects", "control"};
	rocksdb_options_t *o = rocksdb_options_create();
	const rocksdb_options_t *options[] = {o, o, o, o};
	rocksdb_column_family_handle_t *families[4];
	char *text = NULL;
	rocksdb_t *db =
		rocksdb_open_column_families(o, catalog_path, 4, names, options, families, &text);

	cr_assert_null(text, "%s", text);
	fn(db, o, families);
	for (int i = 0; i < 4; i++)
		rocksdb_column_family_handle_destroy(families[i]);
	rocksdb_close(db);
	rocksdb_options_destroy(o);
}

static void add_family(rocksdb_t *db, rocksdb_options_t *o,
		       rocksdb_column_family_handle_t **families)
{
	char *text = NULL;
	rocksdb_column_family_handle_t *later = rocksdb_create_column_family(db, o, "later", &text);

	cr_assert_null(text);
	rocksdb_column_family_handle_destroy(later);
}

static void drop_format(rocksdb_t *db, rocksdb_options_t *o,
			rocksdb_column_family_handle_t **families)
{
	rocksdb_writeoptions_t *w = rocksdb_writeoptions_create();
	char *text = NULL;

	rocksdb_delete_cf(db, w, families[3], CATALOG_FORMAT_KEY, strlen(CATALOG_FORMAT_KEY),
			  &text);
	cr_assert_null(text);
	rocksdb_writeoptions_destroy(w);
}

Test(catalog_open, takes_a_table_it_does_not_know_and_lets_the_format_decide)
{
	struct catalog *c = catalog_must_open();
	must_put(c, 1, "x", 1);
	catalog_close(c);
	with_rocksdb(add_family);
	c = catalog_must_open();
	cr_expect_eq(catalog_exists(c, 1, "x"), 0);
	catalog_close(c);
	set_format(CATALOG_FORMAT + 1);
	cr_expect_eq(open_error(catalog_path, false), -EPROTO);
}

Test(catalog_open, takes_a_format_that_is_missing_for_granted_only_when_empty)
{
	uint64_t format = 0;

	cr_assert_eq(open_error(catalog_path, false), 0);
	with_rocksdb(drop_format);
	struct catalog *c = catalog_must_open(); /* its creation was interrupted */
	cr_assert_eq(catalog_control_get(c, CATALOG_FORMAT_KEY, &format), 0);
	cr_expect_eq(format, CATALOG_FORMAT);
	must_put(c, 1, "x", 1);
	catalog_close(c);
	with_rocksdb(drop_format);
	cr_expect_eq(open_error(catalog_path, false), -EIO);
}

/* ---- bad places and damaged files ---- */

Test(catalog_open, tells_why_a_path_will_not_do)
{
	char path[256], file[160];

	snprintf(path, sizeof(path), "%s/no/catalog", scratch);
	cr_expect_eq(open_error(path, false), -ENOENT);
	snprintf(file, sizeof(file), "%s/file", scratch);
	close(creat(file, 0600));
	cr_expect_eq(open_error(file, false), -ENOTDIR);
	snprintf(path, sizeof(path), "%s/catalog", file);
	cr_expect_eq(open_error(path, false), -ENOTDIR);
}

/* In a child of another user, since root may write everywhere. */
static int open_as_nobody(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(255);
		_exit(-open_error(catalog_path, false));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -255;
}

Test(catalog_open, has_no_access_to_an_unwritable_folder)
{
	if (geteuid())
		cr_skip_test("needs root to become another user");
	cr_assert_eq(chmod(scratch, 0755), 0);
	cr_expect_eq(open_as_nobody(), -EACCES, "its parent");
	cr_assert_eq(mkdir(catalog_path, 0755), 0);
	cr_expect_eq(open_as_nobody(), -EACCES, "an empty one");
	cr_assert_eq(open_error(catalog_path, false), 0);
	cr_expect_eq(open_as_nobody(), -EACCES, "one with a catalog");
}

Test(catalog_open, ignores_a_damaged_options_file)
{
	struct catalog *c = catalog_must_open();

	must_put(c, 1, "x", 1);
	catalog_close(c);
	overwrite_file("OPTIONS-");
	c = catalog_must_open();
	cr_expect_eq(catalog_exists(c, 1, "x"), 0);
	catalog_close(c);
}

Test(catalog_open, fails_cleanly_on_a_damaged_manifest)
{
	cr_assert_eq(open_error(catalog_path, false), 0);
	overwrite_file("MANIFEST-");
	cr_expect_eq(open_error(catalog_path, false), -EIO);
	cr_expect_eq(open_error(catalog_path, true), -EIO);
}

Test(catalog_open, fails_cleanly_on_a_damaged_table_file)
{
	struct catalog *c = catalog_must_open();

	must_put(c, 1, "x", 1);
	catalog_close(c);
	overwrite_file(".sst");
	int rc = open_error(catalog_path, false);
	cr_expect_eq(rc, -EIO, "%d", rc);
}

/* One byte in the middle of each table file that is big enough to have a middle. */
static void damage_tables(void)
{
	struct dirent **list;
	int n = scandir(catalog_path, &list, NULL, NULL);

	for (int i = 0; i < n; i++) {
		char path[512], byte;
		struct stat st;
		snprintf(path, sizeof(path), "%s/%s", catalog_path, list[i]->d_name);
		int fd = open(path, O_RDWR);
		if (strstr(path, ".sst") && !fstat(fd, &st) && st.st_size > 20000 &&
		    pread(fd, &byte, 1, st.st_size / 3) == 1) {
			byte ^= 0x10;
			cr_assert_eq(pwrite(fd, &byte, 1, st.st_size / 3), 1);
		}
		close(fd);
		free(list[i]);
	}
	free(list);
}

static int ignore_name(void *arg, uint64_t cookie, const char *name, size_t len,
		       const struct entry *e)
{
	return 0;
}

static int ignore_object(void *arg, const struct object_record *r)
{
	return 0;
}

Test(catalog_open, fails_what_a_damaged_block_holds_and_serves_the_rest)
{
	int n_good = 0, n_bad = 0;

	write_and_leave_open();
	catalog_close(written);
	damage_tables();
	struct catalog *c = catalog_must_open();
	for (uint64_t id = 1; id <= N_WRITTEN; id++) {
		struct object_record r;
		int rc = catalog_object_get(c, id, &r);
		n_good += !rc;
		n_bad += rc == -EIO;
		if (!rc)
			object_record_fini(&r);
	}
	cr_expect(n_bad > 0 && n_good > N_WRITTEN / 2, "%d good, %d bad", n_good, n_bad);
	cr_expect_eq(n_good + n_bad, N_WRITTEN, "absent is not what damaged ones are");
	cr_expect_eq(catalog_readdir(c, 1, 0, ignore_name, NULL), -EIO);
	cr_expect_eq(catalog_scan_objects(c, ignore_object, NULL, NULL), -EIO);
	catalog_close(c);
}

/* ---- a full disk ---- */

/* Returns the first error of up to 64 MiB of commits. */
static int fill(struct catalog *c)
{
	struct object_record r = file_object(1);
	int rc = 0;

	r.n_crc = 16384;
	r.size = (uint64_t)r.n_crc * CATALOG_CRC_CHUNK;
	r.crc = calloc(r.n_crc, sizeof(*r.crc));
	for (r.object_id = 100; !rc && r.object_id < 1100; r.object_id++) {
		struct catalog_batch *b = catalog_batch_create(c);
		catalog_batch_put_object(b, &r);
		rc = catalog_batch_commit(b, false);
	}
	free(r.crc);
	return rc;
}

Test(catalog_open, survives_a_full_disk)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("catalog", scratch, "tmpfs", 0, "size=16m"))
		cr_skip_test("may not mount a small tmpfs");
	struct catalog *c = catalog_must_open();
	must_put(c, 1, "x", 1);
	cr_expect_eq(fill(c), -ENOSPC);
	cr_expect_eq(catalog_exists(c, 1, "x"), 0);
	cr_assert_eq(mount("catalog", scratch, "tmpfs", MS_REMOUNT, "size=256m"), 0);
	int rc = -1;
	for (int i = 0; rc && i < 300; i++) {
		struct catalog_batch *b = catalog_batch_create(c);
		struct entry e = file_entry(2);
		catalog_batch_put_entry(b, 1, "y", &e);
		rc = catalog_batch_commit(b, true);
		if (rc)
			usleep(100000);
	}
	cr_expect_eq(rc, 0, "takes writes again: %d", rc);
	catalog_close(c);
	c = catalog_must_open();
	cr_expect_eq(catalog_exists(c, 1, "x"), 0);
	cr_expect_eq(catalog_exists(c, 1, "y"), 0);
	catalog_close(c);
	umount2(scratch, MNT_DETACH);
}
