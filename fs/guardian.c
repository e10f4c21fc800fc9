/* SPDX-License-Identifier: Apache-2.0 */
#include "guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

#define PROCESS_NAME "mooncake-guard"

/* Neither opening with O_PATH nor a statx of what is cached sends a request. */
static int open_mount(const char *path, dev_t *dev_out)
{
	struct statx st;

	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st)) {
		close(fd);
		return -1;
	}
	*dev_out = makedev(st.stx_dev_major, st.stx_dev_minor);
	return fd;
}

dev_t fuse_mount_dev(const char *path)
{
	dev_t dev = 0;
	int fd = open_mount(path, &dev);

	if (fd >= 0)
		close(fd);
	return dev;
}

void fuse_mount_abort(const char *path, dev_t dev)
{
	dev_t there;
	int fd = open_mount(path, &there);

	if (fd < 0)
		return;
	/*
	 * The open descriptor makes the mount busy: umount2 aborts the connection and then fails, and
	 * what is below the mount point stays hidden.
	 */
	if (there == dev)
		umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW);
	close(fd);
}

static void close_inherited(int keep_fd)
{
	int null_fd = open("/dev/null", O_RDWR);

	/* Not the caller's terminal or pipe, not the lock of the state directory. */
	for (int fd = 0; null_fd >= 0 && fd < 3; fd++)
		dup2(null_fd, fd);
	if (keep_fd > 3)
		syscall(SYS_close_range, 3, keep_fd - 1, 0);
	syscall(SYS_close_range, keep_fd + 1, ~0U, 0);
}

static void guard(const char *mountpoint, int fd, pid_t parent)
{
	sigset_t death;
	dev_t dev;

	prctl(PR_SET_NAME, PROCESS_NAME);
	/* Only the daemon's end and SIGKILL concern it. */
	sigfillset(&death);
	sigprocmask(SIG_SETMASK, &death, NULL);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	close_inherited(fd);
	if (getppid() != parent || read(fd, &dev, sizeof(dev)) != sizeof(dev))
		_exit(0);
	sigemptyset(&death);
	sigaddset(&death, SIGUSR1);
	while (sigwaitinfo(&death, NULL) < 0 && errno == EINTR)
		;
	fuse_mount_abort(mountpoint, dev);
	_exit(0);
}

int guardian_start(struct guardian *g, const char *mountpoint)
{
	int fds[2];
	pid_t parent = getpid();

	*g = (struct guardian){ .fd = -1 };
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		guard(mountpoint, fds[0], parent);
	close(fds[0]);
	if (pid < 0) {
		close(fds[1]);
		return -errno;
	}
	*g = (struct guardian){ .pid = pid, .fd = fds[1] };
	return 0;
}

void guardian_watch(struct guardian *g, dev_t dev)
{
	if (write(g->fd, &dev, sizeof(dev)) != sizeof(dev))
		log_warn("the guardian process is gone: %m");
}

void guardian_stop(struct guardian *g)
{
	if (!g->pid)
		return;
	kill(g->pid, SIGKILL);
	waitpid(g->pid, NULL, 0);
	close(g->fd);
	*g = (struct guardian){ .fd = -1 };
}
