/* SPDX-License-Identifier: Apache-2.0 */
/* verify and promotion: what is on the ssd is shown only if it is what was written, and moves up if used. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "fakes/fault_tier.h"
#include "lib/fs_box.h"
#include "object/durable.h"
#include "object/residency.h"
#include "object/verify.h"
#include "object/writeback.h"

#define MIB(n) ((size_t)(n) << 20)
#define LEN (MIB(2) + 999)
#define A fs_box_who(1)
#define B fs_box_who(2)

enum { RESTART = false, REBOOT = true };

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;
static char *bytes;

static void setup(void)
{
	fs_box_init(&box);
	box.opt.dram_bytes = MIB(16);
	box.opt.has_ssd = true;
	box.opt.writeback = WRITEBACK_ALWAYS;
	fs_box_start(&box);
	root = fs_box_root(&box);
	bytes = malloc(LEN);
}

static void teardown(void)
{
	fs_box_close(&box);
	free(bytes);
}

TestSuite(verify, .init = setup, .fini = teardown);
TestSuite(promote, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static const char *content(char c)
{
	for (size_t k = 0; k < LEN; k++)
		bytes[k] = (char)(c + k / 4096 + k % 251);
	return bytes;
}

static bool wait_until_idle(void)
{
	for (int k = 0; k < 500; k++, usleep(10000)) {
		guard_lock(&box.fs.lock);
		const struct residency *r = box.fs.residency;
		if (!r->copies.n && !r->promotions.n && !r->n_copying && !r->n_promoting)
			return true;
	}
	return false;
}

/* A file with a copy on the ssd. */
static void put(const char *name)
{
	cr_assert_eq(fs_box_put_file(&box, root, name, content(*name), LEN, A), 0);
	cr_assert(wait_until_idle());
}

static bool is_whole(const char *name)
{
	return fs_box_shows(&box, root, name, B, content(*name), LEN);
}

/* What ops/open.c does when the last copy turns out to be bad. */
static void open_fails(const char *name)
{
	struct inode *i = fs_box_look(&box, root, name, B);
	struct object *o;
	const char *tier;

	cr_assert_not_null(i, "%s", name);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_expect_eq(object_open_frame(&box.fs, o, &tier), -ENOENT, "%s", name);
	fs_box_drop(&box, i, o);
	verify_drop_bad(&box.fs);
	cr_expect_null(fs_box_look(&box, root, name, B), "%s: a miss from now on", name);
}

static struct object *object_of(const char *name)
{
	return fs_box_look(&box, root, name, B)->object;
}

static void path_of(const char *name, char *path)
{
	char pattern[256];
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/*/*/%016llx", box.ssd,
		 (unsigned long long)object_of(name)->ssd_frame);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0, "%s", pattern);
	strcpy(path, g.gl_pathv[0]);
	globfree(&g);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char c;

	cr_assert_eq(pread(fd, &c, 1, at), 1);
	c ^= 4;
	cr_assert_eq(pwrite(fd, &c, 1, at), 1);
	close(fd);
}

static void restart(bool loses_dram)
{
	fs_box_restart(&box, loses_dram);
	root = fs_box_root(&box);
}

/* ---- verification ---- */

Test(verify, a_good_frame_is_checked_once)
{
	put("f");
	restart(REBOOT);
	uint64_t n = counter_get(COUNTER_verifications);
	cr_expect(is_whole("f"));
	cr_expect(is_whole("f"));
	cr_expect_eq(counter_get(COUNTER_verifications), n + 1);
	cr_expect_eq(counter_get(COUNTER_corrupt), 0);
}

Test(verify, what_this_daemon_wrote_is_not_checked_again)
{
	put("f");
	struct object *o = object_of("f");
	int fd = verify_open(&box.fs, o, box.fs.ssd, NULL);
	cr_expect_geq(fd, 0);
	close(fd);
	cr_expect_eq(counter_get(COUNTER_verifications), 0);
}

Test(verify, damage_while_the_daemon_is_away_is_a_miss)
{
	char path[4][256], tmp[260];

	put("bit"), put("cut"), put("del"), put("swapA"), put("good");
	cr_assert_eq(fs_box_put_file(&box, root, "tswap", content('t'), LEN, A), 0);
	cr_assert(wait_until_idle());
	path_of("bit", path[0]), path_of("cut", path[1]), path_of("del", path[2]);
	path_of("swapA", path[3]);
	char other[256];
	path_of("tswap", other);
	fs_box_stop(&box, REBOOT);
	flip(path[0], LEN - 1);
	cr_assert_eq(truncate(path[1], LEN - 4096), 0);
	cr_assert_eq(unlink(path[2]), 0);
	snprintf(tmp, sizeof(tmp), "%s.x", path[3]);
	cr_assert_eq(rename(path[3], tmp) | rename(other, path[3]) | rename(tmp, other), 0);
	fs_box_start(&box);
	root = fs_box_root(&box);
	uint64_t n = counter_get(COUNTER_corrupt);
	open_fails("bit");
	open_fails("cut");
	open_fails("swapA");
	open_fails("tswap");
	cr_expect_null(fs_box_look(&box, root, "del", B), "it was missed at the start");
	cr_expect_eq(counter_get(COUNTER_corrupt), n + 4);
	cr_expect(is_whole("good"));
	cr_expect_eq(fs_box_n_objects(&box), 1);
}

