/* SPDX-License-Identifier: Apache-2.0 */
#include "housekeeper.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <time.h>

#include "base/counters.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "fs.h"
#include "inode_table.h"
#include "object/copies.h"
#include "object/draft.h"
#include "object/object.h"
#include "object/space.h"
#include "object/verify.h"

#define ROUND_MS 250
#define TRIM_ROUNDS 240 /* once a minute */
#define SLOW_ROUNDS 4   /* once a second */
#define MAX_FOUND 1024
#define MAX_REPEATS 16

struct housekeeper {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool is_stopping;
	uint32_t n_failed_disks; /* seen so far; the thread's own */
};

/* What a walk over all objects finds, as many as are dealt with at a time. */
struct found {
	struct fs *fs;
	struct { uint64_t id, frame; } v[MAX_FOUND];
	size_t n;
	bool is_cut; /* there was more */
};

static void add_found(struct found *x, const struct object *o)
{
	if (x->n == MAX_FOUND) {
		x->is_cut = true;
		return;
	}
	x->v[x->n].id = o->id;
	x->v[x->n++].frame = o->ssd_frame;
}

static void find_expired(void *arg, struct object *o)
{
	if (o->state == OBJECT_LIVE && object_is_expired(o))
		add_found(arg, o);
}

static void find_lost(void *arg, struct object *o)
{
	struct found *x = arg;

	if (o->ssd_frame && o->state == OBJECT_LIVE && tier_call(x->fs->ssd, is_lost, o->ssd_frame))
		add_found(x, o);
}

/* Walks over all objects and calls deal for what find adds; fs->lock is held for a portion at a time. */
static uint64_t walk(struct fs *fs, object_visit_fn find,
		     void (*deal)(struct fs *fs, uint64_t id, uint64_t frame))
{
	struct found x = { .fs = fs };
	size_t at = 0;
	uint64_t n = 0;
	uint32_t n_repeats = 0;

	for (bool has_more = true; has_more;) {
		size_t from = at;
		x.n = 0;
		x.is_cut = false;
		pthread_mutex_lock(&fs->lock);
		has_more = object_visit_some_locked(fs, &at, find, &x);
		pthread_mutex_unlock(&fs->lock);
		for (size_t k = 0; k < x.n; k++)
			deal(fs, x.v[k].id, x.v[k].frame);
		n += x.n;
		/* What cannot be dealt with must not be met for ever. */
		bool repeats = x.is_cut && ++n_repeats <= MAX_REPEATS;
		if (repeats)
			at = from;
		else
			n_repeats = 0;
		has_more |= repeats;
	}
	return n;
}

static void expire_one(struct fs *fs, uint64_t id, uint64_t frame)
{
	(void)frame;
	if (!space_remove_by_id(fs, id))
		counter_inc(expired);
}

static void expire_objects(struct fs *fs)
{
	pthread_mutex_lock(&fs->lock);
	bool has_any = object_any_ttl_locked(fs);
	pthread_mutex_unlock(&fs->lock);
	if (has_any)
		walk(fs, find_expired, expire_one);
}

static void lose_copy(struct fs *fs, uint64_t id, uint64_t frame)
{
	counter_inc(lost);
	copies_lose(fs, id, fs->ssd, frame);
}

/* A disk has failed: what it had lives on in dram, or loses its name. */
static void look_at_disks(struct fs *fs, uint32_t *n_failed)
{
	struct tier_stats s;

	tier_call(fs->ssd, get_stats, &s);
	if (s.n_failed_disks <= *n_failed)
		return;
	*n_failed = s.n_failed_disks;
	uint64_t n = walk(fs, find_lost, lose_copy);
	if (n)
		log_error("ssd: %u of %u disks have failed; %llu copies are lost with them",
			  s.n_failed_disks, s.n_disks, (unsigned long long)n);
}

static void do_round(struct housekeeper *h, unsigned int round)
{
	struct fs *fs = h->fs;

	pthread_mutex_lock(&fs->lock);
	draft_expire_locked(fs, now_mono_ns());
	pthread_mutex_unlock(&fs->lock);
	space_expire_replaced(fs);
	verify_drop_bad(fs);
	if (round % SLOW_ROUNDS == 0) {
		inode_flush_dirty(fs);
		if (tier_call(fs->dram, reclaim, UINT64_MAX)) {
			pthread_mutex_lock(&fs->lock);
			pthread_cond_broadcast(&fs->changed);
			pthread_mutex_unlock(&fs->lock);
		}
		tier_call(fs->ssd, reclaim, UINT64_MAX);
		look_at_disks(fs, &h->n_failed_disks);
		expire_objects(fs);
		space_fit_budget(fs);
	}
	/* A listing or a burst of names needs memory once; the system has it back then. */
	if (round % TRIM_ROUNDS == 0)
		malloc_trim(0);
}

static void *run(void *arg)
{
	struct housekeeper *h = arg;

	for (unsigned int round = 1;; round++) {
		int64_t at = now_mono_ns() + ROUND_MS * 1000000ll;
		pthread_mutex_lock(&h->lock);
		while (!h->is_stopping && !clock_cond_wait(&h->wake, &h->lock, at))
			;
		bool is_stopping = h->is_stopping;
		pthread_mutex_unlock(&h->lock);
		if (is_stopping)
			break;
		do_round(h, round);
	}
	while (inode_flush_dirty(h->fs))
		;
	return NULL;
}

int housekeeper_start(struct fs *fs, struct housekeeper **out)
{
	struct housekeeper *h = xcalloc(1, sizeof(*h));

	h->fs = fs;
	pthread_mutex_init(&h->lock, NULL);
	clock_cond_init(&h->wake);
	int rc = pthread_create(&h->thread, NULL, run, h);
	if (rc) {
		free(h);
		return -rc;
	}
	*out = h;
	return 0;
}

void housekeeper_stop(struct housekeeper *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->is_stopping = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->wake);
	free(h);
}
