/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_frames: the frames in one directory of a disk.
 *
 * Differs from dram in three ways. Frames fan out over directories, for file systems that slow down
 * with very many names in one. Dropped frames are not recycled: after a power failure the disk may
 * hold new bytes in an old frame while the record that says so is lost; a file that is never written
 * twice cannot lie, and next to the sync of a frame making one is cheap. And sync means it.
 *
 * Failure: an I/O error is the frame's alone; ssd_disk decides what it means for the disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/ssd_disk.h"

static int ssd_frames_sync(struct tier *t, struct frame *f)
{
	struct frame_dir *d = frame_dir_of(t);

	if (fdatasync(f->fd)) {
		int err = errno;
		log_error("ssd: fdatasync frame %016llx in %s: %m", (unsigned long long)f->id,
			  d->conf.path);
		return -err;
	}
	if (f->is_name_synced)
		return 0;
	int rc = frame_name_sync(d, f->id);
	if (!rc)
		f->is_name_synced = true;
	return rc;
}

static void ssd_frames_destroy(struct tier *t, bool removes_frames)
{
	struct frame_dir *d = frame_dir_of(t);

	frame_dir_fini(d, removes_frames);
	free(d);
}

static const struct tier_ops ssd_frames_ops = {
	.name = "ssd",
	FRAME_DIR_OPS,
	.adopt = frame_dir_adopt,
	.sync = ssd_frames_sync,
	.destroy = ssd_frames_destroy,
};

int ssd_frames_create(const char *path, uint8_t number, uint64_t budget_bytes,
		      struct frame_dir **out)
{
	const struct frame_dir_conf conf = {
		.name = "ssd",
		.path = path,
		.number = number,
		.budget_bytes = budget_bytes,
		.has_fan_out = true,
		.is_durable = true,
	};
	struct frame_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	int rc = frame_dir_init(d, &ssd_frames_ops, &conf);
	if (rc) {
		free(d);
		return rc;
	}
	*out = d;
	return 0;
}
