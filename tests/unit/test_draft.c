/* SPDX-License-Identifier: Apache-2.0 */
/* draft: who sees it, how long it lives, and what its bytes are. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/counters.h"
#include "fakes/fault_tier.h"
#include "lib/fs_box.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define A fs_box_who(1)
#define B fs_box_who(2)
#define C fs_box_who(3)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;

static void setup(void)
{
	fs_box_open(&box);
	root = fs_box_root(&box);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(draft, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static struct handle *create(const char *name, struct caller_id who)
{
	struct handle *h = NULL;

	cr_assert_eq(fs_box_create(&box, root, name, 0, who, &h), 0);
	return h;
}

static struct handle *reopen(const char *name, int flags, struct caller_id who)
{
	struct handle *h = NULL;

	cr_assert_eq(fs_box_reopen(&box, root, name, flags, who, &h), 0);
	return h;
}

static void put_file(const char *name, const char *text)
{
	cr_assert_eq(fs_box_put_file(&box, root, name, text, strlen(text), A), 0);
}

static void write_text(struct handle *h, const char *text, uint64_t off)
{
	cr_assert_eq(fs_box_write(&box, h, text, strlen(text), off), 0);
}

static bool shows(const char *name, struct caller_id who, const char *text)
{
	return fs_box_shows(&box, root, name, who, text, strlen(text));
}

static bool is_absent(const char *name, struct caller_id who)
{
	return fs_box_look(&box, root, name, who) == NULL;
}

static int resize(struct handle *h, uint64_t size)
{
	struct space_wait w = { 0 };

	return draft_resize(&box.fs, h->draft, size, &w);
}

static int fall(struct handle *h, int mode, uint64_t off, uint64_t len)
{
	struct space_wait w = { 0 };

	return draft_fallocate(&box.fs, h->draft, mode, off, len, &w);
}

/* [off, off + len) of the draft holds this byte alone. */
static void expect_bytes(struct handle *h, char byte, uint64_t off, size_t len)
{
	char *buf = malloc(len);
	size_t n = 0;

	cr_assert_eq(draft_read(&box.fs, h->draft, buf, len, off, &n), 0);
	cr_assert_eq(n, len, "%zu bytes at %llu", n, (unsigned long long)off);
	for (size_t k = 0; k < len; k++)
		cr_assert_eq(buf[k], byte, "byte at %llu is 0x%02x",
			     (unsigned long long)(off + k), (unsigned char)buf[k]);
	free(buf);
}

static void fill(struct handle *h, char byte, uint64_t off, size_t len)
{
	char *buf = malloc(len);

	memset(buf, byte, len);
	cr_assert_eq(fs_box_write(&box, h, buf, len, off), 0);
	free(buf);
}

/* Frames full of 0xff wait on the free list, so that each draft below gets one. */
static void leave_stale_frames(size_t size, int n)
{
	char name[24];

	for (int k = 0; k < n; k++) {
		snprintf(name, sizeof(name), "stale%d", k);
		struct handle *h = create(name, A);
		fill(h, '\xff', 0, size);
		cr_assert_eq(fs_box_shut(&box, h), 0);
	}
	for (int k = 0; k < n; k++) {
		snprintf(name, sizeof(name), "stale%d", k);
		cr_assert_eq(fs_box_unlink(&box, root, name, A), 0);
	}
	cr_assert_eq(fs_box_dram(&box).n_free_list, n);
}

/* The bytes published under name: part of byte at [from, to), zeros elsewhere, size in all. */
static void expect_published(const char *name, char byte, size_t from, size_t to, size_t size)
{
	char *bytes = NULL;
	size_t n = 0;

	cr_assert_eq(fs_box_read(&box, root, name, B, &bytes, &n), 0);
	cr_assert_eq(n, size);
	for (size_t k = 0; k < size; k++)
		cr_assert_eq(bytes[k], k >= from && k < to ? byte : 0, "byte %zu is 0x%02x", k,
			     (unsigned char)bytes[k]);
	free(bytes);
}

/* ---- who sees it ---- */

Test(draft, is_seen_by_its_process_alone)
{
	struct handle *h = create("f", A);

	write_text(h, "half", 0);
	cr_expect(shows("f", A, "half"));
	cr_expect(is_absent("f", B));
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", B, "half"));
	cr_expect_eq(fs_box_n_drafts(&box), 0);
}

