/* SPDX-License-Identifier: Apache-2.0 */
/* What the dram tier adds to frame_dir: its tmpfs and how that outlives a daemon, and its budget. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/tier_test.h"

/* ---- fixture ---- */

static struct tier_box box;

static void open_tmpfs(uint64_t budget_bytes)
{
	const char *why_not = tier_box_open(&box, TIER_TMPFS, budget_bytes);

	if (why_not)
		cr_skip_test("%s", why_not);
}

/* ---- helpers ---- */

/* Whether a tmpfs is mounted at path with these options. */
static bool has_mount(const char *path, const char *option)
{
	char line[4096], key[256];
	FILE *file = fopen("/proc/self/mounts", "r");
	bool found = false;

	snprintf(key, sizeof(key), " %s tmpfs ", path);
	while (fgets(line, sizeof(line), file))
		if (strstr(line, key) && strstr(line, option))
			found = true;
	fclose(file);
	return found;
}

static uint64_t tmpfs_bytes(void)
{
	struct statvfs st;

	cr_assert_eq(statvfs(box.path, &st), 0);
	return (uint64_t)st.f_blocks * st.f_frsize;
}

static void give_up_rights(void)
{
	if (geteuid() == 0)
		cr_assert_eq(seteuid(65534), 0);
}

/* The leak checker cannot look at a process that changed its user and stayed so. */
static void take_rights_back(void)
{
	cr_assert_eq(seteuid(getuid()), 0);
	prctl(PR_SET_DUMPABLE, 1);
}

/* ---- the tmpfs ---- */

