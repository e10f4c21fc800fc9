/* SPDX-License-Identifier: Apache-2.0 */
/* LOOKUP of the fast path: the state of many names of a directory, and the longest prefix that is ready. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fp_client.h"
#include "object/durable.h"

#define A fs_box_who(1)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dir;
static struct fp_client c;
static uint64_t dir_id;

static void setup(void)
{
	fs_box_open(&box);
	dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	fp_open(&c, &box, fp_root(), 24 << 20);
	fp_open_dir(&box, dir, 0, &dir_id);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_lookup, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void put(const char *name)
{
	cr_assert_eq(fp_put(&c, dir_id, name, name, (uint32_t)strlen(name)), 0);
}

static uint8_t state_of(const char *name)
{
	struct mcfs_submit io;
	struct mcfs_state *s = fp_lookup(&c, dir_id, &name, 1, &io);

	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, s->state == MCFS_READY);
	cr_expect_eq(io.ready_prefix, s->state == MCFS_READY);
	cr_expect_eq(s->reserved, 0);
	return s->state;
}

/* ---- states ---- */

Test(fastpath_lookup, tells_ready_names_with_size_and_tier)
{
	static const char *const names[] = {"a", "none", "empty", "dir", "link"};
	struct caller_id who = A;
	struct ns_new n = {.mode = S_IFLNK | 0777, .target = "a"};
	struct inode *link;
	struct mcfs_submit io;

	put("a");
	cr_assert_eq(fp_put(&c, dir_id, "empty", NULL, 0), 0);
	fs_box_mkdir(&box, dir, "dir");
	cr_assert_eq(ns_make(&box.fs, dir, "link", &n, &who, &link), 0);
	struct mcfs_state *s = fp_lookup(&c, dir_id, names, 5, &io);
	memset(s, 0xff, 5 * sizeof(*s));
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s[0].state, MCFS_READY);
	cr_expect_eq(s[0].tier, MCFS_TIER_DRAM);
	cr_expect_eq(s[0].size, 1);
	cr_expect_eq(s[0].eta_us, 0);
	cr_expect_eq(s[1].state, MCFS_MISS);
	cr_expect_eq(s[1].tier, MCFS_TIER_NONE);
	cr_expect_eq(s[1].size, 0);
	cr_expect_eq(s[2].state, MCFS_READY);
	cr_expect_eq(s[2].size, 0);
	cr_expect_eq(s[3].state, MCFS_MISS); /* neither is an object */
	cr_expect_eq(s[4].state, MCFS_MISS);
	cr_expect_eq(io.n_ok, 2);
	cr_expect_eq(io.ready_prefix, 1);
}

Test(fastpath_lookup, tells_what_is_on_the_ssd_alone)
{
	struct mcfs_submit io;
	const char *name = "f";

	cr_assert_eq(fs_box_put_file(&box, dir, "f", "abc", 3, A), 0);
	cr_assert_eq(durable_object(&box.fs, fs_box_look(&box, dir, "f", A)->object), 0);
	fs_box_restart(&box, true);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	fp_open(&c, &box, fp_root(), 1 << 20);
	fp_open_dir(&box, dir, 0, &dir_id);
	struct mcfs_state *s = fp_lookup(&c, dir_id, &name, 1, &io);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s->state, MCFS_READY);
	cr_expect_eq(s->tier, MCFS_TIER_SSD);
	cr_expect_eq(s->size, 3);
}

Test(fastpath_lookup, a_draft_is_in_flight_until_it_is_closed)
{
	struct handle *h;

	cr_assert_eq(fs_box_create(&box, dir, "f", 0, A, &h), 0);
	cr_assert_eq(fs_box_write(&box, h, "x", 1, 0), 0);
	cr_expect_eq(state_of("f"), MCFS_IN_FLIGHT);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect_eq(state_of("f"), MCFS_READY);
	cr_assert_eq(fs_box_reopen(&box, dir, "f", 0, A, &h), 0);
	cr_expect_eq(state_of("f"), MCFS_READY); /* the version that is there */
	fs_box_release(&box, h);
	cr_assert_eq(fs_box_create(&box, dir, "g", 0, A, &h), 0);
	cr_assert_eq(fs_box_kill(&box, h), 0);
	fs_box_release(&box, h);
	cr_expect_eq(state_of("g"), MCFS_MISS);
}

