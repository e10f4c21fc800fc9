/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve: our objects for peers. A grant holds an object open, with a descriptor of its frame, for the node that asked, in
 * this life of it: until it is released, the node's connection ends, or nothing was read for its time to live. Eviction
 * passes over what is open, and a name that changes meanwhile leaves the granted version readable. What is still being
 * fetched is granted too: a READ waits for what has not come.
 *
 * Lock: grants->lock guards the table and the references; nothing is called under it but free and close.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/object.h"
#include "object/verify.h"

#define N_BUCKETS 1024
/* Each holds a descriptor. */
#define MAX_GRANTS 16384
#define TTL_MS 10000
/* A fetch that has just begun soon knows from its own holder what it will be. */
#define FETCH_GRANT_NS (1000ll * 1000 * 1000)

struct grant {
	struct grant *next;
	uint64_t id;
	struct peer_id from;
	struct object *object;     /* held open; or */
	struct fetch *fetch;       /* held, under way when it was granted */
	int fd;                    /* of the frame, ours or the fetch's; -1: it is empty */
	struct frame_map *mapped;  /* while the asker may read it by itself; NULL: it may not */
	uint32_t *crc, n_crc;
	uint64_t size, version;
	int64_t until_ns;
	uint32_t refs;             /* the table's, and reads under way */
	bool is_over;              /* not in the table */
	struct grant_table *table;
};

struct grant_table {
	struct cluster *c;
	pthread_mutex_t lock;
	struct grant *buckets[N_BUCKETS];
	size_t n;
	uint64_t next_id;
};

struct grant_table *grants_create(struct cluster *c)
{
	struct grant_table *t = xcalloc(1, sizeof(*t));

	t->c = c;
	pthread_mutex_init(&t->lock, NULL);
	t->next_id = 1;
	return t;
}

static void grant_end(struct grant *g)
{
	if (g->fetch) {
		fetch_serve_end(g->table->c->fs, g->fetch);
	} else {
		if (g->mapped)
			tier_call(g->table->c->fs->dram, unmap, g->mapped);
		object_close(g->table->c->fs, g->object);
		if (g->fd >= 0)
			close(g->fd);
	}
	free(g->crc);
	free(g);
}

static void grant_put(struct grant *g)
{
	pthread_mutex_lock(&g->table->lock);
	bool is_last = --g->refs == 0;
	pthread_mutex_unlock(&g->table->lock);
	if (is_last)
		grant_end(g);
}

static struct grant **bucket_of(struct grant_table *t, uint64_t id)
{
	return &t->buckets[id % N_BUCKETS];
}

/* Takes all that match out of the table. from NULL, id 0: any; before_ns: whose time is over by then. */
static void take_out(struct grant_table *t, const struct peer_id *from, uint64_t id, int64_t before_ns)
{
	struct grant *gone = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t b = 0; b < N_BUCKETS; b++) {
		if (id && bucket_of(t, id) != &t->buckets[b])
			continue;
		for (struct grant **at = &t->buckets[b]; *at;) {
			struct grant *g = *at;
			if ((from && !peer_id_is_same(from, &g->from)) || (id && g->id != id) ||
			    g->until_ns > before_ns) {
				at = &g->next;
				continue;
			}
			*at = g->next;
			t->n--;
			g->is_over = true;
			g->next = gone;
			gone = g;
		}
	}
	pthread_mutex_unlock(&t->lock);
	for (struct grant *g = gone, *next; g; g = next) {
		next = g->next;
		grant_put(g);
	}
}

void grants_expire(struct grant_table *t)
{
	take_out(t, NULL, 0, now_mono_ns());
}

