/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_queue: changes on their way to the server, and the thread that sends them.
 *
 * States of a change: queued; in a batch; finished. One that the server did not get to, or whose answer was lost,
 * is put back in front: changes may be repeated. One for which there is no room, or which cannot be, is refused:
 * it goes to its done at once, past the queue.
 *
 * Invariants: changes are queued, sent and finished in the order of seq. Every change is finished once, on the
 * thread. What was refused, or not kept for want of memory at the server, makes a resync due: gave_up.
 *
 * Lock: queue.lock guards all of it but the batch, which is the thread's. done runs without it.
 *
 * How it fails: a server that is away leaves changes queued, up to max_queue_bytes.
 */
#include "mcfs/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "directory_change.h"
#include "directory_parts.h"

#define BATCH_MAX 256u
#define RETRY_NS (100 * NS_PER_MS)
#define PACE_HZ 20 /* a limited rate is kept to in so many portions a second */

struct batch {
	struct directory *d;
	struct redis *redis;
	struct directory_change *changes[BATCH_MAX];
	struct redis_call calls[BATCH_MAX];
	char keys[BATCH_MAX][DIRECTORY_KEY_BYTES];
	size_t n;
	int rc; /* why some are not done */
};

/* ---- the queue ---- */

static void queue_append_locked(struct directory_queue *q, struct directory_change *c)
{
	c->seq = q->next_seq++;
	q->bytes += c->bytes;
	q->n++;
	if (q->last)
		q->last->next = c;
	else
		q->first = c;
	q->last = c;
	if (c->due_ns < q->due_ns)
		q->due_ns = c->due_ns;
}

static void queue_refuse_locked(struct directory_queue *q, struct directory_change *c, int rc)
{
	c->is_done = true;
	c->rc = rc;
	if (q->refused_last)
		q->refused_last->next = c;
	else
		q->refused = c;
	q->refused_last = c;
}

/* Within on_resync whoever announces too much is slowed down as long as the server takes something. */
static bool queue_has_room_locked(struct directory *d, const struct directory_change *c)
{
	struct directory_queue *q = &d->queue;

	while (q->bytes + c->bytes > d->conf.max_queue_bytes) {
		if (q->stopping || !directory_resync_is_caller(d) || !directory_can_send(d))
			return false;
		clock_cond_wait(&q->moved, &q->lock, clock_now_ns() + RETRY_NS);
	}
	return true;
}

static void queue_put(struct directory *d, struct directory_change *c)
{
	struct directory_queue *q = &d->queue;
	guard_lock(&q->lock);

	if (c->is_done) {
		queue_refuse_locked(q, c, c->rc);
	} else if (q->stopping) {
		queue_refuse_locked(q, c, -ECANCELED);
	} else if (queue_has_room_locked(d, c)) {
		queue_append_locked(q, c);
	} else {
		atomic_fetch_add(&d->n_given_up, 1);
		atomic_store(&q->gave_up, true);
		if (!c->done) {
			free(c);
			return;
		}
		queue_refuse_locked(q, c, -ENOBUFS);
	}
	pthread_cond_signal(&q->changed);
}

static void change_queue(struct directory *d, enum directory_script script, const char *dir, const char *name,
			 uint64_t version, const struct directory_value *value, uint32_t delay_ms,
			 directory_done_fn done, void *arg)
{
	struct directory_change *c = directory_change_create(script, dir, name, version, value, done, arg);

	if (c) {
		c->due_ns = delay_ms ? clock_now_ns() + delay_ms * NS_PER_MS : 0;
		queue_put(d, c);
		return;
	}
	log_error("directory %s: no memory for a change", d->where);
	atomic_fetch_add(&d->n_given_up, 1);
	atomic_store(&d->queue.gave_up, true);
	if (done)
		done(arg, -ENOMEM, &(struct directory_value){.kind = DIRECTORY_NONE});
}

void directory_announce(struct directory *d, const char *dir, const char *name,
			const struct directory_value *value, uint32_t delay_ms, directory_done_fn done, void *arg)
{
	change_queue(d, DIRECTORY_ANNOUNCE, dir, name, value->version, value, delay_ms, done, arg);
}

void directory_retract(struct directory *d, const char *dir, const char *name, uint64_t object,
		       directory_done_fn done, void *arg)
{
	change_queue(d, DIRECTORY_RETRACT, dir, name, object, NULL, 0, done, arg);
}

void directory_remove(struct directory *d, const char *dir, const char *name, uint64_t version,
		      directory_done_fn done, void *arg)
{
	change_queue(d, DIRECTORY_REMOVE, dir, name, version, NULL, 0, done, arg);
}