Test(fastpath_lookup, follows_unlink_rename_eviction_and_overwriting)
{
	struct caller_id who = A;

	put("a");
	cr_assert_eq(ns_rename(&box.fs, dir, "a", dir, "b", 0, &who), 0);
	cr_expect_eq(state_of("a"), MCFS_MISS);
	cr_expect_eq(state_of("b"), MCFS_READY);
	put("b");
	cr_expect_eq(state_of("b"), MCFS_READY);
	put("c");
	cr_assert_eq(ns_rename(&box.fs, dir, "c", dir, "b", 0, &who), 0);
	cr_expect_eq(state_of("b"), MCFS_READY);
	cr_expect(fp_shows(&c, dir_id, "b", "c", 1));
	struct inode *other = fs_box_mkdir(&box, dir, "other");
	cr_assert_eq(ns_rename(&box.fs, dir, "b", other, "b", 0, &who), 0);
	cr_expect_eq(state_of("b"), MCFS_MISS);
	put("d");
	cr_assert_eq(fs_box_unlink(&box, dir, "d", A), 0);
	cr_expect_eq(state_of("d"), MCFS_MISS);
	cr_assert_eq(fs_box_put_file(&box, dir, "e", "e", 1, A), 0);
	cr_assert_eq(space_remove_by_id(&box.fs, fs_box_look(&box, dir, "e", A)->object->id), 0);
	cr_expect_eq(state_of("e"), MCFS_MISS);
}

Test(fastpath_lookup, an_expired_object_is_a_miss)
{
	put("f");
	struct inode *i = fs_box_look(&box, dir, "f", A);
	pthread_mutex_lock(&box.fs.lock);
	object_set_ttl_locked(&box.fs, i->object, 1);
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect_eq(state_of("f"), MCFS_READY);
	usleep(2100000);
	cr_expect_eq(state_of("f"), MCFS_MISS);
}

/* ---- many names ---- */

Test(fastpath_lookup, the_prefix_ends_at_the_first_gap)
{
	static const int gaps[] = {0, 1, 127, 128, 129, 299, 300};
	char text[300][16];
	const char *names[300];
	struct mcfs_submit io;

	for (int k = 0; k < 300; k++) {
		snprintf(text[k], sizeof(text[k]), "n%d", k);
		names[k] = text[k];
		put(names[k]);
		fp_reset(&c);
	}
	for (size_t g = 0; g < sizeof(gaps) / sizeof(*gaps); g++) {
		if (gaps[g] < 300)
			names[gaps[g]] = "none";
		fp_reset(&c);
		fp_lookup(&c, dir_id, names, 300, &io);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(io.ready_prefix, (uint32_t)gaps[g], "gap at %d: %u", gaps[g],
			     io.ready_prefix);
		cr_expect_eq(io.n_ok, gaps[g] < 300 ? 299u : 300u);
		if (gaps[g] < 300)
			names[gaps[g]] = text[gaps[g]];
	}
}

Test(fastpath_lookup, binary_names_have_a_suffix)
{
	struct mcfs_submit io = {.op = MCFS_OP_LOOKUP,
				 .buffer = c.main.number,
				 .n_items = 3,
				 .directory = dir_id,
				 .name_kind = MCFS_NAME_BINARY,
				 .name_bytes = 2,
				 .names_bytes = 6};

	put("0a0b.kv");
	put("ffff.kv");
	io.items = fp_alloc(&c, 3 * sizeof(struct mcfs_state));
	io.names = fp_alloc(&c, 6);
	memcpy(fp_at(&c, io.names), "\x0a\x0b\x00\x00\xff\xff", 6);
	fp_suffix(&c, &io, ".kv");
	struct mcfs_state *s = (struct mcfs_state *)(void *)fp_at(&c, io.items);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s[0].state, MCFS_READY);
	cr_expect_eq(s[1].state, MCFS_MISS);
	cr_expect_eq(s[2].state, MCFS_READY);
	cr_expect_eq(io.n_ok, 2);
	cr_expect_eq(io.ready_prefix, 1);
}

