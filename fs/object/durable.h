/* SPDX-License-Identifier: Apache-2.0 */
/*
 * durable: copies on the ssd tier, and the promises that fsync makes.
 *
 * fsync of a draft stores a snapshot of its bytes and a promise record. The promise is kept (published)
 * when the writer is killed or the daemon dies, forgotten when the draft publishes or is unlinked.
 * fsync of an object, and every publish of class keep, stores a copy (or syncs the one that a worker made)
 * and the catalog's WAL.
 * Errors: negative errno (-ENOSPC ssd budget or disk, -EIO). Locks: none may be held except where said.
 */
#ifndef MCFS_DURABLE_H
#define MCFS_DURABLE_H

#include <stdint.h>

struct fs;
struct draft;
struct draft_list;
struct inode;
struct object;
struct published;

/* Copies size bytes of fd to a synced ssd frame. */
int durable_copy_fd(struct fs *fs, int fd, uint64_t size, uint64_t *frame_out);
/* The object behind i is on the ssd and in the synced catalog when it returns 0. */
int durable_object(struct fs *fs, struct object *o);
/* Snapshot and promise of a draft (a clean one: durable_object of what it published). */
int durable_draft(struct fs *fs, struct draft *d);
/* The draft is being dropped without a publish. */
void durable_forget_promise(struct fs *fs, struct draft *d);
/* The drafts have new names, or none: their promises follow, or are forgotten. Empties the list. */
void durable_follow_names(struct fs *fs, struct draft_list *l);
/* The writer was killed: what it fsynced is published. */
int durable_keep_promise(struct fs *fs, struct draft *d, struct published *out);

#endif
