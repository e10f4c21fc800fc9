/* SPDX-License-Identifier: Apache-2.0 */
#include "object/space.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/residency.h"
#include "object/writeback.h"
#include "options.h"

/* Eviction frees this part of the budget beyond what is asked: the distance between the watermarks. */
#define WATERMARK_DIVISOR 128
/* Between LOOKUP and OPEN of one path walk. */
#define FRESH_NS (100ll * 1000 * 1000)
/* More than the tier's share of a frame. */
#define SPARE_EXTRA_BYTES 8192
/* An interrupt is noticed within this time. */
#define WAIT_SLICE_NS (20ll * 1000 * 1000)

/* ---- what goes ---- */

/* What an eviction may cost. */
enum evict_cost {
	EVICT_COPIES, /* frames of objects that have a copy on the ssd */
	EVICT_ANY,    /* and names, where eviction does not spill */
	EVICT_LAST    /* and versions replaced just now, which an open may be on its way to */
};

/* fs->lock held. NULL: everything left is open, gone, or needs a copy first. */
static struct object *pick_victim(struct fs *fs, enum evict_cost cost)
{
	struct residency *r = fs->residency;
	struct object *o = residency_pick_locked(fs, r->reserve);

	if (!o)
		o = residency_pick_locked(fs, r->dram);
	if (o && (!residency_may_go_locked(fs, o) || (cost == EVICT_COPIES && !o->ssd_frame)))
		o = NULL;
	if (o)
		residency_note_age_locked(fs, &r->dram_age, o);
	return o;
}

/* fs->lock held. The durable copy goes on serving it. */
static int32_t leave_dram_locked(struct fs *fs, struct object *o)
{
	object_set_frames_locked(fs, o, 0, o->ssd_frame);
	o->charged_bytes = 0;
	o->was_used = false;
	return object_take_backing_locked(fs, o);
}

static uint64_t evict_object(struct fs *fs, struct object *o, uint64_t charged)
{
	if (space_remove_object(fs, o))
		return 0;
	counter_inc(evicted_names);
	return charged ? charged : 1;
}

/* Bytes that left the budget or became recyclable; 0: nothing may go. */
static uint64_t evict_one(struct fs *fs, enum evict_cost cost)
{
	bool must_free = false;
	int32_t backing_id = 0;

	pthread_mutex_lock(&fs->lock);
	struct object *replaced = object_grace_pop_locked(fs, now_mono_ns() - FRESH_NS, &must_free);
	struct object *o = replaced ? NULL : pick_victim(fs, cost);
	if (!replaced && !o && cost == EVICT_LAST)
		replaced = object_grace_pop_locked(fs, INT64_MAX, &must_free);
	uint64_t charged = replaced ? replaced->charged_bytes : o ? o->charged_bytes : 0;
	uint64_t dram_frame = o ? o->dram_frame : 0, size = o ? o->size : 0;
	bool has_copy = o && o->ssd_frame;
	if (has_copy)
		backing_id = leave_dram_locked(fs, o);
	else if (o)
		object_begin_evict_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (replaced && must_free)
		object_free_unlocked(fs, replaced);
	if (replaced)
		return charged ? charged : 1;
	if (!o)
		return 0;
	if (backing_id)
		fs->close_backing(fs, backing_id);
	if (has_copy)
		tier_call(fs->dram, drop, dram_frame, size, charged);
	else if (!evict_object(fs, o, charged))
		return 0;
	counter_inc(evictions);
	counter_add(evicted_bytes, size);
	return charged ? charged : 1;
}

static uint64_t evict(struct fs *fs, uint64_t bytes, enum evict_cost cost)
{
	uint64_t freed = 0;

	while (freed < bytes) {
		uint64_t one = evict_one(fs, cost);
		if (!one)
			break;
		freed += one;
	}
	return freed;
}

static uint64_t low_watermark(uint64_t bytes, uint64_t budget)
{
	return bytes + budget / WATERMARK_DIVISOR;
}

/* ---- waiting ---- */

/* One slice of a wait for space; whether for the workers' copies. */
static void wait_slice(struct fs *fs, uint64_t bytes, int64_t until_ns)
{
	guard_lock(&fs->lock);
	struct residency *r = fs->residency;

	r->wanted_bytes += bytes;
	pthread_cond_broadcast(&r->work);
	fs_wait_changed(fs, until_ns);
	r->wanted_bytes -= bytes;
}

/* Workers may yet make room by copying. */
static bool can_spill(struct fs *fs)
{
	guard_lock(&fs->lock);
	const struct residency *r = fs->residency;

	return fs->writeback && r->spills && (r->n_dram || r->n_copying);
}

/*
 * Room that a worker makes does not depend on any client: even who may not wait for clients (a close)
 * waits for it, as long as other writers do.
 */
