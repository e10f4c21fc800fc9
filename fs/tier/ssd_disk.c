/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_disk: one disk's budget and health; see ssd_disk.h.
 *
 * A default budget follows what is found: nine tenths of the space that is free at start and of what
 * the adopted frames take, or a restart of a full tier would leave it no budget at all.
 *
 * A directory that was unmounted lazily goes on working through our descriptor, and all that is written
 * there is gone with it. So the path is compared with the directory once a second, and after each sync.
 *
 * Lock: lock, over health and budget decisions; statvfs and stat are called without it.
 */
#include "tier/ssd_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define CHECK_EVERY_NS INT64_C(1000000000)
#define GROW_AFTER_NS INT64_C(3000000000)
#define SAY_EVERY_NS INT64_C(60000000000)

static uint64_t nine_tenths(uint64_t bytes)
{
	return bytes / 10 * 9;
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* ---- failure ---- */

static void fail_locked(struct ssd_disk *d, int err, const char *what)
{
	struct tier_stats stats;

	if (ssd_disk_is_failed(d))
		return;
	snprintf(d->failed_reason, sizeof(d->failed_reason), "%s: %s", what, strerror(-err));
	__atomic_store_n(&d->is_failed, true, __ATOMIC_RELEASE);
	frame_dir_get_stats(&d->dir->tier, &stats);
	log_error(
		"ssd: disk %u at %s has failed (%s): its %llu frames are lost; the node goes on without "
		"it until the next start",
		d->identity.number, d->path, d->failed_reason, (unsigned long long)stats.n_sealed);
}

void ssd_disk_fail(struct ssd_disk *d, int err, const char *what)
{
	guard_lock(&d->lock);
	fail_locked(d, err, what);
}

int ssd_disk_note(struct ssd_disk *d, uint64_t frame_id, int rc)
{
	if (!disk_error_is_io(rc))
		return rc;
	if (ssd_disk_is_failed(d))
		return -EIO;
	guard_lock(&d->lock);
	if (disk_health_note(&d->health, frame_id, rc, now_ns()))
		fail_locked(d, rc, disk_error_is_fatal(rc) ? "input or output" : "too many errors");
	return -EIO;
}

bool ssd_disk_is_there(struct ssd_disk *d)
{
	struct stat st;

	if (ssd_disk_is_failed(d))
		return false;
	if (stat(d->path, &st)) {
		ssd_disk_fail(d, -errno, "the directory is gone");
		return false;
	}
	if (st.st_dev != d->dev || st.st_ino != d->ino) {
		ssd_disk_fail(d, -ENODEV, "the directory was unmounted or replaced");
		return false;
	}
	return true;
}

/* ---- budget ---- */

/* What may be had at all: everything but frames that are still written, and most of what is free. */
static int measure_room(struct ssd_disk *d, uint64_t *out)
{
	uint64_t open = __atomic_load_n(&d->open_bytes, __ATOMIC_RELAXED);
	struct tier_stats stats;
	struct statvfs fs;

	if (fstatvfs(d->dir->fd, &fs))
		return -errno;
	if (fs.f_flag & ST_RDONLY)
		return -EROFS;
	bool has_inodes = fs.f_files == 0 || fs.f_favail > 0; /* some file systems do not count */
	frame_dir_get_stats(&d->dir->tier, &stats);
	*out = (stats.used_bytes > open ? stats.used_bytes - open : 0) +
	       (has_inodes ? nine_tenths((uint64_t)fs.f_bavail * fs.f_frsize) : 0);
	return 0;
}

static uint64_t budget_of(struct ssd_disk *d)
{
	struct tier_stats stats;

	frame_dir_get_stats(&d->dir->tier, &stats);
	return stats.budget_bytes;
}

void ssd_disk_shrink(struct ssd_disk *d)
{
	uint64_t room = 0;

	if (ssd_disk_is_failed(d) || measure_room(d, &room))
		return; /* the next check tells what is wrong */
	guard_lock(&d->lock);
	uint64_t budget = budget_of(d);
	if (room >= budget)
		return;
	frame_space_set_budget(d->dir, room);
	int64_t now = now_ns();
	if (budget >= d->wanted_bytes || now - d->resized_at_ns > SAY_EVERY_NS)
		log_warn(
			"ssd: the file system of disk %u at %s is full: budget cut from %llu to %llu "
			"bytes",
			d->identity.number, d->path, (unsigned long long)budget,
			(unsigned long long)room);
	d->resized_at_ns = now;
}

/* Room that came back is used again, a while after the last change. */
static void grow(struct ssd_disk *d)
{
	uint64_t room = 0;
	int rc = measure_room(d, &room);

	if (rc) {
		ssd_disk_fail(d, rc, "the file system");
		return;
	}
	guard_lock(&d->lock);
	uint64_t budget = budget_of(d);
	if (budget >= d->wanted_bytes || now_ns() - d->resized_at_ns < GROW_AFTER_NS ||
	    room <= budget)
		return;
	room = room < d->wanted_bytes ? room : d->wanted_bytes;
	frame_space_set_budget(d->dir, room);
	d->resized_at_ns = now_ns();
	if (room == d->wanted_bytes)
		log_info("ssd: disk %u at %s has its whole budget of %llu bytes again",
			 d->identity.number, d->path, (unsigned long long)room);
}

void ssd_disk_check(struct ssd_disk *d)
{
	pthread_mutex_lock(&d->lock);
	int64_t now = now_ns();
	bool is_due = !ssd_disk_is_failed(d) && now - d->checked_at_ns >= CHECK_EVERY_NS;
	if (is_due)
		d->checked_at_ns = now;
	pthread_mutex_unlock(&d->lock);
	if (is_due && ssd_disk_is_there(d))
		grow(d);
}

void ssd_disk_adopt(struct ssd_disk *d, uint64_t frame_id, uint64_t charged_bytes)
{
	tier_call(d->frames, adopt, frame_id, charged_bytes);
	if (!d->has_default_budget)
		return;
	guard_lock(&d->lock);
	d->wanted_bytes += nine_tenths(charged_bytes);
	frame_space_set_budget(d->dir, budget_of(d) + nine_tenths(charged_bytes));
}

/* ---- lifecycle ---- */

static int default_budget(const char *path, uint32_t n_sharing, uint64_t *out)
{
	struct statvfs fs;

	if (statvfs(path, &fs))
		return -errno;
	*out = nine_tenths((uint64_t)fs.f_bavail * fs.f_frsize / n_sharing);
	return 0;
}

static int open_frames(struct ssd_disk *d, uint64_t budget_bytes, uint32_t n_sharing,
		       struct tier *(*wrap)(struct tier *frames))
{
	int rc = 0;

	d->has_default_budget = budget_bytes == 0;
	if (d->has_default_budget)
		rc = default_budget(d->path, n_sharing, &budget_bytes);
	if (!rc)
		rc = ssd_frames_create(d->path, (uint8_t)d->identity.number, budget_bytes, &d->dir);
	if (rc)
		return rc;
	d->wanted_bytes = budget_bytes;
	d->frames = &d->dir->tier;
	if (!wrap)
		return 0;
	d->frames = wrap(&d->dir->tier);
	if (d->frames)
		return 0;
	tier_call(&d->dir->tier, destroy, false);
	d->dir = NULL;
	return -ENOMEM;
}

int ssd_disk_open(struct ssd_disk *d, const struct disk_place *place, uint64_t budget_bytes,
		  uint32_t n_sharing, struct tier *(*wrap)(struct tier *frames))
{
	*d = (struct ssd_disk){.identity = place->identity,
			       .is_known = place->is_known,
			       .dev = place->dev,
			       .ino = place->ino,
			       .path = strdup(place->path)};
	if (!d->path)
		return -ENOMEM;
	int rc = place->err ? place->err : open_frames(d, budget_bytes, n_sharing, wrap);
	if (rc == -ENOMEM) {
		free(d->path);
		return rc;
	}
	pthread_mutex_init(&d->lock, NULL);
	if (!rc)
		return 0;
	d->is_failed = true;
	snprintf(d->failed_reason, sizeof(d->failed_reason), "%s: %s",
		 place->err ? place->why : "open", strerror(-rc));
	if (!place->err)
		log_error("ssd: %s: %s; the node goes on without this disk", d->path,
			  d->failed_reason);
	return 0;
}

void ssd_disk_close(struct ssd_disk *d, bool removes_frames)
{
	bool removes = removes_frames && !ssd_disk_is_failed(d);

	if (d->frames)
		tier_call(d->frames, destroy, removes);
	if (removes) {
		disk_marker_remove(d->path);
		if (rmdir(d->path) && errno != ENOTEMPTY && errno != EBUSY)
			log_warn("ssd: rmdir %s: %m", d->path);
	}
	pthread_mutex_destroy(&d->lock);
	free(d->path);
}

void ssd_disk_get_stats(struct ssd_disk *d, struct ssd_disk_stats *out)
{
	struct tier_stats stats = {.budget_bytes = 0};

	if (!ssd_disk_is_failed(d))
		frame_dir_get_stats(&d->dir->tier, &stats);
	guard_lock(&d->lock);
	*out = (struct ssd_disk_stats){.path = d->path,
				       .number = d->identity.number,
				       .is_known = d->is_known,
				       .budget_bytes = stats.budget_bytes,
				       .wanted_bytes = d->wanted_bytes,
				       .used_bytes = stats.used_bytes,
				       .n_sealed = stats.n_sealed,
				       .n_errors = d->health.n_errors,
				       .is_failed = ssd_disk_is_failed(d)};
	memcpy(out->id, d->identity.id, sizeof(out->id));
	memcpy(out->failed_reason, d->failed_reason, sizeof(out->failed_reason));
}