void grants_destroy(struct grant_table *t)
{
	if (!t)
		return;
	take_out(t, NULL, 0, INT64_MAX);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* ---- GRANT ---- */

/* The object that a name shows, held open. */
static int hold_named(struct fs *fs, const struct peer_grant_ask *ask, struct object **out)
{
	uint64_t dir_ino;
	struct entry e;
	int rc = dir_paths_find(fs->catalog, ask->dir, &dir_ino);

	if (!rc)
		rc = catalog_lookup(fs->catalog, dir_ino, ask->name, &e);
	if (rc)
		return rc == -ENOTDIR ? -ENOENT : rc;
	uint64_t id = e.object_id;
	entry_fini(&e);
	if (!id)
		return -ENOENT;
	if (ask->version && id != ask->version)
		return -ESTALE;
	guard_lock(&fs->lock);
	struct object *o = object_find_locked(fs, id);
	if (!o || o->state != OBJECT_LIVE || o->is_evicting)
		return -ENOENT;
	object_open_locked(o);
	object_touch_locked(fs, o, 0);
	*out = o;
	return 0;
}

static int open_frame(struct fs *fs, struct object *o, int *fd_out)
{
	const char *tier;

	*fd_out = -1;
	if (!o->size)
		return 0;
	int rc = verify_before_open(fs, o, NULL);
	if (rc)
		return rc;
	int fd = object_open_frame(fs, o, &tier);
	if (fd < 0)
		return fd;
	*fd_out = fd;
	return 0;
}

/* The checksums that the record has; none is no failure, the endpoint computes them then. */
static void read_crc(struct fs *fs, struct grant *g)
{
	struct object_record r;

	if (catalog_object_get(fs->catalog, g->object->id, &r))
		return;
	g->crc = r.crc;
	g->n_crc = r.n_crc;
	r.crc = NULL;
	object_record_fini(&r);
}

/* For an asker that reads memory by itself, and can tell by checksums what it got. Without it goes by READ. */
static void map_frame(struct fs *fs, struct grant *g)
{
	pthread_mutex_lock(&fs->lock);
	uint64_t frame = g->object->dram_frame;
	pthread_mutex_unlock(&fs->lock);
	if (!frame || !g->n_crc || g->size < CLUSTER_PULL_BYTES)
		return;
	int rc = tier_call(fs->dram, map, frame, g->size, -1, &g->mapped);
	if (rc)
		log_debug("frame %016lx is not mapped for a peer: %s", (unsigned long)frame, strerror(-rc));
}

/* Of an object that is here. */
static int grant_object(struct cluster *c, const struct peer_grant_ask *ask, struct grant *g)
{
	int rc = hold_named(c->fs, ask, &g->object);

	if (rc)
		return rc;
	g->size = g->object->size;
	g->version = g->object->id;
	rc = open_frame(c->fs, g->object, &g->fd);
	if (rc) {
		object_close(c->fs, g->object);
		return rc;
	}
	read_crc(c->fs, g);
	if (ask->wants_key)
		map_frame(c->fs, g);
	return 0;
}

/* Of one that is being fetched. */
static int grant_fetch(struct cluster *c, const struct peer_grant_ask *ask, struct grant *g, int64_t deadline_ns)
{
	int64_t soon_ns = now_mono_ns() + FETCH_GRANT_NS;
	struct fetch_piece_source from;
	uint64_t dir_ino;
	int rc = dir_paths_find(c->fs->catalog, ask->dir, &dir_ino);

	if (!rc)
		rc = fetch_serve(c, dir_ino, ask->name, ask->version, soon_ns < deadline_ns ? soon_ns : deadline_ns,
				 &from);
	if (rc)
		return rc;
	g->fetch = from.fetch;
	g->fd = from.fd;
	g->crc = from.crc;
	g->n_crc = from.n_crc;
	g->size = from.size;
	g->version = from.version;
	return 0;
}

/*
 * The directory may name us as a holder of what we have no more: this node died with bytes that were in memory alone, or
 * before it could say that it dropped them. Who comes for them shows it.
 */
static void disown_missing(struct cluster *c, const struct peer_grant_ask *ask)
{
	uint64_t dir_ino;

	if (!dir_paths_find(c->fs->catalog, ask->dir, &dir_ino))
		fetch_disown(c, dir_ino, ask->dir, ask->name, ask->version);
}

/* A fetch that ends between the two looks is an object then. */
static int grant_any(struct cluster *c, const struct peer_grant_ask *ask, struct grant *g, int64_t deadline_ns)
{
	int rc = grant_object(c, ask, g);

	if (rc != -ENOENT && rc != -ESTALE)
		return rc;
	int fetch_rc = grant_fetch(c, ask, g, deadline_ns);
	if (fetch_rc != -ENOENT && fetch_rc != -ESTALE)
		return fetch_rc;
	rc = grant_object(c, ask, g);
	if (rc == -ENOENT || rc == -ESTALE)
		disown_missing(c, ask);
	return rc;
}

static int add(struct grant_table *t, struct grant *g)
{
	guard_lock(&t->lock);
	if (t->n >= MAX_GRANTS)
		return -EAGAIN;
	g->id = t->next_id++;
	g->next = *bucket_of(t, g->id);
	*bucket_of(t, g->id) = g;
	t->n++;
	return 0;
}

static int copy_answer(const struct grant *g, struct peer_grant *out)
{
	*out = (struct peer_grant){ .grant = g->id, .version = g->version, .size = g->size, .ttl_ms = TTL_MS,
				    .is_partial = g->fetch };
	if (g->mapped && g->mapped->registration)
		out->key_len = peer_key_of(g->table->c->endpoint, g->mapped->registration, out->key);
	if (!g->n_crc)
		return 0;
	out->crc = malloc(g->n_crc * sizeof(*g->crc));
	if (!out->crc)
		return -ENOMEM;
	memcpy(out->crc, g->crc, g->n_crc * sizeof(*g->crc));
	out->n_crc = g->n_crc;
	return 0;
}

int grants_give(void *arg, const struct peer_grant_ask *ask, struct peer_grant *out, int64_t deadline_ns)
{
	struct cluster *c = arg;

	/* Somebody may have changed the name and waited for our lease to run out, not for us. */
	if (!dir_path_is_kv(ask->dir) && !directory_lease_holds(c->directory))
		return -ESTALE;
	struct grant *g = xcalloc(1, sizeof(*g));
	*g = (struct grant){ .from = ask->from, .refs = 2 /* the table's, and ours for the answer */, .fd = -1,
			     .until_ns = now_mono_ns() + TTL_MS * 1000000ll, .table = c->grants };
	int rc = grant_any(c, ask, g, deadline_ns);
	if (rc) {
		free(g);
		return rc;
	}
	rc = add(c->grants, g);
	if (rc) {
		grant_end(g);
		return rc;
	}
	rc = copy_answer(g, out);
	if (rc)
		take_out(c->grants, &g->from, g->id, INT64_MAX);
	else
		counter_inc(grants);
	grant_put(g);
	return rc;
}

/* ---- READ ---- */

static struct grant *get(struct grant_table *t, const struct peer_id *from, uint64_t id)
{
	guard_lock(&t->lock);
	struct grant *g = *bucket_of(t, id);

	while (g && g->id != id)
		g = g->next;
	if (!g || !peer_id_is_same(&g->from, from))
		return NULL;
	g->until_ns = now_mono_ns() + TTL_MS * 1000000ll;
	g->refs++;
	return g;
}

static void piece_done(void *arg)
{
	grant_put(arg);
}

int grants_read(void *arg, const struct peer_id *from, uint64_t grant, uint64_t off, uint32_t len,
		struct peer_piece *out, int64_t deadline_ns)
{
	struct cluster *c = arg;
	struct grant *g = get(c->grants, from, grant);

	if (!g)
		return -ESTALE;
	int rc = off >= g->size || !len || len > g->size - off ? -EINVAL : 0;
	if (!rc && g->fetch)
		rc = fetch_serve_await(g->fetch, off, deadline_ns);
	if (rc) {
		grant_put(g);
		return rc;
	}
	uint64_t chunk = off / PEER_CHUNK_BYTES;
	uint64_t chunk_end = (chunk + 1) * PEER_CHUNK_BYTES < g->size ? (chunk + 1) * PEER_CHUNK_BYTES : g->size;
	uint32_t n = len < chunk_end - off ? len : (uint32_t)(chunk_end - off);
	bool is_whole = off == chunk * PEER_CHUNK_BYTES && off + n == chunk_end;

	*out = (struct peer_piece){ .fd = g->fd, .off = off, .len = n, .done = piece_done, .arg = g };
	if (is_whole && chunk < g->n_crc) {
		out->crc = g->crc[chunk];
		out->has_crc = true;
	}
	counter_add(served_bytes, n);
	return 0;
}

void grants_release(void *arg, const struct peer_id *from, uint64_t grant)
{
	struct cluster *c = arg;

	if (grant)
		take_out(c->grants, from, grant, INT64_MAX);
}

void grants_gone(void *arg, const struct peer_id *from)
{
	struct cluster *c = arg;

	take_out(c->grants, from, 0, INT64_MAX);
}
