/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resync: everything that this node holds is announced: at the start, and whenever the directory may have lost something
 * or others may have changed something without our being told. What is older than what the directory knows goes here.
 */
#include <errno.h>

#include "base/cleanup.h"
#include "base/log.h"
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

struct resync {
	struct change_queue *q;
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
	announce_entry(c, parent, dir, name, e);
	if (++r->n % RESYNC_WINDOW == 0 && !resync_flush(r->q))
		return 1; /* if it is away again, another resync follows */
	return is_ending(r->q);
}

/* Who was away lets the others say first what was removed meanwhile: the directory may have lost it. */
static void wait_for_others(struct change_queue *q)
{
	int64_t end_ns = now_mono_ns() + AWAY_DELAY_NS;
	struct timespec ts = { .tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000 };

	guard_lock(&q->lock);
	if (!q->was_away)
		return;
	q->was_away = false;
	while (!q->is_stopping && pthread_cond_timedwait(&q->cond, &q->lock, &ts) != ETIMEDOUT)
		continue;
}

void *changes_resync_main(void *arg)
{
	struct change_queue *q = arg;

	pthread_mutex_lock(&q->lock);
	while (!q->is_stopping) {
		if (!q->must_resync) {
			pthread_cond_wait(&q->cond, &q->lock);
			continue;
		}
		q->must_resync = false;
		pthread_mutex_unlock(&q->lock);
		struct resync r = { .q = q };
		int64_t began_ns = now_mono_ns();
		r.n = tombstones_announce(q->c);
		wait_for_others(q);
		int rc = catalog_scan_names(q->c->fs->catalog, resync_name, &r, NULL);
		log_info("announced %llu names in %.1f s%s", (unsigned long long)r.n,
			 (double)(now_mono_ns() - began_ns) / 1e9, rc ? ", not all" : "");
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

void changes_renewed(struct cluster *c)
{
	struct change_queue *q = c->changes;
	int64_t now_ns = now_mono_ns();

	guard_lock(&q->lock);
	q->was_away |= q->renewed_ns && now_ns - q->renewed_ns > LEASE_NS;
	q->renewed_ns = now_ns;
}

void changes_resync(struct cluster *c)
{
	struct change_queue *q = c->changes;

	guard_lock(&q->lock);
	q->must_resync = true;
	pthread_cond_broadcast(&q->cond);
}
