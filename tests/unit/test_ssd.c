/* SPDX-License-Identifier: Apache-2.0 */
/* What the ssd tier adds to frame_dir: fan-out, sync, its default budget, no recycling. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/tier_test.h"

/* ---- fixture ---- */

static struct tier_box box;

static void setup(void)
{
	cr_assert_null(tier_box_open(&box, TIER_SSD, MIB(64)));
}

static void teardown(void)
{
	tier_box_close(&box);
}

TestSuite(ssd, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static uint64_t free_bytes(void)
{
	struct statvfs st;

	cr_assert_eq(statvfs(box.path, &st), 0);
	return (uint64_t)st.f_bavail * st.f_frsize;
}

/* Others write to this disk too. */
static bool is_about(uint64_t a, uint64_t b)
{
	return a > b / 2 && b > a / 2;
}

static int count(void *arg, uint64_t id)
{
	++*(int *)arg;
	return 0;
}

/* ---- success ---- */

Test(ssd, makes_its_directory_private)
{
	struct stat st;

	cr_assert_eq(stat(box.path, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0700);
}

Test(ssd, fans_frames_out_over_two_levels_made_when_needed)
{
	char path[128];
	int n = 0;

	/* Frames of 1,024 ids share a directory; this many ids need two or three. */
	for (int i = 0; i < 2050; i++) {
		struct frame f = take(&box, 0);
		uint64_t charge;
		cr_assert_eq(tier_call(box.t, seal, &f, &charge), 0);
	}
	cr_expect_eq(tier_call(box.t, scan, count, &n), 0);
	cr_expect_eq(n, 2050);
	struct frame f = take(&box, 0);
	snprintf(path, sizeof(path), "%s/%02x/%02x/%016llx", box.path,
		 (unsigned int)(f.id >> 18 & 0xff), (unsigned int)(f.id >> 10 & 0xff),
		 (unsigned long long)f.id);
	cr_expect_eq(access(path, F_OK), 0);
	tier_call(box.t, discard, &f);
}

Test(ssd, sync_makes_bytes_and_name_durable)
{
	struct frame f = take(&box, KIB(64));

	fill(&box, &f, 'a', 0, KIB(64));
	cr_expect_not(f.is_name_synced);
	cr_expect_eq(tier_call(box.t, sync, &f), 0);
	cr_expect(f.is_name_synced);
	cr_expect_eq(tier_call(box.t, sync, &f), 0);
	tier_call(box.t, discard, &f);
	f = take(&box, KIB(64));
	cr_expect_not(f.is_name_synced);
	tier_call(box.t, discard, &f);
}

Test(ssd, never_writes_a_file_twice)
{
	drop(&box, make_sealed(&box, 'a', KIB(64)));
	cr_expect_eq(tier_box_stats(&box).n_free_list, 0);
	cr_expect_eq(used(&box), 0);
	struct frame f = take(&box, KIB(64));
	cr_expect_eq(f.stale_bytes, 0);
	tier_call(box.t, discard, &f);
}

Test(ssd, default_budget_is_nine_tenths_of_what_is_free_and_its_own)
{
	const struct ssd_dir dir = {.path = box.path};
	const struct ssd_conf conf = {.dirs = &dir, .n_dirs = 1};
	struct tier_stats before, after;
	struct tier *t;

	cr_assert_eq(ssd_tier_create(&conf, &t), 0);
	tier_call(t, get_stats, &before);
	cr_expect(is_about(before.budget_bytes, free_bytes() / 10 * 9));
	tier_call(t, adopt, 12345, MIB(1000));
	tier_call(t, get_stats, &after);
	cr_expect_eq(after.budget_bytes - before.budget_bytes, MIB(1000) / 10 * 9);
	cr_expect_eq(after.used_bytes, MIB(1000));
	tier_call(t, destroy, false);
}

/* ---- failure ---- */

Test(ssd, is_refused_where_no_directory_can_be)
{
	const struct ssd_dir missing = {.path = "/proc/frames"};
	const struct ssd_dir file = {.path = "/proc/self/stat", .budget_bytes = MIB(1)};
	struct tier *t = NULL;

	cr_expect_eq(ssd_tier_create(&(struct ssd_conf){.dirs = &missing, .n_dirs = 1}, &t),
		     -ENOENT);
	cr_expect_eq(ssd_tier_create(&(struct ssd_conf){.dirs = &file, .n_dirs = 1}, &t), -ENOTDIR);
	cr_expect_null(t);
}
