/* SPDX-License-Identifier: Apache-2.0 */
/* ssd over several disks: where frames go, and what is left when a disk fails or is full. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "lib/ssd_box.h"
#include "tier/disk_health.h"
#include "tier/frame_copy.h"
#include "tier/frame_dir.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* ---- fixture ---- */

static struct ssd_box box;

static void setup(void)
{
	ssd_box_init(&box, 3, MIB(16));
}

static void teardown(void)
{
	ssd_box_fini(&box);
}

TestSuite(ssd_disks, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static struct ssd_box_frame put(uint64_t size)
{
	struct ssd_box_frame s = {.id = 0};

	cr_assert_eq(ssd_box_put(&box, size, &s), 0);
	return s;
}

static void create(void)
{
	cr_assert_eq(ssd_box_create(&box), 0);
}

static int count(void *arg, uint64_t id)
{
	++*(int *)arg;
	return 0;
}

/* One frame on each disk. */
static void put_on_each(struct ssd_box_frame *s)
{
	uint32_t n = 0;

	for (int tries = 0; n < box.n_dirs && tries < 20; tries++) {
		struct ssd_box_frame one = put(KIB(64));
		if (!s[ssd_box_disk_of(one.id)].id)
			n++;
		s[ssd_box_disk_of(one.id)] = one;
	}
	cr_assert_eq(n, box.n_dirs);
}

/* ---- placement ---- */

Test(ssd_disks, frames_go_where_most_is_free)
{
	uint64_t n[3] = {0};

	box.dirs[1].budget_bytes = MIB(32);
	create();
	for (int k = 0; k < 64; k++)
		n[ssd_box_disk_of(put(MIB(1)).id)]++;
	cr_expect_eq(n[0], 16);
	cr_expect_eq(n[1], 32);
	cr_expect_eq(n[2], 16);
	cr_expect_eq(ssd_box_stats(&box).budget_bytes, MIB(64));
	cr_expect_eq(ssd_box_stats(&box).n_sealed, 64);
	cr_expect_lt(ssd_box_stats(&box).high_watermark_bytes, MIB(61));
	cr_expect_gt(ssd_box_stats(&box).high_watermark_bytes, MIB(60));
	cr_expect_lt(ssd_box_stats(&box).low_watermark_bytes, MIB(58));
}

Test(ssd_disks, a_disk_without_space_gives_way_to_the_next)
{
	create();
	fault_tier_fail(box.faults[0], FAULT_take, 1, ENOSPC);
	fault_tier_fail(box.faults[1], FAULT_take, 1, EIO);
	cr_expect_eq(ssd_box_disk_of(put(KIB(64)).id), 2);
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 0);
	for (int k = 0; k < 3; k++)
		fault_tier_fail(box.faults[k], FAULT_take, 1, ENOSPC);
	struct ssd_box_frame s;
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), -ENOSPC);
	for (int k = 0; k < 3; k++)
		fault_tier_fail(box.faults[k], FAULT_take, 1, EMFILE);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), -EMFILE);
}

Test(ssd_disks, all_fill_up_to_the_last_byte)
{
	struct ssd_box_frame all[64], s;
	int n = 0;

	create();
	while (n < 64 && ssd_box_put(&box, MIB(1), &all[n]) == 0)
		n++;
	cr_expect_eq(n, 48);
	cr_expect_eq(ssd_box_put(&box, MIB(1), &s), -ENOSPC);
	tier_call(box.t, drop, all[5].id, all[5].size, all[5].charge);
	cr_expect_eq(ssd_box_put(&box, MIB(1), &s), 0);
	cr_expect_eq(ssd_box_disk_of(s.id), ssd_box_disk_of(all[5].id));
	cr_expect_eq(ssd_box_stats(&box).used_bytes, MIB(48));
}

/* ---- failure ---- */