Test(draft, threads_of_one_process_share_it)
{
	struct handle *h = create("f", A);
	struct caller_id thread = A;

	thread.tid = B.tid;
	write_text(h, "x", 0);
	cr_expect(shows("f", thread, "x"));
	fs_box_shut(&box, h);
}

Test(draft, callers_of_another_pid_namespace_are_told_by_uid)
{
	struct caller_id zero = { .tid = 0, .tgid = 0, .uid = 1000 }, other = { .tid = 0, .tgid = 0, .uid = 1001 };
	struct handle *h = create("f", zero);

	write_text(h, "x", 0);
	cr_expect(shows("f", zero, "x"));
	cr_expect(is_absent("f", other));
	fs_box_shut(&box, h);
}

Test(draft, two_processes_hold_two_and_the_last_wins_whole)
{
	struct handle *a = create("f", A), *b = create("f", B);

	cr_assert_neq(a->draft, b->draft);
	write_text(a, "from a, longer", 0);
	write_text(b, "from b", 0);
	cr_expect(shows("f", A, "from a, longer"));
	cr_expect(shows("f", B, "from b"));
	cr_assert_eq(fs_box_shut(&box, a), 0);
	cr_expect(shows("f", C, "from a, longer"));
	cr_expect(shows("f", B, "from b"), "its own draft comes first");
	cr_assert_eq(fs_box_shut(&box, b), 0);
	cr_expect(shows("f", C, "from b"));
	cr_expect(shows("f", A, "from b"));
}

Test(draft, o_excl_sees_drafts_of_others_made_with_o_excl)
{
	struct handle *h, *h2;

	cr_assert_eq(fs_box_create(&box, root, "lock", BOX_EXCL, A, &h), 0);
	cr_expect_eq(fs_box_create(&box, root, "lock", BOX_EXCL, B, &h2), -EEXIST);
	cr_expect_eq(fs_box_create(&box, root, "lock", BOX_EXCL, A, &h2), -EEXIST);
	cr_assert_eq(fs_box_kill(&box, h), 0);
	fs_box_release(&box, h);
	cr_assert_eq(fs_box_create(&box, root, "lock", BOX_EXCL, B, &h2), 0, "free after a death");
	fs_box_shut(&box, h2);
	cr_expect_eq(fs_box_create(&box, root, "lock", BOX_EXCL, C, &h), -EEXIST);
}

Test(draft, a_write_open_of_a_published_name_is_shared)
{
	put_file("f", "base base");
	struct handle *a = reopen("f", 0, A), *b = reopen("f", 0, B);

	cr_expect_eq(a->draft, b->draft);
	write_text(a, "AAAA", 0);
	write_text(b, "BBBB", 5);
	cr_expect(shows("f", C, "base base"), "nothing is published yet");
	cr_assert_eq(fs_box_shut(&box, a), 0);
	cr_expect(shows("f", C, "base base"), "another writer has it open");
	cr_assert_eq(fs_box_shut(&box, b), 0);
	cr_expect(shows("f", C, "AAAA BBBB"));
}

Test(draft, a_truncating_open_is_private)
{
	put_file("f", "old");
	struct handle *a = reopen("f", BOX_TRUNC, A), *b = reopen("f", 0, B);

	cr_assert_neq(a->draft, b->draft);
	write_text(a, "new", 0);
	expect_bytes(b, 'o', 0, 1);
	cr_assert_eq(fs_box_shut(&box, b), 0);
	cr_expect(shows("f", C, "old"), "nothing was changed");
	cr_assert_eq(fs_box_shut(&box, a), 0);
	cr_expect(shows("f", C, "new"));
}

Test(draft, a_shared_one_of_a_replaced_version_is_not_joined)
{
	put_file("f", "one");
	struct handle *a = reopen("f", 0, A);
	cr_assert_eq(fs_box_put_file(&box, root, "f", "two", 3, B), 0);
	struct handle *c = reopen("f", 0, C);

	cr_assert_neq(a->draft, c->draft);
	cr_expect(shows("f", C, "two"), "an open after the replacement shows the replacement");
	write_text(c, "T", 0);
	cr_assert_eq(fs_box_shut(&box, c), 0);
	fs_box_shut(&box, a);
	cr_expect(shows("f", B, "Two"));
}

