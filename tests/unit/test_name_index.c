/* SPDX-License-Identifier: Apache-2.0 */
/* name_index: follows every way in which names come, move and go, like the catalog does. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "lib/fp_client.h"

#define A fs_box_who(1)
enum {
	N_DIRS = 3,
	N_NAMES = 24,
	N_STEPS = 6000
};

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dirs[N_DIRS];
static struct fp_client c;
static uint64_t ids[N_DIRS];

static void setup(void)
{
	fs_box_open(&box);
	fp_open(&c, &box, fp_root(), 1 << 20);
	for (int d = 0; d < N_DIRS; d++) {
		char name[16];
		snprintf(name, sizeof(name), "d%d", d);
		dirs[d] = fs_box_mkdir(&box, fs_box_root(&box), name);
		fp_open_dir(&box, dirs[d], 0, &ids[d]);
	}
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(name_index, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static uint64_t random_state = 7;

static uint32_t pick(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static struct object *find(struct inode *dir, const char *name)
{
	guard_lock(&box.fs.lock);
	return name_index_find_locked(&box.fs, name_key_of(&box.fs, dir->key, name, strlen(name)));
}

static uint64_t catalog_id(struct inode *dir, const char *name)
{
	struct entry e;

	if (catalog_lookup(box.fs.catalog, dir->key, name, &e))
		return 0;
	uint64_t id = e.object_id;
	entry_fini(&e);
	return id;
}

/* The index and the catalog say the same of every name. */
static void compare(int step)
{
	for (int d = 0; d < N_DIRS; d++)
		for (int n = 0; n < N_NAMES; n++) {
			char name[16];
			snprintf(name, sizeof(name), "n%d", n);
			struct object *o = find(dirs[d], name);
			uint64_t id = catalog_id(dirs[d], name);
			cr_assert_eq(o ? o->id : 0, id, "step %d: d%d/%s: %llu instead of %llu",
				     step, d, name, (unsigned long long)(o ? o->id : 0),
				     (unsigned long long)id);
		}
}

static void step(void)
{
	struct caller_id who = A;
	uint32_t d = pick(N_DIRS), d2 = pick(N_DIRS);
	char name[16], name2[16];
	struct object *o;
	struct handle *h;

	snprintf(name, sizeof(name), "n%u", pick(N_NAMES));
	snprintf(name2, sizeof(name2), "n%u", pick(N_NAMES));
	switch (pick(8)) {
	case 0:
	case 1:
		fp_put(&c, ids[d], name, "abc", 3);
		break;
	case 2:
		fs_box_put_file(&box, dirs[d], name, "plain", 5, who);
		break;
	case 3:
		fs_box_unlink(&box, dirs[d], name, who);
		break;
	case 4:
	case 5:
		ns_rename(&box.fs, dirs[d], name, dirs[d2], name2, 0, &who);
		break;
	case 6:
		o = find(dirs[d], name);
		if (o)
			space_remove_by_id(&box.fs, o->id);
		break;
	default:
		if (!fs_box_reopen(&box, dirs[d], name, 0, who, &h)) {
			fs_box_write(&box, h, "x", 1, 0);
			fs_box_shut(&box, h);
		}
	}
}

/* ---- tests ---- */

Test(name_index, agrees_with_the_catalog_whatever_happens)
{
	for (int k = 0; k < N_STEPS; k++) {
		step();
		if (k % 50 == 0)
			compare(k);
	}
	compare(N_STEPS);
}

Test(name_index, is_as_it_was_after_a_restart)
{
	for (int k = 0; k < 300; k++)
		step();
	fs_box_restart(&box, false);
	for (int d = 0; d < N_DIRS; d++) {
		char name[16];
		snprintf(name, sizeof(name), "d%d", d);
		dirs[d] = fs_box_dir(&box, fs_box_root(&box), name);
	}
	compare(0);
}

Test(name_index, grows_with_the_number_of_names)
{
	enum {
		MANY = 20000
	};
	static struct object objects[MANY];
	char name[16];

	pthread_mutex_lock(&box.fs.lock);
	for (int k = 0; k < MANY; k++) {
		int len = snprintf(name, sizeof(name), "name%d", k);
		name_index_put_locked(&box.fs, &objects[k],
				      name_key_of(&box.fs, 1, name, (size_t)len));
	}
	for (int k = 0; k < MANY; k += 2)
		name_index_remove_locked(&box.fs, &objects[k]);
	for (int k = 0; k < MANY; k++) {
		int len = snprintf(name, sizeof(name), "name%d", k);
		struct object *o =
			name_index_find_locked(&box.fs, name_key_of(&box.fs, 1, name, (size_t)len));
		cr_expect_eq(o, k % 2 ? &objects[k] : NULL, "%s", name);
	}
	for (int k = 0; k < MANY; k++)
		name_index_remove_locked(&box.fs, &objects[k]);
	pthread_mutex_unlock(&box.fs.lock);
}

Test(name_index, a_newer_object_hides_an_older_one_until_it_goes)
{
	struct object old = {0}, newer = {0};
	struct name_key key = name_key_of(&box.fs, 1, "n", 1);

	pthread_mutex_lock(&box.fs.lock);
	name_index_put_locked(&box.fs, &old, key);
	name_index_put_locked(&box.fs, &newer, key);
	cr_expect_eq(name_index_find_locked(&box.fs, key), &newer);
	name_index_remove_locked(&box.fs, &old);
	cr_expect_eq(name_index_find_locked(&box.fs, key), &newer);
	name_index_put_locked(&box.fs, &newer, name_key_of(&box.fs, 2, "n", 1)); /* it moves */
	cr_expect_null(name_index_find_locked(&box.fs, key));
	name_index_remove_locked(&box.fs, &newer);
	name_index_remove_locked(&box.fs, &newer); /* once more is no harm */
	pthread_mutex_unlock(&box.fs.lock);
}

Test(name_index, names_and_directories_are_told_apart)
{
	struct name_key a = name_key_of(&box.fs, 1, "ab", 2), b = name_key_of(&box.fs, 2, "ab", 2);
	struct name_key s = name_key_of(&box.fs, 1, "ab", 1);

	cr_expect(a.low != b.low || a.high != b.high);
	cr_expect(a.low != s.low || a.high != s.high);
}
