/* SPDX-License-Identifier: Apache-2.0 */
/* ssd on file systems of its own, which fill up, turn read-only and are unplugged. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "lib/ssd_box.h"
#include "tier/frame_copy.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* ---- fixture ---- */

static struct ssd_box box;

static void setup(void)
{
	ssd_box_init(&box, 2, MIB(16));
}

static void teardown(void)
{
	ssd_box_fini(&box);
}

TestSuite(ssd_loop, .init = setup, .fini = teardown);

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

static void mount_disk(uint32_t k, uint64_t bytes)
{
	const char *why_not = ssd_box_mount(&box, box.paths[k], bytes);

	if (why_not)
		cr_skip_test("%s", why_not);
}

/* ---- full ---- */

Test(ssd_loop, a_file_system_that_is_full_shrinks_its_budget)
{
	struct ssd_box_frame all[80];
	int n = 0, n_full = 0;

	mount_disk(0, MIB(24));
	box.n_dirs = 1;
	box.dirs[0].budget_bytes = MIB(64);
	create();
	/* A caller that makes room when told so, and goes on. */
	for (int k = 0; k < 80; k++) {
		int rc;
		while ((rc = ssd_box_put(&box, MIB(1), &all[n])) == -ENOSPC && n > 0) {
			n_full++;
			tier_call(box.t, drop, all[0].id, all[0].size, all[0].charge);
			memmove(all, all + 1, (size_t)--n * sizeof(*all));
		}
		cr_assert_eq(rc, 0, "%d", k);
		n++;
	}
	struct ssd_disk_stats disk = ssd_box_disk(&box, 0);
	cr_expect_not(disk.is_failed);
	cr_expect_lt(disk.budget_bytes, MIB(24));
	cr_expect_gt(disk.budget_bytes, MIB(12));
	cr_expect_eq(disk.wanted_bytes, MIB(64));
	cr_expect_gt(n, 12);
	cr_expect_leq(n_full, 80, "one goes for one that comes");
	for (int k = 0; k < n; k++)
		cr_expect(ssd_box_opens(&box, all[k].id));
}

Test(ssd_loop, what_does_not_fit_on_a_full_file_system_goes_to_another)
{
	struct ssd_box_frame s;
	uint32_t n[2] = {0};

	mount_disk(0, MIB(16));
	box.dirs[0].budget_bytes = MIB(64);
	box.dirs[1].budget_bytes = MIB(40);
	create();
	for (int k = 0; k < 40; k++) {
		/* A full file system is met once; the next try goes elsewhere. */
		int rc = ssd_box_put(&box, MIB(1), &s);
		if (rc == -ENOSPC)
			rc = ssd_box_put(&box, MIB(1), &s);
		cr_assert_eq(rc, 0, "%d", k);
		n[ssd_box_disk_of(s.id)]++;
	}
	cr_expect_gt(n[0], 8);
	cr_expect_gt(n[1], 20);
}

Test(ssd_loop, a_copy_into_a_full_file_system_says_so_before_it_writes)
{
	enum frame_copy_side side = FRAME_COPY_NONE;
	struct frame_copy_limits limits = {.failed_out = &side};
	struct frame f = FRAME_NONE;
	int src = open("/dev/zero", O_RDONLY);

	mount_disk(0, MIB(16));
	box.n_dirs = 1;
	box.dirs[0].budget_bytes = MIB(64);
	create();
	cr_assert_eq(tier_call(box.t, take, MIB(32), &f), 0);
	cr_assert_eq(tier_call(box.t, charge, &f, MIB(32)), 0);
	cr_expect_eq(frame_copy(f.fd, src, MIB(32), NULL, &limits), -ENOSPC);
	cr_expect_eq(side, FRAME_COPY_DST);
	tier_call(box.t, report_error, f.id, -ENOSPC);
	tier_call(box.t, discard, &f);
	cr_expect_lt(ssd_box_disk(&box, 0).budget_bytes, MIB(16));
	cr_expect_gt(ssd_box_disk(&box, 0).budget_bytes, MIB(10), "what fits there fits still");
	cr_expect_not(ssd_box_disk(&box, 0).is_failed);
}

