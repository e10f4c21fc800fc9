/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FLOCK: locks keyed by directory and name, so that processes with different drafts (or versions) of
 * a lock file meet. Local to this node. A lock belongs to a file description (lock_owner) and is freed
 * with it. A waiter holds no thread: its request is queued and answered when its turn comes, or with
 * EINTR when it is interrupted.
 *
 * flocks->lock is a leaf: replies are sent after it is released.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "object/flock_table.h"
#include "object/object.h"
#include "ops/ops.h"

struct waiter {
	struct waiter *next;
	fuse_req_t req;
	uint64_t owner;
	bool is_exclusive;
	int rc;
};

struct holder {
	struct holder *next;
	uint64_t owner;
	bool is_exclusive;
};

struct flock_key {
	struct flock_key *next;
	uint64_t dir_ino;
	char *name;
	struct holder *holders;
	struct waiter *waiters; /* oldest first */
};

struct flock_table {
	pthread_mutex_t lock;
	struct flock_key *keys;
};

struct flock_table *flock_table_create(void)
{
	struct flock_table *t = xcalloc(1, sizeof(*t));

	pthread_mutex_init(&t->lock, NULL);
	return t;
}

static void free_key(struct flock_key *k)
{
	for (struct holder *h = k->holders, *next; h; h = next) {
		next = h->next;
		free(h);
	}
	free(k->name);
	free(k);
}

void flock_table_destroy(struct flock_table *t)
{
	if (!t)
		return;
	for (struct flock_key *k = t->keys, *next; k; k = next) {
		next = k->next;
		free_key(k);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static struct flock_key *get_key(struct flock_table *t, uint64_t dir_ino, const char *name)
{
	for (struct flock_key *k = t->keys; k; k = k->next)
		if (k->dir_ino == dir_ino && !strcmp(k->name, name))
			return k;
	struct flock_key *k = xcalloc(1, sizeof(*k));
	k->dir_ino = dir_ino;
	k->name = xstrdup(name);
	k->next = t->keys;
	t->keys = k;
	return k;
}

static void put_key(struct flock_table *t, struct flock_key *key)
{
	if (key->holders || key->waiters)
		return;
	for (struct flock_key **p = &t->keys; *p; p = &(*p)->next)
		if (*p == key) {
			*p = key->next;
			break;
		}
	free_key(key);
}

static bool conflicts(const struct flock_key *k, uint64_t owner, bool is_exclusive)
{
	for (const struct holder *h = k->holders; h; h = h->next)
		if (h->owner != owner && (is_exclusive || h->is_exclusive))
			return true;
	return false;
}

static void drop_holder(struct flock_key *k, uint64_t owner)
{
	for (struct holder **p = &k->holders, *h; (h = *p);)
		if (h->owner == owner) {
			*p = h->next;
			free(h);
		} else {
			p = &h->next;
		}
}

static void add_holder(struct flock_key *k, uint64_t owner, bool is_exclusive)
{
	drop_holder(k, owner);
	struct holder *h = xcalloc(1, sizeof(*h));
	*h = (struct holder){ .next = k->holders, .owner = owner, .is_exclusive = is_exclusive };
	k->holders = h;
}

/* Moves the waiters whose turn it is to a list that the caller answers without the lock. */
static struct waiter *grant(struct flock_key *k)
{
	struct waiter *granted = NULL;

	while (k->waiters && !conflicts(k, k->waiters->owner, k->waiters->is_exclusive)) {
		struct waiter *w = k->waiters;
		k->waiters = w->next;
		add_holder(k, w->owner, w->is_exclusive);
		w->rc = 0;
		w->next = granted;
		granted = w;
	}
	return granted;
}

static void answer(struct waiter *w)
{
	while (w) {
		struct waiter *next = w->next;
		reply_err(w->req, w->rc);
		free(w);
		w = next;
	}
}

/* Runs in the thread that received the INTERRUPT. */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct flock_table *t = data;
	struct waiter *found = NULL, *granted = NULL;

	pthread_mutex_lock(&t->lock);
	for (struct flock_key *k = t->keys; k && !found; k = k->next)
		for (struct waiter **p = &k->waiters; *p; p = &(*p)->next)
			if ((*p)->req == req) {
				found = *p;
				*p = found->next;
				granted = grant(k);
				put_key(t, k);
				break;
			}
	pthread_mutex_unlock(&t->lock);
	if (found) {
		counter_inc(interrupts);
		reply_err(req, -EINTR);
		free(found);
	}
	answer(granted);
}

static struct waiter *unlock_key(struct flock_table *t, struct flock_key *k, uint64_t owner)
{
	drop_holder(k, owner);
	struct waiter *granted = grant(k);
	put_key(t, k);
	return granted;
}

void flock_release_owner(struct fs *fs, uint64_t owner)
{
	struct flock_table *t = fs->flocks;
	struct waiter *granted = NULL;

	pthread_mutex_lock(&t->lock);
	for (struct flock_key *k = t->keys, *next; k; k = next) {
		next = k->next;
		for (struct holder *h = k->holders; h; h = h->next)
			if (h->owner == owner) {
				struct waiter *g = unlock_key(t, k, owner), **tail = &g;
				while (*tail)
					tail = &(*tail)->next;
				*tail = granted;
				granted = g;
				break;
			}
	}
	pthread_mutex_unlock(&t->lock);
	answer(granted);
}

static void enqueue(struct flock_key *k, fuse_req_t req, uint64_t owner, bool is_exclusive)
{
	struct waiter *w = xcalloc(1, sizeof(*w)), **tail = &k->waiters;

	*w = (struct waiter){ .req = req, .owner = owner, .is_exclusive = is_exclusive };
	while (*tail)
		tail = &(*tail)->next;
	*tail = w;
}

void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct fs *fs = req_fs(req);
	struct flock_table *t = fs->flocks;
	struct inode *i = inode_of(fs, ino);
	struct waiter *granted = NULL;
	bool is_queued = false, is_exclusive = (op & ~LOCK_NB) == LOCK_EX;
	int rc = 0;

	pthread_mutex_lock(&fs->lock);
	autofree char *name = xstrdup(i->name ? i->name : "");
	uint64_t dir_ino = i->parent;
	pthread_mutex_unlock(&fs->lock);

	/* Registered first: an INTERRUPT that comes before the waiter is queued shows in the flag. */
	if (!(op & LOCK_NB))
		fuse_req_interrupt_func(req, on_interrupt, t);
	pthread_mutex_lock(&t->lock);
	struct flock_key *k = get_key(t, dir_ino, name);
	if ((op & ~LOCK_NB) == LOCK_UN) {
		granted = unlock_key(t, k, fi->lock_owner);
	} else if (!conflicts(k, fi->lock_owner, is_exclusive) && (!k->waiters || (op & LOCK_NB))) {
		add_holder(k, fi->lock_owner, is_exclusive);
		granted = grant(k); /* a downgrade may let others in */
	} else if (op & LOCK_NB) {
		rc = -EWOULDBLOCK;
		put_key(t, k);
	} else if (fuse_req_interrupted(req)) {
		rc = -EINTR;
		put_key(t, k);
	} else {
		drop_holder(k, fi->lock_owner); /* flock(2): a conversion gives up the old lock */
		is_queued = true;
		enqueue(k, req, fi->lock_owner, is_exclusive);
		granted = grant(k);
	}
	pthread_mutex_unlock(&t->lock);
	if (!is_queued)
		reply_err(req, rc);
	answer(granted);
}
