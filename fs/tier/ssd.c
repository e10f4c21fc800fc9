/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd: frames on several disks as one tier.
 *
 * A new frame goes to the working disk with the most room; every other call goes to the disk that the
 * top 8 bits of the frame's id name. What a disk answers is taken into account for its health and its
 * budget (ssd_disk.h) on the way back.
 *
 *   call on a frame of a failed disk     answer
 *   open                                 -ENOENT, is_lost says why
 *   charge, write, sync, seal, ...       -EIO; discard closes the fd
 *   drop, adopt                          nothing: the charge left with the disk
 *
 * Without any working disk take answers -EIO.
 *
 * Thread safety: the disks are fixed from create to destroy; each guards itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "tier/ssd_disk.h"

#define N_NUMBERS (DISK_MAX_NUMBER + 1)

struct ssd_tier {
	struct tier tier;
	uint32_t n_disks;
	struct ssd_disk disks[SSD_MAX_DIRS];
	struct ssd_disk *by_number[N_NUMBERS];
};

static struct ssd_tier *ssd_of(struct tier *t)
{
	return (struct ssd_tier *)t;
}

/* NULL: failed, or not one of this node's directories. */
static struct ssd_disk *working_disk(struct tier *t, uint64_t frame_id)
{
	uint64_t number = frame_id >> FRAME_NUMBER_SHIFT;
	struct ssd_disk *d = number < N_NUMBERS ? ssd_of(t)->by_number[number] : NULL;

	return d && !ssd_disk_is_failed(d) ? d : NULL;
}

/* ---- placement ---- */

static uint64_t room_of(struct ssd_disk *d)
{
	struct tier_stats stats;

	tier_call(d->frames, get_stats, &stats);
	return stats.used_bytes < stats.budget_bytes ? stats.budget_bytes - stats.used_bytes : 0;
}

/* The working disk with the most room that was not tried. NULL: none. */
static struct ssd_disk *pick(struct ssd_tier *ssd, const bool *is_tried)
{
	struct ssd_disk *best = NULL;
	uint64_t best_room = 0;

	for (uint32_t k = 0; k < ssd->n_disks; k++) {
		struct ssd_disk *d = &ssd->disks[k];
		if (is_tried[k] || ssd_disk_is_failed(d))
			continue;
		uint64_t room = room_of(d);
		if (!best || room > best_room) {
			best = d;
			best_room = room;
		}
	}
	return best;
}

static void count_open(struct ssd_disk *d, uint64_t before, uint64_t after)
{
	__atomic_add_fetch(&d->open_bytes, after - before, __ATOMIC_RELAXED);
}

static int take_from(struct ssd_disk *d, uint64_t size_hint_bytes, struct frame *out)
{
	bool has_room = room_of(d) > 0;
	int rc = tier_call(d->frames, take, size_hint_bytes, out);

	if (!rc)
		count_open(d, 0, out->charged_bytes);
	else if (rc == -ENOSPC && has_room)
		ssd_disk_shrink(d);
	return ssd_disk_note(d, 0, rc);
}

static int ssd_take(struct tier *t, uint64_t size_hint_bytes, struct frame *out)
{
	struct ssd_tier *ssd = ssd_of(t);
	bool is_tried[SSD_MAX_DIRS] = {false}, is_full = false;
	struct ssd_disk *d;

	while ((d = pick(ssd, is_tried))) {
		int rc = take_from(d, size_hint_bytes, out);
		if (rc != -ENOSPC && !disk_error_is_io(rc))
			return rc;
		is_full |= rc == -ENOSPC;
		is_tried[d - ssd->disks] = true;
	}
	return is_full ? -ENOSPC : -EIO;
}

/* ---- open frames ---- */

/* Takes a result into account that says no space of the file system's, not the budget's. */
static int note_written(struct ssd_disk *d, const struct frame *f, int rc)
{
	if (rc == -ENOSPC)
		ssd_disk_shrink(d);
	return ssd_disk_note(d, f->id, rc);
}

/* A file that is too short answers -EIO as well: that is the frame's trouble, not the disk's. */
static int note_read(struct ssd_disk *d, const struct frame *f, uint64_t end, int rc)
{
	struct stat st;

	if (rc == -EIO && !fstat(f->fd, &st) && (uint64_t)st.st_size < end)
		return rc;
	return ssd_disk_note(d, f->id, rc);
}

static int ssd_charge(struct tier *t, struct frame *f, uint64_t bytes)
{
	struct ssd_disk *d = working_disk(t, f->id);
	uint64_t before = f->charged_bytes;

	if (!d)
		return -EIO;
	int rc = tier_call(d->frames, charge, f, bytes);
	count_open(d, before, f->charged_bytes);
	return rc;
}

static int ssd_resize(struct tier *t, struct frame *f, uint64_t bytes)
{
	struct ssd_disk *d = working_disk(t, f->id);
	uint64_t before = f->charged_bytes;

	if (!d)
		return -EIO;
	int rc = tier_call(d->frames, resize, f, bytes);
	count_open(d, before, f->charged_bytes);
	return note_written(d, f, rc);
}

