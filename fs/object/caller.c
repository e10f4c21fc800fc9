/* SPDX-License-Identifier: Apache-2.0 */
#include "object/caller.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Linux 6.9 and 6.13; older headers do not have them. */
#define PIDFD_THREAD_FLAG O_EXCL
struct pidfd_info_v0 {
	uint64_t mask, cgroupid;
	uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid, spare0;
};
_Static_assert(sizeof(struct pidfd_info_v0) == 64, "first published size of struct pidfd_info");
#define PIDFD_GET_INFO_V0 _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_INFO_PID_BIT 1u

/* Reads a small /proc file whole. Returns its length or -errno; always NUL-terminated. */
static ssize_t read_proc(pid_t tid, const char *file, char *buf, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, buf, size - 1);
	int saved = errno;
	close(fd);
	if (n < 0)
		return -saved;
	buf[n] = '\0';
	return n;
}

/* "\nName:\tnumber" in /proc/TID/status. */
static bool status_field(const char *status, const char *name, long *out)
{
	const char *p = strstr(status, name);
	if (!p)
		return false;
	*out = strtol(p + strlen(name), NULL, 10);
	return true;
}

static pid_t tgid_from_pidfd(pid_t tid)
{
	int fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD_FLAG);
	if (fd < 0)
		return 0;
	struct pidfd_info_v0 info = { .mask = PIDFD_INFO_PID_BIT };
	int rc = ioctl(fd, PIDFD_GET_INFO_V0, &info);
	close(fd);
	return rc == 0 && (info.mask & PIDFD_INFO_PID_BIT) ? (pid_t)info.tgid : 0;
}

pid_t caller_tgid(pid_t tid)
{
	char status[4096];
	long tgid;

	if (!tid)
		return 0;
	pid_t fast = tgid_from_pidfd(tid);
	if (fast)
		return fast;
	if (read_proc(tid, "status", status, sizeof(status)) > 0 &&
	    status_field(status, "\nTgid:\t", &tgid))
		return (pid_t)tgid;
	return tid;
}

/* Field 52 of /proc/TID/stat; counted from the last ')' since the command name may hold anything. */
static bool exit_code_is_signal(pid_t tid)
{
	char stat[4096];

	if (read_proc(tid, "stat", stat, sizeof(stat)) <= 0)
		return false;
	char *p = strrchr(stat, ')');
	for (int field = 2; p && field < 52; field++) {
		p = strchr(p + 1, ' ');
	}
	return p && (strtol(p + 1, NULL, 10) & 0x7f) != 0;
}

/*
 * Whether the thread's file table is there and holds something, by the first entries of /proc/TID/fd:
 * a third of the time that /proc/TID/status takes. False also when the closed file was its only one.
 */
static bool has_open_files(pid_t tid)
{
	char path[32], entries[192];
	long n_dots = 2, n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)tid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	long len = syscall(SYS_getdents64, fd, entries, sizeof(entries));
	close(fd);
	for (long at = 0; at < len; n++) {
		uint16_t reclen; /* struct linux_dirent64: u64 ino, s64 off, u16 reclen, ... */
		memcpy(&reclen, entries + at + 16, sizeof(reclen));
		at += reclen;
	}
	return n > n_dots;
}

void caller_inspect(pid_t tid, pid_t known_tgid, struct caller_state *out)
{
	char status[4096];
	long tgid = tid, fd_size = 1;

	*out = (struct caller_state){ .tgid = known_tgid ? known_tgid : tid };
	if (!tid || (known_tgid && has_open_files(tid)))
		return;
	if (read_proc(tid, "status", status, sizeof(status)) <= 0)
		return;
	if (status_field(status, "\nTgid:\t", &tgid))
		out->tgid = (pid_t)tgid;
	if (status_field(status, "\nFDSize:\t", &fd_size) && fd_size == 0)
		out->is_killed = exit_code_is_signal(tid);
}

bool caller_has_open_ino(pid_t tid, uint64_t ino)
{
	char path[64], line[32];
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)tid);
	snprintf(line, sizeof(line), "\nino:\t%llu\n", (unsigned long long)ino);
	DIR *dir = opendir(path);
	if (!dir)
		return false;
	for (struct dirent *de; !found && (de = readdir(dir));) {
		char text[1024];
		if (de->d_name[0] == '.')
			continue;
		int fd = openat(dirfd(dir), de->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		ssize_t n = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (n > 0) {
			text[n] = '\0';
			found = strstr(text, line) != NULL;
		}
	}
	closedir(dir);
	return found;
}