Test(ssd_disks, some_errors_fail_a_disk_at_once)
{
	struct ssd_box_frame s[3] = {{0}}, more;

	create();
	put_on_each(s);
	fault_tier_fail(box.faults[1], FAULT_open, 1, ESTALE);
	cr_expect_not(ssd_box_opens(&box, s[1].id));
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 1);
	cr_expect_eq(ssd_box_stats(&box).n_disks, 3);
	cr_expect_eq(ssd_box_stats(&box).budget_bytes, MIB(32));
	cr_expect_eq(ssd_box_stats(&box).n_sealed, ssd_box_stats(&box).used_bytes / KIB(64),
		     "its charges are gone");
	uint64_t calls = fault_tier_calls(box.faults[1], FAULT_open);
	cr_expect_eq(tier_call(box.t, open, s[1].id), -ENOENT);
	cr_expect_eq(fault_tier_calls(box.faults[1], FAULT_open), calls, "not touched");
	cr_expect(tier_call(box.t, is_lost, s[1].id));
	cr_expect(ssd_box_opens(&box, s[0].id) && ssd_box_opens(&box, s[2].id));
	cr_expect_not(tier_call(box.t, is_lost, s[0].id));
	tier_call(box.t, drop, s[1].id, s[1].size, s[1].charge);
	for (int k = 0; k < 10; k++) {
		cr_assert_eq(ssd_box_put(&box, KIB(64), &more), 0);
		cr_expect_neq(ssd_box_disk_of(more.id), 1);
	}
	struct ssd_disk_stats disk = ssd_box_disk(&box, 1);
	cr_expect(disk.is_failed);
	cr_expect_eq(disk.used_bytes, 0);
	cr_expect_eq(disk.n_errors, 1);
	cr_expect_not_null(strstr(disk.failed_reason, strerror(ESTALE)), "%s", disk.failed_reason);
}

Test(ssd_disks, read_only_fails_a_disk_at_once)
{
	struct ssd_box_frame s;

	create();
	fault_tier_fail(box.faults[0], FAULT_write, 1, EROFS);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), -EIO);
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 1);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), 0);
}

Test(ssd_disks, errors_of_many_frames_fail_a_disk)
{
	struct ssd_box_frame s;

	create();
	for (uint64_t k = 1; k <= DISK_MAX_ERRORS; k++) {
		cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 0, "after %llu",
			     (unsigned long long)k - 1);
		fault_tier_fail(box.faults[0], FAULT_sync, 1, EIO);
		cr_expect_eq(ssd_box_put(&box, KIB(64), &s), -EIO);
	}
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 1);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), 0);
	cr_expect_neq(ssd_box_disk_of(s.id), 0);
}

Test(ssd_disks, one_bad_frame_is_its_own_trouble)
{
	struct ssd_box_frame s;

	create();
	s = put(KIB(64));
	struct tier *fault = box.faults[ssd_box_disk_of(s.id)];
	for (int k = 0; k < 50; k++) {
		fault_tier_fail(fault, FAULT_open, 1, EIO);
		cr_expect_not(ssd_box_opens(&box, s.id));
		tier_call(box.t, report_error, s.id, -EIO);
	}
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 0);
	cr_expect(ssd_box_opens(&box, s.id));
	cr_expect_not(tier_call(box.t, is_lost, s.id));
}

Test(ssd_disks, frames_that_are_missing_or_cut_do_not_fail_a_disk)
{
	create();
	for (int k = 0; k < 3 * DISK_MAX_ERRORS; k++) {
		struct ssd_box_frame s = put(KIB(64));
		char buf[64], path[160];
		snprintf(path, sizeof(path), "%s/%02x/%02x/%016llx",
			 box.paths[ssd_box_disk_of(s.id)], (unsigned int)(s.id >> 18 & 0xff),
			 (unsigned int)(s.id >> 10 & 0xff),
			 (unsigned long long)(s.id & (UINT64_MAX >> 8)));
		cr_assert_eq(truncate(path, 100), 0);
		struct frame view = {.id = s.id, .fd = tier_call(box.t, open, s.id)};
		cr_assert_geq(view.fd, 0);
		cr_expect_eq(tier_call(box.t, read, &view, buf, sizeof(buf), KIB(32)), -EIO);
		close(view.fd);
		cr_assert_eq(unlink(path), 0);
		cr_expect_eq(tier_call(box.t, open, s.id), -ENOENT);
		cr_expect_not(tier_call(box.t, is_lost, s.id));
	}
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 0);
}

Test(ssd_disks, errors_of_a_copy_are_reported)
{
	create();
	for (uint64_t k = 1; k <= DISK_MAX_ERRORS; k++) {
		tier_call(box.t, report_error, UINT64_C(1) << FRAME_NUMBER_SHIFT | k, -ECANCELED);
		tier_call(box.t, report_error, UINT64_C(2) << FRAME_NUMBER_SHIFT | k, -EIO);
	}
	cr_expect_not(ssd_box_disk(&box, 1).is_failed);
	cr_expect(ssd_box_disk(&box, 2).is_failed);
}