static int ssd_write(struct tier *t, struct frame *f, const void *buf, size_t len, uint64_t off)
{
	struct ssd_disk *d = working_disk(t, f->id);

	return d ? note_written(d, f, tier_call(d->frames, write, f, buf, len, off)) : -EIO;
}

static int ssd_read(struct tier *t, struct frame *f, void *buf, size_t len, uint64_t off)
{
	struct ssd_disk *d = working_disk(t, f->id);

	return d ? note_read(d, f, off + len, tier_call(d->frames, read, f, buf, len, off)) : -EIO;
}

static int ssd_zero(struct tier *t, struct frame *f, uint64_t off, uint64_t len)
{
	struct ssd_disk *d = working_disk(t, f->id);

	return d ? note_written(d, f, tier_call(d->frames, zero, f, off, len)) : -EIO;
}

/* What is synced to a directory that nobody can reach any more is not durable. */
static int ssd_sync(struct tier *t, struct frame *f)
{
	struct ssd_disk *d = working_disk(t, f->id);

	if (!d)
		return -EIO;
	int rc = note_written(d, f, tier_call(d->frames, sync, f));
	return rc ? rc : ssd_disk_is_there(d) ? 0 : -EIO;
}

static int ssd_seal(struct tier *t, struct frame *f, uint64_t *charged_out)
{
	struct ssd_disk *d = working_disk(t, f->id);
	uint64_t before = f->charged_bytes;

	if (!d)
		return -EIO;
	int rc = tier_call(d->frames, seal, f, charged_out);
	if (rc)
		return note_read(d, f, f->size_bytes, rc);
	count_open(d, before, 0);
	return 0;
}

static void ssd_discard(struct tier *t, struct frame *f)
{
	struct ssd_disk *d = working_disk(t, f->id);

	if (f->id == 0)
		return;
	if (d) {
		count_open(d, f->charged_bytes, 0);
		tier_call(d->frames, discard, f);
		return;
	}
	close(f->fd);
	*f = FRAME_NONE;
}

/* ---- sealed frames ---- */

static int ssd_open(struct tier *t, uint64_t frame_id)
{
	struct ssd_disk *d = working_disk(t, frame_id);

	return d ? ssd_disk_note(d, frame_id, tier_call(d->frames, open, frame_id)) : -ENOENT;
}

static void ssd_drop(struct tier *t, uint64_t frame_id, uint64_t size_bytes, uint64_t charged_bytes)
{
	struct ssd_disk *d = working_disk(t, frame_id);

	if (d)
		tier_call(d->frames, drop, frame_id, size_bytes, charged_bytes);
}

static bool ssd_is_lost(struct tier *t, uint64_t frame_id)
{
	return !working_disk(t, frame_id);
}

static bool ssd_may_return(struct tier *t, uint64_t frame_id)
{
	uint64_t number = frame_id >> FRAME_NUMBER_SHIFT;
	struct ssd_disk *d = number < N_NUMBERS ? ssd_of(t)->by_number[number] : NULL;

	return d && ssd_disk_is_failed(d);
}

static int ssd_report_error(struct tier *t, uint64_t frame_id, int err)
{
	struct ssd_disk *d = working_disk(t, frame_id);

	if (d && err == -ENOSPC)
		ssd_disk_shrink(d);
	if (d)
		return ssd_disk_note(d, frame_id, err);
	return disk_error_is_io(err) ? -EIO : err;
}

/* ---- start ---- */

struct scan {
	tier_scan_fn fn;
	void *arg;
	int stopped_by; /* what fn returned */
};

static int scan_one(void *arg, uint64_t frame_id)
{
	struct scan *scan = arg;

	return scan->stopped_by = scan->fn(scan->arg, frame_id);
}

/* A disk that cannot be listed costs its own frames only. */
static int ssd_scan(struct tier *t, tier_scan_fn fn, void *arg)
{
	struct ssd_tier *ssd = ssd_of(t);
	struct scan scan = {.fn = fn, .arg = arg};

	for (uint32_t k = 0; k < ssd->n_disks; k++) {
		struct ssd_disk *d = &ssd->disks[k];
		if (ssd_disk_is_failed(d))
			continue;
		int rc = tier_call(d->frames, scan, scan_one, &scan);
		if (scan.stopped_by)
			return scan.stopped_by;
		if (rc)
			ssd_disk_fail(d, rc, "list its frames");
	}
	return 0;
}

static void ssd_adopt(struct tier *t, uint64_t frame_id, uint64_t charged_bytes)
{
	struct ssd_disk *d = working_disk(t, frame_id);

	if (d)
		ssd_disk_adopt(d, frame_id, charged_bytes);
}

