/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space: makes room in the dram tier and in the object table.
 *
 * Order of what goes: replaced versions in their grace time, then objects in the order of
 * object/residency.h (never pinned, open, or keep without a durable copy), then the free list of frames.
 * An object with a copy on the ssd loses its dram frame; one without loses its name, but where eviction
 * spills (ssd= given, writeback=evict or always) it is copied first, by the workers of
 * object/writeback.h, ahead of need. Frames go in the thread that needs the room, and a little more than
 * asked, so that the next writers find recycled ones.
 * When nothing may go, or the workers are behind, the writer waits until its deadline.
 *
 * Locks: none may be held. Thread safety: all functions.
 */
#ifndef MCFS_SPACE_H
#define MCFS_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mcfs/tier.h"

struct fs;
struct object;

/* Who waits, and for how long. */
struct space_wait {
	int64_t deadline_ns;             /* CLOCK_MONOTONIC; 0: do not wait for clients */
	bool (*is_interrupted)(void *arg); /* NULL: cannot be */
	void *arg;
};

/*
 * Called after the dram tier said -ENOSPC for bytes more: 0 when something was freed or may have been
 * (try again), -ENOSPC when the deadline passed, -EINTR when interrupted.
 */
int space_make(struct fs *fs, uint64_t bytes, struct space_wait *w);
/* A frame to write, with room for size_hint_bytes made beforehand by eviction (recycled if possible). */
int space_take_frame(struct fs *fs, uint64_t size_hint_bytes, struct frame *out,
		     struct space_wait *w);
/*
 * Charges a frame of the dram tier for bytes in all, and writes to it, making room as often as that
 * needs. 0, as space_make, or what else the tier said.
 */
int space_charge(struct fs *fs, struct frame *f, uint64_t bytes, struct space_wait *w);
int space_write(struct fs *fs, struct frame *f, const void *buf, size_t len, uint64_t off,
		struct space_wait *w);
/*
 * A frame charged for bytes, for a copy that is worth no loss: only frames of objects that have a copy on
 * the ssd go for it. -ENOSPC at once.
 */
int space_take_spare_frame(struct fs *fs, uint64_t bytes, struct frame *out);
/* Keeps the object table below max_objects before one is added. -ENOSPC: nothing may go. */
int space_make_object(struct fs *fs);
/* Evicts what is above the budget, as far as it may go now: after a start with a smaller one. */
void space_fit_budget(struct fs *fs);
/* Ends grace times that are over. */
void space_expire_replaced(struct fs *fs);
/*
 * Takes the name of an object away because its bytes go or are gone (evicted, expired, lost), after
 * object_begin_evict_locked. Ends the eviction; frees the object when nobody has it open.
 */
int space_remove_object(struct fs *fs, struct object *o);
/*
 * Marks it evicting and removes it if it is still LIVE and nobody else does (else -ENOENT). For lost
 * and expired.
 */
int space_remove_by_id(struct fs *fs, uint64_t object_id);

#endif
