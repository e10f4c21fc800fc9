/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/executor.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fastpath/batch.h"
#include "object/object.h"

#define MAX_THREADS 16

struct executor {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct batch *head, **tail;
	pthread_t threads[MAX_THREADS];
	unsigned int n_threads, max_threads, n_idle, n_queued;
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

static void *run(void *arg)
{
	struct executor *x = arg;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		x->n_idle++;
		while (!x->head && !x->is_stopping)
			pthread_cond_wait(&x->wake, &x->lock);
		x->n_idle--;
		struct batch *b = x->head;
		if (!b)
			break;
		x->head = b->next_in_queue;
		if (!x->head)
			x->tail = &x->head;
		x->n_queued--;
		pthread_mutex_unlock(&x->lock);
		batch_run(b, complete);
		pthread_mutex_lock(&x->lock);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

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
	if (x->n_idle <= x->n_queued && x->n_threads < x->max_threads &&
	    !pthread_create(&x->threads[x->n_threads], NULL, run, x))
		x->n_threads++;
	if (!x->n_threads)
		return -EAGAIN;
	b->is_interrupted = is_stopping;
	b->arg = x;
	b->next_in_queue = NULL;
	x->n_queued++;
	*x->tail = b;
	x->tail = &b->next_in_queue;
	pthread_cond_signal(&x->wake);
	return 0;
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
