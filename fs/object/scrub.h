/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub: reads every ssd frame again and compares it with the checksums of its object's record.
 *
 *   idle --start--> running --> finished | stopped (asked to, or the daemon ends) | failed (the catalog)
 *
 * It walks the records in the order of their ids, as they are when it comes to them, so what is published
 * meanwhile is checked and what goes meanwhile is not missed. Bytes come from the disk, not from the page
 * cache, and do not stay in it. A bad copy is given up as object/verify.h says: the object lives on by its
 * other copy, else its name goes. A start while it runs is -EBUSY.
 *
 * Thread safety: all functions; create and destroy belong to the thread that starts and ends the daemon.
 */
#ifndef MCFS_SCRUB_H
#define MCFS_SCRUB_H

#include <stdint.h>

struct fs;
struct scrub;

enum scrub_state { SCRUB_IDLE, SCRUB_RUNNING, SCRUB_FINISHED, SCRUB_STOPPED, SCRUB_FAILED };

struct scrub_status {
	enum scrub_state state;
	int64_t started_s;		  /* since 1970; 0: never */
	uint64_t elapsed_ms;
	uint64_t rate_bytes;		  /* a second; 0: as fast as the disk gives them */
	uint64_t n_frames;		  /* frames there were on the tier at its start */
	uint64_t n_checked, bytes_checked;
	uint64_t n_bad;			  /* given up: wrong, short, missing or unreadable */
	uint64_t n_without_checksum;	  /* their size alone was checked */
};

struct scrub *scrub_create(struct fs *fs);
/* NULL is fine. Ends a running one within the read of a megabyte. */
void scrub_destroy(struct scrub *s);

/* 0, -EBUSY, or the errno of making a thread. */
int scrub_start(struct scrub *s, uint64_t rate_bytes);
/* Returns at once; the status says when it has stopped. */
void scrub_stop(struct scrub *s);
void scrub_get_status(struct scrub *s, struct scrub_status *out);
/* "idle", "running", ... */
const char *scrub_state_name(enum scrub_state state);

#endif
