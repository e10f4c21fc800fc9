/* SPDX-License-Identifier: Apache-2.0 */
/* paths: numbers of directories to paths and back. */
#include "catalog_fixture.h"

#include <errno.h>

#include "cluster/paths.h"

/* ---- fixture ---- */

static struct catalog *c;
static struct dir_paths *p;
static char path[PEER_PATH_MAX];

static void put_dir(uint64_t parent, const char *name, uint64_t ino)
{
	struct entry e = { .ino = ino, .mode = S_IFDIR | 0755 };
	struct catalog_batch *b = catalog_batch_create(c);

	catalog_batch_put_entry(b, parent, name, &e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static void setup(void)
{
	scratch_create();
	c = catalog_must_open();
	/* A directory may have a lower number than the one above it: it was moved there. */
	put_dir(CATALOG_ROOT_INO, "kv", 900);
	put_dir(900, "model", 800);
	put_dir(CATALOG_ROOT_INO, "kvx", 901);
	struct entry file = file_entry(50);
	struct catalog_batch *b = catalog_batch_create(c);
	catalog_batch_put_entry(b, 800, "block", &file);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	cr_assert_eq(dir_paths_create(c, &p), 0);
}

static void teardown(void)
{
	dir_paths_destroy(p);
	catalog_close(c);
	scratch_remove();
}

TestSuite(cluster_paths, .init = setup, .fini = teardown);

/* ---- success ---- */

Test(cluster_paths, are_those_of_the_catalog)
{
	cr_assert_eq(dir_paths_get(p, CATALOG_ROOT_INO, path), 0);
	cr_expect_str_eq(path, "/");
	cr_assert_eq(dir_paths_get(p, 900, path), 0);
	cr_expect_str_eq(path, "/kv");
	cr_assert_eq(dir_paths_get(p, 800, path), 0);
	cr_expect_str_eq(path, "/kv/model");
}

Test(cluster_paths, are_found_again)
{
	uint64_t ino;

	cr_assert_eq(dir_paths_find(c, "/", &ino), 0);
	cr_expect_eq(ino, CATALOG_ROOT_INO);
	cr_assert_eq(dir_paths_find(c, "/kv/model", &ino), 0);
	cr_expect_eq(ino, 800);
}

Test(cluster_paths, follow_a_directory_that_moves)
{
	dir_paths_remove(p, 800);
	dir_paths_put(p, 800, CATALOG_ROOT_INO, "moved");
	cr_assert_eq(dir_paths_get(p, 800, path), 0);
	cr_expect_str_eq(path, "/moved");
}

Test(cluster_paths, of_thousands_are_kept)
{
	char name[16];

	for (uint64_t k = 0; k < 5000; k++) {
		snprintf(name, sizeof(name), "d%lu", k);
		dir_paths_put(p, 10000 + k, 800, name);
	}
	cr_assert_eq(dir_paths_get(p, 14999, path), 0);
	cr_expect_str_eq(path, "/kv/model/d4999");
}

Test(cluster_paths, below_kv_are_told_from_others)
{
	cr_expect(dir_path_is_kv("/kv"));
	cr_expect(dir_path_is_kv("/kv/model"));
	cr_expect_not(dir_path_is_kv("/kvx"));
	cr_expect_not(dir_path_is_kv("/"));
	cr_expect_not(dir_path_is_kv("/weights/kv"));
}

/* ---- failure ---- */

Test(cluster_paths, of_what_is_not_known_are_none)
{
	uint64_t ino;

	cr_expect_eq(dir_paths_get(p, 77, path), -ENOENT);
	dir_paths_remove(p, 900);
	cr_expect_eq(dir_paths_get(p, 800, path), -ENOENT, "nothing is known above it");
	cr_expect_eq(dir_paths_find(c, "/kv/none", &ino), -ENOENT);
	cr_expect_eq(dir_paths_find(c, "/kv/model/block", &ino), -ENOTDIR);
}

Test(cluster_paths, of_a_circle_or_too_long_end)
{
	char name[CATALOG_NAME_MAX + 1];

	dir_paths_put(p, 1001, 1002, "a");
	dir_paths_put(p, 1002, 1001, "b");
	cr_expect_eq(dir_paths_get(p, 1001, path), -ENAMETOOLONG);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (uint64_t k = 0; k < 20; k++)
		dir_paths_put(p, 2000 + k, k ? 1999 + k : CATALOG_ROOT_INO, name);
	cr_expect_eq(dir_paths_get(p, 2014, path), 0);
	cr_expect_eq(dir_paths_get(p, 2019, path), -ENAMETOOLONG);
}