/* ---- redirects ---- */

Test(draft, waits_for_the_retry_of_a_redirected_open_and_no_longer)
{
	struct draft *d;
	struct caller_id who = A;

	put_file("f", "base");
	cr_assert_eq(ns_open_for_write(&box.fs, root->key, "f", false, true, &who, &d), 0);
	pthread_mutex_lock(&box.fs.lock);
	draft_put_locked(&box.fs, d);
	cr_expect_eq(draft_count_locked(&box.fs), 1, "it waits");
	draft_expire_locked(&box.fs, now_mono_ns());
	cr_expect_eq(draft_count_locked(&box.fs), 1, "it still waits");
	draft_expire_locked(&box.fs, now_mono_ns() + REDIRECT_PIN_NS + 1);
	cr_expect_eq(draft_count_locked(&box.fs), 0, "nobody came");
	pthread_mutex_unlock(&box.fs.lock);
	cr_expect(shows("f", A, "base"));
	cr_expect(fs_box_books_balance(&box));
}

Test(draft, goes_with_its_last_handle)
{
	put_file("f", "base");
	struct handle *a = reopen("f", 0, A), *b = reopen("f", 0, B);

	fs_box_release(&box, a);
	cr_expect_eq(fs_box_n_drafts(&box), 1);
	fs_box_release(&box, b);
	cr_expect_eq(fs_box_n_drafts(&box), 0);
}

Test(draft, a_killed_writer_leaves_nothing)
{
	struct handle *h = create("f", A);

	write_text(h, "half", 0);
	cr_assert_eq(fs_box_kill(&box, h), 0);
	cr_expect(is_absent("f", A));
	cr_expect(is_absent("f", B));
	struct space_wait w = { 0 };
	cr_expect_eq(draft_write(&box.fs, h->draft, "x", 1, 0, &w), -EIO, "a survivor's write");
	struct handle *again = create("f", B);
	fs_box_release(&box, h);
	cr_assert_eq(fs_box_shut(&box, again), 0);
	cr_expect(shows("f", C, ""));
	cr_expect(fs_box_books_balance(&box));
}

/* ---- zeros where nothing was written ---- */

Test(draft, gaps_read_and_publish_as_zeros_in_a_recycled_frame)
{
	leave_stale_frames(KIB(64), 1);
	struct handle *h = create("f", A);

	/* The size is announced first, so the recycled frame of that size is taken. */
	cr_assert_eq(resize(h, KIB(64)), 0);
	fill(h, 'x', 1000, 500);
	cr_assert_gt(h->draft->frame.stale_bytes, 0, "the test needs a recycled frame");
	expect_bytes(h, 0, 0, 1000);
	expect_bytes(h, 'x', 1000, 500);
	expect_bytes(h, 0, 1500, KIB(64) - 1500);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_published("f", 'x', 1000, 1500, KIB(64));
}

Test(draft, a_never_written_file_of_some_size_is_zeros)
{
	leave_stale_frames(KIB(64), 1);
	struct handle *h = create("f", A);

	cr_assert_eq(resize(h, KIB(64)), 0);
	expect_bytes(h, 0, 0, KIB(64));
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	fs_box_release(&box, h);
	expect_published("f", 0, 0, 0, KIB(64));
}

Test(draft, bytes_that_were_cut_off_do_not_come_back)
{
	static const size_t sizes[] = { 100, 4096, 5000, KIB(64) - 1, KIB(64) };

	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		struct handle *h = create("f", A);
		fill(h, 'x', 0, KIB(64));
		cr_assert_eq(resize(h, sizes[k]), 0);
		cr_assert_eq(resize(h, KIB(64)), 0);
		expect_bytes(h, 'x', 0, sizes[k]);
		if (sizes[k] < KIB(64))
			expect_bytes(h, 0, sizes[k], KIB(64) - sizes[k]);
		cr_assert_eq(fs_box_shut(&box, h), 0);
		expect_published("f", 'x', 0, sizes[k], KIB(64));
		cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	}
}

Test(draft, a_cut_to_nothing_forgets_all)
{
	struct handle *h = create("f", A);

	fill(h, 'x', 0, KIB(64));
	cr_assert_eq(resize(h, 0), 0);
	cr_expect_eq(draft_size(h->draft), 0);
	cr_assert_eq(resize(h, 1000), 0);
	expect_bytes(h, 0, 0, 1000);
	fill(h, 'y', 500, 10);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_published("f", 'y', 500, 510, 1000);
}

