/* SPDX-License-Identifier: Apache-2.0 */
/* session: the FUSE connection, from mount to unmount. */
#ifndef MCFS_SESSION_H
#define MCFS_SESSION_H

struct fs;

enum session_end { SESSION_UNMOUNTED, SESSION_SIGNALLED, SESSION_FAILED };

/* Creates the session and mounts. -errno, logged with the mount point. */
int session_mount(struct fs *fs);
/* Serves until the mount goes or SIGTERM, SIGINT or SIGHUP comes. */
enum session_end session_run(struct fs *fs);
/* Unmounts (lazily when busy) and frees. */
void session_unmount(struct fs *fs);

#endif
