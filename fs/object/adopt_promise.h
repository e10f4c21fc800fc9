/* SPDX-License-Identifier: Apache-2.0 */
/* adopt_promise: a draft that was fsynced, and whose writer died with the daemon, becomes an object. */
#ifndef MCFS_ADOPT_PROMISE_H
#define MCFS_ADOPT_PROMISE_H

#include <stdint.h>

struct fs;

/*
 * Publishes the promise as of its last fsync under the name it had, over what that name shows. A
 * directory that has the name by now stays: the file gets the name with ".fsynced-" and its number
 * behind it. Before the mount, single-threaded. 0 also when there is no such promise any more; or the
 * errno of the catalog.
 */
int adopt_promise(struct fs *fs, uint64_t object_id);

#endif