Test(draft, a_base_that_is_cut_and_grown_ends_in_zeros)
{
	char *big = malloc(KIB(64));

	memset(big, 'b', KIB(64));
	cr_assert_eq(fs_box_put_file(&box, root, "f", big, KIB(64), A), 0);
	free(big);
	leave_stale_frames(KIB(64), 2);
	struct handle *h = reopen("f", 0, A);
	cr_assert_eq(resize(h, 1000), 0);
	cr_assert_eq(resize(h, KIB(64)), 0);
	expect_bytes(h, 'b', 0, 1000);
	expect_bytes(h, 0, 1000, KIB(64) - 1000);
	fill(h, 'b', 1000, 1);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	expect_published("f", 'b', 0, 1001, KIB(64));
}

Test(draft, a_base_that_grows_ends_in_zeros)
{
	put_file("f", "bbbb");
	leave_stale_frames(KIB(16), 2);
	struct handle *h = reopen("f", 0, A);

	cr_assert_eq(resize(h, KIB(16)), 0);
	expect_bytes(h, 'b', 0, 4);
	expect_bytes(h, 0, 4, KIB(16) - 4);
	fs_box_shut(&box, h);
	expect_published("f", 'b', 0, 4, KIB(16));
}

Test(draft, what_a_failed_write_left_in_the_frame_is_zeros)
{
	struct handle *h = create("f", A);

	fs_box_fault_dram(&box);
	fill(h, 'x', 0, 100);
	/* The medium took a part of it before it failed. */
	cr_assert_eq(pwrite(h->draft->frame.fd, "torn", 4, 200), 4);
	fault_tier_fail(box.fs.dram, FAULT_write, 1, EIO);
	cr_assert_eq(fs_box_write(&box, h, "torn+", 5, 200), -EIO);
	cr_expect_eq(fs_box_flush(&box, h, NULL), -EIO, "close tells what went wrong");
	cr_assert_eq(resize(h, 200), 0, "as programs do after a full disk");
	fill(h, 'y', 300, 100);
	expect_bytes(h, 0, 200, 100);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	char want[400];
	memset(want, 0, sizeof(want));
	memset(want, 'x', 100);
	memset(want + 300, 'y', 100);
	cr_expect(fs_box_shows(&box, root, "f", B, want, sizeof(want)));
}

/* ---- sizes ---- */

Test(draft, reads_end_at_its_size)
{
	struct handle *h = create("f", A);
	char buf[16];
	size_t n = 99;

	write_text(h, "12345", 0);
	cr_assert_eq(draft_read(&box.fs, h->draft, buf, sizeof(buf), 3, &n), 0);
	cr_expect_eq(n, 2);
	cr_assert_eq(draft_read(&box.fs, h->draft, buf, sizeof(buf), 5, &n), 0);
	cr_expect_eq(n, 0);
	cr_assert_eq(draft_read(&box.fs, h->draft, buf, sizeof(buf), 1000, &n), 0);
	cr_expect_eq(n, 0);
	fs_box_shut(&box, h);
}

Test(draft, absurd_offsets_are_refused)
{
	struct handle *h = create("f", A);

	cr_expect_eq(fs_box_write(&box, h, "x", 1, INT64_MAX), -EFBIG);
	cr_expect_eq(resize(h, MIB(65)), -EFBIG, "above the budget");
	cr_expect_eq(draft_size(h->draft), 0);
	cr_expect_eq(fall(h, 0, INT64_MAX, 1), -EINVAL);
	cr_expect_eq(fall(h, 0, 0, 0), -EINVAL);
	fs_box_kill(&box, h);
	fs_box_release(&box, h);
}

/* ---- fallocate ---- */

Test(draft, fallocate_grows_unless_told_not_to)
{
	struct handle *h = create("f", A);

	write_text(h, "abc", 0);
	cr_assert_eq(fall(h, FALLOC_FL_KEEP_SIZE, 0, 1000), 0);
	cr_expect_eq(draft_size(h->draft), 3);
	cr_assert_eq(fall(h, 0, 0, 2), 0);
	cr_expect_eq(draft_size(h->draft), 3);
	cr_assert_eq(fall(h, 0, 100, 900), 0);
	cr_expect_eq(draft_size(h->draft), 1000);
	expect_bytes(h, 'c', 2, 1);
	expect_bytes(h, 0, 3, 997);
	fs_box_shut(&box, h);
}

