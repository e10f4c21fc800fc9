/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/monotonic.h"
#include "base/thread_buffer.h"
#include "cluster/paths.h"
#include "fs.h"
#include "inode_table.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/space.h"

/* Read into a buffer and written from there; larger ones arrive in the mapped frame. */
#define SMALL_BYTES THREAD_BUFFER_BYTES
/* More than one extent. */
#define EARLY_BYTES FETCH_EXTENT_BYTES
#define LOOKUP_NS (1ll * 1000 * 1000 * 1000)
/* An interrupt is noticed within this time. */
#define SLICE_NS (20ll * 1000 * 1000)
#define STALE_PAUSE_NS (5 * 1000 * 1000)
/* Versions that replace each other faster than they can be fetched. */
#define MAX_TRIES 100

/* ---- its end ---- */

/* lock held. */
static void unlink_fetch(struct fetcher *t, struct fetch *f)
{
	for (struct fetch **at = &t->fetches; *at; at = &(*at)->next)
		if (*at == f) {
			*at = f->next;
			return;
		}
}

static void release_sources(struct fetch *f)
{
	for (uint32_t k = 0; k < f->n_sources; k++) {
		struct source *s = &f->sources[k];
		if (s->state == SOURCE_GRANTED && !s->grant.has_bytes)
			peer_release_grant(s->peer, s->grant.grant);
		free(s->grant.crc);
		if (s->peer)
			peer_put(s->peer);
	}
	f->n_sources = 0;
}

static void fetch_free(struct fetch *f)
{
	struct fs *fs = f->c->fs;

	release_sources(f);
	if (f->mapped)
		tier_call(fs->dram, unmap, f->mapped);
	if (f->fd >= 0)
		close(f->fd);
	if (f->frame.id)
		tier_call(fs->dram, discard, &f->frame);
	if (f->sealed.id)
		tier_call(fs->dram, drop, f->sealed.id, f->e.size, f->sealed.charged_bytes);
	free(f->crc);
	free(f->early);
	entry_fini(&f->e);
	if (f->dir) {
		guard_lock(&fs->lock);
		f->dir->n_publishing--;
		inode_put_locked(fs, f->dir);
	}
	free(f->extents);
	free(f->chunks);
	free(f);
}

void fetch_put(struct fetch *f)
{
	struct fetcher *t = f->c->fetcher;

	pthread_mutex_lock(&t->lock);
	bool is_last = --f->refs == 0;
	pthread_mutex_unlock(&t->lock);
	if (is_last)
		fetch_free(f);
}

/* It was announced, and nothing came of it. */
static void disown(struct fetch *f)
{
	if (f->is_announced)
		fetch_disown(f->c, f->dir->key, f->path, f->name, dir_path_is_kv(f->path) ? 0 : f->id);
}

/* lock held. The threads' ref is given up by the caller afterwards. */
static void end_locked(struct fetcher *t, struct fetch *f, int rc)
{
	f->rc = rc;
	f->is_over = true;
	unlink_fetch(t, f);
	pthread_cond_broadcast(&t->changed);
}

void fetch_end(struct fetch *f, int rc)
{
	struct fetcher *t = f->c->fetcher;

	if (rc) {
		counter_inc(fetch_failures);
	} else {
		counter_inc(fetches);
		counter_add(fetch_bytes, f->e.size);
	}
	pthread_mutex_lock(&t->lock);
	end_locked(t, f, rc);
	pthread_mutex_unlock(&t->lock);
	if (rc)
		disown(f);
	fetch_put(f);
}

void fetch_cancel_older(struct fetcher *t, uint64_t dir_ino, const char *name, uint64_t version)
{
	if (!t)
		return;
	guard_lock(&t->lock);
	for (struct fetch *f = t->fetches; f; f = f->next)
		if (f->dir->key == dir_ino && !strcmp(f->name, name) && name_version(&f->e) < version)
			f->is_cancelled = true;
}

/* Of that name, under way; NULL: none. lock held. */
static struct fetch *find_named(struct fetcher *t, uint64_t dir_ino, const char *name)
{
	struct fetch *f = t->fetches;

