/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writeback: the workers that copy objects between the tiers in the background.
 *
 * In this order of importance: what eviction will take next (spilled ahead of need, so that writers find
 * frames that may go at once), what is queued for a copy on the ssd, what is queued for dram. Records are
 * written in batches. Class keep is synced, a copy of class cache is not: it survives a dead daemon, not
 * a power failure, until an fsync asks for it. writeback_rate= bounds the bytes per second.
 *
 * A copy that fails for good leaves the object without one (it is dropped when its turn comes); one that
 * lacks memory or descriptors is tried again.
 *
 * Locks: none may be held, except where said. Thread safety: start, stop and drain belong to one thread.
 */
#ifndef MCFS_WRITEBACK_H
#define MCFS_WRITEBACK_H

#include <signal.h>
#include <stdbool.h>

#include "object/copies.h"

struct fs;
struct object;
struct tier_stats;

/* How long writeback_drain may take. */
#define WRITEBACK_DRAIN_MAX_S 600

/* 0, or a negative errno: a thread cannot be made (logged). */
int writeback_start(struct fs *fs);
/* Ends the workers; copies under way are given up, queues stay. Also without a start. */
void writeback_stop(struct fs *fs);
/* New bytes went into dram: wakes a worker if its fill asks for it. */
void writeback_kick(struct fs *fs, const struct tier_stats *dram);
/*
 * After writeback_stop: finishes the queue of copies, and with saves_dram also copies all that is in dram
 * alone, unless writeback=second. Progress goes to the log every second. Ends early when *is_cancelled
 * becomes non-zero or after WRITEBACK_DRAIN_MAX_S, and says what is not on the disk then.
 */
void writeback_drain(struct fs *fs, bool saves_dram, const volatile sig_atomic_t *is_cancelled);

/* ---- one copy, for the workers (promote.c) ---- */

/*
 * Copies an object of the ssd, which is held open, to a dram frame and checks it. 0: *c is to be
 * recorded; -ENOSPC: no room without a loss; -ENOENT: the ssd copy is bad (reported).
 */
int promote_copy(struct fs *fs, struct object *o, struct copies_fd *source, struct copy_change *c);

#endif