Test(draft, holes_and_zero_ranges_are_zeros)
{
	static const int modes[] = { FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };

	for (size_t k = 0; k < 3; k++) {
		bool keeps = modes[k] & FALLOC_FL_KEEP_SIZE;
		struct handle *h = create("f", A);
		fill(h, 'x', 0, KIB(16));
		cr_assert_eq(fall(h, modes[k], 1000, KIB(12)), 0);
		expect_bytes(h, 'x', 0, 1000);
		expect_bytes(h, 0, 1000, KIB(12));
		expect_bytes(h, 'x', 1000 + KIB(12), KIB(4) - 1000);
		cr_assert_eq(fall(h, modes[k], KIB(15), KIB(5)), 0, "over the end");
		cr_expect_eq(draft_size(h->draft), keeps ? KIB(16) : KIB(20));
		expect_bytes(h, 0, KIB(15), draft_size(h->draft) - KIB(15));
		cr_assert_eq(fs_box_shut(&box, h), 0);
		cr_assert_eq(fs_box_unlink(&box, root, "f", A), 0);
	}
}

Test(draft, a_hole_in_a_base_copies_it_first)
{
	put_file("f", "abcdef");
	struct handle *h = reopen("f", 0, A);

	cr_assert_eq(fall(h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 2), 0);
	cr_expect(shows("f", B, "abcdef"));
	fs_box_shut(&box, h);
	cr_expect(fs_box_shows(&box, root, "f", B, "ab\0\0ef", 6));
}

