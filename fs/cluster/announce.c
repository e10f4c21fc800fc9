/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "cluster/change.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/object.h"
#include "object/version.h"

#define VERSION_NODE_MASK 0xfffull
/* A temporary name that is renamed at once never reaches the directory. */
#define KV_DELAY_MS 5
/* How long a change waits for the directory before its maker goes on without. */
#define SETTLE_NS (2000ll * 1000 * 1000)
/* That the directory went away is noticed within this time. */
#define LOOK_NS (20ll * 1000 * 1000)

/* What this thread has changed since its last cluster_settle, newest first. */
static _Thread_local struct change *mine;

uint64_t name_version(const struct entry *e)
{
	uint64_t id = e->object_id ? e->object_id : e->ino;

	if (S_ISDIR(e->mode))
		return id; /* its ctime moves with every name in it */
	uint64_t changed = ((uint64_t)(e->ctime_ns / 1000) << 12) | (id & VERSION_NODE_MASK);
	return changed > id ? changed : id;
}

void value_of_entry(const struct entry *e, struct directory_value *v)
{
	*v = (struct directory_value){
		.kind = S_ISDIR(e->mode) ? DIRECTORY_DIR : S_ISLNK(e->mode) ? DIRECTORY_SYMLINK : DIRECTORY_FILE,
		.version = name_version(e),
		.object = e->object_id ? e->object_id : e->ino,
		.size = e->size,
		.mode = e->mode,
		.uid = e->uid,
		.gid = e->gid,
		.mtime_ns = e->mtime_ns,
		.target = e->target,
	};
}

/* ---- one change ---- */

static struct change *change_create(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name)
{
	struct change *x = xcalloc(1, sizeof(*x));

	x->c = c;
	x->dir_ino = dir_ino;
	x->dir = xstrdup(dir);
	x->name = xstrdup(name);
	x->is_kv = dir_path_is_kv(dir);
	return x;
}

void change_free(struct change *x)
{
	free(x->dir);
	free(x->name);
	free(x);
}

/* q->lock held. */
static void give_to_follower(struct change_queue *q, struct change *x)
{
	x->next = NULL;
	*(q->head ? &q->tail->next : &q->head) = x;
	q->tail = x;
}

static void on_done(void *arg, int rc, const struct directory_value *before)
{
	struct change *x = arg;
	struct change_queue *q = x->c->changes;

	guard_lock(&q->lock);
	x->rc = rc;
	if (before && (rc == 0 || rc == -ESTALE)) {
		x->before = *before;
		x->before.target = NULL;
	}
	x->is_done = true;
	if (x->is_followed)
		give_to_follower(q, x);
	pthread_cond_broadcast(&q->cond);
}

static void announce(struct cluster *c, struct change *x, const struct entry *e, uint32_t delay_ms)
{
	struct directory_value v;

	value_of_entry(e, &v);
	v.is_copy = x->is_kv;
	x->version = v.version;
	x->object = v.object;
	x->size = v.size;
	x->mode = v.mode;
	x->uid = v.uid;
	x->gid = v.gid;
	x->mtime_ns = v.mtime_ns;
	counter_inc(announcements);
	directory_announce(c->directory, x->dir, x->name, &v, delay_ms, on_done, x);
}

static void remember(struct change *x)
{
	x->next = mine;
	mine = x;
}

void cluster_published(struct fs *fs, uint64_t dir_ino, const char *name, const struct entry *e, bool is_overwrite)
{
	struct cluster *c = fs->cluster;
	char dir[PEER_PATH_MAX];

	if (!c)
		return;
	if (S_ISDIR(e->mode))
		dir_paths_put(c->paths, e->ino, dir_ino, name);
	int rc = dir_paths_get(c->paths, dir_ino, dir);
	if (rc) {
		log_debug("\"%s\" in directory %llu is not announced: %s", name, (unsigned long long)dir_ino,
			  strerror(-rc));
		return;
	}
	struct change *x = change_create(c, dir_ino, dir, name);
	x->is_followed = x->is_kv && S_ISREG(e->mode) && !is_overwrite;
	if (!x->is_followed)
		remember(x);
	announce(c, x, e, x->is_followed ? KV_DELAY_MS : 0);
}

static void send_removal(struct change *x, uint64_t version)
{
	x->is_removed = true;
	x->version = version;
	counter_inc(announcements);
	directory_remove(x->c->directory, x->dir, x->name, x->version, on_done, x);
}