	while (f && (f->dir->key != dir_ino || strcmp(f->name, name)))
		f = f->next;
	return f;
}

void fetch_mark(struct fs *fs, uint64_t dir_ino, const char *const *names, size_t n, bool *is_under_way_out)
{
	struct fetcher *t = fs->cluster ? fs->cluster->fetcher : NULL;

	memset(is_under_way_out, 0, n * sizeof(*is_under_way_out));
	if (!t)
		return;
	guard_lock(&t->lock);
	for (size_t k = 0; k < n && t->fetches; k++)
		is_under_way_out[k] = find_named(t, dir_ino, names[k]);
}

struct fetch *fetch_find_announced(struct fetcher *t, uint64_t dir_ino, const char *name)
{
	guard_lock(&t->lock);
	struct fetch *f = find_named(t, dir_ino, name);

	if (!f || !f->is_announced || !f->map)
		return NULL; /* a small one is an object in a moment */
	f->refs++;
	f->left_ns = 0;
	return f;
}

/* Under the lock, so that the announcement of a fetch that begins now comes later. */
void fetch_disown(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, uint64_t object)
{
	struct entry e = { 0 };
	pthread_mutex_t *stripe = ns_lock_name(c->fs, dir_ino, name);
	int rc = catalog_lookup(c->fs->catalog, dir_ino, name, &e);

	if (rc == -ENOENT || (!rc && object && e.object_id != object)) {
		guard_lock(&c->fetcher->lock);
		if (!find_named(c->fetcher, dir_ino, name))
			directory_retract(c->directory, dir, name, object, NULL, NULL);
	}
	pthread_mutex_unlock(stripe);
	entry_fini(&e);
}

/* ---- begin ---- */

/* All its pages at once: a store into the mapping must not find the tmpfs full. */
static int map_frame(struct fs *fs, struct fetch *f, struct space_wait *w)
{
	int rc = tier_call(fs->dram, resize, &f->frame, f->e.size);

	while (!rc && fallocate(f->frame.fd, 0, 0, (off_t)f->e.size)) {
		if (errno != ENOSPC)
			return -errno;
		rc = space_make(fs, f->e.size, w);
	}
	if (rc)
		return rc;
	rc = tier_call(fs->dram, map, f->frame.id, f->e.size, f->frame.fd, &f->mapped);
	if (rc)
		return rc;
	f->map = f->mapped->addr;
	f->fd = fcntl(f->frame.fd, F_DUPFD_CLOEXEC, 0); /* sealing closes the frame's own */
	if (f->fd < 0)
		return -errno;
	f->chunks = xcalloc(f->e.size / PEER_CHUNK_BYTES + 1, 1);
	return 0;
}

static bool is_mapped(const struct fetch *f)
{
	return f->e.size > SMALL_BYTES ||
	       (f->e.size >= CLUSTER_PULL_BYTES && peer_endpoint_pulls(f->c->endpoint));
}

static int take_room(struct fs *fs, struct fetch *f, struct space_wait *w)
{
	int rc = space_make_object(fs);

	if (rc || !f->e.size)
		return rc;
	rc = space_take_frame(fs, f->e.size, &f->frame, w);
	if (!rc)
		rc = space_charge(fs, &f->frame, f->e.size, w);
	if (!rc && is_mapped(f))
		rc = map_frame(fs, f, w);
	else if (!rc)
		rc = tier_call(fs->dram, resize, &f->frame, f->e.size);
	return rc;
}

/* Holders, the newest first: they have the least to do, and who is still fetching passes on what it has. */
static void take_holders(struct fetch *f, const struct directory_value *v)
{
	int self = directory_slot(f->c->directory);

	f->n_sources = 0;
	for (uint32_t k = v->n_holders; k-- > 0;)
		if (v->holders[k] != self)
			f->sources[f->n_sources++].slot = v->holders[k];
}

/* f->id 0: whichever object the name shows. */
static int take_value(struct fetch *f, const struct directory_value *v)
{
	if (v->kind != DIRECTORY_FILE)
		return f->id ? -ESTALE : -ENOENT;
	if (f->id && v->object != f->id)
		return -ESTALE;
	take_holders(f, v);
	if (!f->n_sources)
		return -ESTALE; /* nobody but us: it has just been made here, or has just gone */
	f->id = v->object;
	entry_of_value(v, &f->e);
	return 0;
}

