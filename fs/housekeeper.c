/* SPDX-License-Identifier: Apache-2.0 */
#include "housekeeper.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/counters.h"
#include "fs.h"
#include "inode_table.h"
#include "object/draft.h"
#include "object/object.h"
#include "object/space.h"
#include "object/version.h"

#define ROUND_MS 250
#define SLOW_ROUNDS 4   /* once a second */
#define MAX_EXPIRED 256 /* names removed per round */

struct housekeeper {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool is_stopping;
};

struct expired {
	uint64_t ids[MAX_EXPIRED];
	size_t n;
};

static void find_expired(void *arg, struct object *o)
{
	struct expired *x = arg;

	if (o->ttl_s && o->state == OBJECT_LIVE && x->n < MAX_EXPIRED &&
	    version_age_s(o->id) > o->ttl_s)
		x->ids[x->n++] = o->id;
}

static void expire_objects(struct fs *fs)
{
	struct expired x = { .n = 0 };

	pthread_mutex_lock(&fs->lock);
	if (object_any_ttl_locked(fs))
		object_visit_locked(fs, find_expired, &x);
	pthread_mutex_unlock(&fs->lock);
	for (size_t k = 0; k < x.n; k++) {
		counter_inc(expired);
		space_remove_by_id(fs, x.ids[k]);
	}
}

static void do_round(struct fs *fs, unsigned int round)
{
	pthread_mutex_lock(&fs->lock);
	draft_expire_locked(fs, now_mono_ns());
	pthread_mutex_unlock(&fs->lock);
	space_expire_replaced(fs);
	if (round % SLOW_ROUNDS == 0) {
		inode_flush_dirty(fs);
		if (tier_call(fs->dram, reclaim, UINT64_MAX)) {
			pthread_mutex_lock(&fs->lock);
			pthread_cond_broadcast(&fs->changed);
			pthread_mutex_unlock(&fs->lock);
		}
		tier_call(fs->ssd, reclaim, UINT64_MAX);
		expire_objects(fs);
	}
}

static void *run(void *arg)
{
	struct housekeeper *h = arg;
	struct timespec ts;

	for (unsigned int round = 1;; round++) {
		int64_t at = now_mono_ns() + ROUND_MS * 1000000ll;
		ts = (struct timespec){ at / 1000000000, at % 1000000000 };
		pthread_mutex_lock(&h->lock);
		while (!h->is_stopping &&
		       pthread_cond_timedwait(&h->wake, &h->lock, &ts) != ETIMEDOUT)
			;
		bool is_stopping = h->is_stopping;
		pthread_mutex_unlock(&h->lock);
		if (is_stopping)
			break;
		do_round(h->fs, round);
	}
	while (inode_flush_dirty(h->fs))
		;
	return NULL;
}

int housekeeper_start(struct fs *fs, struct housekeeper **out)
{
	struct housekeeper *h = xcalloc(1, sizeof(*h));
	pthread_condattr_t attr;

	h->fs = fs;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &attr);
	pthread_condattr_destroy(&attr);
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
