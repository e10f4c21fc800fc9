/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resync: what this node holds is announced, and what is older than what the directory knows goes here.
 *
 *   all of it       at the start, and whenever the directory may have lost something or our lease ran out
 *   all but kv/     whenever another node has ended, since it may have done so between a change and telling us; and once
 *                   in a while, whatever else there is that we were not told of
 *
 * One thread, one pass at a time; what is asked for during a pass is done by one more.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "cluster/change.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"

/* Announcements under way at a time. */
#define RESYNC_WINDOW 1024
#define RESYNC_FLUSH_NS (30ll * 1000 * 1000 * 1000)
#define RESYNC_LOOK_NS (200ll * 1000 * 1000)
#define LEASE_NS (5000ll * 1000 * 1000)
/* Others notice within a second that the directory has lost what it had, and announce what was removed first. */
#define AWAY_DELAY_NS (3000ll * 1000 * 1000)
/* From the end of one pass to the next that nobody asked for: at least this, and so many times what the last one took. */
#define REVALIDATE_NS (300ll * 1000 * 1000 * 1000)
#define REVALIDATE_SHARE 50

struct resync {
	struct change_queue *q;
	bool is_all;
	uint64_t n;
};

static bool is_ending(struct change_queue *q)
{
	guard_lock(&q->lock);
	return q->is_stopping;
}

/* What was announced has arrived. False: it is away again, or this node ends. */
static bool resync_flush(struct change_queue *q)
{
	int64_t end_ns = now_mono_ns() + RESYNC_FLUSH_NS, now_ns;
	int rc;

	do {
		now_ns = now_mono_ns();
		rc = directory_flush(q->c->directory,
				     now_ns + RESYNC_LOOK_NS < end_ns ? now_ns + RESYNC_LOOK_NS : end_ns);
	} while (rc == -ETIMEDOUT && now_ns < end_ns && !is_ending(q));
	return !rc;
}

static int resync_name(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	struct resync *r = arg;
	struct cluster *c = r->q->c;
	char dir[PEER_PATH_MAX];

	if (e->ino == CATALOG_ROOT_INO || dir_paths_get(c->paths, parent, dir))
		return 0;
	if (!r->is_all && dir_path_is_kv(dir))
		return is_ending(r->q);
	announce_entry(c, parent, dir, name, e);
	if (++r->n % RESYNC_WINDOW == 0 && !resync_flush(r->q))
		return 1; /* if it is away again, another resync follows */
	return is_ending(r->q);
}

/* q->lock held. False: it ended meanwhile. */
static bool wait_until(struct change_queue *q, int64_t end_ns)
{
	return !clock_cond_wait(&q->cond, &q->lock, end_ns) && !q->is_stopping;
}

/* Who was away lets the others say first what was removed meanwhile: the directory may have lost it. */
static void wait_for_others(struct change_queue *q)
{
	int64_t end_ns = now_mono_ns() + AWAY_DELAY_NS;

	guard_lock(&q->lock);
	if (!q->was_away)
		return;
	q->was_away = false;
	while (wait_until(q, end_ns))
		continue;
}

/* Returns how long it took. */
static int64_t pass(struct change_queue *q, bool is_all)
{
	struct resync r = { .q = q, .is_all = is_all };
	int64_t began_ns = now_mono_ns();

	if (is_all)
		r.n = tombstones_announce(q->c);
	wait_for_others(q);
	int rc = catalog_scan_names(q->c->fs->catalog, resync_name, &r, NULL);
	int64_t took_ns = now_mono_ns() - began_ns;
	log_write(is_all ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "announced %llu names in %.1f s%s",
		  (unsigned long long)r.n, (double)took_ns / 1e9, rc ? ", not all" : "");
	return took_ns;
}

void *changes_resync_main(void *arg)
{
	struct change_queue *q = arg;
	int64_t next_ns = now_mono_ns() + REVALIDATE_NS;

	pthread_mutex_lock(&q->lock);
	while (!q->is_stopping) {
		if (!q->must_resync && !q->must_revalidate && now_mono_ns() < next_ns) {
			wait_until(q, next_ns);
			continue;
		}
		bool is_all = q->must_resync;
		q->must_resync = q->must_revalidate = false;
		q->n_resyncs++;
		pthread_mutex_unlock(&q->lock);
		int64_t gap_ns = REVALIDATE_SHARE * pass(q, is_all);
		next_ns = now_mono_ns() + (gap_ns > REVALIDATE_NS ? gap_ns : REVALIDATE_NS);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

static void note_node(void *incarnations, const struct directory_node *n)
{
	((uint64_t *)incarnations)[n->slot] = n->incarnation;
}

/* Somebody who was there is not there any more, or again. */
static bool has_node_ended(struct change_queue *q)
{
	uint64_t now[DIRECTORY_SLOTS] = { 0 };
	bool has_ended = false;

	directory_each_node(q->c->directory, note_node, now);
	for (unsigned s = 0; s < DIRECTORY_SLOTS; s++)
		has_ended |= q->incarnations[s] && q->incarnations[s] != now[s];
	memcpy(q->incarnations, now, sizeof(now));
	return has_ended;
}

void changes_renewed(struct cluster *c)
{
	struct change_queue *q = c->changes;
	int64_t now_ns = now_mono_ns();
	bool has_ended = has_node_ended(q);

	guard_lock(&q->lock);
	q->was_away |= q->renewed_ns && now_ns - q->renewed_ns > LEASE_NS;
	q->renewed_ns = now_ns;
	q->must_revalidate |= has_ended;
	if (has_ended)
		pthread_cond_broadcast(&q->cond);
}

void changes_resync(struct cluster *c)
{
	struct change_queue *q = c->changes;

	guard_lock(&q->lock);
	q->must_resync = true;
	pthread_cond_broadcast(&q->cond);
}

uint64_t changes_resyncs(struct cluster *c)
{
	guard_lock(&c->changes->lock);
	return c->changes->n_resyncs;
}
