/* SPDX-License-Identifier: Apache-2.0 */
#include "object/sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "fs.h"
#include "object/frame_set.h"
#include "object/object.h"

/* 3,200 frames a second at most: a disk has time for its clients. */
#define SWEEP_BURST 64
#define PAUSE_NS 20000000

enum { DRAM, SSD, N_SETS };

struct sweep {
	struct fs *fs;
	struct frame_set sets[N_SETS];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool is_running, is_stopping;
	_Atomic uint64_t n_left;
};

struct sweep *sweep_create(struct fs *fs, struct frame_set *dram, struct frame_set *ssd)
{

	if (!dram->n && !ssd->n)
		return NULL;
	struct sweep *s = xcalloc(1, sizeof(*s));
	s->fs = fs;
	s->n_left = dram->n + ssd->n;
	s->sets[DRAM] = *dram;
	s->sets[SSD] = *ssd;
	*dram = *ssd = (struct frame_set){ .ids = NULL };
	pthread_mutex_init(&s->lock, NULL);
	clock_cond_init(&s->wake);
	return s;
}

/* False: told to stop. */
static bool pause_a_little(struct sweep *s)
{
	int64_t until = now_mono_ns() + PAUSE_NS;

	guard_lock(&s->lock);
	while (!s->is_stopping && !clock_cond_wait(&s->wake, &s->lock, until))
		;
	return !s->is_stopping;
}

/* Returns whether to go on. */
static bool sweep_set(struct sweep *s, int which, uint64_t *n_removed)
{
	struct tier *t = which == DRAM ? s->fs->dram : s->fs->ssd;
	const struct frame_set *set = &s->sets[which];

	for (size_t k = 0; k < set->n; k++) {
		if (k % SWEEP_BURST == 0 && !pause_a_little(s))
			return false;
		if (!tier_call(t, remove_orphan, set->ids[k])) {
			counter_inc(orphans);
			++*n_removed;
		}
		s->n_left--;
	}
	return true;
}

static void *run(void *arg)
{
	struct sweep *s = arg;
	uint64_t n_removed = 0, n = s->sets[DRAM].n + s->sets[SSD].n;
	bool is_done = sweep_set(s, DRAM, &n_removed) && sweep_set(s, SSD, &n_removed);

	log_info("removed %" PRIu64 " of %" PRIu64 " orphan frames%s", n_removed, n,
		 is_done ? "" : "; the next start goes on");
	return NULL;
}

void sweep_start(struct fs *fs)
{
	struct sweep *s = fs->sweep;

	if (!s)
		return;
	int rc = pthread_create(&s->thread, NULL, run, s);
	if (rc)
		log_error("cannot start the removal of orphan frames: %s", strerror(rc));
	s->is_running = !rc;
}

uint64_t sweep_left(struct fs *fs)
{
	return fs->sweep ? fs->sweep->n_left : 0;
}

void sweep_stop(struct fs *fs)
{
	struct sweep *s = fs->sweep;

	if (!s)
		return;
	if (s->is_running) {
		pthread_mutex_lock(&s->lock);
		s->is_stopping = true;
		pthread_cond_signal(&s->wake);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
	}
	for (int k = 0; k < N_SETS; k++)
		frame_set_fini(&s->sets[k]);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free(s);
	fs->sweep = NULL;
}