Test(verify, damage_behind_a_living_daemon_is_a_miss)
{
	char path[2][256];

	put("bit"), put("cut"), put("del"), put("xswap"), put("yswap");
	restart(REBOOT);
	/* Checked once, so that only a change since then is new. */
	cr_assert(is_whole("bit") && is_whole("cut") && is_whole("del") && is_whole("xswap"));
	path_of("bit", path[0]);
	flip(path[0], 5000);
	path_of("cut", path[0]);
	cr_assert_eq(truncate(path[0], 17), 0);
	path_of("del", path[0]);
	cr_assert_eq(unlink(path[0]), 0);
	path_of("xswap", path[0]), path_of("yswap", path[1]);
	cr_assert_eq(rename(path[1], path[0]), 0);
	open_fails("bit");
	open_fails("cut");
	open_fails("del");
	open_fails("xswap");
	open_fails("yswap");
	cr_assert(wait_until_idle());
	cr_expect_eq(counter_get(COUNTER_corrupt), 3);
	cr_expect_eq(counter_get(COUNTER_lost), 2);
	cr_expect_eq(fs_box_n_objects(&box), 0);
}

Test(verify, a_bad_copy_costs_nothing_while_the_object_is_in_dram)
{
	char path[256];

	put("f");
	path_of("f", path);
	fs_box_stop(&box, RESTART);
	flip(path, 0);
	fs_box_start(&box);
	root = fs_box_root(&box);
	cr_expect(is_whole("f"), "dram serves it");
	struct object *o = object_of("f");
	cr_expect_eq(verify_open(&box.fs, o, box.fs.ssd, NULL), -ENOENT);
	verify_drop_bad(&box.fs);
	cr_assert(wait_until_idle());
	cr_expect_neq(o->ssd_frame, 0, "copied anew, as writeback=always says");
	restart(REBOOT);
	cr_expect(is_whole("f"));
}

Test(verify, a_dram_frame_that_is_gone_leaves_the_copy)
{
	char path[256];

	put("f");
	struct object *o = object_of("f");
	snprintf(path, sizeof(path), "%s/dram/%016llx", box.top, (unsigned long long)o->dram_frame);
	cr_assert_eq(truncate(path, 5), 0);
	cr_expect(is_whole("f"));
	verify_drop_bad(&box.fs);
	cr_expect_eq(o->dram_frame, 0);
	cr_expect_eq(counter_get(COUNTER_corrupt), 1);
	cr_expect(is_whole("f"));
	cr_assert(wait_until_idle());
	cr_expect(fs_box_books_balance(&box));
}

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

Test(verify, an_interrupt_ends_the_check_and_costs_nothing)
{
	struct space_wait w = { .is_interrupted = at_once };
	struct object *o;

	put("f");
	restart(REBOOT);
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_expect_eq(verify_before_open(&box.fs, o, &w), -EINTR);
	fs_box_drop(&box, i, o);
	cr_expect_eq(counter_get(COUNTER_corrupt), 0);
	cr_expect(is_whole("f"));
}

static void *verify_it(void *arg)
{
	struct space_wait w = { 0 };

	verify_before_open(&box.fs, arg, &w);
	return NULL;
}

Test(verify, readers_wait_for_one_check)
{
	pthread_t threads[8];
	struct object *o;

	put("f");
	restart(REBOOT);
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	fs_box_fault_ssd(&box);
	fault_tier_delay(box.fs.ssd, FAULT_open, 100000000);
	for (int k = 0; k < 8; k++)
		pthread_create(&threads[k], NULL, verify_it, o);
	for (int k = 0; k < 8; k++)
		pthread_join(threads[k], NULL);
	cr_expect_eq(counter_get(COUNTER_verifications), 1);
	cr_expect_eq(fault_tier_calls(box.fs.ssd, FAULT_open), 1);
	fs_box_drop(&box, i, o);
}

