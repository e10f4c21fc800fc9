/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency: which objects leave a tier next, and which wait to be copied to another.
 *
 *   order     holds                                                leaves it by
 *   dram      evictable objects with a dram frame                  set aside -> reserve
 *   reserve   the coldest of them, whose frame may go at once:     evicted; used again -> dram, hottest
 *             they have a copy on the ssd, or go without one
 *   ssd       evictable objects with an ssd frame                  evicted from the ssd
 *
 *   queue     holds                                                leaves it by
 *   copies    objects that shall have a copy on the ssd            copied; dropped; given up
 *   promotions objects of the ssd that were used again              copied; dropped; no room
 *
 * An object is in at most one of dram and reserve, and in at most one queue. Invariant: everything in
 * the reserve was colder than everything in dram when it was set aside, so taking the reserve first is
 * taking the least recently used first. An empty object has no frame: it is in the ssd order where
 * eviction spills (it costs no bytes, only its number counts), else in dram.
 *
 * Lock: fs->lock, all functions; constant where said. No function allocates, blocks or fails.
 */
#ifndef MCFS_RESIDENCY_H
#define MCFS_RESIDENCY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "object/residency_stats.h"

struct fs;
struct object;
struct options;
struct tier_stats;
struct policy;
struct policy_node;

/* An object of the ssd that is used twice within this time is copied to dram. */
#define PROMOTE_WINDOW_S 600
/* More promotions than these do not wait: what is used again then, is asked for again. */
#define MAX_PROMOTIONS 1024

enum residency_queue { QUEUE_NONE, QUEUE_COPIES, QUEUE_PROMOTIONS };

struct object_queue {
	struct object *head, *tail;
	uint64_t n, bytes;
};

struct residency {
	bool spills;         /* constant: eviction copies what has no copy on the ssd before it goes */
	bool copies_at_publish, copies_at_use; /* constant: writeback=always, second */
	struct policy *dram, *reserve, *ssd;
	uint64_t n_reserve, reserve_bytes;
	uint64_t n_dram;     /* objects in the dram order */
	uint32_t n_copying, n_promoting; /* objects that a worker copies to the ssd, to dram now */
	uint64_t copying_bytes;
	uint64_t spilling_bytes; /* of their frames: will be in the reserve */
	uint64_t wanted_bytes; /* of writers that wait for room */
	bool is_trimming;    /* a worker takes what is too much off the ssd: others would take it again */
	bool is_filling;     /* the reserve is being filled up to the dram tier's low watermark */
	struct object_queue copies, promotions;
	struct age_histogram dram_age, ssd_age;
	pthread_cond_t work; /* CLOCK_MONOTONIC: there may be something to copy */
};

struct residency *residency_create(const struct options *opt);
void residency_destroy(struct residency *r);

/* Seconds since the daemon's start, the clock of object.used_s. Needs no lock. */
uint32_t residency_now_s(const struct fs *fs);

/* Its frames, state, class or pin changed, or it is new: it goes to the orders and queues it belongs to. */
void residency_place_locked(struct fs *fs, struct object *o, uint64_t caller);
/* It is used. caller: thread id. */
void residency_touch_locked(struct fs *fs, struct object *o, uint64_t caller);
/* Its dram frame may be given up without a loss (or nothing can be done about the loss). */
bool residency_may_go_locked(const struct fs *fs, const struct object *o);
/* From the dram order to the reserve; it may go. */
void residency_set_aside_locked(struct fs *fs, struct object *o);
/*
 * The coldest object of an order that nobody has open or copies; NULL: none. Open ones are passed over
 * as if they had just been used.
 */
struct object *residency_pick_locked(struct fs *fs, struct policy *order);
struct object *residency_object(const struct fs *fs, const struct policy *order,
				struct policy_node *node);
/*
 * More of dram must be set aside: without the reserve it is fuller than the high watermark (from there
 * on, than the low one), or writers wait for more than the reserve has.
 */
bool residency_is_short_locked(struct fs *fs, const struct tier_stats *dram);
/* Takes the first of a queue. NULL: empty. */
struct object *residency_pop_locked(struct fs *fs, struct object_queue *q);
/* Puts one back that was popped, in front. */
void residency_unpop_locked(struct fs *fs, struct object *o, enum residency_queue queue);
/* Queues a copy to dram of what is on the ssd alone; as many as MAX_PROMOTIONS wait. */
void residency_queue_promotion_locked(struct fs *fs, struct object *o);
/* Queues a copy to the ssd unless it has one. */
void residency_queue_copy_locked(struct fs *fs, struct object *o);
void residency_note_age_locked(const struct fs *fs, struct age_histogram *h, const struct object *o);

#endif
