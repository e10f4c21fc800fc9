/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_disk: one disk of the ssd tier: its frames, what it may take, and whether it still works.
 *
 *   working --EROFS, ENODEV, ..., too many errors, directory gone--> failed (until the next start)
 *           --ENOSPC within the budget--> working, with a smaller budget; grows back with the room
 *
 * A failed disk is not touched any more, except to close what is open: its frames are lost, and it
 * counts in no sum.
 *
 * Thread safety: all functions but open and close.
 */
#ifndef MCFS_SSD_DISK_H
#define MCFS_SSD_DISK_H

#include <pthread.h>

#include "tier/disk_health.h"
#include "tier/disk_place.h"
#include "tier/frame_dir.h"

struct ssd_disk {
	struct disk_identity identity;
	bool is_known; /* identity is one */
	bool has_default_budget;
	char *path;
	struct frame_dir *dir; /* NULL: never came to be */
	struct tier *frames;   /* dir, or a fake over it */
	dev_t dev;	       /* of the directory */
	ino_t ino;
	bool is_failed;	     /* atomic; never goes back */
	uint64_t open_bytes; /* atomic: charged to frames that are still written */

	pthread_mutex_t lock; /* guards what follows; the frame_dir's own is taken under it */
	struct disk_health health;
	uint64_t wanted_bytes; /* the budget when the file system has the room */
	int64_t resized_at_ns, checked_at_ns;
	char failed_reason[128];
};

/*
 * The frames of one directory; its tier is destroyed by its own destroy. 0, -ENOMEM, or the errno of
 * opening the directory (logged).
 */
int ssd_frames_create(const char *path, uint8_t number, uint64_t budget_bytes,
		      struct frame_dir **out);

/*
 * budget_bytes 0: nine tenths of what is free, shared with n_sharing - 1 others. A place with an error,
 * and one whose directory cannot be opened, becomes a failed disk. 0 or -ENOMEM.
 */
int ssd_disk_open(struct ssd_disk *d, const struct disk_place *place, uint64_t budget_bytes,
		  uint32_t n_sharing, struct tier *(*wrap)(struct tier *frames));
/* removes_frames: also the marker and the directory, unless the disk has failed. */
void ssd_disk_close(struct ssd_disk *d, bool removes_frames);

static inline bool ssd_disk_is_failed(const struct ssd_disk *d)
{
	return __atomic_load_n(&d->is_failed, __ATOMIC_ACQUIRE);
}

/* Takes the result of an operation on a frame into account, and returns it; -EIO for whatever says that the disk is bad. */
int ssd_disk_note(struct ssd_disk *d, uint64_t frame_id, int rc);
/* err is a negative errno, met by what; once, later calls do nothing. */
void ssd_disk_fail(struct ssd_disk *d, int err, const char *what);
/* The file system is full although the budget was not: the budget becomes what there really is. */
void ssd_disk_shrink(struct ssd_disk *d);
/* Whether the path still leads to the directory; else the disk fails. One stat. */
bool ssd_disk_is_there(struct ssd_disk *d);
/* Looks whether disk and directory are as they were, at most once a second. */
void ssd_disk_check(struct ssd_disk *d);
/* A found frame: counts, and raises a default budget by nine tenths. */
void ssd_disk_adopt(struct ssd_disk *d, uint64_t frame_id, uint64_t charged_bytes);
void ssd_disk_get_stats(struct ssd_disk *d, struct ssd_disk_stats *out);

#endif
