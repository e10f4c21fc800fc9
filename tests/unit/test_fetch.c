/* SPDX-License-Identifier: Apache-2.0 */
/* How a fetch ends, whoever of the threads sees it. Without holders: every extent fails at once. */
#include "cluster/fetch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs.h"

#define N_ROUNDS 1500
/* More than any mistake takes away: what is freed cannot be looked at. */
#define REFS 1000u

/* ---- fixture ---- */

static struct fs fs;
static struct cluster cluster = { .fs = &fs };

static void open_fetcher(void)
{
	pthread_mutex_init(&fs.lock, NULL);
	cr_assert_eq(fetcher_create(&cluster, &cluster.fetcher), 0);
}

static void close_fetcher(void)
{
	fetcher_destroy(cluster.fetcher);
	pthread_mutex_destroy(&fs.lock);
}

TestSuite(fetch, .timeout = 120);

/* ---- helpers ---- */

static struct fetch *make(uint64_t id, uint32_t n_extents)
{
	struct fetch *f = calloc(1, sizeof(*f));

	f->c = &cluster;
	f->id = id;
	f->e.size = n_extents * FETCH_EXTENT_BYTES;
	f->n_extents = n_extents;
	f->extents = calloc(n_extents, 1);
	f->refs = REFS;
	return f;
}

static void begin(struct fetch *f)
{
	struct fetcher *t = cluster.fetcher;

	pthread_mutex_lock(&t->lock);
	f->next = t->fetches;
	t->fetches = f;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
}

static bool is_over(struct fetch *f)
{
	struct fetcher *t = cluster.fetcher;

	pthread_mutex_lock(&t->lock);
	bool is = f->is_over && !f->n_taken && f->refs < REFS;
	pthread_mutex_unlock(&t->lock);
	return is;
}

static void release(struct fetch *f)
{
	free(f->extents);
	free(f);
}

/* ---- tests ---- */

/* Its threads give up one reference, however many of them come back from its extents at once. */
Test(fetch, ends_once, .init = open_fetcher, .fini = close_fetcher)
{
	struct fetch **all = calloc(N_ROUNDS, sizeof(struct fetch *));

	for (uint32_t k = 0; k < N_ROUNDS; k++) {
		all[k] = make(k + 1, 1 + k % 4);
		begin(all[k]);
		while (!is_over(all[k]))
			sched_yield();
	}
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	for (uint32_t k = 0; k < N_ROUNDS; k++) {
		cr_assert_eq(all[k]->refs, REFS - 1, "fetch %u ended %u times", k, REFS - all[k]->refs);
		cr_assert_eq(all[k]->rc, -ENOENT);
		release(all[k]);
	}
	cr_assert_null(cluster.fetcher->fetches);
	free(all);
}

Test(fetch, that_is_cancelled_is_stale, .init = open_fetcher, .fini = close_fetcher)
{
	struct fetch *f = make(1, 3);

	f->is_cancelled = true;
	begin(f);
	while (!is_over(f))
		sched_yield();
	cr_assert_eq(f->rc, -ESTALE);
	release(f);
}

/* One that nobody works on any more when the node ends is over as well. */
Test(fetch, ends_with_the_node)
{
	struct fetch *f = make(1, 3);

	open_fetcher();
	fetcher_stop(cluster.fetcher);
	fetcher_join(cluster.fetcher);
	begin(f);
	fetcher_destroy(cluster.fetcher);
	cr_assert(f->is_over);
	cr_assert_eq(f->rc, -ESHUTDOWN);
	cr_assert_eq(f->refs, REFS - 1);
	release(f);
	pthread_mutex_destroy(&fs.lock);
}
