/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt: makes the tables in memory from the catalog and the frames found on the tiers.
 *
 * An object with its DRAM frame (the daemon restarted, the machine did not) or its SSD frame is adopted;
 * one without either is lost and its name removed. Promises of writers that died with the daemon become
 * objects. Frames that no record names are orphans: those of a killed daemon's DRAM go at once, others are
 * left to object/sweep.h. While records are damaged none goes, since it may be theirs.
 *
 * Both scans are linear, with 8 bytes per frame for the time of the start; frames are not opened or
 * stat'ed one by one. What a million lost objects leave behind is removed in bounded batches.
 */
#ifndef MCFS_ADOPT_H
#define MCFS_ADOPT_H

struct fs;

/* Before the mount; single-threaded. -EIO: the catalog could not be read or written. */
int adopt_all(struct fs *fs);

#endif
