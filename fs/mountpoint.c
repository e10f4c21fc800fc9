/* SPDX-License-Identifier: Apache-2.0 */
#include "mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

#define OUR_TYPE "fuse.mooncakefs"

/* Whether one of our mounts is at path, dead or alive. */
static bool is_our_mount(const char *path)
{
	char buf[8192];
	struct mntent m;
	bool found = false;
	FILE *f = setmntent("/proc/self/mounts", "re");

	if (!f)
		return false;
	while (!found && getmntent_r(f, &m, buf, sizeof(buf)))
		found = !strcmp(m.mnt_dir, path) && !strcmp(m.mnt_type, OUR_TYPE);
	endmntent(f);
	return found;
}

static int remove_dead_mount(const char *path)
{
	if (!is_our_mount(path) || umount2(path, MNT_DETACH)) {
		log_error("mount point %s is a dead mount (%s); remove it with: umount -l %s", path,
			  strerror(ENOTCONN), path);
		return -ENOTCONN;
	}
	log_warn("mount point %s: removed the dead mount of a daemon that is gone", path);
	return 0;
}

static int check_empty(const char *path)
{
	DIR *dir = opendir(path);
	bool is_empty = true;

	if (!dir) {
		int rc = -errno;
		log_error("mount point %s: %m", path);
		return rc;
	}
	for (struct dirent *e; is_empty && (e = readdir(dir));)
		is_empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(dir);
	if (is_empty)
		return 0;
	log_error("mount point %s is not empty; -o nonempty mounts over what is there", path);
	return -ENOTEMPTY;
}

static bool has_capability(const struct __user_cap_data_struct data[2], int cap)
{
	return data[cap / 32].effective & (1u << cap % 32);
}

/* A container often has fewer rights than its root seems to; the errors that follow do not say so. */
static void warn_of_missing_rights(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return;
	if (!has_capability(data, CAP_SYS_ADMIN))
		log_warn("CAP_SYS_ADMIN is missing: mounting needs it, and so does passthrough");
	if (!has_capability(data, CAP_SYS_PTRACE))
		log_warn("CAP_SYS_PTRACE is missing: what a killed writer of another user has "
			 "written will be published");
}

int mountpoint_check(const char *path, bool may_be_nonempty)
{
	struct statvfs vfs;
	struct stat st;

	warn_of_missing_rights();
	/* statvfs asks the daemon; stat may be answered from the kernel's cache. */
	for (int tries = 0; stat(path, &st) || statvfs(path, &vfs); tries++) {
		int rc = -errno;
		if ((rc != -ENOTCONN && rc != -ECONNABORTED) || tries) {
			log_error("mount point %s: %s", path, strerror(-rc));
			return rc;
		}
		rc = remove_dead_mount(path);
		if (rc)
			return rc;
	}
	if (!S_ISDIR(st.st_mode)) {
		log_error("mount point %s: %s", path, strerror(ENOTDIR));
		return -ENOTDIR;
	}
	if (is_our_mount(path)) {
		log_error("mount point %s is busy: mooncakefs is mounted there already", path);
		return -EBUSY;
	}
	return may_be_nonempty ? 0 : check_empty(path);
}