static int find_sources(struct fetch *f)
{
	struct directory_value v;

	if (directory_lookup(f->c->directory, &(struct directory_name){ f->path, f->name }, 1, &v,
			     now_mono_ns() + LOOKUP_NS))
		return -ENOENT;
	int rc = take_value(f, &v);
	directory_value_fini(&v);
	return rc;
}

/*
 * A large object is announced before it is here. Who asks the directory later comes to us, and we to those who asked
 * before us, so that its bytes go from node to node and leave each but once.
 */
static int announce_early(struct fetch *f)
{
	struct directory_value before = { 0 };

	if (!f->is_announced)
		return 0;
	int rc = announce_copy(f->c, f->dir->key, f->path, f->name, &f->e, now_mono_ns() + LOOKUP_NS, &before);
	if (rc == -ESTALE)
		return rc;
	/* No thread has looked at them yet. */
	if (!rc && before.kind == DIRECTORY_FILE && before.n_holders)
		take_holders(f, &before);
	return f->n_sources ? 0 : -ESTALE;
}

static int hold_dir(struct fs *fs, uint64_t dir_ino, struct fetch *f)
{
	guard_lock(&fs->lock);
	struct inode *dir = inode_find(fs, dir_ino);

	if (!dir || dir->kind != INODE_DIR || dir->is_dead)
		return -ENOENT;
	inode_get_locked(dir);
	dir->n_publishing++;
	f->dir = dir;
	return 0;
}

/* known: what the directory says of it; NULL: it is asked. */
static int fetch_create(struct cluster *c, uint64_t id, uint64_t dir_ino, const char *name,
			const struct directory_value *known, struct space_wait *w, struct fetch **out)
{
	struct fetch *f = xcalloc(1, sizeof(*f));

	*f = (struct fetch){ .c = c, .id = id, .frame = FRAME_NONE, .fd = -1, .refs = 2,
			     .step_bytes = PEER_CHUNK_BYTES };
	strncpy(f->name, name, sizeof(f->name) - 1);
	int rc = hold_dir(c->fs, dir_ino, f);
	if (!rc)
		rc = dir_paths_get(c->paths, dir_ino, f->path);
	if (!rc)
		rc = known ? take_value(f, known) : find_sources(f);
	if (!rc)
		rc = take_room(c->fs, f, w);
	if (rc) {
		fetch_free(f);
		return rc;
	}
	f->is_announced = f->e.size > EARLY_BYTES;
	*out = f;
	return 0;
}

/* lock held. One more ref. */
static struct fetch *find_fetch(struct fetcher *t, uint64_t id)
{
	struct fetch *f = t->fetches;

	while (f && (f->id != id || f->is_cancelled))
		f = f->next;
	if (f) {
		f->refs++;
		f->left_ns = 0;
	}
	return f;
}

/* It is in the list, where peers find it; the threads do from now on. */
static void start(struct fetcher *t, struct fetch *f)
{
	uint32_t n = (uint32_t)((f->e.size + FETCH_EXTENT_BYTES - 1) / FETCH_EXTENT_BYTES);
	int rc = announce_early(f);

	if (rc) {
		fetch_end(f, rc);
	} else if (!n) {
		fetch_complete(f); /* empty: its name is all of it */
	} else {
		guard_lock(&t->lock);
		f->extents = xcalloc(n, 1);
		f->n_extents = n;
		pthread_cond_broadcast(&t->work);
	}
}

/* The fetch of that object that is under way, else f, which is in the list then and is to be started. */
static struct fetch *enlist(struct fetcher *t, struct fetch *f)
{
	pthread_mutex_lock(&t->lock);
	struct fetch *other = find_fetch(t, f->id);
	if (!other) {
		struct fetch **at = &t->fetches;
		while (*at)
			at = &(*at)->next;
		*at = f;
	}
	pthread_mutex_unlock(&t->lock);
	if (!other)
		return f;
	counter_inc(fetch_waits);
	fetch_free(f);
	return other;
}

