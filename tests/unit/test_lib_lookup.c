/* SPDX-License-Identifier: Apache-2.0 */
/* lib/lookup.c, lib/dir.c: names of a directory, on the fake of the ioctls. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/fake_fastpath.h"

#define MAX_ITEMS 4

/* ---- fixture ---- */

static struct mcfs_session *s;
static struct mcfs_dir *dir;

static void setup(void)
{
	fake_fastpath_start(MAX_ITEMS);
	cr_assert_eq(mcfs_session_open(fake_fastpath_root(), 0, &s), 0);
	cr_assert_eq(mcfs_dir_open(s, "/", &dir) == 0, true);
	mcfs_dir_close(dir);
	cr_assert_eq(mcfs_dir_open(s, ".", &dir), 0);
}

static void teardown(void)
{
	mcfs_session_close(s);
	fake_fastpath_stop();
}

TestSuite(lib_lookup, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", fake_fastpath_root(), name);
	return path;
}

static void touch(const char *name)
{
	int fd = open(path_of(name), O_CREAT | O_WRONLY, 0644);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "abc", 3), 3);
	close(fd);
}

static const char *const letters[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};

static long lookup(size_t n, struct mcfs_state *states)
{
	return mcfs_lookup_prefix(s, dir, &(struct mcfs_names){.strings = letters, .n = n}, NULL,
				  states);
}

/* ---- success ---- */

Test(lib_lookup, tells_each_state_and_the_prefix)
{
	struct mcfs_state states[4];

	touch("a");
	touch("b");
	touch("d");
	cr_assert_eq(lookup(4, states), 2);
	cr_assert_eq(states[0].state, MCFS_READY);
	cr_assert_eq(states[0].size, 3);
	cr_assert_eq(states[2].state, MCFS_MISS);
	cr_assert_eq(states[3].state, MCFS_READY);
}

Test(lib_lookup, the_prefix_goes_on_from_part_to_part)
{
	struct mcfs_state states[10];

	for (int i = 0; i < 10; i++)
		touch(letters[i]);
	cr_assert_eq(lookup(10, states), 10);
	unlink(path_of("f"));
	cr_assert_eq(lookup(10, states), 5);
	cr_assert_eq(states[9].state, MCFS_READY);
	unlink(path_of("d")); /* the last of the first part */
	cr_assert_eq(lookup(10, NULL), 3);
}

Test(lib_lookup, hashes_are_packed_names)
{
	const unsigned char hashes[] = {0x00, 0xff, 0x12, 0x34, 0xaa, 0xbb};
	const struct mcfs_names names = {.hashes = hashes, .hash_bytes = 2, .n = 3};
	struct mcfs_state states[3];

	touch("00ff.kv");
	touch("1234.kv");
	cr_assert_eq(
		mcfs_lookup_prefix(s, dir, &names, &(struct mcfs_call){.suffix = ".kv"}, states),
		2);
	cr_assert_eq(states[2].state, MCFS_MISS);
}

Test(lib_lookup, no_names_have_no_prefix)
{
	cr_assert_eq(lookup(0, NULL), 0);
}

/* ---- directories ---- */

Test(lib_lookup, a_directory_is_opened_once)
{
	struct mcfs_dir *again, *slashed;

	cr_assert_eq(mkdir(path_of("kv"), 0755), 0);
	cr_assert_eq(mcfs_dir_open(s, "kv", &again), 0);
	cr_assert_eq(mcfs_dir_open(s, path_of("kv///"), &slashed), 0);
	cr_assert_eq(again, slashed);
	mcfs_dir_close(again);
	mcfs_dir_close(slashed);
}

Test(lib_lookup, a_directory_made_anew_is_opened_anew)
{
	struct mcfs_dir *kv;

	mkdir(path_of("kv"), 0755);
	cr_assert_eq(mcfs_dir_open(s, "kv", &kv), 0);
	mcfs_dir_close(kv);
	rmdir(path_of("kv"));
	cr_assert_eq(mcfs_dir_open(s, "kv", &kv), -ENOENT);
	mkdir(path_of("kv"), 0755);
	touch("kv/a");
	cr_assert_eq(mcfs_dir_open(s, "kv", &kv), 0);
	cr_assert_eq(mcfs_lookup_prefix(s, kv, &(struct mcfs_names){.strings = letters, .n = 1},
					NULL, NULL),
		     1);
	mcfs_dir_close(kv);
}

Test(lib_lookup, many_directories_are_not_all_kept_open)
{
	struct mcfs_dir *d;
	char name[16];
	int before = dup(0);

	close(before);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		mkdir(path_of(name), 0755);
		cr_assert_eq(mcfs_dir_open(s, name, &d), 0);
		mcfs_dir_close(d);
	}
	int after = dup(0);
	close(after);
	/* The fake keeps one descriptor per handle, the library 64 of its own. */
	cr_assert_lt(after - before, 200 + 70);
}

/* ---- failure ---- */

Test(lib_lookup, what_is_no_directory_is_said_so)
{
	struct mcfs_dir *d;

	touch("file");
	cr_assert_eq(mcfs_dir_open(s, "file", &d), -ENOTDIR);
	cr_assert_eq(mcfs_dir_open(s, "none", &d), -ENOENT);
	cr_assert(strstr(mcfs_strerror(-ENOENT), "none"));
}

Test(lib_lookup, names_out_of_range_are_refused)
{
	struct mcfs_names names = {.hashes = "abc", .hash_bytes = 0, .n = 1};

	cr_assert_eq(mcfs_lookup_prefix(s, dir, &names, NULL, NULL), -EINVAL);
	names.hash_bytes = 65;
	cr_assert_eq(mcfs_lookup_prefix(s, dir, &names, NULL, NULL), -EINVAL);
	names.hash_bytes = 3;
	cr_assert_eq(mcfs_lookup_prefix(s, NULL, &names, NULL, NULL), -EINVAL);
}
