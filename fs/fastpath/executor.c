/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/executor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fastpath/batch.h"
#include "object/object.h"

#define MAX_THREADS 16

struct executor {
	pthread_mutex_t lock; /* guards all but the stop flag */
	pthread_cond_t wake;
	struct job *head, **tail;
	pthread_t threads[MAX_THREADS];
	unsigned int n_threads, max_threads, n_idle, n_queued;
	unsigned int n_helpers; /* of the queued and running jobs: one thread is always left for submissions */
	atomic_bool is_stopping;
};

struct executor *executor_create(void)
{
	struct executor *x = xcalloc(1, sizeof(*x));
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	x->max_threads = n < 2 ? 2 : n > MAX_THREADS ? MAX_THREADS : (unsigned int)n;
	x->tail = &x->head;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->wake, NULL);
	return x;
}

/* Posts the completion; the batch is gone afterwards. */
static void complete(void *arg)
{
	struct batch *b = arg;
	struct mcfs_completion c = { .ticket = b->ticket, .user_data = b->io.user_data,
				     .status = b->stopped, .n_ok = b->io.n_ok,
				     .ready_prefix = b->io.ready_prefix };
	struct session *s = b->session;

	session_get(s);
	batch_leave_memory(b);
	session_finish_batch(s, b, &c);
	batch_destroy(b);
	session_put(s);
}

static void run_batch(void *arg)
{
	batch_run(arg, complete);
}

/* ---- threads ---- */

static void *run(void *arg)
{
	struct executor *x = arg;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		x->n_idle++;
		while (!x->head && !x->is_stopping)
			pthread_cond_wait(&x->wake, &x->lock);
		x->n_idle--;
		struct job *j = x->head;
		if (!j)
			break;
		x->head = j->next;
		if (!x->head)
			x->tail = &x->head;
		x->n_queued--;
		pthread_mutex_unlock(&x->lock);
		j->run(j->arg);
		pthread_mutex_lock(&x->lock);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

/* One that has nothing to do, for one more job: there is one, or could be started. */
static bool find_thread_locked(struct executor *x)
{
	if (x->n_idle > x->n_queued)
		return true;
	if (x->is_stopping || x->n_threads == x->max_threads ||
	    pthread_create(&x->threads[x->n_threads], NULL, run, x))
		return false;
	x->n_threads++;
	return true;
}

static void queue_locked(struct executor *x, struct job *j)
{
	j->next = NULL;
	x->n_queued++;
	*x->tail = j;
	x->tail = &j->next;
	pthread_cond_signal(&x->wake);
}

/* ---- submissions ---- */

static bool is_stopping(void *arg)
{
	struct executor *x = arg;

	return x->is_stopping;
}

int executor_submit(struct executor *x, struct batch *b)
{
	guard_lock(&x->lock);
	if (x->is_stopping)
		return -EAGAIN;
	if (!find_thread_locked(x) && !x->n_threads)
		return -EAGAIN;
	b->is_interrupted = is_stopping;
	b->arg = x;
	b->job = (struct job){ .run = run_batch, .arg = b };
	queue_locked(x, &b->job);
	return 0;
}

/* ---- shared work ---- */

struct share {
	executor_part_fn part;
	void *arg;
	uint32_t n;
	_Atomic uint32_t next; /* part to be taken */
	struct executor *x;
	int cpu;                /* where the sharing thread was */
	unsigned int n_helping; /* x->lock; queued or at work */
	pthread_cond_t over;    /* none is any more */
};

static void take_parts(struct share *s)
{
	for (uint32_t k; (k = s->next++) < s->n;)
		s->part(s->arg, k);
}

/*
 * A virtual machine's scheduler takes a halted processor for one that its host has taken away, and wakes us
 * in the middle of the thread that we are to help: it would stand still meanwhile. True: *old is to be put
 * back.
 */
static bool move_away_from(int cpu, cpu_set_t *old)
{
	cpu_set_t others;

	if (sched_getcpu() != cpu || sched_getaffinity(0, sizeof(*old), old))
		return false;
	others = *old;
	CPU_CLR(cpu, &others);
	return CPU_COUNT(&others) && !sched_setaffinity(0, sizeof(others), &others);
}

static void help(void *arg)
{
	struct share *s = arg;
	cpu_set_t old;
	bool has_moved = move_away_from(s->cpu, &old);

	take_parts(s);
	if (has_moved)
		sched_setaffinity(0, sizeof(old), &old);
	guard_lock(&s->x->lock);
	s->x->n_helpers--;
	if (!--s->n_helping)
		pthread_cond_signal(&s->over);
}

/* Those that no thread has come to yet. */
static void call_off_locked(struct share *s)
{
	struct executor *x = s->x;

	x->tail = &x->head;
	for (struct job *j; (j = *x->tail);) {
		if (j->arg != s) {
			x->tail = &j->next;
			continue;
		}
		*x->tail = j->next;
		x->n_queued--;
		x->n_helpers--;
		s->n_helping--;
	}
}

void executor_share(struct executor *x, executor_part_fn part, void *arg, uint32_t n,
		    unsigned int max_helpers)
{
	struct share s = { .part = part, .arg = arg, .n = n, .x = x, .cpu = sched_getcpu(),
			   .over = PTHREAD_COND_INITIALIZER };
	struct job helpers[MAX_THREADS];

	if (max_helpers >= n)
		max_helpers = n ? n - 1 : 0;
	if (max_helpers > MAX_THREADS)
		max_helpers = MAX_THREADS;
	if (max_helpers) {
		pthread_mutex_lock(&x->lock);
		while (s.n_helping < max_helpers && x->n_helpers + 1 < x->max_threads && find_thread_locked(x)) {
			helpers[s.n_helping] = (struct job){ .run = help, .arg = &s };
			queue_locked(x, &helpers[s.n_helping++]);
			x->n_helpers++;
		}
		max_helpers = s.n_helping;
		pthread_mutex_unlock(&x->lock);
	}
	take_parts(&s);
	if (!max_helpers)
		return;
	pthread_mutex_lock(&x->lock);
	call_off_locked(&s);
	while (s.n_helping)
		pthread_cond_wait(&s.over, &x->lock);
	pthread_mutex_unlock(&x->lock);
	pthread_cond_destroy(&s.over);
}

void executor_destroy(struct executor *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->is_stopping = true;
	pthread_cond_broadcast(&x->wake);
	pthread_mutex_unlock(&x->lock);
	for (unsigned int k = 0; k < x->n_threads; k++)
		pthread_join(x->threads[k], NULL);
	pthread_cond_destroy(&x->wake);
	pthread_mutex_destroy(&x->lock);
	free(x);
}
