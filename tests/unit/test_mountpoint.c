/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mountpoint.h"

/* ---- fixture ---- */

static char dir[] = "/tmp/mcfs-mountpoint-XXXXXX";
static char path[64];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/x", dir);
}

static void teardown(void)
{
	remove(path);
	rmdir(dir);
}

TestSuite(mountpoint, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void make_file(void)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	cr_assert_geq(fd, 0);
	close(fd);
}

/* A FUSE mount that nobody serves any more, in a mount namespace of this process. */
static void mount_dead(const char *type)
{
	char options[96];

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		cr_skip_test("needs the right to mount (root)");
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		cr_skip_test("needs /dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("test", dir, type, 0, options))
		cr_skip_test("needs the right to mount FUSE");
	close(fd);
}

/* ---- tests ---- */

Test(mountpoint, an_empty_directory_will_do)
{
	cr_expect_eq(mountpoint_check(dir, false), 0);
	cr_expect_eq(mountpoint_check(dir, true), 0);
}

Test(mountpoint, one_that_is_missing_will_not)
{
	cr_expect_eq(mountpoint_check(path, false), -ENOENT);
}

Test(mountpoint, a_file_will_not)
{
	make_file();
	cr_expect_eq(mountpoint_check(path, false), -ENOTDIR);
	cr_expect_eq(mountpoint_check(path, true), -ENOTDIR);
}

Test(mountpoint, one_with_entries_will_when_asked_for)
{
	make_file();
	cr_expect_eq(mountpoint_check(dir, false), -ENOTEMPTY);
	cr_expect_eq(mountpoint_check(dir, true), 0);
}

Test(mountpoint, a_dead_mount_of_ours_is_removed)
{
	struct stat st;

	mount_dead("fuse.mooncakefs");
	cr_assert_eq(stat(dir, &st), -1);
	cr_assert_eq(errno, ENOTCONN);
	cr_expect_eq(mountpoint_check(dir, false), 0);
	cr_expect_eq(stat(dir, &st), 0);
}

Test(mountpoint, a_dead_mount_of_another_is_left_alone)
{
	struct stat st;

	mount_dead("fuse.other");
	cr_expect_eq(mountpoint_check(dir, false), -ENOTCONN);
	cr_expect_eq(stat(dir, &st), -1);
	cr_expect_eq(errno, ENOTCONN);
	umount2(dir, MNT_DETACH);
}
