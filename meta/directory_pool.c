/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_pool: connections for those who ask synchronously.
 *
 * Invariants: n_open counts those in use and those idle, at most DIRECTORY_POOL_MAX. A connection that failed,
 * that is owed a reply, or that is older than the server's last going away is not kept.
 *
 * Lock: pool.lock guards all of it; connecting happens without it. Name servers are not asked here: the lease's
 * thread has found out the address.
 *
 * How it fails: -ENETDOWN or -EACCES at once while the server is away; -ETIMEDOUT; -ENOMEM.
 */
#include "directory_parts.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

void directory_pool_init(struct directory *d)
{
	pthread_mutex_init(&d->pool.lock, NULL);
	clock_cond_init(&d->pool.freed);
}

void directory_pool_fini(struct directory *d)
{
	directory_pool_drop(d);
	pthread_cond_destroy(&d->pool.freed);
	pthread_mutex_destroy(&d->pool.lock);
}

static void pool_forget(struct directory_pool *p)
{
	guard_lock(&p->lock);
	p->n_open--;
	pthread_cond_signal(&p->freed);
}

int directory_connect(struct directory *d, struct redis *r, int64_t deadline_ns)
{
	char host[sizeof(d->health.host)];

	pthread_mutex_lock(&d->health.lock);
	memcpy(host, d->health.host, sizeof(host));
	pthread_mutex_unlock(&d->health.lock);
	return redis_connect(r, &d->address, *host ? host : NULL, deadline_ns);
}

static int pool_connect(struct directory *d, int64_t deadline_ns, bool is_patient, struct redis **out)
{
	struct redis *r = redis_create(d->stop_fd);

	if (!r)
		return -ENOMEM;
	int rc = directory_connect(d, r, deadline_ns);
	if (!rc) {
		*out = r;
		return 0;
	}
	if (rc != -ETIMEDOUT || is_patient)
		directory_health_down(d, rc, redis_text(r));
	redis_destroy(r);
	return rc;
}

/* 0 with an idle one or, *out NULL, leave to make one. */
static int pool_wait(struct directory *d, int64_t deadline_ns, struct redis **out, uint64_t *epoch_out)
{
	struct directory_pool *p = &d->pool;
	guard_lock(&p->lock);

	for (;;) {
		int rc = directory_health_check(d);
		if (rc)
			return rc;
		*epoch_out = p->epoch;
		*out = p->n_idle ? p->idle[--p->n_idle] : NULL;
		if (*out)
			return 0;
		if (p->n_open < DIRECTORY_POOL_MAX) {
			p->n_open++;
			return 0;
		}
		if (clock_cond_wait(&p->freed, &p->lock, deadline_ns))
			return -ETIMEDOUT;
	}
}

int directory_pool_take(struct directory *d, int64_t deadline_ns, bool is_patient, struct redis **out,
			uint64_t *epoch_out)
{
	struct redis *r;
	int rc = pool_wait(d, deadline_ns, &r, epoch_out);

	if (rc)
		return rc;
	/* The server closes what was idle for long. */
	if (r && !redis_is_idle(r)) {
		redis_destroy(r);
		r = NULL;
	}
	if (!r)
		rc = pool_connect(d, deadline_ns, is_patient, &r);
	if (rc) {
		pool_forget(&d->pool);
		return rc;
	}
	*out = r;
	return 0;
}

void directory_pool_put(struct directory *d, struct redis *r, uint64_t epoch)
{
	struct directory_pool *p = &d->pool;

	if (redis_is_idle(r)) {
		guard_lock(&p->lock);
		if (epoch == p->epoch) {
			p->idle[p->n_idle++] = r;
			pthread_cond_signal(&p->freed);
			return;
		}
	}
	redis_destroy(r);
	pool_forget(p);
}

void directory_pool_drop(struct directory *d)
{
	struct directory_pool *p = &d->pool;
	struct redis *idle[DIRECTORY_POOL_MAX];

	pthread_mutex_lock(&p->lock);
	unsigned n = p->n_idle;
	memcpy(idle, p->idle, n * sizeof(*idle));
	p->n_idle = 0;
	p->n_open -= n;
	p->epoch++;
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
	while (n)
		redis_destroy(idle[--n]);
}