void cluster_removed(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t version)
{
	struct cluster *c = fs->cluster;
	char dir[PEER_PATH_MAX];

	if (!c || !version || dir_paths_get(c->paths, dir_ino, dir))
		return;
	struct change *x = change_create(c, dir_ino, dir, name);
	remember(x);
	send_removal(x, version);
}

void announce_entry(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, const struct entry *e)
{
	struct change *x = change_create(c, dir_ino, dir, name);

	x->is_followed = true;
	announce(c, x, e, KV_DELAY_MS);
}

void announce_removed(struct cluster *c, const char *dir, const char *name, uint64_t version)
{
	struct change *x = change_create(c, 0, dir, name);

	x->is_followed = true;
	send_removal(x, version);
}

void cluster_dropped(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t object_id)
{
	struct cluster *c = fs->cluster;
	char dir[PEER_PATH_MAX];

	if (!c || dir_paths_get(c->paths, dir_ino, dir))
		return;
	counter_inc(announcements);
	/* A copy below kv/ is known by the object of its first holder. */
	directory_retract(c->directory, dir, name, dir_path_is_kv(dir) ? 0 : object_id, NULL, NULL);
}

/* ---- the maker waits ---- */

/* Waits until x is done; false: its maker goes on without, the follower will do the rest. */
static bool wait_done(struct change_queue *q, struct change *x, int64_t deadline_ns)
{
	char why[4];

	guard_lock(&q->lock);
	while (!x->is_done && !q->is_stopping && now_mono_ns() < deadline_ns &&
	       !directory_state(x->c->directory, why, sizeof(why)))
		clock_cond_wait(&q->cond, &q->lock, now_mono_ns() + LOOK_NS);
	if (!x->is_done)
		x->is_followed = true;
	return x->is_done;
}

void cluster_settle(struct fs *fs)
{
	struct cluster *c = fs->cluster;
	struct change *list = mine, *done = NULL;
	int64_t deadline = list ? now_mono_ns() + SETTLE_NS : 0;

	mine = NULL;
	for (struct change *x = list, *next; x; x = next) {
		next = x->next;
		if (!wait_done(c->changes, x, deadline))
			continue;
		x->next = done;
		done = x;
	}
	if (done)
		changes_finish(c, done);
}

int announce_copy(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, const struct entry *e,
		  int64_t deadline_ns, struct directory_value *before_out)
{
	struct change *x = change_create(c, dir_ino, dir, name);
	int rc = -ETIMEDOUT;

	announce(c, x, e, 0);
	if (wait_done(c->changes, x, deadline_ns)) {
		rc = x->rc;
		if (before_out)
			*before_out = x->before;
		change_free(x);
	}
	return rc;
}

/* ---- life ---- */

int changes_create(struct cluster *c, struct change_queue **out)
{
	struct change_queue *q = xcalloc(1, sizeof(*q));

	q->c = c;
	q->incarnations = xcalloc(DIRECTORY_SLOTS, sizeof(*q->incarnations));
	pthread_mutex_init(&q->lock, NULL);
	clock_cond_init(&q->cond);
	*out = q;
	int rc = -pthread_create(&q->follower, NULL, changes_follow, q);
	if (!rc) {
		rc = -pthread_create(&q->resyncer, NULL, changes_resync_main, q);
		if (!rc)
			return 0;
		/* The follower may be between its look and its wait. */
		pthread_mutex_lock(&q->lock);
		q->is_stopping = true;
		pthread_cond_broadcast(&q->cond);
		pthread_mutex_unlock(&q->lock);
		pthread_join(q->follower, NULL);
	}
	q->is_stopped = true;
	return rc;
}

void changes_stop(struct change_queue *q)
{
	if (!q || q->is_stopped)
		return;
	pthread_mutex_lock(&q->lock);
	q->is_stopping = q->is_stopped = true;
	pthread_cond_broadcast(&q->cond);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->follower, NULL);
	pthread_join(q->resyncer, NULL);
}

void changes_destroy(struct change_queue *q)
{
	if (!q)
		return;
	changes_stop(q);
	for (struct change *x = q->head, *next; x; x = next) {
		next = x->next;
		change_free(x);
	}
	pthread_cond_destroy(&q->cond);
	pthread_mutex_destroy(&q->lock);
	free(q->incarnations);
	free(q);
}
