/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread_buffer.h"
#include "cluster/fetch.h"
#include "cluster/paths.h"
#include "fs.h"
#include "object/object.h"

/* A peer that hangs is found by its PINGs long before. */
#define EXTENT_NS (10ll * 1000 * 1000 * 1000)
/* A peer_read faster than this may be larger, one slower than that should be smaller. */
#define FAST_NS (50ll * 1000 * 1000)
#define SLOW_NS (200ll * 1000 * 1000)
/* One that takes longer to answer is not waited for where there are others. */
#define HEDGE_NS (200ll * 1000 * 1000)
/* Who closes a file and opens it again goes on with what has come. */
#define LINGER_NS (5000ll * 1000 * 1000)

static uint64_t extent_off(uint32_t k)
{
	return k * FETCH_EXTENT_BYTES;
}

static size_t extent_len(const struct fetch *f, uint32_t k)
{
	uint64_t left = f->e.size - extent_off(k);

	return (size_t)(left < FETCH_EXTENT_BYTES ? left : FETCH_EXTENT_BYTES);
}

/* ---- sources ---- */

/*
 * lock held. The one to read from, or to ask for a grant; NULL: none now (*may_come: one is being asked). The newest one
 * that grants decides: if it passes on what it gets, all comes from there; else what the others have comes from them as
 * well, where there is enough for all.
 */
static struct source *pick_source(struct fetch *f, bool is_late, bool *may_come)
{
	struct source *best = NULL, *fresh = NULL;
	uint64_t least = UINT64_MAX;

	*may_come = false;
	for (uint32_t k = 0; k < f->n_sources; k++) {
		struct source *s = &f->sources[k];
		if (s->state == SOURCE_GRANTED && s->grant.is_partial) {
			if (!best)
				return s;
		} else if (s->state == SOURCE_GRANTED) {
			uint64_t queued = peer_queued_bytes(s->peer);
			if (!best || queued < least)
				best = s;
			least = queued < least ? queued : least;
		} else if (s->state == SOURCE_NEW && !fresh) {
			fresh = s;
		}
		*may_come |= s->state == SOURCE_ASKED;
	}
	if (best)
		return fresh && least > FETCH_EXTENT_BYTES ? fresh : best;
	return *may_come && !is_late ? NULL : fresh;
}

/* A source that has granted. -ENOENT: none is left. */
static int get_source(struct fetch *f, void *buf, struct source **out)
{
	struct fetcher *t = f->c->fetcher;
	int64_t late_ns = now_mono_ns() + HEDGE_NS;
	struct timespec ts = { .tv_sec = late_ns / 1000000000, .tv_nsec = late_ns % 1000000000 };
	bool may_come, is_late = false;

	for (;;) {
		pthread_mutex_lock(&t->lock);
		struct source *s = pick_source(f, is_late, &may_come);
		while (!s && may_come) {
			if (is_late)
				pthread_cond_wait(&t->changed, &t->lock);
			else
				is_late = pthread_cond_timedwait(&t->changed, &t->lock, &ts) == ETIMEDOUT;
			s = pick_source(f, is_late, &may_come);
		}
		if (t->is_stopping)
			s = NULL;
		bool is_granted = s && s->state == SOURCE_GRANTED;
		if (s && !is_granted)
			s->state = SOURCE_ASKED;
		pthread_mutex_unlock(&t->lock);
		if (!s)
			return -ENOENT;
		int rc = is_granted ? 0 : fetch_ask(f, s, buf);
		if (!rc) {
			*out = s;
			return 0;
		}
		log_debug("\"%s\" in %s: the node of slot %u grants nothing: %s", f->name, f->path,
			  (unsigned)s->slot, strerror(-rc));
	}
}

static void source_failed(struct fetch *f, struct source *s, int rc)
{
	guard_lock(&f->c->fetcher->lock);
	s->state = SOURCE_BAD;
	log_info("\"%s\" in %s: reading from the node of slot %u failed: %s", f->name, f->path, (unsigned)s->slot,
		 strerror(-rc));
}

/* ---- extents ---- */

/* A chunk of a mapped frame is right: who waits for it may read. */
static int on_chunk(void *arg, uint64_t off, size_t len)
{
	struct fetch *f = arg;

	guard_lock(&f->c->fetcher->lock);
	(void)len; /* a chunk, or the last one's rest */
	f->chunks[off / PEER_CHUNK_BYTES] = 1;
	f->arrived_ns = now_mono_ns();
	f->is_cancelled |= f->left_ns && f->arrived_ns - f->left_ns > LINGER_NS;
	pthread_cond_broadcast(&f->c->fetcher->changed);
	return f->is_cancelled || f->c->fetcher->is_stopping ? -ESTALE : 0;
}

static uint32_t extent_of(uint64_t chunk)
{
	return (uint32_t)(chunk * PEER_CHUNK_BYTES / FETCH_EXTENT_BYTES);
}

/*
 * What to ask for next of an extent: the chunk that a reader waits for, else the first that is not there, and those
 * behind it. False: all of it is there.
 */
