/* SPDX-License-Identifier: Apache-2.0 */
#include "object/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/space.h"
#include "object/ssd_space.h"
#include "object/verify.h"

/* Rounds of making room for one copy, for a disk that stays full whatever goes. */
#define MAX_ROUNDS 64

/* ---- making a copy on the ssd ---- */

int copies_fill_fd(struct fs *fs, struct frame *f, uint64_t size, void *arg)
{
	struct copies_fd *c = arg;

	c->limits.failed_out = &c->failed;
	c->failed = FRAME_COPY_NONE;
	int rc = frame_copy(f->fd, c->fd, size, c->crc, &c->limits);
	if (!rc)
		f->size_bytes = size;
	else if (c->failed == FRAME_COPY_DST)
		rc = tier_call(fs->ssd, report_error, f->id, rc);
	return rc;
}

static int try_copy(struct fs *fs, uint64_t size, copies_fill_fn fill, void *arg, bool must_sync,
		    uint64_t *frame_out)
{
	struct frame f = FRAME_NONE;
	uint64_t charged;
	int rc = tier_call(fs->ssd, take, size, &f);

	if (!rc)
		rc = tier_call(fs->ssd, charge, &f, ssd_charge(size));
	if (!rc)
		rc = fill(fs, &f, size, arg);
	if (!rc && must_sync)
		rc = tier_call(fs->ssd, sync, &f);
	uint64_t id = f.id;
	if (!rc) {
		verify_stamp(f.fd, id);
		rc = tier_call(fs->ssd, seal, &f, &charged);
	}
	if (!rc)
		*frame_out = id;
	else if (f.id)
		tier_call(fs->ssd, discard, &f);
	return rc;
}

/* A disk's error: the next frame may be on another one. */
static bool has_another_disk(struct fs *fs, int rc, uint32_t n_errors)
{
	struct tier_stats s;

	if (rc != -EIO)
		return false;
	tier_call(fs->ssd, get_stats, &s);
	return n_errors < s.n_disks;
}

/* A full file system took its disk's budget down; another disk may take the copy without anything going. */
static bool has_room(struct fs *fs, uint64_t bytes)
{
	struct tier_stats s;

	tier_call(fs->ssd, get_stats, &s);
	return s.n_disks - s.n_failed_disks > 1 && s.used_bytes + bytes <= s.budget_bytes;
}

int copies_to_ssd(struct fs *fs, uint64_t size, copies_fill_fn fill, void *arg, bool must_sync,
		  uint64_t *frame_out)
{
	uint32_t n_errors = 0;
	int rc;

	for (int n = 0; n < MAX_ROUNDS; n++) {
		rc = try_copy(fs, size, fill, arg, must_sync, frame_out);
		if (rc == -ENOSPC && !n && has_room(fs, ssd_charge(size)))
			continue;
		if (rc == -ENOSPC ? ssd_space_make(fs, ssd_charge(size)) != 0 :
				    !has_another_disk(fs, rc, ++n_errors))
			break;
	}
	if (rc && rc != -ECANCELED) {
		errno = -rc;
		log_warn("durable copy of %llu bytes failed: %m", (unsigned long long)size);
	}
	return rc;
}

/* ---- recording ---- */

struct recording {
	struct fs *fs;
	struct copy_change *changes;
	size_t n;
	struct object_record records[COPIES_BATCH];
	bool has_record[COPIES_BATCH]; /* read under its name's stripe: to be written */
	uint64_t left[COPIES_BATCH];   /* frames that nobody needs */
	pthread_mutex_t *stripes[COPIES_BATCH];
	size_t n_stripes;
};

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)*(pthread_mutex_t *const *)a;
	uintptr_t y = (uintptr_t)*(pthread_mutex_t *const *)b;

	return x < y ? -1 : x > y;
}

/* Where the names are now; a change whose record is gone is done. */
static void read_names(struct recording *r, bool *is_open)
{
	for (size_t k = 0; k < r->n; k++) {
		r->has_record[k] = false;
		if (is_open[k])
			r->has_record[k] = !catalog_object_get(r->fs->catalog, r->changes[k].o->id,
							       &r->records[k]);
		is_open[k] = r->has_record[k];
	}
}

static void lock_names(struct recording *r)
{
	pthread_mutex_t *all[COPIES_BATCH] = { NULL };
	size_t n = 0;

	for (size_t k = 0; k < r->n; k++)
		if (r->has_record[k])
			all[n++] = ns_stripe(r->fs, r->records[k].parent, r->records[k].name);
	qsort(all, n, sizeof(*all), by_address);
	r->n_stripes = 0;
	for (size_t k = 0; k < n; k++)
		if (!k || all[k] != all[k - 1])
			r->stripes[r->n_stripes++] = all[k];
	for (size_t k = 0; k < r->n_stripes; k++)
		pthread_mutex_lock(r->stripes[k]);
}

static void unlock_names(struct recording *r)
{
	for (size_t k = 0; k < r->n_stripes; k++)
		pthread_mutex_unlock(r->stripes[k]);
}

/* Renamed since read_names: it stays open for another pass. True: the record is the one to write. */
static bool read_again(struct recording *r, size_t k, bool *is_open)
{
	struct object_record before = r->records[k];
	int rc = catalog_object_get(r->fs->catalog, r->changes[k].o->id, &r->records[k]);
	bool is_same = !rc && r->records[k].parent == before.parent &&
		       !strcmp(r->records[k].name, before.name);

	if (!rc && !is_same)
		object_record_fini(&r->records[k]);
	object_record_fini(&before);
	*is_open = !rc && !is_same;
	return is_same;
}

