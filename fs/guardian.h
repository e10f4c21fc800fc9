/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guardian: a child process that ends the FUSE connection when the daemon is killed.
 *
 * A dying process closes its files when its last thread is gone. The notifier may be asleep in the kernel
 * on a directory's lock, which a client holds that waits for an answer of this very daemon: the thread
 * cannot die, the connection is not closed, the client waits for ever. The guardian is told of the main
 * thread's death (PR_SET_PDEATHSIG) and aborts the connection the way umount -f does; the dead mount
 * stays and answers ENOTCONN.
 */
#ifndef MCFS_GUARDIAN_H
#define MCFS_GUARDIAN_H

#include <sys/types.h>

struct guardian {
	pid_t pid; /* 0: none */
	int fd;    /* tells it what to watch */
};

/* Forks it; before any thread exists. -errno. */
int guardian_start(struct guardian *g, const char *mountpoint);
/* The mount is there: from now on it is worth ending. */
void guardian_watch(struct guardian *g, dev_t dev);
/* The daemon ends by itself. */
void guardian_stop(struct guardian *g);

/* The device number of what is mounted at path, without asking the file system. 0: path is not there. */
dev_t fuse_mount_dev(const char *path);
/* Aborts the FUSE connection of the mount at path if its device is dev; the mount itself stays. */
void fuse_mount_abort(const char *path, dev_t dev);

#endif
