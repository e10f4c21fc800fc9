/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: removes frames that no object needed when the daemon started, in the background.
 *
 *   waiting (after adopt_all) --sweep_start--> running --> done
 *
 * Which frames go was settled by the scan at start. A frame made since then has another id: the tier
 * numbers above every id that its scan saw and refuses a name that exists, so what a new object got is
 * never among them. It removes SWEEP_BURST frames at a time with a pause between, and stops between two.
 *
 * How it fails: a frame that cannot be removed is logged by the tier and left for the next start.
 * Thread safety: start and stop belong to the thread that starts and ends the daemon.
 */
#ifndef MCFS_SWEEP_H
#define MCFS_SWEEP_H

#include <stdint.h>

struct frame_set;
struct fs;
struct sweep;

/* Takes over what is in the sets, untaken frames of the two tiers. NULL: there are none. */
struct sweep *sweep_create(struct fs *fs, struct frame_set *dram, struct frame_set *ssd);
/* Starts fs->sweep, if there is one. Failing to is logged: the frames stay until the next start. */
void sweep_start(struct fs *fs);
/* Frames that it was given and has not tried yet. */
uint64_t sweep_left(struct fs *fs);
/* Ends the thread within a pause and frees; fs->sweep may be NULL. */
void sweep_stop(struct fs *fs);

#endif