static int64_t end_of_wait(struct fs *fs, const struct space_wait *w, int64_t began_ns)
{
	int64_t spill_ns = began_ns + fs->opt->space_wait_ms * 1000000ll;

	return can_spill(fs) && spill_ns > w->deadline_ns ? spill_ns : w->deadline_ns;
}

static bool make_now(struct fs *fs, uint64_t bytes, uint64_t budget, enum evict_cost cost)
{
	if (bytes > budget)
		return false;
	uint64_t freed = evict(fs, low_watermark(bytes, budget), cost);
	freed += tier_call(fs->dram, reclaim, 0);
	return freed > 0;
}

int space_make(struct fs *fs, uint64_t bytes, struct space_wait *w)
{
	int64_t began_ns = now_mono_ns();
	struct tier_stats s;
	bool waited = false;

	for (;;) {
		tier_call(fs->dram, get_stats, &s);
		/* While this thread waited others closed or removed what could not be evicted. */
		if (waited && s.used_bytes - s.free_list_bytes + bytes <= s.budget_bytes)
			return 0;
		bool spills = can_spill(fs);
		if (make_now(fs, bytes, s.budget_bytes, spills ? EVICT_ANY : EVICT_LAST))
			return 0;
		if (w->is_interrupted && w->is_interrupted(w->arg)) {
			counter_inc(interrupts);
			return -EINTR;
		}
		int64_t now = now_mono_ns(), end = end_of_wait(fs, w, began_ns);
		if (now >= end && make_now(fs, bytes, s.budget_bytes, EVICT_LAST))
			return 0;
		if (now >= end || bytes > s.budget_bytes) {
			counter_inc(space_failures);
			return -ENOSPC;
		}
		if (!waited && spills)
			counter_inc(spill_waits);
		else if (!waited)
			counter_inc(space_waits);
		waited = true;
		int64_t slice = now + WAIT_SLICE_NS;
		wait_slice(fs, bytes, slice < end ? slice : end);
	}
}

int space_take_frame(struct fs *fs, uint64_t size_hint_bytes, struct frame *out,
		     struct space_wait *w)
{
	struct tier_stats s;
	int rc;

	tier_call(fs->dram, get_stats, &s);
	writeback_kick(fs, &s);
	if (s.free_list_bytes < size_hint_bytes && s.used_bytes + size_hint_bytes > s.budget_bytes &&
	    size_hint_bytes <= s.budget_bytes)
		evict(fs, low_watermark(size_hint_bytes, s.budget_bytes), EVICT_ANY);
	while ((rc = tier_call(fs->dram, take, size_hint_bytes, out)) == -ENOSPC) {
		rc = space_make(fs, 4096, w);
		if (rc)
			return rc;
	}
	return rc;
}

int space_charge(struct fs *fs, struct frame *f, uint64_t bytes, struct space_wait *w)
{
	int rc;

	while ((rc = tier_call(fs->dram, charge, f, bytes)) == -ENOSPC) {
		/* A charge counts whole pages and the frame itself: more may be missing than bytes say. */
		uint64_t has = f->charged_bytes;
		rc = space_make(fs, bytes > has ? bytes - has : 1, w);
		if (rc)
			return rc;
	}
	return rc;
}

int space_write(struct fs *fs, struct frame *f, const void *buf, size_t len, uint64_t off,
		struct space_wait *w)
{
	int rc;

	/* The tmpfs itself can be full for a moment: frames are sized ahead in whole huge pages. */
	while ((rc = tier_call(fs->dram, write, f, buf, len, off)) == -ENOSPC) {
		rc = space_make(fs, len, w);
		if (rc)
			return rc;
	}
	return rc;
}

int space_take_spare_frame(struct fs *fs, uint64_t bytes, struct frame *out)
{
	struct frame f = FRAME_NONE;
	int rc = -ENOSPC;

	for (int n = 0; rc == -ENOSPC && n < 2; n++) {
		rc = f.id ? 0 : tier_call(fs->dram, take, bytes, &f);
		if (!rc)
			rc = tier_call(fs->dram, charge, &f, bytes);
		if (rc == -ENOSPC && !n)
			evict(fs, bytes + SPARE_EXTRA_BYTES, EVICT_COPIES);
	}
	if (rc && f.id)
		tier_call(fs->dram, discard, &f);
	if (!rc)
		*out = f;
	return rc;
}

/* ---- the number of objects ---- */

/* fs->lock held. The least recently used of the first of each order. */
static struct object *pick_name(struct fs *fs)
{
	struct residency *r = fs->residency;
	struct policy *orders[] = { r->ssd, r->reserve, r->dram };
	struct object *oldest = NULL;

	for (size_t k = 0; k < sizeof(orders) / sizeof(*orders); k++) {
		struct object *o = residency_pick_locked(fs, orders[k]);
		if (o && (!oldest || o->used_s < oldest->used_s))
			oldest = o;
	}
	return oldest;
}

