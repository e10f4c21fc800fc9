/* SPDX-License-Identifier: Apache-2.0 */
#include "object/residency.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/monotonic.h"
#include "fs.h"
#include "object/object.h"
#include "options.h"
#include "tier/policy.h"

struct residency *residency_create(const struct options *opt)
{
	struct residency *r = xcalloc(1, sizeof(*r));

	r->copies_at_publish = opt->writeback == WRITEBACK_ALWAYS;
	r->copies_at_use = opt->writeback == WRITEBACK_SECOND;
	r->spills = r->copies_at_publish || (opt->writeback == WRITEBACK_EVICT && opt->has_ssd);
	r->dram = policy_lru_create();
	r->reserve = policy_lru_create();
	r->ssd = policy_lru_create();
	if (!r->dram || !r->reserve || !r->ssd)
		abort();
	clock_cond_init(&r->work);
	return r;
}

void residency_destroy(struct residency *r)
{
	if (!r)
		return;
	r->dram->ops->destroy(r->dram);
	r->reserve->ops->destroy(r->reserve);
	r->ssd->ops->destroy(r->ssd);
	pthread_cond_destroy(&r->work);
	free(r);
}

uint32_t residency_now_s(const struct fs *fs)
{
	return (uint32_t)((now_mono_ns() - fs->start_ns) / 1000000000);
}

/* ---- queues ---- */

static struct object_queue *queue_of(struct residency *r, enum residency_queue queue)
{
	return queue == QUEUE_COPIES ? &r->copies : &r->promotions;
}

static void count_queued(struct object_queue *q, const struct object *o, int n)
{
	q->n += (uint64_t)(int64_t)n;
	q->bytes += n > 0 ? o->size : -o->size;
}

static void enqueue(struct residency *r, struct object *o, enum residency_queue queue)
{
	struct object_queue *q = queue_of(r, queue);

	o->queue = queue;
	o->queue_prev = q->tail;
	o->queue_next = NULL;
	*(q->tail ? &q->tail->queue_next : &q->head) = o;
	q->tail = o;
	count_queued(q, o, 1);
	pthread_cond_signal(&r->work);
}

static void dequeue(struct residency *r, struct object *o)
{
	struct object_queue *q = queue_of(r, o->queue);

	if (o->queue == QUEUE_NONE)
		return;
	*(o->queue_prev ? &o->queue_prev->queue_next : &q->head) = o->queue_next;
	*(o->queue_next ? &o->queue_next->queue_prev : &q->tail) = o->queue_prev;
	o->queue_prev = o->queue_next = NULL;
	o->queue = QUEUE_NONE;
	count_queued(q, o, -1);
}

struct object *residency_pop_locked(struct fs *fs, struct object_queue *q)
{
	struct object *o = q->head;

	if (o)
		dequeue(fs->residency, o);
	return o;
}

void residency_unpop_locked(struct fs *fs, struct object *o, enum residency_queue queue)
{
	struct object_queue *q = queue_of(fs->residency, queue);

	if (o->state != OBJECT_LIVE || o->queue != QUEUE_NONE)
		return;
	o->queue = queue;
	o->queue_prev = NULL;
	o->queue_next = q->head;
	*(q->head ? &q->head->queue_prev : &q->tail) = o;
	q->head = o;
	count_queued(q, o, 1);
}

static bool has_no_copy(const struct object *o)
{
	return o->state == OBJECT_LIVE && !o->is_evicting && o->size && o->dram_frame &&
	       !o->ssd_frame;
}

void residency_queue_copy_locked(struct fs *fs, struct object *o)
{
	if (has_no_copy(o) && !o->is_copying && o->queue == QUEUE_NONE)
		enqueue(fs->residency, o, QUEUE_COPIES);
}

/* ---- orders ---- */

static bool is_pinned(const struct object *o)
{
	return o->pin || o->class == MCFS_CLASS_PINNED;
}

/* A pinned object stays in DRAM; so does the last copy of a keep object. */
static bool is_held(const struct object *o)
{
	return is_pinned(o) || (o->class == MCFS_CLASS_KEEP && !o->ssd_frame && o->size);
}

static bool belongs_in_dram(const struct residency *r, const struct object *o)
{
	return o->state == OBJECT_LIVE && !o->is_evicting && !is_held(o) &&
	       !(o->ssd_frame && !o->dram_frame) && !(r->spills && !o->size);
}

static bool belongs_on_ssd(const struct residency *r, const struct object *o)
{
	return o->state == OBJECT_LIVE && !o->is_evicting && !is_pinned(o) &&
	       o->class == MCFS_CLASS_CACHE && (o->ssd_frame || (r->spills && !o->size));
}

bool residency_may_go_locked(const struct fs *fs, const struct object *o)
{
	return !fs->residency->spills || o->goes_without || (o->ssd_frame && o->is_ssd_checked);
}

static void insert_dram(struct residency *r, struct object *o, uint64_t caller)
{
	r->dram->ops->insert(r->dram, &o->node, caller, now_mono_ns());
	r->n_dram++;
}

static void leave_reserve(struct residency *r, struct object *o)
{
	r->reserve->ops->remove(r->reserve, &o->node);
	o->is_in_reserve = false;
	r->n_reserve--;
	r->reserve_bytes -= o->charged_bytes;
}

static void leave_dram(struct residency *r, struct object *o)
{
	if (o->is_in_reserve) {
		leave_reserve(r, o);
		return;
	}
	r->dram->ops->remove(r->dram, &o->node);
	r->n_dram--;
}