int directory_flush(struct directory *d, int64_t deadline_ns)
{
	struct directory_queue *q = &d->queue;
	guard_lock(&q->lock);
	uint64_t target = q->next_seq - 1;

	if (q->urgent_seq < target)
		q->urgent_seq = target;
	pthread_cond_signal(&q->changed);
	while (q->done_seq < target || q->refused || q->is_refusing) {
		if (q->stopping)
			return -ECANCELED;
		if (clock_cond_wait(&q->moved, &q->lock, deadline_ns))
			return -ETIMEDOUT;
	}
	return 0;
}

/* ---- batches ---- */

static void batch_reply(void *arg, size_t i, const struct redis_reply *reply)
{
	struct batch *b = arg;
	struct directory *d = b->d;
	struct directory_change *c = b->changes[i];
	int rc = directory_change_reply(c, reply);

	if (!c->is_done) {
		b->rc = rc;
	} else if (rc == -ENOSPC) {
		atomic_fetch_add(&d->n_given_up, 1);
		directory_health_refuses(d, (const char *)reply->bytes);
		if (!atomic_exchange(&d->queue.gave_up, true))
			log_warn("directory %s: takes no more names: %s", d->where, (const char *)reply->bytes);
	} else if (rc) {
		directory_damage_log(d, "a change");
	}
}

static int batch_send(struct batch *b, struct redis *r)
{
	int slot = directory_slot(b->d);
	int64_t deadline_ns = clock_now_ns() + b->d->io_ns;
	int rc = 0;

	b->rc = 0;
	if (slot < 0)
		return -EAGAIN;
	if (!redis_is_idle(r))
		rc = directory_connect(b->d, r, deadline_ns);
	if (rc)
		return rc;
	for (size_t i = 0; i < b->n; i++)
		directory_change_call(b->changes[i], b->d->prefix, (uint16_t)slot, b->keys[i], &b->calls[i]);
	rc = redis_run_scripts(r, directory_scripts, b->calls, b->n, deadline_ns, batch_reply, b);
	return rc ? rc : b->rc;
}

static void change_count(struct directory *d, const struct directory_change *c)
{
	_Atomic uint64_t *const counts[] = {
		[DIRECTORY_ANNOUNCE] = &d->n_announced,
		[DIRECTORY_RETRACT] = &d->n_retracted,
		[DIRECTORY_REMOVE] = &d->n_removed,
	};

	if (c->rc == -ESTALE)
		atomic_fetch_add(&d->n_stale, 1);
	else if (!c->rc)
		atomic_fetch_add(counts[c->script], 1);
}

/* Finishes what is done, keeps the rest in order; returns the bytes that were finished. */
static size_t batch_finish(struct batch *b)
{
	size_t bytes = 0, n_kept = 0;

	for (size_t i = 0; i < b->n; i++) {
		struct directory_change *c = b->changes[i];
		if (!c->is_done) {
			b->changes[n_kept++] = c;
			continue;
		}
		bytes += c->bytes;
		change_count(b->d, c);
		directory_change_finish(c);
	}
	b->n = n_kept;
	return bytes;
}

static void batch_return(struct batch *b, size_t n_finished, size_t bytes_finished, bool failed)
{
	struct directory_queue *q = &b->d->queue;
	guard_lock(&q->lock);

	for (size_t i = b->n; i-- > 0;) {
		b->changes[i]->next = q->first;
		q->first = b->changes[i];
		if (!q->last)
			q->last = b->changes[i];
	}
	if (b->n)
		q->due_ns = 0;
	b->n = 0;
	q->n -= n_finished;
	q->bytes -= bytes_finished;
	q->done_seq = (q->first ? q->first->seq : q->next_seq) - 1;
	q->is_refusing = false;
	if (failed)
		q->next_send_ns = clock_now_ns() + RETRY_NS;
	pthread_cond_broadcast(&q->moved);
}

static void batch_run(struct batch *b, struct redis *r)
{
	int rc = batch_send(b, r);
	size_t n = b->n;

	if (rc)
		directory_health_down(b->d, rc, redis_text(r));
	if (rc)
		redis_disconnect(r);
	size_t bytes = batch_finish(b);
	batch_return(b, n - b->n, bytes, rc);
}

/* ---- the thread ---- */

static size_t portion(const struct directory *d)
{
	size_t n = d->conf.announce_rate / PACE_HZ;

	if (!d->conf.announce_rate || n > BATCH_MAX)
		return BATCH_MAX;
	return n ? n : 1;
}