/* False: no object may go. */
static bool evict_name(struct fs *fs)
{
	bool must_free = false;

	pthread_mutex_lock(&fs->lock);
	struct object *replaced = object_grace_pop_locked(fs, now_mono_ns() - FRESH_NS, &must_free);
	struct object *o = replaced ? NULL : pick_name(fs);
	if (!replaced && !o)
		replaced = object_grace_pop_locked(fs, INT64_MAX, &must_free);
	uint64_t size = o ? o->size : 0;
	bool is_in_dram = o && o->dram_frame;
	if (o) {
		residency_note_age_locked(fs, is_in_dram ? &fs->residency->dram_age :
							   &fs->residency->ssd_age, o);
		object_begin_evict_locked(fs, o);
	}
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		object_free_unlocked(fs, replaced);
	if (!o)
		return replaced;
	if (!evict_object(fs, o, 1))
		return false;
	if (is_in_dram || !size) {
		counter_inc(evictions);
		counter_add(evicted_bytes, size);
	} else {
		counter_inc(ssd_evictions);
		counter_add(ssd_evicted_bytes, size);
	}
	return true;
}

int space_make_object(struct fs *fs)
{
	for (;;) {
		pthread_mutex_lock(&fs->lock);
		bool is_full = object_count_locked(fs) >= fs->opt->max_objects;
		pthread_mutex_unlock(&fs->lock);
		if (!is_full)
			return 0;
		if (!evict_name(fs)) {
			counter_inc(space_failures);
			log_debug("max_objects=%llu reached and none may be evicted",
				  (unsigned long long)fs->opt->max_objects);
			return -ENOSPC;
		}
	}
}

/* ---- upkeep ---- */

void space_fit_budget(struct fs *fs)
{
	struct tier_stats s;

	do
		tier_call(fs->dram, get_stats, &s);
	while (s.used_bytes > s.budget_bytes &&
	       (tier_call(fs->dram, reclaim, 0) || evict_one(fs, EVICT_LAST)));
}

void space_expire_replaced(struct fs *fs)
{
	for (;;) {
		bool must_free = false;
		pthread_mutex_lock(&fs->lock);
		struct object *o = object_grace_pop_locked(fs, now_mono_ns() - REPLACED_GRACE_NS,
							   &must_free);
		pthread_mutex_unlock(&fs->lock);
		if (!o)
			return;
		if (must_free)
			object_free_unlocked(fs, o);
	}
}

/* Under the name's stripe: deletes the name if it still shows the object, and the object's record. */
static int delete_records(struct fs *fs, const struct object_record *r, bool *had_name_out)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, r->parent, r->name, &e);

	*had_name_out = rc == 0 && e.object_id == r->object_id;
	if (*had_name_out)
		cluster_dropped(fs, r->parent, r->name, r->object_id);
	if (rc == 0)
		entry_fini(&e);
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	if (*had_name_out)
		catalog_batch_del_entry(b, r->parent, r->name);
	catalog_batch_del_object(b, r->object_id);
	return catalog_batch_commit(b, false);
}

/* What was promised to be kept is on a disk that failed: its records wait for a start with the disk. */
static bool may_return(struct fs *fs, const struct object *o)
{
	return o->class == MCFS_CLASS_KEEP && !o->dram_frame && o->ssd_frame &&
	       tier_call(fs->ssd, may_return, o->ssd_frame);
}

int space_remove_object(struct fs *fs, struct object *o)
{
	struct object_record r;
	pthread_mutex_t *stripe;
	bool stays_on_record = may_return(fs, o), had_name = stays_on_record, must_free = false;
	int rc = stays_on_record ? 0 : ns_lock_object(fs, o->id, &r, &stripe);

	if (!rc && !stays_on_record) {
		rc = delete_records(fs, &r, &had_name);
		pthread_mutex_unlock(stripe);
		object_record_fini(&r);
	}
	pthread_mutex_lock(&fs->lock);
	if (rc && rc != -ENOENT) {
		counter_inc(catalog_errors); /* the catalog logged why: the name stays */
	} else {
		if (had_name && o->inode)
			notifier_expire_locked(fs, o->inode);
		if (o->state != OBJECT_DROPPED)
			object_retire_locked(fs, o, false);
		rc = 0;
	}
	must_free = object_end_evict_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		object_free_unlocked(fs, o);
	return rc;
}

int space_remove_by_id(struct fs *fs, uint64_t object_id)
{
	pthread_mutex_lock(&fs->lock);
	struct object *o = object_find_locked(fs, object_id);
	bool is_ours = o && o->state == OBJECT_LIVE && !o->is_evicting;
	if (is_ours)
		object_begin_evict_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	return is_ours ? space_remove_object(fs, o) : -ENOENT;
}
