/* SPDX-License-Identifier: Apache-2.0 */
/* mountpoint: is the place fit to be mounted on? */
#ifndef MCFS_MOUNTPOINT_H
#define MCFS_MOUNTPOINT_H

#include <stdbool.h>

/*
 * Checks a mount point and says on stderr what is wrong with it. A dead FUSE mount of ours is unmounted
 * (lazily). -ENOENT missing, -ENOTDIR, -EBUSY mooncakefs is mounted there, -ENOTEMPTY unless
 * may_be_nonempty, -ENOTCONN a dead mount that cannot be removed. Also warns of capabilities that mounting
 * and telling killed writers need and this process lacks.
 */
int mountpoint_check(const char *path, bool may_be_nonempty);

#endif
