/* SPDX-License-Identifier: Apache-2.0 */
/* From done to told. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/change.h"
#include "cluster/letter.h"
#include "cluster/paths.h"
#include "fs.h"
#include "object/version.h"

#define INVALIDATE_NS (2000ll * 1000 * 1000)
/* How long a letter has to be dealt with before another way is tried again. */
#define POST_NS (2000ll * 1000 * 1000)
/* A lease (5 s) and what the clocks may be apart. */
#define LEASE_END_NS (6000ll * 1000 * 1000)
#define RETRY_NS (100 * 1000 * 1000)

/*
 * It found itself, from an earlier try whose answer was lost: what was there before that, nobody knows. Below kv/ it was
 * nothing or a copy.
 */
static bool has_found_itself(const struct change *x)
{
	return x->before.is_unsure && x->before.version == x->version && (x->is_removed || !x->is_kv);
}

/* Whether holders of what was there before have to hear of x. */
static bool replaces(const struct change *x)
{
	if (x->rc || x->before.kind == DIRECTORY_NONE)
		return false;
	if (has_found_itself(x))
		return true;
	if (x->before.kind == DIRECTORY_TOMBSTONE)
		return false;
	if (x->is_removed)
		return true;
	if (x->before.object == x->object)
		return x->before.version < x->version &&
		       (x->before.mode != x->mode || x->before.uid != x->uid || x->before.gid != x->gid ||
			x->before.mtime_ns != x->mtime_ns);
	/* Below kv/ equal names of one size are copies, whoever made them. */
	return x->before.kind != DIRECTORY_DIR &&
	       !(x->is_kv && x->before.kind == DIRECTORY_FILE && x->before.size == x->size);
}

/* Anybody may have what was there before. */
static bool concerns_all(const struct change *x)
{
	return has_found_itself(x) || x->before.n_holders == DIRECTORY_HOLDERS_MAX;
}

static bool is_held_by(const struct change *x, uint16_t slot)
{
	for (uint32_t k = 0; k < x->before.n_holders; k++)
		if (x->before.holders[k] == slot)
			return true;
	return false;
}

/* By way of the directory, for a holder that we do not reach. -ENOENT: its lease has run out. */
static int post(struct cluster *c, uint16_t slot, const struct peer_invalidation *v, size_t n)
{
	autofree uint8_t *buf = malloc(LETTER_BYTES_MAX);
	int rc = buf ? 0 : -ENOMEM;

	for (size_t k = 0; !rc && k < n;) {
		size_t len;
		k += letter_encode(v + k, n - k, buf, &len);
		rc = directory_post(c->directory, slot, buf, len, now_mono_ns() + POST_NS);
	}
	if (!rc)
		counter_inc(invalidations_posted);
	return rc;
}

static int tell_some(struct cluster *c, uint16_t slot, struct peer *p, const struct peer_invalidation *v, size_t n)
{
	int rc = peer_invalidate(p, v, n, now_mono_ns() + INVALIDATE_NS);

	if (!rc || rc == -ENOENT || rc == -ECANCELED)
		return rc;
	int post_rc = post(c, slot, v, n);
	return post_rc == 0 || post_rc == -ENOENT || post_rc == -ECANCELED ? post_rc : rc;
}

/* Tells one holder of all changes in the list that it has to know. 0, or why it did not hear of them. */
static int tell(struct cluster *c, uint16_t slot, const struct change *list)
{
	struct peer_invalidation v[PEER_INVALIDATE_MAX];
	struct peer *p;
	size_t n = 0;
	int rc = cluster_peer(c, slot, now_mono_ns() + INVALIDATE_NS, &p);

	if (rc)
		return rc; /* -ENOENT: its lease has run out */
	for (const struct change *x = list; x && !rc; x = x->next) {
		if (!replaces(x) || !(concerns_all(x) || is_held_by(x, slot)))
			continue;
		v[n++] = (struct peer_invalidation){ x->dir, x->name, x->version, x->is_removed };
		if (n == PEER_INVALIDATE_MAX) {
			rc = tell_some(c, slot, p, v, n);
			n = 0;
		}
	}
	if (!rc && n)
		rc = tell_some(c, slot, p, v, n);
	peer_put(p);
	return rc;
}

/* A holder that does not answer is waited for until its lease has run out: it grants nothing from then on. */
static void tell_until_told(struct cluster *c, uint16_t slot, const struct change *list)
{
	int64_t end = now_mono_ns() + LEASE_END_NS;
	int rc;

	while ((rc = tell(c, slot, list)) && rc != -ENOENT && rc != -ECANCELED && now_mono_ns() < end)
		nanosleep(&(struct timespec){ .tv_nsec = RETRY_NS }, NULL);
	if (rc && rc != -ENOENT)
		log_warn("the node of slot %u has not acknowledged a change: %s", (unsigned)slot, strerror(-rc));
}

static void mark_node(void *slots, const struct directory_node *n)
{
	((bool *)slots)[n->slot] = true;
}

static void tell_holders(struct cluster *c, const struct change *list)
{
	bool slots[DIRECTORY_SLOTS] = { false };
	int self = directory_slot(c->directory);

	for (const struct change *x = list; x; x = x->next) {
		if (!replaces(x))
			continue;
		for (uint32_t k = 0; k < x->before.n_holders; k++)
			if (x->before.holders[k] < DIRECTORY_SLOTS)
				slots[x->before.holders[k]] = true;
		if (concerns_all(x))
			directory_each_node(c->directory, mark_node, slots);
	}
	for (int slot = 0; slot < DIRECTORY_SLOTS; slot++)
		if (slots[slot] && slot != self)
			tell_until_told(c, (uint16_t)slot, list);
}

/* Something newer is there: ours goes. Below kv/ both are the same by contract. */
static void yield_to_newer(struct cluster *c, const struct change *x)
{
	bool is_copy = x->is_kv && x->before.kind == DIRECTORY_FILE && x->before.size == x->size;

	if (x->before.version)
		version_observe(c->fs->clock, x->before.version);
	if (x->rc == -ESTALE && !x->is_removed && !is_copy &&
	    invalidate_name(c->fs, x->dir_ino, x->name, x->before.version))
		log_info("\"%s\" in %s: another node has a newer version", x->name, x->dir);
}

/* The directory knew us as a holder of what was removed: we may have fetched it since, from who did not know. */
static void drop_ours(struct cluster *c, const struct change *x)
{
	int self = directory_slot(c->directory);
	uint64_t dir_ino;

	if (x->rc || !x->is_removed || self < 0 || !(concerns_all(x) || is_held_by(x, (uint16_t)self)))
		return;
	if (!dir_paths_find(c->fs->catalog, x->dir, &dir_ino))
		invalidate_name(c->fs, dir_ino, x->name, x->version);
}

void changes_finish(struct cluster *c, struct change *list)
{
	tell_holders(c, list);
	for (struct change *x = list, *next; x; x = next) {
		next = x->next;
		drop_ours(c, x);
		yield_to_newer(c, x);
		change_free(x);
	}
}

void *changes_follow(void *arg)
{
	struct change_queue *q = arg;

	pthread_mutex_lock(&q->lock);
	while (!q->is_stopping) {
		struct change *list = q->head;
		if (!list) {
			pthread_cond_wait(&q->cond, &q->lock);
			continue;
		}
		q->head = q->tail = NULL;
		pthread_mutex_unlock(&q->lock);
		changes_finish(q->c, list);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}