Test(draft, other_modes_are_not_supported)
{
	struct handle *h = create("f", A);

	cr_expect_eq(fall(h, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	cr_expect_eq(fall(h, FALLOC_FL_INSERT_RANGE, 0, 4096), -EOPNOTSUPP);
	cr_expect_eq(fall(h, FALLOC_FL_UNSHARE_RANGE, 0, 4096), -EOPNOTSUPP);
	fs_box_shut(&box, h);
}

/* ---- copies ---- */

Test(draft, the_base_is_copied_at_the_first_change_only)
{
	put_file("f", "base");
	uint64_t before = counter_get(COUNTER_drafts_copied);
	struct handle *h = reopen("f", 0, A);

	expect_bytes(h, 'b', 0, 1);
	cr_expect_eq(h->draft->frame.id, 0, "an open and a read copy nothing");
	cr_expect_eq(counter_get(COUNTER_drafts_copied), before);
	write_text(h, "B", 0);
	write_text(h, "S", 2);
	cr_expect_neq(h->draft->frame.id, 0);
	cr_expect_eq(counter_get(COUNTER_drafts_copied), before + 1);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", B, "BaSe"));
}

Test(draft, after_a_publish_the_next_write_copies)
{
	struct handle *h = create("f", A);
	struct inode *i;
	struct object *o;
	char buf[4];

	write_text(h, "one", 0);
	cr_assert_eq(fs_box_flush(&box, h, NULL), 0);
	i = fs_box_look(&box, root, "f", B);
	cr_assert_not_null(i);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	write_text(h, "two", 0);
	cr_assert_eq(fs_box_pread(&box, o, buf, 3, 0), 0);
	cr_expect(!memcmp(buf, "one", 3), "an open object never changes");
	fs_box_drop(&box, i, o);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", B, "two"));
}

Test(draft, a_large_base_is_copied_whole)
{
	size_t len = 3 * MIB(1) + 777;
	char *big = malloc(len);

	for (size_t k = 0; k < len; k++)
		big[k] = (char)(k * 7 + k / 4096);
	cr_assert_eq(fs_box_put_file(&box, root, "f", big, len, A), 0);
	struct handle *h = reopen("f", 0, A);
	big[len / 2] ^= 1;
	cr_assert_eq(fs_box_write(&box, h, big + len / 2, 1, len / 2), 0);
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(fs_box_shows(&box, root, "f", B, big, len));
	free(big);
}

/* ---- parallel writers ---- */

enum { N_WRITERS = 4, BLOCK = 8192, N_BLOCKS = 200 };

struct writer {
	pthread_t thread;
	struct handle *h;
	int index, rc;
};

static void *write_blocks(void *arg)
{
	struct writer *w = arg;
	char buf[BLOCK];

	for (int k = w->index; k < N_BLOCKS && !w->rc; k += N_WRITERS) {
		memset(buf, 'a' + k % 26, sizeof(buf));
		w->rc = fs_box_write(&box, w->h, buf, sizeof(buf), (uint64_t)k * BLOCK);
	}
	return NULL;
}

Test(draft, parallel_writers_lose_nothing)
{
	struct handle *h = create("f", A);
	struct writer w[N_WRITERS];
	char *want = malloc((size_t)N_BLOCKS * BLOCK);

	for (int k = 0; k < N_BLOCKS; k++)
		memset(want + (size_t)k * BLOCK, 'a' + k % 26, BLOCK);
	for (int k = 0; k < N_WRITERS; k++) {
		w[k] = (struct writer){ .h = h, .index = k };
		cr_assert_eq(pthread_create(&w[k].thread, NULL, write_blocks, &w[k]), 0);
	}
	for (int k = 0; k < N_WRITERS; k++) {
		pthread_join(w[k].thread, NULL);
		cr_expect_eq(w[k].rc, 0);
	}
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(fs_box_shows(&box, root, "f", B, want, (size_t)N_BLOCKS * BLOCK));
	free(want);
}

/* ---- no space ---- */

Test(draft, makes_room_for_a_copy_of_a_small_base)
{
	put_file("evictable", "x");
	put_file("f", "base");
	struct handle *h = reopen("f", 0, A);

	fs_box_fault_dram(&box);
	fault_tier_fail(box.fs.dram, FAULT_charge, 1, ENOSPC);
	cr_expect_eq(fs_box_write(&box, h, "B", 1, 0), 0, "an eviction was enough");
	cr_expect(is_absent("evictable", B));
	cr_assert_eq(fs_box_shut(&box, h), 0);
	cr_expect(shows("f", B, "Base"));
}

Test(draft, without_room_writes_fail_and_close_tells)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_write };

	for (size_t k = 0; k < sizeof(ops) / sizeof(*ops); k++) {
		struct fs_box own;
		fs_box_open(&own);
		struct handle *h = NULL;
		cr_assert_eq(fs_box_create(&own, fs_box_root(&own), "f", 0, A, &h), 0);
		fs_box_fault_dram(&own);
		fault_tier_fail(own.fs.dram, ops[k], 1, ENOSPC);
		cr_expect_eq(fs_box_write(&own, h, "data", 4, 0), -ENOSPC, "%s",
			     fault_op_name(ops[k]));
		cr_expect_eq(fs_box_flush(&own, h, NULL), -ENOSPC, "%s", fault_op_name(ops[k]));
		cr_expect_eq(fs_box_write(&own, h, "data", 4, 0), 0, "%s", fault_op_name(ops[k]));
		cr_expect_eq(fs_box_shut(&own, h), 0, "what failed has been repeated");
		cr_expect(fs_box_shows(&own, fs_box_root(&own), "f", B, "data", 4));
		cr_expect(fs_box_books_balance(&own));
		fs_box_close(&own);
	}
}

Test(draft, a_failed_copy_leaves_the_base)
{
	static const enum fault_op ops[] = { FAULT_take, FAULT_charge, FAULT_write, FAULT_open };

	put_file("f", "base");
	fs_box_fault_dram(&box);
	for (size_t k = 0; k < sizeof(ops) / sizeof(*ops); k++) {
		struct handle *h = reopen("f", 0, A);
		uint64_t used = fs_box_dram(&box).used_bytes;
		fault_tier_fail(box.fs.dram, ops[k], 1, EIO);
		cr_expect_eq(fs_box_write(&box, h, "B", 1, 0), -EIO, "%s", fault_op_name(ops[k]));
		expect_bytes(h, 'b', 0, 1);
		struct tier_stats s = fs_box_dram(&box);
		cr_expect_leq(s.used_bytes - s.free_list_bytes, used);
		fs_box_kill(&box, h);
		fs_box_release(&box, h);
		cr_expect(shows("f", B, "base"), "%s", fault_op_name(ops[k]));
		cr_expect(fs_box_books_balance(&box), "%s", fault_op_name(ops[k]));
	}
}
