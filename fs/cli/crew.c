/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/crew.h"

#include "base/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct member {
	struct crew *crew;
	unsigned number;
	pthread_t thread;
};

struct crew {
	crew_fn fn;
	void *arg;
	atomic_size_t next; /* item to hand out */
	size_t end;	    /* written while idle only */

	pthread_mutex_t batch_lock;
	pthread_cond_t begun, ended;
	uint64_t batch;	 /* batch_lock: number of the batch, grows with crew_begin */
	unsigned n_busy; /* batch_lock: members that have not finished the batch */
	bool is_ending;	 /* batch_lock */

	unsigned n_members;
	struct member members[];
};

/* Waits for a batch after the one numbered done. False: the crew ends. */
static bool batch_await(struct crew *c, uint64_t done)
{
	guard_lock(&c->batch_lock);
	while (c->batch == done && !c->is_ending)
		pthread_cond_wait(&c->begun, &c->batch_lock);
	return c->batch != done;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct crew *c = m->crew;

	for (uint64_t done = 0; batch_await(c, done); done++) {
		size_t item;
		while ((item = atomic_fetch_add(&c->next, 1)) < c->end)
			c->fn(c->arg, m->number, item);
		guard_lock(&c->batch_lock);
		if (!--c->n_busy)
			pthread_cond_signal(&c->ended);
	}
	return NULL;
}

static int members_start(struct crew *c, unsigned n)
{
	sigset_t all, before;
	int rc = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!rc && c->n_members < n) {
		struct member *m = &c->members[c->n_members];
		m->crew = c;
		m->number = c->n_members;
		rc = -pthread_create(&m->thread, NULL, member_main, m);
		if (!rc)
			c->n_members++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int crew_start(unsigned n_threads, crew_fn fn, void *arg, struct crew **out)
{
	struct crew *c = calloc(1, sizeof(*c) + n_threads * sizeof(c->members[0]));
	pthread_condattr_t monotonic;

	if (!c)
		return -ENOMEM;
	c->fn = fn;
	c->arg = arg;
	pthread_mutex_init(&c->batch_lock, NULL);
	pthread_cond_init(&c->begun, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int rc = members_start(c, n_threads);
	if (rc) {
		crew_stop(c);
		return rc;
	}
	*out = c;
	return 0;
}

void crew_begin(struct crew *c, size_t first, size_t end)
{
	guard_lock(&c->batch_lock);
	atomic_store(&c->next, first);
	c->end = end;
	c->n_busy = c->n_members;
	c->batch++;
	pthread_cond_broadcast(&c->begun);
}

bool crew_wait(struct crew *c, unsigned timeout_ms)
{
	struct timespec deadline;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += timeout_ms / 1000;
	deadline.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (deadline.tv_nsec >= 1000000000) {
		deadline.tv_sec++;
		deadline.tv_nsec -= 1000000000;
	}
	guard_lock(&c->batch_lock);
	while (c->n_busy)
		if (pthread_cond_timedwait(&c->ended, &c->batch_lock, &deadline) == ETIMEDOUT)
			return !c->n_busy;
	return true;
}

void crew_stop(struct crew *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->batch_lock);
	c->is_ending = true;
	pthread_cond_broadcast(&c->begun);
	pthread_mutex_unlock(&c->batch_lock);
	for (unsigned i = 0; i < c->n_members; i++)
		pthread_join(c->members[i].thread, NULL);
	pthread_cond_destroy(&c->ended);
	pthread_cond_destroy(&c->begun);
	pthread_mutex_destroy(&c->batch_lock);
	free(c);
}