void residency_set_aside_locked(struct fs *fs, struct object *o)
{
	struct residency *r = fs->residency;

	if (!o->node.next || o->is_in_reserve)
		return;
	leave_dram(r, o);
	r->reserve->ops->insert(r->reserve, &o->node, 0, now_mono_ns());
	o->is_in_reserve = true;
	r->n_reserve++;
	r->reserve_bytes += o->charged_bytes;
}

void residency_place_locked(struct fs *fs, struct object *o, uint64_t caller)
{
	struct residency *r = fs->residency;
	bool belongs = belongs_in_dram(r, o);

	if (!belongs && o->node.next) {
		leave_dram(r, o);
	} else if (belongs && !o->node.next) {
		insert_dram(r, o, caller);
	} else if (o->is_in_reserve && !residency_may_go_locked(fs, o)) {
		leave_reserve(r, o);
		r->dram->ops->insert_cold(r->dram, &o->node);
		r->n_dram++;
	}
	belongs = belongs_on_ssd(r, o);
	if (!belongs && o->ssd_node.next)
		r->ssd->ops->remove(r->ssd, &o->ssd_node);
	else if (belongs && !o->ssd_node.next)
		r->ssd->ops->insert(r->ssd, &o->ssd_node, caller, now_mono_ns());

	if (o->queue == QUEUE_COPIES ? !has_no_copy(o) :
				       o->state != OBJECT_LIVE || o->is_evicting || o->dram_frame)
		dequeue(r, o);
	if ((r->copies_at_publish || o->class == MCFS_CLASS_KEEP) && !o->goes_without)
		residency_queue_copy_locked(fs, o);
}

void residency_queue_promotion_locked(struct fs *fs, struct object *o)
{
	struct residency *r = fs->residency;

	if (o->ssd_frame && !o->dram_frame && o->size && o->state == OBJECT_LIVE && !o->is_evicting &&
	    !o->is_copying && o->queue == QUEUE_NONE && r->promotions.n < MAX_PROMOTIONS)
		enqueue(r, o, QUEUE_PROMOTIONS);
}

/* Used again on the tier that serves it: it may be worth more there, or on a faster one. */
static void note_use(struct fs *fs, struct object *o, uint32_t now_s)
{
	struct residency *r = fs->residency;

	if (o->dram_frame) {
		/* For writeback=second: what made it was its first use. */
		if (r->copies_at_use || r->copies_at_publish || o->class == MCFS_CLASS_KEEP)
			residency_queue_copy_locked(fs, o);
		return;
	}
	if ((o->was_used && now_s - o->used_s <= PROMOTE_WINDOW_S) || is_pinned(o))
		residency_queue_promotion_locked(fs, o);
}

void residency_touch_locked(struct fs *fs, struct object *o, uint64_t caller)
{
	struct residency *r = fs->residency;
	uint32_t now_s = residency_now_s(fs);

	o->goes_without = false;
	if (o->is_in_reserve) {
		leave_reserve(r, o);
		insert_dram(r, o, caller);
	} else if (o->node.next) {
		r->dram->ops->touch(r->dram, &o->node, caller, now_mono_ns());
	}
	if (o->ssd_node.next)
		r->ssd->ops->touch(r->ssd, &o->ssd_node, caller, now_mono_ns());
	note_use(fs, o, now_s);
	o->was_used = true;
	o->used_s = now_s;
}

struct object *residency_object(const struct fs *fs, const struct policy *order,
				struct policy_node *node)
{
	size_t at = order == fs->residency->ssd ? offsetof(struct object, ssd_node) :
						  offsetof(struct object, node);

	return (struct object *)((char *)node - at);
}

struct object *residency_pick_locked(struct fs *fs, struct policy *order)
{
	uint64_t n_left = object_count_locked(fs);
	struct policy_node *after = NULL, *n;

	/* Open objects get a second chance instead of being looked at again and again. */
	while (n_left-- && (n = order->ops->victim(order, after))) {
		struct object *o = residency_object(fs, order, n);
		if (o->is_copying)
			after = n;
		else if (o->n_open)
			order->ops->touch(order, n, 0, 0);
		else
			return o;
	}
	return NULL;
}

bool residency_is_short_locked(struct fs *fs, const struct tier_stats *dram)
{
	struct residency *r = fs->residency;
	uint64_t spare = dram->free_list_bytes + r->reserve_bytes + r->spilling_bytes;
	uint64_t busy = dram->used_bytes > spare ? dram->used_bytes - spare : 0;

	if (busy > dram->high_watermark_bytes)
		r->is_filling = true;
	else if (busy <= dram->low_watermark_bytes)
		r->is_filling = false;
	return r->spills && (r->is_filling ||
			     r->wanted_bytes > r->reserve_bytes + r->spilling_bytes);
}

/* ---- figures ---- */

void residency_note_age_locked(const struct fs *fs, struct age_histogram *h, const struct object *o)
{
	uint32_t age_s = residency_now_s(fs) - o->used_s;
	unsigned int k = age_s ? 32 - (unsigned int)__builtin_clz(age_s) : 0;

	h->n[k < AGE_BUCKETS ? k : AGE_BUCKETS - 1]++;
	h->count++;
	h->sum_s += age_s;
}

void residency_stats_get(struct fs *fs, struct residency_stats *out)
{
	guard_lock(&fs->lock);
	const struct residency *r = fs->residency;

	*out = (struct residency_stats){
		.queue_objects = r->copies.n + r->n_copying,
		.queue_bytes = r->copies.bytes + r->copying_bytes,
		.promote_objects = r->promotions.n + r->n_promoting,
		.reserve_objects = r->n_reserve, .reserve_bytes = r->reserve_bytes,
		.dram_age = r->dram_age, .ssd_age = r->ssd_age,
	};
}