static bool next_step(struct fetch *f, uint32_t k, uint64_t *off_out, size_t *len_out)
{
	uint64_t c = extent_off(k) / PEER_CHUNK_BYTES;
	uint64_t end = (extent_off(k) + extent_len(f, k) + PEER_CHUNK_BYTES - 1) / PEER_CHUNK_BYTES;

	guard_lock(&f->c->fetcher->lock);
	if (f->n_waiting && f->wanted >= c && f->wanted < end && !f->chunks[f->wanted])
		c = f->wanted;
	while (c < end && f->chunks[c])
		c++;
	uint64_t off = c * PEER_CHUNK_BYTES, stop = off;
	while (c < end && !f->chunks[c++] && stop - off < f->step_bytes)
		stop += PEER_CHUNK_BYTES;
	*off_out = off;
	*len_out = (size_t)((stop < f->e.size ? stop : f->e.size) - off);
	return stop > off;
}

static void note_pace(struct fetch *f, size_t step, int64_t took_ns)
{
	guard_lock(&f->c->fetcher->lock);
	if (step == f->step_bytes && took_ns < FAST_NS && step < FETCH_EXTENT_BYTES)
		f->step_bytes *= 2;
	else if (took_ns > SLOW_NS && f->step_bytes > PEER_CHUNK_BYTES)
		f->step_bytes /= 2;
}

/* A reader waits for a chunk of an extent that nobody has taken: this one can be resumed. */
static bool gives_way(struct fetch *f, uint32_t k)
{
	guard_lock(&f->c->fetcher->lock);
	uint32_t wanted = extent_of(f->wanted);
	return f->n_waiting && wanted != k && wanted < f->n_extents && f->extents[wanted] == EXTENT_FREE;
}

/* [off, off + len) by one source; *n_out of it is right, whatever is returned. -ENOENT: no source is left. */
static int read_step(struct fetch *f, uint64_t off, size_t len, char *dst, size_t *n_out)
{
	int64_t began_ns = now_mono_ns();
	struct source *s;
	/* Of a small object, one thread alone asks, for all of it, into its buffer. */
	int rc = get_source(f, !f->map && !off ? dst : NULL, &s);

	*n_out = 0;
	if (rc)
		return rc;
	if (s->grant.has_bytes) {
		*n_out = len;
		return fetch_is_cancelled(f) ? -ESTALE : 0;
	}
	rc = peer_read(s->peer, &s->grant, off, len, dst, f->mapped ? f->mapped->registration : NULL,
		       f->map ? on_chunk : NULL, f, n_out, now_mono_ns() + EXTENT_NS);
	if (fetch_is_cancelled(f))
		return -ESTALE;
	if (rc)
		source_failed(f, s, rc); /* another one goes on from there */
	else
		note_pace(f, len, now_mono_ns() - began_ns);
	return 0;
}

static int read_small(struct fetch *f)
{
	char *buf = thread_buffer();
	size_t n;

	if (f->early)
		return tier_call(f->c->fs->dram, write, &f->frame, f->early, f->e.size, 0);
	for (size_t done = 0; done < f->e.size; done += n) {
		int rc = read_step(f, done, f->e.size - done, buf + done, &n);
		if (rc)
			return rc;
	}
	return tier_call(f->c->fs->dram, write, &f->frame, buf, f->e.size, 0);
}

/* -EAGAIN: given up for now, to be resumed. */
static int read_extent(struct fetch *f, uint32_t k)
{
	uint64_t off;
	size_t len, n;
	int rc = 0;

	if (!f->map)
		return read_small(f);
	while (!rc && next_step(f, k, &off, &len))
		rc = gives_way(f, k) ? -EAGAIN : read_step(f, off, len, f->map + off, &n);
	return rc;
}

/* lock held. */
static bool must_end(const struct fetch *f)
{
	return f->is_cancelled || f->has_failed;
}

/* lock held. The next extent of the oldest fetch that has one; of one that must end, only for who ends it. */
static struct fetch *take_extent(struct fetcher *t, uint32_t *k_out)
{
	for (struct fetch *f = t->fetches; f; f = f->next) {
		if (f->is_ending || f->n_done + f->n_taken == f->n_extents || (must_end(f) && f->n_taken))
			continue;
		uint32_t k = extent_of(f->wanted);
		k = k < f->n_extents ? k : 0;
		while (f->extents[k] != EXTENT_FREE)
			k = (k + 1) % f->n_extents;
		f->extents[k] = EXTENT_TAKEN;
		f->n_taken++;
		f->refs++;
		*k_out = k;
		return f;
	}
	return NULL;
}

/* lock held. One thread sees the last extent come back: it goes on. */
static bool note_extent(struct fetch *f, uint32_t k, int rc)
{
	f->n_taken--;
	f->extents[k] = rc ? EXTENT_FREE : EXTENT_DONE;
	f->n_done += !rc;
	f->has_failed |= rc && rc != -EAGAIN;
	f->is_ending = !f->n_taken && (must_end(f) || f->n_done == f->n_extents);
	return f->is_ending;
}

void *fetch_extents(void *arg)
{
	struct fetcher *t = arg;
	uint32_t k;

	pthread_mutex_lock(&t->lock);
	while (!t->is_stopping) {
		struct fetch *f = take_extent(t, &k);
		if (!f) {
			pthread_cond_wait(&t->work, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		int rc = fetch_is_cancelled(f) ? -ESTALE : read_extent(f, k);
		pthread_mutex_lock(&t->lock);
		bool is_last = note_extent(f, k, rc);
		bool is_whole = !must_end(f);
		int why = f->is_cancelled || f->has_moved_on ? -ESTALE : rc == -ENOSPC ? rc : -ENOENT;
		pthread_mutex_unlock(&t->lock);
		if (is_last && is_whole)
			fetch_complete(f);
		else if (is_last)
			fetch_end(f, why);
		fetch_put(f);
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}