Test(ssd_disks, open_frames_of_a_failed_disk_can_only_be_thrown_away)
{
	struct frame f = FRAME_NONE;
	uint64_t charge;
	char buf[8];

	create();
	cr_assert_eq(tier_call(box.t, take, KIB(64), &f), 0);
	int fd = f.fd;
	cr_expect_eq(tier_call(box.t, report_error, f.id, -ECANCELED), -ECANCELED);
	cr_expect_eq(tier_call(box.t, report_error, f.id, -ENODEV), -EIO);
	cr_expect_eq(tier_call(box.t, charge, &f, KIB(64)), -EIO);
	cr_expect_eq(tier_call(box.t, write, &f, "a", 1, 0), -EIO);
	cr_expect_eq(tier_call(box.t, read, &f, buf, 1, 0), -EIO);
	cr_expect_eq(tier_call(box.t, zero, &f, 0, 1), -EIO);
	cr_expect_eq(tier_call(box.t, resize, &f, 1), -EIO);
	cr_expect_eq(tier_call(box.t, sync, &f), -EIO);
	cr_expect_eq(tier_call(box.t, seal, &f, &charge), -EIO);
	tier_call(box.t, discard, &f);
	cr_expect_eq(f.id, 0);
	cr_expect_eq(fcntl(fd, F_GETFD), -1, "closed");
}

Test(ssd_disks, a_disk_that_cannot_be_listed_costs_its_frames_alone)
{
	struct ssd_box_frame s[3] = {{0}};
	int seen = 0;

	create();
	put_on_each(s);
	fault_tier_fail(box.faults[1], FAULT_scan, 1, EIO);
	cr_expect_eq(tier_call(box.t, scan, count, &seen), 0);
	cr_expect_gt(seen, 0);
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 1);
	cr_expect(tier_call(box.t, is_lost, s[1].id));
}

static void *put_many(void *arg)
{
	struct ssd_box_frame s;

	for (int k = 0; k < 60; k++)
		if (ssd_box_put(&box, KIB(64), &s) == 0)
			tier_call(box.t, drop, s.id, s.size, s.charge);
	return NULL;
}

Test(ssd_disks, one_fails_under_load)
{
	pthread_t threads[4];
	struct ssd_box_frame s;

	create();
	for (int k = 0; k < 4; k++)
		cr_assert_eq(pthread_create(&threads[k], NULL, put_many, NULL), 0);
	usleep(5000);
	fault_tier_fail(box.faults[1], FAULT_write, 1, ENODEV);
	for (int k = 0; k < 4; k++)
		pthread_join(threads[k], NULL);
	cr_expect_eq(ssd_box_stats(&box).n_failed_disks, 1);
	cr_expect_eq(ssd_box_stats(&box).used_bytes, 0);
	cr_expect_eq(ssd_box_stats(&box).n_open, 0);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), 0);
}

/* ---- the directory ---- */

Test(ssd_disks, a_directory_that_is_gone_fails_its_disk)
{
	create();
	cr_assert_eq(rename(box.paths[1], box.paths[3]), 0);
	tier_call(box.t, reclaim, 0);
	cr_expect(ssd_box_disk(&box, 1).is_failed);
	cr_expect_not(ssd_box_disk(&box, 0).is_failed);
}

Test(ssd_disks, nothing_is_durable_in_a_directory_that_is_gone)
{
	struct ssd_box_frame s;

	box.n_dirs = 1;
	create();
	cr_assert_eq(rename(box.paths[0], box.paths[3]), 0);
	cr_assert_eq(mkdir(box.paths[0], 0700), 0);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &s), -EIO);
	cr_expect(ssd_box_disk(&box, 0).is_failed);
}

Test(ssd_disks, a_default_budget_is_shared_on_one_file_system)
{
	struct statvfs fs;

	for (int k = 0; k < 3; k++)
		box.dirs[k].budget_bytes = 0;
	create();
	cr_assert_eq(statvfs(box.top, &fs), 0);
	double part = (double)ssd_box_stats(&box).budget_bytes /
		      ((double)fs.f_bavail * (double)fs.f_frsize);
	cr_expect(part > 0.8 && part < 1.0, "%f", part);
}