Test(dram, mounts_a_private_tmpfs_a_little_larger_than_its_budget)
{
	struct stat st;

	open_tmpfs(MIB(64));
	cr_expect_eq(tmpfs_bytes(), MIB(64) + MIB(1) + MIB(8));
	cr_assert_eq(stat(box.path, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0700);
	cr_expect(has_mount(box.path, "nosuid,nodev,noexec,noatime"));
	cr_expect(has_mount(box.path, "nr_inodes=0"));
	tier_box_close(&box);
	cr_expect_not(has_mount(box.path, ""));
	cr_expect_eq(access(box.path, F_OK), -1);
}

Test(dram, cannot_be_bound_elsewhere)
{
	char other[128];

	open_tmpfs(MIB(64));
	snprintf(other, sizeof(other), "%s/other", box.top);
	cr_assert_eq(mkdir(other, 0700), 0);
	cr_expect_eq(mount(box.path, other, NULL, MS_BIND, NULL), -1);
	cr_expect_eq(errno, EINVAL);
	rmdir(other);
	tier_box_close(&box);
}

Test(dram, a_restart_uses_the_same_tmpfs_with_another_size)
{
	open_tmpfs(MIB(64));
	struct sealed s = make_sealed(&box, 'a', KIB(64));
	tier_call(box.t, destroy, false);
	cr_expect(has_mount(box.path, ""), "outlives the daemon");

	const struct dram_conf conf = {.path = box.path, .budget_bytes = MIB(128)};
	cr_assert_eq(dram_tier_create(&conf, &box.t), 0);
	cr_expect_eq(tmpfs_bytes(), MIB(128) + MIB(2) + MIB(8));
	tier_call(box.t, adopt, s.id, s.charge);
	int fd = tier_call(box.t, open, s.id);
	cr_assert_geq(fd, 0);
	struct frame view = {.id = s.id, .fd = fd, .size_bytes = s.size};
	expect_bytes(&box, &view, 'a', 0, KIB(64));
	close(fd);
	tier_box_close(&box);
	cr_expect_not(has_mount(box.path, ""), "it was mounted once");
}

Test(dram, covers_a_foreign_mount_and_leaves_it_alone)
{
	open_tmpfs(MIB(64));
	tier_call(box.t, destroy, true);
	cr_assert_eq(mkdir(box.path, 0700), 0);
	cr_assert_eq(mount("foreign", box.path, "tmpfs", 0, "size=1M"), 0);

	const struct dram_conf conf = {.path = box.path, .budget_bytes = MIB(64)};
	cr_assert_eq(dram_tier_create(&conf, &box.t), 0);
	cr_expect_eq(tmpfs_bytes(), MIB(64) + MIB(1) + MIB(8));
	tier_call(box.t, destroy, true);
	cr_expect_eq(tmpfs_bytes(), MIB(1));
	umount(box.path);
	rmdir(box.path);
	rmdir(box.top);
}

/* A full tmpfs says so even if nobody charged what was written. */
Test(dram, a_full_tmpfs_is_enospc_and_goes_on)
{
	open_tmpfs(MIB(8));
	struct frame f = take(&box, 0);
	char *buf = calloc(1, MIB(1));
	uint64_t off = 0;
	int rc = 0;

	for (; !rc && off < MIB(64); off += MIB(1))
		rc = tier_call(box.t, write, &f, buf, MIB(1), off);
	cr_expect_eq(rc, -ENOSPC);
	cr_expect_eq((uint64_t)stat_fd(f.fd).st_size, f.size_bytes,
		     "right after a failed write too");
	cr_assert_eq(tier_call(box.t, resize, &f, MIB(1)), 0);
	cr_expect_eq(tier_call(box.t, write, &f, buf, MIB(1), MIB(1)), 0);
	free(buf);
	tier_call(box.t, discard, &f);
	tier_box_close(&box);
}

Test(dram, without_rights_it_is_eperm_or_the_plain_directory)
{
	struct dram_conf conf = {.budget_bytes = MIB(8)};
	struct tier *t = NULL;
	char top[] = "/tmp/mcfs-dram-XXXXXX", path[64];

	give_up_rights();
	cr_assert_not_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/frames", top);
	conf.path = path;
	cr_expect_eq(dram_tier_create(&conf, &t), -EPERM);
	cr_expect_null(t);
	conf.allow_plain_dir = true;
	cr_assert_eq(dram_tier_create(&conf, &t), 0);
	cr_expect_not(has_mount(path, ""));
	tier_call(t, destroy, true);
	cr_expect_eq(rmdir(top), 0, "nothing left");
	take_rights_back();
}

/* ---- the budget ---- */

Test(dram, refuses_a_budget_above_the_memory_there_is)
{
	char top[] = "/tmp/mcfs-dram-XXXXXX", path[64], why[256] = "", *end;
	struct tier *t = NULL;

	cr_assert_not_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/frames", top);
	const struct dram_conf conf = {.path = path, .budget_bytes = UINT64_C(1) << 50};
	cr_expect_eq(dram_tier_create(&conf, &t), -ENOMEM);
	cr_expect_null(t);
	cr_expect_eq(dram_budget_check(path, conf.budget_bytes, why, sizeof(why)), -ENOMEM);
	cr_expect_eq(strtoull(why, &end, 10), conf.budget_bytes);
	cr_expect_not_null(strpbrk(end, "123456789"), "both numbers: %s", why);
	cr_expect_eq(dram_budget_check(path, MIB(1), why, sizeof(why)), 0);
	cr_expect_str_eq(why, "");
	rmdir(path);
	rmdir(top);
}

/* The second number that a refusal names: what there is room for. */
static uint64_t room_at(const char *path)
{
	char why[256], *end;

	cr_assert_eq(dram_budget_check(path, UINT64_C(1) << 50, why, sizeof(why)), -ENOMEM);
	(void)strtoull(why, &end, 10);
	return strtoull(strpbrk(end, "0123456789"), NULL, 10);
}

Test(dram, what_its_tmpfs_holds_counts_as_room)
{
	bool counts = false;

	open_tmpfs(MIB(256));
	make_sealed(&box, 'a', MIB(200));
	/* Others take and give memory meanwhile. */
	for (int i = 0; i < 100 && !counts; i++) {
		uint64_t elsewhere = room_at("/tmp"), here = room_at(box.path);
		counts = here > elsewhere + MIB(150) && here < elsewhere + MIB(250);
	}
	cr_expect(counts);
	tier_box_close(&box);
}

Test(dram, default_budget_is_whole_mib_and_fits)
{
	char why[256];
	uint64_t bytes = dram_budget_default();

	cr_expect_gt(bytes, 0);
	cr_expect_eq(bytes % MIB(1), 0);
	cr_expect_eq(dram_budget_check("/tmp", bytes, why, sizeof(why)), 0, "%s", why);
}