Test(verify, a_read_error_costs_that_copy_alone)
{
	put("f"), put("g");
	restart(REBOOT);
	fs_box_fault_ssd(&box);
	fault_tier_fail(box.fs.ssd, FAULT_open, 1, EIO);
	open_fails("f");
	cr_expect_eq(counter_get(COUNTER_lost), 1);
	fault_tier_fail(box.fs.ssd, FAULT_open, 1, EMFILE);
	struct object *o = object_of("g");
	const char *tier;
	cr_expect_eq(object_open_frame(&box.fs, o, &tier), -EMFILE, "that will pass");
	cr_expect(is_whole("g"));
}

/* ---- promotion ---- */

Test(promote, the_second_use_brings_an_object_back_to_dram)
{
	put("f");
	restart(REBOOT);
	cr_assert(is_whole("f"));
	cr_assert(wait_until_idle());
	cr_expect_eq(object_of("f")->dram_frame, 0, "once is not enough");
	cr_assert(is_whole("f"));
	cr_assert(wait_until_idle());
	cr_expect_neq(object_of("f")->dram_frame, 0);
	cr_expect_neq(object_of("f")->ssd_frame, 0);
	cr_expect_eq(counter_get(COUNTER_promotions), 1);
	cr_expect(is_whole("f"));
	cr_expect(fs_box_books_balance(&box));
	restart(RESTART);
	cr_expect_neq(object_of("f")->dram_frame, 0, "its record knows the dram frame");
	cr_expect(is_whole("f"));
}

Test(promote, a_pinned_object_comes_back_at_its_first_use)
{
	struct policy_attr pinned = { .pin = 1 };

	put("f");
	restart(REBOOT);
	struct object *o = object_of("f");
	pthread_mutex_lock(&box.fs.lock);
	object_set_policy_locked(&box.fs, o, &pinned);
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert(is_whole("f"));
	cr_assert(wait_until_idle());
	cr_expect_neq(o->dram_frame, 0);
}

Test(promote, it_costs_nobody_a_copy)
{
	char name[24];

	put("f");
	fs_box_stop(&box, REBOOT);
	box.opt.writeback = WRITEBACK_SECOND; /* what is written now has no copy */
	box.opt.dram_bytes = MIB(8);
	fs_box_start(&box);
	root = fs_box_root(&box);
	for (int k = 0; k < 3; k++) {
		snprintf(name, sizeof(name), "new%d", k);
		cr_assert_eq(fs_box_put_file(&box, root, name, content('n'), LEN, A), 0);
	}
	cr_assert(is_whole("f") && is_whole("f"));
	cr_assert(wait_until_idle());
	cr_expect_eq(object_of("f")->dram_frame, 0, "no room");
	cr_expect_eq(counter_get(COUNTER_evictions), 0);
	cr_expect(fs_box_books_balance(&box));
}

Test(promote, a_wrong_copy_is_not_brought_back)
{
	char path[256];
	struct object *o;

	put("f");
	restart(REBOOT);
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert(is_whole("f"));
	path_of("f", path);
	struct stat st;
	cr_assert_eq(stat(path, &st), 0);
	flip(path, 100);
	struct timespec ts[2] = { st.st_atim, st.st_mtim };
	cr_assert_eq(utimensat(AT_FDCWD, path, ts, 0), 0, "as a bad disk does it");
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_assert(wait_until_idle());
	cr_expect_eq(o->dram_frame, 0);
	cr_expect_eq(counter_get(COUNTER_corrupt), 1);
	fs_box_drop(&box, i, o);
	verify_drop_bad(&box.fs);
	cr_expect_null(fs_box_look(&box, root, "f", B));
}

static int32_t closed_id;

static void note_close(struct fs *fs, int32_t id)
{
	(void)fs;
	closed_id = id;
}

Test(promote, who_has_it_open_reads_on_from_the_ssd)
{
	struct object *o;

	put("f");
	restart(REBOOT);
	box.fs.close_backing = note_close;
	struct inode *i = fs_box_look(&box, root, "f", B);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	pthread_mutex_lock(&box.fs.lock);
	cr_assert_eq(object_backed_locked(&box.fs, o, 7), 7);
	pthread_mutex_unlock(&box.fs.lock);
	cr_assert(is_whole("f"));
	cr_assert(wait_until_idle());
	cr_assert_neq(o->dram_frame, 0);
	pthread_mutex_lock(&box.fs.lock);
	cr_expect_eq(object_backed_locked(&box.fs, o, 0), 7, "one id while it is open");
	cr_expect_eq(object_unbacked_locked(&box.fs, o), 0);
	cr_expect_eq(object_unbacked_locked(&box.fs, o), 7, "closed with the last handle");
	cr_expect_eq(object_backed_locked(&box.fs, o, 0), 0, "the next open makes one of dram");
	pthread_mutex_unlock(&box.fs.lock);
	fs_box_drop(&box, i, o);
}