static int64_t send_time_locked(struct directory *d)
{
	struct directory_queue *q = &d->queue;
	bool is_urgent = q->first && (q->n >= BATCH_MAX || q->first->seq <= q->urgent_seq);
	int64_t due_ns = is_urgent ? 0 : q->due_ns;

	if (!q->first)
		return INT64_MAX;
	if (!directory_can_send(d))
		return clock_now_ns() + RETRY_NS;
	return due_ns > q->next_send_ns ? due_ns : q->next_send_ns;
}

static void batch_fill_locked(struct batch *b)
{
	struct directory_queue *q = &b->d->queue;
	size_t max = portion(b->d);

	while (q->first && b->n < max) {
		struct directory_change *c = q->first;
		q->first = c->next;
		c->next = NULL;
		b->changes[b->n++] = c;
	}
	if (!q->first)
		q->last = NULL;
	q->due_ns = q->first ? 0 : INT64_MAX;
	if (b->d->conf.announce_rate)
		q->next_send_ns = clock_now_ns() + (int64_t)b->n * NS_PER_S / b->d->conf.announce_rate;
}

/* Waits for a batch or for changes that were refused; false: it is to end. */
static bool queue_take(struct batch *b, struct directory_change **refused_out)
{
	struct directory *d = b->d;
	struct directory_queue *q = &d->queue;
	guard_lock(&q->lock);

	for (;;) {
		*refused_out = q->refused;
		q->refused = q->refused_last = NULL;
		q->is_refusing = *refused_out;
		if (q->stopping)
			return false;
		int64_t at_ns = send_time_locked(d);
		if (directory_can_send(d) && at_ns <= clock_now_ns())
			batch_fill_locked(b);
		if (b->n || *refused_out)
			return true;
		clock_cond_wait(&q->changed, &q->lock, at_ns);
	}
}

static void changes_finish(struct directory_change *c, int rc)
{
	while (c) {
		struct directory_change *next = c->next;
		if (!c->is_done)
			c->rc = rc;
		directory_change_finish(c);
		c = next;
	}
}

/* What a done of the last changes queues is refused, too, and told so. */
static void queue_drain(struct directory_queue *q)
{
	struct directory_change *left, *refused;

	do {
		pthread_mutex_lock(&q->lock);
		left = q->first;
		refused = q->refused;
		q->first = q->last = q->refused = q->refused_last = NULL;
		pthread_cond_broadcast(&q->moved);
		pthread_mutex_unlock(&q->lock);
		changes_finish(left, -ECANCELED);
		changes_finish(refused, -ECANCELED);
	} while (left || refused);
}

static void *queue_main(void *arg)
{
	struct batch *b = arg;
	struct directory_queue *q = &b->d->queue;
	struct redis *r = b->redis;
	struct directory_change *refused;

	while (queue_take(b, &refused)) {
		changes_finish(refused, 0);
		if (b->n)
			batch_run(b, r);
		else
			batch_return(b, 0, 0, false);
	}
	changes_finish(refused, 0);
	queue_drain(q);
	redis_destroy(r);
	free(b);
	return NULL;
}

int directory_queue_start(struct directory *d)
{
	struct directory_queue *q = &d->queue;
	struct batch *b = calloc(1, sizeof(*b));
	struct redis *r = redis_create(d->stop_fd);
	int rc = -ENOMEM;

	if (!b || !r)
		goto err_free;
	b->d = d;
	b->redis = r;
	q->next_seq = 1;
	q->due_ns = INT64_MAX;
	pthread_mutex_init(&q->lock, NULL);
	clock_cond_init(&q->changed);
	clock_cond_init(&q->moved);
	rc = -pthread_create(&q->thread, NULL, queue_main, b);
	if (!rc)
		return 0;
	pthread_cond_destroy(&q->moved);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
err_free:
	redis_destroy(r);
	free(b);
	return rc;
}

/* In two steps: whoever still runs may queue until the threads have ended. */
void directory_queue_end(struct directory *d)
{
	guard_lock(&d->queue.lock);
	d->queue.stopping = true;
	pthread_cond_broadcast(&d->queue.changed);
	pthread_cond_broadcast(&d->queue.moved);
}

void directory_queue_stop(struct directory *d)
{
	struct directory_queue *q = &d->queue;

	directory_queue_end(d);
	pthread_join(q->thread, NULL);
	queue_drain(q);
	pthread_cond_destroy(&q->moved);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
}

void directory_queue_wake(struct directory *d)
{
	guard_lock(&d->queue.lock);
	pthread_cond_signal(&d->queue.changed);
}

uint64_t directory_queue_count(struct directory *d, uint64_t *bytes_out)
{
	guard_lock(&d->queue.lock);
	*bytes_out = d->queue.bytes;
	return d->queue.n;
}