static void change_record(struct object_record *rec, const struct copy_change *c)
{
	if (c->is_dram) {
		rec->dram_frame = c->frame;
		rec->charged_bytes = c->charged_bytes;
	} else {
		rec->ssd_frame = c->frame;
	}
	if (!rec->n_crc && c->n_crc && (rec->crc = malloc(c->n_crc * sizeof(*rec->crc)))) {
		memcpy(rec->crc, c->crc, c->n_crc * sizeof(*rec->crc));
		rec->n_crc = c->n_crc;
	}
}

/* Stripes held: what of the changes is still wanted goes into one batch. */
static int write_records(struct recording *r, bool *is_open, bool must_sync)
{
	struct catalog_batch *b = catalog_batch_create(r->fs->catalog);
	size_t n = 0;

	for (size_t k = 0; k < r->n; k++) {
		struct copy_change *c = &r->changes[k];
		if (!r->has_record[k])
			continue;
		r->has_record[k] = read_again(r, k, &is_open[k]);
		if (!r->has_record[k])
			continue;
		bool has_copy = c->is_dram ? c->o->dram_frame : c->o->ssd_frame;
		if (has_copy == (c->frame != 0)) {
			object_record_fini(&r->records[k]);
			r->has_record[k] = false;
			continue;
		}
		change_record(&r->records[k], c);
		catalog_batch_put_object(b, &r->records[k]);
		object_record_fini(&r->records[k]);
		n++;
	}
	if (!n) {
		catalog_batch_destroy(b);
		return 0;
	}
	return catalog_batch_commit(b, must_sync);
}

static void change_memory_locked(struct fs *fs, struct copy_change *c, uint64_t *left)
{
	struct object *o = c->o;

	if (c->is_dram) {
		*left = o->dram_frame;
		o->charged_bytes = c->charged_bytes;
		object_set_frames_locked(fs, o, c->frame, o->ssd_frame);
	} else {
		*left = o->ssd_frame;
		o->is_ssd_checked = c->frame != 0;
		o->is_ssd_synced = c->frame && c->is_synced;
		object_set_frames_locked(fs, o, o->dram_frame, c->frame);
	}
	c->is_recorded = true;
}

static int record_pass(struct recording *r, bool *is_open, bool must_sync)
{
	read_names(r, is_open);
	lock_names(r);
	int rc = write_records(r, is_open, must_sync);
	pthread_mutex_lock(&r->fs->lock);
	for (size_t k = 0; !rc && k < r->n; k++)
		if (r->has_record[k])
			change_memory_locked(r->fs, &r->changes[k], &r->left[k]);
	pthread_cond_broadcast(&r->fs->changed);
	pthread_mutex_unlock(&r->fs->lock);
	unlock_names(r);
	return rc;
}

static bool any(const bool *v, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (v[k])
			return true;
	return false;
}

int copies_record(struct fs *fs, struct copy_change *changes, size_t n, bool must_sync)
{
	struct recording *r = xcalloc(1, sizeof(*r));
	bool is_open[COPIES_BATCH] = { false };
	int rc = 0;

	*r = (struct recording){ .fs = fs, .changes = changes, .n = n };
	for (size_t k = 0; k < n; k++) {
		is_open[k] = true;
		changes[k].is_recorded = false;
		r->left[k] = changes[k].frame;
	}
	while (!rc && any(is_open, n))
		rc = record_pass(r, is_open, must_sync);
	if (rc)
		counter_inc(catalog_errors);
	for (size_t k = 0; k < n; k++) {
		struct copy_change *c = &changes[k];
		if (r->left[k] && c->is_dram)
			tier_call(fs->dram, drop, r->left[k], c->o->size, c->charged_bytes);
		else if (r->left[k])
			tier_call(fs->ssd, drop, r->left[k], c->o->size, ssd_charge(c->o->size));
	}
	free(r);
	return rc;
}

/* ---- losing one ---- */

static void close_unused_backing(struct fs *fs, struct object *o)
{
	pthread_mutex_lock(&fs->lock);
	int32_t id = object_renew_backing_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (id)
		fs->close_backing(fs, id);
}

int copies_drop_ssd(struct fs *fs, struct object *o)
{
	struct copy_change c = { .o = o };

	close_unused_backing(fs, o);
	return copies_record(fs, &c, 1, false);
}

static void drop_dram(struct fs *fs, struct object *o, uint64_t frame)
{
	close_unused_backing(fs, o);
	pthread_mutex_lock(&fs->lock);
	bool is_mine = o->dram_frame == frame && o->state == OBJECT_LIVE;
	uint64_t charged = o->charged_bytes;
	if (is_mine) {
		object_set_frames_locked(fs, o, 0, o->ssd_frame);
		o->charged_bytes = 0;
	}
	pthread_mutex_unlock(&fs->lock);
	if (is_mine)
		tier_call(fs->dram, drop, frame, o->size, charged);
}

int copies_lose(struct fs *fs, uint64_t object_id, struct tier *t, uint64_t frame)
{
	bool is_dram = t == fs->dram;
	int rc = 0;

	pthread_mutex_lock(&fs->lock);
	struct object *o = object_find_locked(fs, object_id);
	bool is_it = o && o->state == OBJECT_LIVE && !o->is_evicting &&
		     (is_dram ? o->dram_frame : o->ssd_frame) == frame;
	bool has_other = is_it && (is_dram ? o->ssd_frame : o->dram_frame);
	if (has_other)
		object_open_locked(o);
	else if (is_it)
		object_begin_evict_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (!is_it)
		return 0;
	if (!has_other)
		return space_remove_object(fs, o);
	if (is_dram)
		drop_dram(fs, o, frame);
	else
		rc = copies_drop_ssd(fs, o);
	object_close(fs, o);
	return rc;
}