Test(ssd_loop, a_file_system_without_inodes_is_full)
{
	struct ssd_box_frame s;
	int rc = 0;

	mount_disk(0, MIB(1)); /* some 128 of them */
	box.dirs[0].budget_bytes = box.dirs[1].budget_bytes = MIB(4);
	create();
	for (int k = 0; !rc && k < 300; k++)
		rc = ssd_box_put(&box, 4096, &s);
	cr_expect_eq(rc, 0);
	struct ssd_disk_stats disk = ssd_box_disk(&box, 0);
	cr_expect_lt(disk.used_bytes, MIB(1) * 3 / 4);
	cr_expect_leq(disk.budget_bytes, disk.used_bytes);
	cr_expect_gt(ssd_box_disk(&box, 1).n_sealed, 100);
}

Test(ssd_loop, a_budget_grows_back_with_the_room)
{
	struct ssd_box_frame s;
	char filler[192];

	mount_disk(0, MIB(16));
	box.n_dirs = 1;
	box.dirs[0].budget_bytes = MIB(8);
	create();
	snprintf(filler, sizeof(filler), "dd if=/dev/zero of=%s/filler bs=64k 2>/dev/null; true",
		 box.paths[0]);
	cr_assert_eq(system(filler), 0);
	cr_expect_eq(ssd_box_put(&box, MIB(1), &s), -ENOSPC);
	cr_expect_lt(ssd_box_disk(&box, 0).budget_bytes, MIB(1));
	snprintf(filler, sizeof(filler), "%s/filler", box.paths[0]);
	cr_assert_eq(unlink(filler), 0);
	sleep(4);
	tier_call(box.t, reclaim, UINT64_MAX);
	cr_expect_eq(ssd_box_disk(&box, 0).budget_bytes, MIB(8));
	cr_expect_eq(ssd_box_put(&box, MIB(1), &s), 0);
}

/* ---- gone ---- */

Test(ssd_loop, a_file_system_that_turns_read_only_fails_its_disk)
{
	struct ssd_box_frame s;

	mount_disk(0, MIB(16));
	box.dirs[0].budget_bytes = MIB(64);
	create();
	s = put(KIB(64));
	cr_assert_eq(ssd_box_disk_of(s.id), 0);
	cr_assert_eq(mount(NULL, box.paths[0], NULL, MS_REMOUNT | MS_RDONLY, NULL), 0, "%m");
	struct ssd_box_frame next;
	cr_expect_eq(ssd_box_put(&box, KIB(64), &next), 0, "at once on the other");
	cr_expect_eq(ssd_box_disk_of(next.id), 1);
	cr_expect(ssd_box_disk(&box, 0).is_failed);
	cr_expect_eq(tier_call(box.t, open, s.id), -ENOENT);
	cr_expect(tier_call(box.t, is_lost, s.id));
	/* And at the next start, as long as it is so. */
	ssd_box_destroy(&box);
	create();
	cr_expect(ssd_box_disk(&box, 0).is_failed);
	ssd_box_destroy(&box);
	cr_assert_eq(mount(NULL, box.paths[0], NULL, MS_REMOUNT, NULL), 0);
	create();
	cr_expect(ssd_box_opens(&box, s.id));
}

Test(ssd_loop, read_only_is_noticed_without_a_write)
{
	mount_disk(0, MIB(16));
	create();
	cr_assert_eq(mount(NULL, box.paths[0], NULL, MS_REMOUNT | MS_RDONLY, NULL), 0, "%m");
	tier_call(box.t, reclaim, 0);
	cr_expect(ssd_box_disk(&box, 0).is_failed);
}

Test(ssd_loop, an_unplugged_disk_fails_and_comes_back_at_the_next_start)
{
	struct ssd_box_frame s, next;
	char image[96], command[256];

	mount_disk(0, MIB(16));
	box.dirs[0].budget_bytes = MIB(64);
	create();
	s = put(KIB(64));
	cr_assert_eq(ssd_box_disk_of(s.id), 0);
	cr_assert_eq(umount2(box.paths[0], MNT_DETACH), 0);
	cr_expect_eq(ssd_box_put(&box, KIB(64), &next), -EIO, "not acknowledged");
	cr_expect_eq(ssd_box_put(&box, KIB(64), &next), 0);
	cr_expect_eq(ssd_box_disk_of(next.id), 1);
	cr_expect(tier_call(box.t, is_lost, s.id));
	ssd_box_destroy(&box);
	create();
	cr_expect(ssd_box_disk(&box, 0).is_failed, "the mount point is empty");
	ssd_box_destroy(&box);
	snprintf(image, sizeof(image), "%s/image0", box.top);
	snprintf(command, sizeof(command), "mount -o loop %s %s", image, box.paths[0]);
	cr_assert_eq(system(command), 0);
	create();
	cr_expect(ssd_box_opens(&box, s.id));
	cr_expect(ssd_box_opens(&box, next.id));
}
