/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: the copies of objects on the tiers, how they come and go.
 *
 * A copy is made in a frame that nobody knows, then recorded: first in the catalog, under the stripes of
 * the names, then in memory. What dies in between is an orphan frame, removed at the next start. Who
 * makes a copy holds the object open throughout; it may be unlinked, replaced or opened meanwhile.
 *
 * Errors: negative errno; the first who knows the cause logs it. Locks: none may be held.
 * Thread safety: all functions.
 */
#ifndef MCFS_COPIES_H
#define MCFS_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mcfs/tier.h"
#include "tier/frame_copy.h"

struct fs;
struct object;

/* Changes recorded at a time. */
#define COPIES_BATCH 32

static inline uint64_t ssd_charge(uint64_t size)
{
	return (size + 4095) & ~4095ull;
}

/* Fills a taken and charged ssd frame with size bytes. */
typedef int (*copies_fill_fn)(struct fs *fs, struct frame *f, uint64_t size, void *arg);
/*
 * A sealed ssd frame, filled by fill, and on the medium if must_sync. Makes room by evicting from the
 * ssd. -ENOSPC: nothing more may go there, or the disk is full; -ECANCELED as fill said; -EIO, ...
 */
int copies_to_ssd(struct fs *fs, uint64_t size, copies_fill_fn fill, void *arg, bool must_sync,
		  uint64_t *frame_out);

/* Argument of copies_fill_fd. */
struct copies_fd {
	int fd;                           /* of the whole frame that is copied */
	uint32_t *crc;                    /* NULL, or one per CATALOG_CRC_CHUNK, out */
	struct frame_copy_limits limits;
	enum frame_copy_side failed;      /* out, on failure */
};
int copies_fill_fd(struct fs *fs, struct frame *f, uint64_t size, void *arg);

struct copy_change {
	struct object *o;       /* held open by the caller */
	bool is_dram;           /* which tier's copy; else the ssd's */
	bool is_synced;         /* ssd: it survives a power failure */
	bool is_recorded;       /* out: done; else the object was gone, or had such a copy already */
	uint64_t frame;         /* the new copy; 0: the old one goes */
	uint64_t charged_bytes; /* dram */
	uint32_t *crc, n_crc;   /* of the copied bytes, for a record that has none yet; may be NULL, 0 */
};
/*
 * Records up to COPIES_BATCH changes as one. Frames that are not needed then (new ones of objects that
 * are gone, and old ones) are dropped here, whatever it returns. must_sync: the catalog's WAL too.
 */
int copies_record(struct fs *fs, struct copy_change *changes, size_t n, bool must_sync);

/* The ssd copy of an object that is held open goes, the object stays in dram. */
int copies_drop_ssd(struct fs *fs, struct object *o);
/*
 * A frame is lost or bad: the object lives on by its copy on the other tier, else its name goes. Nothing
 * happens if the object has another frame there by now. Fails as the catalog does: the copy stays then.
 */
int copies_lose(struct fs *fs, uint64_t object_id, struct tier *t, uint64_t frame);

#endif
