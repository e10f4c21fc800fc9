/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd: frames in a directory on a disk, the durable copies that fsync and class keep make.
 *
 * Differs from dram in three ways. Frames fan out over directories, for file systems that slow down
 * with very many names in one. Dropped frames are not recycled: after a power failure the disk may
 * hold new bytes in an old frame while the record that says so is lost; a file that is never written
 * twice cannot lie, and next to the sync of a frame making one is cheap. And sync means it.
 *
 * A default budget follows what is found: nine tenths of the space that is free at start and of what
 * the adopted frames take, or a restart of a full tier would leave it no budget at all.
 *
 * Failure: an I/O error is the frame's alone; the caller decides what it means for the disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/frame_dir.h"

struct ssd_tier {
	struct frame_dir dir;
	bool has_default_budget;
};

static uint64_t nine_tenths(uint64_t bytes)
{
	return bytes / 10 * 9;
}

static int ssd_sync(struct tier *t, struct frame *f)
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

static void ssd_adopt(struct tier *t, uint64_t frame_id, uint64_t charged_bytes)
{
	struct ssd_tier *ssd = (struct ssd_tier *)t;

	frame_dir_adopt(t, frame_id, charged_bytes);
	if (ssd->has_default_budget) {
		guard_lock(&ssd->dir.space_lock);
		ssd->dir.space.budget_bytes += nine_tenths(charged_bytes);
	}
}

static void ssd_destroy(struct tier *t, bool removes_frames)
{
	struct ssd_tier *ssd = (struct ssd_tier *)t;
	autofree char *path = strdup(ssd->dir.conf.path);

	frame_dir_fini(&ssd->dir, removes_frames);
	if (removes_frames && path && rmdir(path) && errno != ENOTEMPTY && errno != EBUSY)
		log_warn("ssd: rmdir %s: %m", path);
	free(ssd);
}

static const struct tier_ops ssd_ops = {
	.name = "ssd",
	FRAME_DIR_OPS,
	.adopt = ssd_adopt,
	.sync = ssd_sync,
	.destroy = ssd_destroy,
};

static int free_bytes(const char *path, uint64_t *out)
{
	struct statvfs st;

	if (statvfs(path, &st)) {
		int err = errno;
		log_error("ssd: statvfs %s: %m", path);
		return -err;
	}
	*out = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

int ssd_tier_create(const struct ssd_conf *conf, struct tier **out)
{
	struct frame_dir_conf dir_conf = {
		.name = "ssd",
		.path = conf->path,
		.budget_bytes = conf->budget_bytes,
		.has_fan_out = true,
		.is_durable = true,
	};
	uint64_t n_free = 0;
	int rc;

	if (mkdir(conf->path, 0700) && errno != EEXIST) {
		rc = -errno;
		log_error("ssd: mkdir %s: %m", conf->path);
		return rc;
	}
	if (conf->budget_bytes == 0) {
		rc = free_bytes(conf->path, &n_free);
		if (rc)
			return rc;
		dir_conf.budget_bytes = nine_tenths(n_free);
	}
	struct ssd_tier *ssd = calloc(1, sizeof(*ssd));
	if (!ssd)
		return -ENOMEM;
	ssd->has_default_budget = conf->budget_bytes == 0;
	rc = frame_dir_init(&ssd->dir, &ssd_ops, &dir_conf);
	if (rc) {
		free(ssd);
		return rc;
	}
	*out = &ssd->dir.tier;
	return 0;
}