Test(fastpath_lookup, names_that_end_early_are_misses)
{
	struct mcfs_submit io;
	const char *name = "f";

	put("f");
	struct mcfs_state *s = fp_lookup(&c, dir_id, &name, 1, &io);
	io.n_items = 4; /* one name, two bytes: "f" */
	io.items = fp_alloc(&c, 4 * sizeof(*s));
	s = (struct mcfs_state *)(void *)fp_at(&c, io.items);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s[0].state, MCFS_READY);
	for (int k = 1; k < 4; k++)
		cr_expect_eq(s[k].state, MCFS_MISS);
	io.names_bytes = 1; /* without its NUL */
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s[0].state, MCFS_READY);
	io.names_bytes = 0;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(s[0].state, MCFS_MISS);
}

Test(fastpath_lookup, takes_as_many_names_as_it_says)
{
	struct mcfs_submit io;
	uint32_t n = SESSION_MAX_ITEMS;
	const char **names = malloc(n * sizeof(*names));
	static char longest[256];

	memset(longest, 'n', 255);
	for (uint32_t k = 0; k < n; k++)
		names[k] = longest;
	put(longest);
	fp_reset(&c);
	fp_lookup(&c, dir_id, names, n, &io);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.ready_prefix, n);
	io.n_items = n + 1;
	cr_expect_eq(fp_submit(&c, &io), -EMFILE);
	free(names);
}

/* ---- failure ---- */

Test(fastpath_lookup, only_a_directory_of_the_users_own_will_do)
{
	const char *name = "f";
	struct mcfs_submit io;
	uint64_t id;

	put("f");
	fp_lookup(&c, 12345, &name, 1, &io);
	cr_expect_eq(fp_submit(&c, &io), -ENOENT);
	io.directory = 0;
	cr_expect_eq(fp_submit(&c, &io), -ENOENT);
	fp_open_file(&box, dir, "f", 0, &id);
	io.directory = id;
	cr_expect_eq(fp_submit(&c, &io), -ENOTDIR);
	io.directory = c.main.id;
	cr_expect_eq(fp_submit(&c, &io), -ENOTDIR);
	struct handle *h = fp_open_dir(&box, fs_box_root(&box), 0, &id);
	fp_close_handle(&box, h);
	io.directory = id;
	cr_expect_eq(fp_submit(&c, &io), -ENOENT);
	struct inode *gone = fs_box_mkdir(&box, dir, "gone");
	fp_open_dir(&box, gone, 0, &id);
	cr_assert_eq(ns_rmdir(&box.fs, dir, "gone"), 0);
	io.directory = id;
	cr_expect_eq(fp_submit(&c, &io), -ENOENT);
}

Test(fastpath_lookup, a_directory_that_may_not_be_searched_is_refused)
{
	struct fp_client user;
	const char *name = "f";
	struct mcfs_submit io;
	uint64_t id;

	put("f");
	fp_open(&user, &box, fp_user(1000, 1000), 1 << 20);
	fp_lookup(&user, dir_id, &name, 1, &io);
	cr_expect_eq(fp_submit(&user, &io), -EPERM); /* root's handle */
	fp_open_dir(&box, dir, 1000, &id);
	io.directory = id;
	cr_expect_eq(fp_submit(&user, &io), 0);
	cr_expect_eq(io.n_ok, 1);
	pthread_mutex_lock(&box.fs.lock);
	dir->e.mode = S_IFDIR | 0766;
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect_eq(fp_submit(&user, &io), -EACCES);
	fp_close(&user);
}