/* The fetch of that object that is under way, else f, which has begun then. */
static struct fetch *join(struct fetcher *t, struct fetch *f)
{
	struct fetch *joined = enlist(t, f);

	if (joined == f)
		start(t, f);
	return joined;
}

bool fetch_is_last_locked(const struct fetch *f)
{
	return f->refs == f->n_taken + 2; /* the caller's, and that of the threads */
}

/* lock held. */
static uint64_t arrived_bytes(const struct fetch *f)
{
	uint64_t n = 0;

	if (f->is_over && !f->rc)
		return f->e.size;
	for (uint64_t k = 0; f->map && k * PEER_CHUNK_BYTES < f->e.size; k++)
		n += f->chunks[k];
	return n * PEER_CHUNK_BYTES < f->e.size ? n * PEER_CHUNK_BYTES : f->e.size;
}

int fetch_wait(struct fetch *f, struct space_wait *w, uint64_t *bytes_out)
{
	struct fetcher *t = f->c->fetcher;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	while (!f->is_over && !rc && !t->is_stopping) {
		int64_t until_ns = now_mono_ns() + SLICE_NS;
		struct timespec ts = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
		pthread_cond_timedwait(&t->changed, &t->lock, &ts);
		if (w->is_interrupted && w->is_interrupted(w->arg))
			rc = -EINTR;
	}
	if (rc && fetch_is_last_locked(f)) {
		f->is_cancelled = true;
		pthread_cond_broadcast(&t->work);
	}
	if (!rc)
		rc = f->is_over ? f->rc : -ESHUTDOWN;
	if (bytes_out)
		*bytes_out = arrived_bytes(f);
	pthread_mutex_unlock(&t->lock);
	fetch_put(f);
	return rc;
}

static int begin_name(struct fs *fs, uint64_t dir_ino, const char *name, struct space_wait *w, struct fetch **out)
{
	struct fetch *f;
	int rc = fs->cluster ? fetch_create(fs->cluster, 0, dir_ino, name, NULL, w, &f) : -ENOENT;

	if (!rc)
		*out = join(fs->cluster->fetcher, f);
	return rc;
}

/* Names of one directory. */
static void begin_some(struct cluster *c, struct fetch_want *wants, size_t n, struct space_wait *w)
{
	struct directory_name names[FETCH_WANTS_MAX];
	struct directory_value values[FETCH_WANTS_MAX];
	char dir[PEER_PATH_MAX];

	if (dir_paths_get(c->paths, wants->dir_ino, dir))
		return;
	for (size_t k = 0; k < n; k++)
		names[k] = (struct directory_name){ dir, wants[k].name };
	counter_add(remote_lookups, n);
	if (directory_lookup(c->directory, names, n, values, now_mono_ns() + LOOKUP_NS))
		return;
	struct fetch *mine[FETCH_WANTS_MAX], *asking[FETCH_WANTS_MAX];
	size_t n_mine = 0;
	for (size_t k = 0; k < n; k++) {
		struct fetch *f;
		if (!fetch_create(c, 0, wants[k].dir_ino, wants[k].name, &values[k], w, &f)) {
			wants[k].fetch = enlist(c->fetcher, f);
			if (wants[k].fetch == f)
				mine[n_mine++] = f;
		}
		directory_value_fini(&values[k]);
	}
	/* Who is announced early may have other holders by then; and of an empty one there is nothing to have. */
	for (size_t k = 0; k < n_mine; k++)
		asking[k] = mine[k]->is_announced || !mine[k]->e.size ? NULL : mine[k];
	fetch_ask_all(c, asking, n_mine);
	for (size_t k = 0; k < n_mine; k++)
		start(c->fetcher, mine[k]);
}

void fetch_begin_all(struct fs *fs, struct fetch_want *wants, size_t n, struct space_wait *w)
{
	for (size_t k = 0; k < n; k++)
		wants[k].fetch = NULL;
	for (size_t k = 0, end; fs->cluster && k < n; k = end) {
		end = k + 1;
		while (end < n && end - k < FETCH_WANTS_MAX && wants[end].dir_ino == wants[k].dir_ino)
			end++;
		begin_some(fs->cluster, wants + k, end - k, w);
	}
}

