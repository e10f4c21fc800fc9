/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_box: a tier of any kind in a temporary directory, so that one test body runs over all kinds.
 * Thread safety: none. One box per process (a plain directory needs the process to drop its rights).
 */
#ifndef MCFS_TIER_BOX_H
#define MCFS_TIER_BOX_H

#include <mcfs/tier.h>
#include <sys/stat.h>

enum tier_kind {
	TIER_PLAIN_DIR,
	TIER_TMPFS,
	TIER_SSD,
	TIER_FAULT,
	N_TIER_KINDS
};

struct tier_box {
	enum tier_kind kind;
	uint64_t budget_bytes;
	uint64_t overhead_bytes; /* charged for each frame besides its pages */
	bool recycles, grows_ahead;
	char top[64];  /* temporary directory */
	char path[80]; /* of the tier, below it */
	struct tier *t;
};

/* NULL, or why this kind cannot run here. */
const char *tier_box_open(struct tier_box *box, enum tier_kind kind, uint64_t budget_bytes);
/* Ends the tier without freeing its frames and makes it again, as a daemon's restart does. */
void tier_box_reopen(struct tier_box *box);
/* Ends the tier with its frames and removes the directory. */
void tier_box_close(struct tier_box *box);

struct tier_stats tier_box_stats(struct tier_box *box);
/* Path of a frame's file, in a static buffer. */
const char *tier_box_frame_path(struct tier_box *box, uint64_t frame_id);

#endif
