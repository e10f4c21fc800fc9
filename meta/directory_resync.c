/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_resync: the thread on which the owner announces anew what it holds.
 *
 * States: waiting; running on_resync. What is asked for meanwhile runs once more, after it.
 *
 * Lock: resync.lock guards is_wanted and stopping.
 */
#include "directory_parts.h"

#include "base/cleanup.h"
#include "base/log.h"

static _Thread_local const struct directory *resyncing;

bool directory_resync_is_caller(struct directory *d)
{
	return resyncing == d;
}

void directory_resync_request(struct directory *d)
{
	guard_lock(&d->resync.lock);
	d->resync.is_wanted = true;
	pthread_cond_signal(&d->resync.wake);
}

static bool resync_wait(struct directory_resync *s)
{
	guard_lock(&s->lock);
	while (!s->is_wanted && !s->stopping)
		pthread_cond_wait(&s->wake, &s->lock);
	s->is_wanted = false;
	return !s->stopping;
}

static void *resync_main(void *arg)
{
	struct directory *d = arg;

	resyncing = d;
	while (resync_wait(&d->resync)) {
		atomic_fetch_add(&d->n_resyncs, 1);
		log_info("directory %s: announcing anew what this node holds", d->where);
		d->conf.on_resync(d->conf.arg);
	}
	return NULL;
}

int directory_resync_start(struct directory *d)
{
	pthread_mutex_init(&d->resync.lock, NULL);
	clock_cond_init(&d->resync.wake);
	int rc = -pthread_create(&d->resync.thread, NULL, resync_main, d);
	if (rc) {
		pthread_cond_destroy(&d->resync.wake);
		pthread_mutex_destroy(&d->resync.lock);
	}
	return rc;
}

void directory_resync_stop(struct directory *d)
{
	pthread_mutex_lock(&d->resync.lock);
	d->resync.stopping = true;
	pthread_cond_signal(&d->resync.wake);
	pthread_mutex_unlock(&d->resync.lock);
	pthread_join(d->resync.thread, NULL);
	pthread_cond_destroy(&d->resync.wake);
	pthread_mutex_destroy(&d->resync.lock);
}
