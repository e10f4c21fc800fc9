/* SPDX-License-Identifier: Apache-2.0 */
#include "object/space.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/namespace.h"
#include "object/object.h"
#include "options.h"

/* Eviction frees this part of the budget beyond what is asked: the distance between the watermarks. */
#define WATERMARK_DIVISOR 128
/* Between LOOKUP and OPEN of one path walk. */
#define FRESH_NS (100ll * 1000 * 1000)
/* An interrupt is noticed within this time. */
#define WAIT_SLICE_NS (20ll * 1000 * 1000)

/* Marks the object that should go next. NULL: everything left is open or gone. */
static struct object *pick_victim(struct fs *fs)
{
	struct policy *p = fs->policy;
	uint64_t n_left = object_count_locked(fs);

	/* Open objects get a second chance instead of being looked at again and again. */
	for (struct policy_node *n; n_left-- && (n = p->ops->victim(p, NULL));) {
		struct object *o = (struct object *)((char *)n - offsetof(struct object, node));
		if (o->n_open) {
			p->ops->touch(p, n, 0, 0);
			continue;
		}
		object_begin_evict_locked(fs, o);
		return o;
	}
	return NULL;
}

/* Bytes that left the budget or became recyclable; 0: nothing may go. */
static uint64_t evict_one(struct fs *fs)
{
	bool must_free = false;

	pthread_mutex_lock(&fs->lock);
	/* An open may be on its way to a version replaced just now: those go last. */
	struct object *replaced = object_grace_pop_locked(fs, now_mono_ns() - FRESH_NS, &must_free);
	struct object *o = replaced ? NULL : pick_victim(fs);
	if (!replaced && !o)
		replaced = object_grace_pop_locked(fs, INT64_MAX, &must_free);
	if (replaced) {
		uint64_t freed = replaced->charged_bytes;
		pthread_mutex_unlock(&fs->lock);
		if (must_free)
			object_free_unlocked(fs, replaced);
		return freed ? freed : 1;
	}
	uint64_t bytes = o ? o->charged_bytes : 0, dram_frame = o ? o->dram_frame : 0;
	uint64_t size = o ? o->size : 0;
	bool has_copy = o && o->ssd_frame;
	int32_t backing_id = has_copy ? object_take_backing_locked(fs, o) : 0;
	if (has_copy) {
		/* The durable copy goes on serving it. */
		o->charged_bytes = 0;
		object_set_frames_locked(fs, o, 0, o->ssd_frame);
		object_end_evict_locked(fs, o);
	}
	pthread_mutex_unlock(&fs->lock);
	if (!o)
		return 0;
	counter_inc(evictions);
	counter_add(evicted_bytes, size);
	if (backing_id)
		fs->close_backing(fs, backing_id);
	if (has_copy)
		tier_call(fs->dram, drop, dram_frame, size, bytes);
	else if (space_remove_object(fs, o))
		return 0;
	return bytes ? bytes : 1;
}

static uint64_t evict(struct fs *fs, uint64_t bytes)
{
	uint64_t freed = 0;

	while (freed < bytes) {
		uint64_t one = evict_one(fs);
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

int space_make(struct fs *fs, uint64_t bytes, struct space_wait *w)
{
	struct tier_stats s;
	bool waited = false;

	for (;;) {
		tier_call(fs->dram, get_stats, &s);
		/* While this thread waited others closed or removed what could not be evicted. */
		if (waited && s.used_bytes - s.free_list_bytes + bytes <= s.budget_bytes)
			return 0;
		if (bytes <= s.budget_bytes) {
			uint64_t freed = evict(fs, low_watermark(bytes, s.budget_bytes));
			freed += tier_call(fs->dram, reclaim, 0);
			if (freed)
				return 0;
		}
		if (w->is_interrupted && w->is_interrupted(w->arg)) {
			counter_inc(interrupts);
			return -EINTR;
		}
		int64_t now = now_mono_ns();
		if (now >= w->deadline_ns || bytes > s.budget_bytes) {
			counter_inc(space_failures);
			return -ENOSPC;
		}
		if (!waited)
			counter_inc(space_waits);
		waited = true;
		int64_t slice = now + WAIT_SLICE_NS;
		pthread_mutex_lock(&fs->lock);
		fs_wait_changed(fs, slice < w->deadline_ns ? slice : w->deadline_ns);
		pthread_mutex_unlock(&fs->lock);
	}
}

int space_take_frame(struct fs *fs, uint64_t size_hint_bytes, struct frame *out,
		     struct space_wait *w)
{
	struct tier_stats s;
	int rc;

	tier_call(fs->dram, get_stats, &s);
	if (s.free_list_bytes < size_hint_bytes && s.used_bytes + size_hint_bytes > s.budget_bytes &&
	    size_hint_bytes <= s.budget_bytes)
		evict(fs, low_watermark(size_hint_bytes, s.budget_bytes));
	while ((rc = tier_call(fs->dram, take, size_hint_bytes, out)) == -ENOSPC) {
		rc = space_make(fs, 4096, w);
		if (rc)
			return rc;
	}
	return rc;
}

int space_make_object(struct fs *fs)
{
	for (;;) {
		pthread_mutex_lock(&fs->lock);
		bool is_full = object_count_locked(fs) >= fs->opt->max_objects;
		pthread_mutex_unlock(&fs->lock);
		if (!is_full)
			return 0;
		if (!evict_one(fs)) {
			counter_inc(space_failures);
			log_debug("max_objects=%llu reached and none may be evicted",
				  (unsigned long long)fs->opt->max_objects);
			return -ENOSPC;
		}
	}
}

void space_fit_budget(struct fs *fs)
{
	struct tier_stats s;

	do
		tier_call(fs->dram, get_stats, &s);
	while (s.used_bytes > s.budget_bytes &&
	       (tier_call(fs->dram, reclaim, 0) || evict_one(fs)));
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
	if (rc == 0)
		entry_fini(&e);
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	if (*had_name_out)
		catalog_batch_del_entry(b, r->parent, r->name);
	catalog_batch_del_object(b, r->object_id);
	return catalog_batch_commit(b, false);
}

int space_remove_object(struct fs *fs, struct object *o)
{
	struct object_record r;
	pthread_mutex_t *stripe;
	bool had_name = false, must_free = false;
	int rc = ns_lock_object(fs, o->id, &r, &stripe);

	if (!rc) {
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
