/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants of holders: asked for by the thread that needs one, or for all fetches of a batch in one question per holder,
 * with the bytes of those that are small.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/fetch.h"
#include "cluster/paths.h"
#include "fs.h"
#include "object/object.h"

#define GRANT_NS (2ll * 1000 * 1000 * 1000)

static bool is_right(const struct fetch *f, const struct peer_grant *g)
{
	uint64_t n_crc = (f->e.size + PEER_CHUNK_BYTES - 1) / PEER_CHUNK_BYTES;

	if (g->size != f->e.size || (g->n_crc && g->n_crc != n_crc))
		return false;
	if (!f->granted_version)
		return true;
	/* Below kv/ copies of one number may have been made by two nodes. */
	if (f->crc && g->crc)
		return !memcmp(f->crc, g->crc, n_crc * sizeof(*f->crc));
	return g->version == f->granted_version && !f->crc == !g->crc;
}

/* lock held. The first grant says which bytes they are. */
static void note_grant(struct fetch *f, const struct peer_grant *g)
{
	if (f->granted_version)
		return;
	f->granted_version = g->version;
	if (!g->crc)
		return;
	f->crc = xcalloc(g->n_crc, sizeof(*g->crc));
	memcpy(f->crc, g->crc, g->n_crc * sizeof(*g->crc));
	f->n_crc = g->n_crc;
}

static void set_want(const struct fetch *f, void *dst, size_t room, struct peer_want *w)
{
	*w = (struct peer_want){ .version = dir_path_is_kv(f->path) ? 0 : f->id, .name = f->name, .dst = dst,
				 .room = room };
}

/* What a holder has answered becomes the state of the source. */
static int take_answer(struct fetch *f, struct source *s, const struct peer_want *w)
{
	struct fetcher *t = f->c->fetcher;
	int rc = w->rc;

	pthread_mutex_lock(&t->lock);
	if (!rc) {
		s->grant = w->grant;
		rc = is_right(f, &s->grant) ? 0 : -ESTALE;
	}
	if (!rc)
		note_grant(f, &s->grant);
	f->has_moved_on |= rc == -ESTALE || rc == -ENOENT; /* it answers: what the directory said is over */
	s->state = rc ? SOURCE_BAD : SOURCE_GRANTED;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	if (rc && !w->rc && !w->grant.has_bytes)
		peer_release_grant(s->peer, w->grant.grant);
	return rc;
}

int fetch_ask(struct fetch *f, struct source *s, void *buf)
{
	int64_t deadline = now_mono_ns() + GRANT_NS;
	struct peer_want w;

	set_want(f, buf, buf ? PEER_INLINE_MAX : 0, &w);
	w.rc = s->peer ? 0 : cluster_peer(f->c, s->slot, deadline, &s->peer);
	if (!w.rc)
		peer_ask_grants(s->peer, f->path, &w, 1, deadline);
	return take_answer(f, s, &w);
}

/* ---- batches ---- */

/* A small one comes along into memory of its own. */
static void set_early_want(struct fetch *f, struct peer_want *w)
{
	if (!f->map && f->e.size <= PEER_INLINE_MAX)
		f->early = malloc(f->e.size);
	set_want(f, f->early, f->early ? f->e.size : 0, w);
}

static void take_early_answer(struct fetch *f, const struct peer_want *w)
{
	if (take_answer(f, &f->sources[0], w) || !w->grant.has_bytes) {
		free(f->early);
		f->early = NULL;
	}
}

/* Those of all[0 .. n) that have the first holder of all[0]; they are taken out (NULL). */
static void ask_holder(struct cluster *c, struct fetch **all, size_t n)
{
	struct fetch *asked[PEER_GRANTS_MAX];
	struct peer_want w[PEER_GRANTS_MAX];
	int64_t deadline = now_mono_ns() + GRANT_NS;
	uint16_t slot = all[0]->sources[0].slot;
	struct peer *p = NULL;
	size_t n_asked = 0;

	int rc = cluster_peer(c, slot, deadline, &p);
	for (size_t k = 0; k < n && n_asked < PEER_GRANTS_MAX; k++) {
		if (!all[k] || all[k]->sources[0].slot != slot)
			continue;
		asked[n_asked] = all[k];
		all[k] = NULL;
		set_early_want(asked[n_asked], &w[n_asked]);
		asked[n_asked]->sources[0].peer = rc ? NULL : peer_ref(p);
		w[n_asked++].rc = rc;
	}
	if (!rc)
		peer_ask_grants(p, asked[0]->path, w, n_asked, deadline);
	for (size_t k = 0; k < n_asked; k++)
		take_early_answer(asked[k], &w[k]);
	if (p)
		peer_put(p);
}

void fetch_ask_all(struct cluster *c, struct fetch **all, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (all[k])
			ask_holder(c, all + k, n - k);
}