/* What the inode shows may be on its way already, then nobody is asked. */
static int begin_id(struct cluster *c, uint64_t id, uint64_t dir_ino, const char *name, struct space_wait *w,
		    struct fetch **out)
{
	struct fetch *mine;

	pthread_mutex_lock(&c->fetcher->lock);
	*out = find_fetch(c->fetcher, id);
	pthread_mutex_unlock(&c->fetcher->lock);
	if (*out) {
		counter_inc(fetch_waits);
		return 0;
	}
	int rc = fetch_create(c, id, dir_ino, name, NULL, w, &mine);
	if (!rc)
		*out = join(c->fetcher, mine);
	return rc;
}

int fetch_begin_inode(struct fs *fs, struct inode *i, struct space_wait *w, struct fetch **out)
{
	char name[PEER_NAME_MAX + 1];

	*out = NULL;
	pthread_mutex_lock(&fs->lock);
	bool is_here = i->kind != INODE_OBJECT || i->object || !i->is_remote;
	uint64_t id = i->key, dir_ino = i->parent;
	snprintf(name, sizeof(name), "%s", i->name ? i->name : "");
	pthread_mutex_unlock(&fs->lock);
	if (is_here)
		return 0;
	return fs->cluster ? begin_id(fs->cluster, id, dir_ino, name, w, out) : -ENOENT;
}

int fetch_pause_if_stale(int rc)
{
	if (rc == -ESTALE)
		nanosleep(&(struct timespec){ .tv_nsec = STALE_PAUSE_NS }, NULL);
	return rc;
}

int fetch_object(struct fs *fs, struct inode *i, struct space_wait *w)
{
	struct fetch *f;
	int rc = fetch_begin_inode(fs, i, w, &f);

	if (f)
		rc = fetch_wait(f, w, NULL);
	return fetch_pause_if_stale(rc);
}

int fetch_name(struct fs *fs, uint64_t dir_ino, const char *name, struct space_wait *w)
{
	struct fetch *f;
	int rc = -ESTALE;

	for (int n = 0; rc == -ESTALE && n < MAX_TRIES; n++) {
		rc = begin_name(fs, dir_ino, name, w, &f);
		if (!rc)
			rc = fetch_wait(f, w, NULL);
		if (rc && !catalog_exists(fs->catalog, dir_ino, name))
			rc = 0; /* the newer version was made here */
		fetch_pause_if_stale(rc);
	}
	return rc == -ESTALE ? -ENOENT : rc;
}

/* ---- life ---- */

int fetcher_create(struct cluster *c, struct fetcher **out)
{
	struct fetcher *t = xcalloc(1, sizeof(*t));

	t->c = c;
	pthread_mutex_init(&t->lock, NULL);
	clock_cond_init(&t->work);
	clock_cond_init(&t->changed);
	*out = t;
	for (; t->n_threads < FETCH_THREADS; t->n_threads++) {
		int rc = -pthread_create(&t->threads[t->n_threads], NULL, fetch_extents, t);
		if (rc)
			return rc;
	}
	return 0;
}

void fetcher_stop(struct fetcher *t)
{
	if (!t)
		return;
	guard_lock(&t->lock);
	t->is_stopping = true;
	pthread_cond_broadcast(&t->work);
	pthread_cond_broadcast(&t->changed);
}

void fetcher_join(struct fetcher *t)
{
	while (t && t->n_threads)
		pthread_join(t->threads[--t->n_threads], NULL);
}

void fetcher_destroy(struct fetcher *t)
{
	if (!t)
		return;
	fetcher_stop(t);
	fetcher_join(t);
	while (t->fetches) {
		struct fetch *f = t->fetches;
		pthread_mutex_lock(&t->lock);
		end_locked(t, f, -ESHUTDOWN);
		pthread_mutex_unlock(&t->lock);
		fetch_put(f);
	}
	pthread_cond_destroy(&t->work);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
