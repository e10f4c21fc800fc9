/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Those who read from a fetch while it arrives: open files of this node, and peers that fetch the same object from us.
 * Each holds the fetch and, once it is committed, the object that it became.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "cluster/fetch.h"
#include "cluster/paths.h"
#include "fs.h"
#include "object/object.h"
#include "object/space.h"

/* An interrupt is noticed within this time. */
#define SLICE_NS (20ll * 1000 * 1000)
/* How long a peer is left waiting while nothing arrives: it may have another source. */
#define STALL_NS (3000ll * 1000 * 1000)

/* ---- holding ---- */

/* False: it is an object by now. */
static bool hold(struct fs *fs, struct fetch *f, uint32_t *n_holds)
{
	guard_lock(&fs->lock);
	if (f->is_committed)
		return false;
	++*n_holds;
	return true;
}

static void let_go(struct fs *fs, struct fetch *f, uint32_t *n_holds)
{
	bool must_free = false;

	pthread_mutex_lock(&fs->lock);
	struct object *o = f->object;
	--*n_holds;
	if (o) {
		if (n_holds == &f->n_handles)
			object_undirect_locked(o);
		must_free = object_close_locked(fs, o);
	}
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		object_free_unlocked(fs, o);
	pthread_mutex_lock(&f->c->fetcher->lock);
	if (fetch_is_last_locked(f))
		f->left_ns = now_mono_ns();
	pthread_mutex_unlock(&f->c->fetcher->lock);
	fetch_put(f);
}

/* lock held. The first chunk of [off, off + len) that is not here; false: all are. */
static bool is_missing(const struct fetch *f, uint64_t off, size_t len, uint64_t *chunk_out)
{
	for (uint64_t k = off / PEER_CHUNK_BYTES; k <= (off + len - 1) / PEER_CHUNK_BYTES; k++)
		if (!f->chunks[k]) {
			*chunk_out = k;
			return true;
		}
	return false;
}

/* lock held. Waits a little for that chunk, which is fetched next. */
static void wait_for_chunk(struct fetch *f, uint64_t chunk)
{
	int64_t until_ns = now_mono_ns() + SLICE_NS;
	struct timespec ts = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };

	f->wanted = chunk;
	f->n_waiting++;
	pthread_cond_timedwait(&f->c->fetcher->changed, &f->c->fetcher->lock, &ts);
	f->n_waiting--;
}

/* ---- open files ---- */

/* 0: it goes on, or is an object; else why nothing will come of it. */
static int outcome(struct fetch *f)
{
	guard_lock(&f->c->fetcher->lock);
	return f->is_over ? f->rc : 0;
}

int fetch_open(struct fs *fs, struct inode *i, struct space_wait *w, struct fetch **out)
{
	struct fetch *f;
	int rc = fetch_begin_inode(fs, i, w, &f);

	*out = NULL;
	if (!f)
		return fetch_pause_if_stale(rc);
	if (!f->map)
		return fetch_pause_if_stale(fetch_wait(f, w, NULL));
	rc = outcome(f);
	if (!rc && hold(fs, f, &f->n_handles))
		*out = f;
	else
		fetch_put(f);
	return fetch_pause_if_stale(rc);
}

void fetch_close(struct fs *fs, struct fetch *f)
{
	let_go(fs, f, &f->n_handles);
}

uint64_t fetch_size(const struct fetch *f)
{
	return f->e.size;
}

int fetch_await(struct fetch *f, size_t len, uint64_t off, struct space_wait *w, const void **bytes_out)
{
	struct fetcher *t = f->c->fetcher;
	uint64_t chunk;
	guard_lock(&t->lock);

	while (is_missing(f, off, len, &chunk)) {
		if (f->is_over || t->is_stopping)
			return -EIO;
		wait_for_chunk(f, chunk);
		if (w->is_interrupted && w->is_interrupted(w->arg))
			return -EINTR;
	}
	*bytes_out = f->map + off;
	return 0;
}

/* ---- peers ---- */

/* Its holders are asked for the checksums first. */
static int await_grant(struct fetch *f, int64_t deadline_ns)
{
	struct fetcher *t = f->c->fetcher;
	guard_lock(&t->lock);

	while (!f->granted_version) {
		if (f->is_over || t->is_stopping)
			return -ENOENT;
		if (now_mono_ns() >= deadline_ns)
			return -EAGAIN;
		wait_for_chunk(f, 0);
	}
	return 0;
}

static int copy_grant(struct fetch *f, struct fetch_piece_source *out)
{
	*out = (struct fetch_piece_source){ .fetch = f, .fd = f->fd, .size = f->e.size,
					    .version = f->granted_version };
	if (!f->crc)
		return 0;
	out->crc = malloc(f->n_crc * sizeof(*f->crc));
	if (!out->crc)
		return -ENOMEM;
	memcpy(out->crc, f->crc, f->n_crc * sizeof(*f->crc));
	out->n_crc = f->n_crc;
	return 0;
}

int fetch_serve(struct cluster *c, uint64_t dir_ino, const char *name, uint64_t version, int64_t deadline_ns,
		struct fetch_piece_source *out)
{
	struct fetch *f = fetch_find_announced(c->fetcher, dir_ino, name);

	if (!f)
		return -ENOENT;
	int rc = version && version != f->id ? -ESTALE : await_grant(f, deadline_ns);
	if (!rc)
		rc = hold(c->fs, f, &f->n_served) ? 0 : -EAGAIN;
	if (rc) {
		fetch_put(f);
		return rc;
	}
	rc = copy_grant(f, out);
	if (rc)
		let_go(c->fs, f, &f->n_served);
	return rc;
}

void fetch_serve_end(struct fs *fs, struct fetch *f)
{
	let_go(fs, f, &f->n_served);
}

int fetch_serve_await(struct fetch *f, uint64_t off, int64_t deadline_ns)
{
	struct fetcher *t = f->c->fetcher;
	int64_t began_ns = now_mono_ns();
	uint64_t chunk;
	guard_lock(&t->lock);

	while (is_missing(f, off, 1, &chunk)) {
		int64_t now_ns = now_mono_ns(), since_ns = f->arrived_ns > began_ns ? f->arrived_ns : began_ns;
		if (f->is_over)
			return -ESTALE;
		if (t->is_stopping || now_ns >= deadline_ns || now_ns - since_ns > STALL_NS)
			return -EAGAIN;
		wait_for_chunk(f, chunk);
	}
	return 0;
}