static int ssd_remove_orphan(struct tier *t, uint64_t frame_id)
{
	struct ssd_disk *d = working_disk(t, frame_id);

	return d ? ssd_disk_note(d, frame_id, tier_call(d->frames, remove_orphan, frame_id)) : -EIO;
}

/* ---- upkeep ---- */

static uint64_t ssd_reclaim(struct tier *t, uint64_t keep_bytes)
{
	struct ssd_tier *ssd = ssd_of(t);
	uint64_t given_back = 0;

	for (uint32_t k = 0; k < ssd->n_disks; k++) {
		struct ssd_disk *d = &ssd->disks[k];
		ssd_disk_check(d);
		if (!ssd_disk_is_failed(d))
			given_back += tier_call(d->frames, reclaim, keep_bytes);
	}
	return given_back;
}

static void add_stats(struct tier_stats *sum, const struct tier_stats *s)
{
	sum->budget_bytes += s->budget_bytes;
	sum->used_bytes += s->used_bytes;
	sum->free_list_bytes += s->free_list_bytes;
	sum->zombie_bytes += s->zombie_bytes;
	sum->n_sealed += s->n_sealed;
	sum->n_open += s->n_open;
	sum->n_free_list += s->n_free_list;
	sum->n_zombies += s->n_zombies;
	sum->n_recycled += s->n_recycled;
	sum->n_created += s->n_created;
	sum->high_watermark_bytes += s->high_watermark_bytes;
	sum->low_watermark_bytes += s->low_watermark_bytes;
}

static void ssd_get_stats(struct tier *t, struct tier_stats *out)
{
	struct ssd_tier *ssd = ssd_of(t);
	struct tier_stats sum = {.n_disks = ssd->n_disks}, stats;

	for (uint32_t k = 0; k < ssd->n_disks; k++) {
		if (ssd_disk_is_failed(&ssd->disks[k])) {
			sum.n_failed_disks++;
			continue;
		}
		tier_call(ssd->disks[k].frames, get_stats, &stats);
		add_stats(&sum, &stats);
	}
	*out = sum;
}

int ssd_get_disk_stats(struct tier *t, uint32_t index, struct ssd_disk_stats *out)
{
	struct ssd_tier *ssd = ssd_of(t);

	if (index >= ssd->n_disks)
		return -ENOENT;
	ssd_disk_get_stats(&ssd->disks[index], out);
	return 0;
}

/* ---- lifecycle ---- */

static void ssd_destroy(struct tier *t, bool removes_frames)
{
	struct ssd_tier *ssd = ssd_of(t);

	for (uint32_t k = 0; k < ssd->n_disks; k++)
		ssd_disk_close(&ssd->disks[k], removes_frames);
	free(ssd);
}

static const struct tier_ops ssd_ops = {
	.name = "ssd",
	.take = ssd_take,
	.charge = ssd_charge,
	.resize = ssd_resize,
	.write = ssd_write,
	.read = ssd_read,
	.zero = ssd_zero,
	.sync = ssd_sync,
	.seal = ssd_seal,
	.discard = ssd_discard,
	.open = ssd_open,
	.is_lost = ssd_is_lost,
	.may_return = ssd_may_return,
	.report_error = ssd_report_error,
	.drop = ssd_drop,
	.scan = ssd_scan,
	.adopt = ssd_adopt,
	.remove_orphan = ssd_remove_orphan,
	.reclaim = ssd_reclaim,
	.get_stats = ssd_get_stats,
	.destroy = ssd_destroy,
};

/* Directories on one file system share what is free there. */
static uint32_t count_sharing(const struct ssd_conf *conf, const struct disk_place *places,
			      uint32_t k)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < conf->n_dirs; j++)
		n += !places[j].err && !conf->dirs[j].budget_bytes &&
		     places[j].dev == places[k].dev;
	return n ? n : 1;
}

int ssd_tier_create(const struct ssd_conf *conf, struct tier **out)
{
	struct disk_place places[SSD_MAX_DIRS];
	uint32_t n_failed = 0;
	int rc = disk_places_find(conf, places);
	struct ssd_tier *ssd = rc ? NULL : calloc(1, sizeof(*ssd));

	if (!ssd)
		return rc ? rc : -ENOMEM;
	ssd->tier.ops = &ssd_ops;
	for (uint32_t k = 0; k < conf->n_dirs; k++) {
		struct ssd_disk *d = &ssd->disks[k];
		rc = ssd_disk_open(d, &places[k], conf->dirs[k].budget_bytes,
				   count_sharing(conf, places, k), conf->wrap);
		if (rc) {
			ssd_destroy(&ssd->tier, false);
			return rc;
		}
		ssd->n_disks++;
		n_failed += ssd_disk_is_failed(d);
		if (d->is_known)
			ssd->by_number[d->identity.number] = d;
	}
	if (n_failed == ssd->n_disks)
		log_error("ssd: no disk is left; until one is, durable copies fail with EIO");
	*out = &ssd->tier;
	return 0;
}
