/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish: a draft (or a snapshot of one) becomes the object of its name, atomically.
 *
 * Order: bytes complete and checksummed -> frame sealed -> one catalog batch (name, object, the replaced
 * object's record) -> tables in memory -> the kernel is told (by the caller: ops/flush lets the notifier
 * reply, others only queue the notification).
 * Locks: none may be held; draft->data is owned throughout, the name's stripe during the commit.
 */
#ifndef MCFS_PUBLISH_H
#define MCFS_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/catalog.h"

struct catalog_batch;
struct fs;
struct draft;
struct inode;
struct object;
struct space_wait;

/* Where a replaced name's dentry must be dropped: dir has one ref, name is malloc'd. */
struct published {
	struct inode *dir;
	char *name;
	bool has_replaced;
};
void published_fini(struct fs *fs, struct published *p);

/*
 * Publishes d if it is dirty, linked and not poisoned; else does nothing and returns 0. caller: thread
 * id, for the eviction order. -ENOSPC, -EIO, -EISDIR (the name became a directory), -ENOENT (its
 * directory is gone). The caller holds a ref or a handle of d.
 */
int publish_draft(struct fs *fs, struct draft *d, uint64_t caller, struct space_wait *w,
		  struct published *out);

struct commit {
	uint64_t dir_ino;
	const char *name;
	struct entry *entry;          /* object_id, size and ctime are set by the commit */
	struct object_record *record; /* frames, crc, size, id: complete */
	uint64_t caller;
	uint64_t drop_promise_id;     /* record to delete along, 0: none */
	bool must_sync;
	struct draft *draft;          /* it published; the new object gets one n_open for it; or NULL */
	bool must_be_new;             /* -EEXIST when the name exists */

	/* out */
	uint64_t old_id;              /* the version it replaced, 0: none */
	bool has_replaced;            /* an older one went */
	struct object *object;        /* valid while a draft holds it */
};
/* Under the name's stripe. */
int publish_commit(struct fs *fs, struct commit *c);
/*
 * The same for several names at once, under all their stripes: look finds what a name shows now (*old, the
 * caller's to release; mode 0: nothing) or says why it cannot be replaced (-EISDIR, -EEXIST, -EIO);
 * prepare puts one into the batch, or says why not and leaves the batch as it was (-EIO); finish commits
 * what was prepared, at most PUBLISH_MAX of different names, all or none, and destroys the batch.
 */
#define PUBLISH_MAX 1024
int publish_look(struct fs *fs, struct commit *c, struct entry *old);
int publish_prepare(struct fs *fs, struct commit *c, struct catalog_batch *b);
int publish_finish(struct fs *fs, struct commit *const *commits, size_t n, struct catalog_batch *b);

/* truncate(2) by path: the object's first size bytes (or zeros behind them) become a new version. */
int publish_resized(struct fs *fs, struct inode *i, uint64_t size, uint64_t caller,
		    struct space_wait *w, struct published *out);

#endif
