/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/fd_cache.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"

#define N_BUCKETS 4096

struct entry {
	struct entry *hash_next;
	struct entry *prev, *next; /* idle ones, oldest first; NULL while in use */
	uint64_t id;
	int fd;
	uint32_t n_users;
	bool is_forgotten;         /* its last user closes it */
};

struct fd_cache {
	pthread_mutex_t lock;
	struct entry *buckets[N_BUCKETS];
	struct entry idle;      /* list head */
	uint32_t n_idle, capacity;
};

struct fd_cache *fd_cache_create(uint32_t capacity)
{
	struct fd_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	c->idle.prev = c->idle.next = &c->idle;
	c->capacity = capacity;
	return c;
}

static struct entry **slot_of(struct fd_cache *c, uint64_t id)
{
	struct entry **p = &c->buckets[(id * UINT64_C(0x9e3779b97f4a7c15)) >> 52];

	while (*p && (*p)->id != id)
		p = &(*p)->hash_next;
	return p;
}

static void leave_idle(struct fd_cache *c, struct entry *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->prev = e->next = NULL;
	c->n_idle--;
}

/* Idle or unused: out of the tables; its descriptor is the caller's to close. */
static int take_out(struct fd_cache *c, struct entry *e)
{
	struct entry **p = slot_of(c, e->id);
	int fd = e->fd;

	*p = e->hash_next;
	if (e->next)
		leave_idle(c, e);
	free(e);
	return fd;
}

static struct entry *use_locked(struct fd_cache *c, uint64_t id)
{
	struct entry *e = *slot_of(c, id);

	if (e && !e->n_users++)
		leave_idle(c, e);
	return e;
}

int fd_cache_borrow(struct fd_cache *c, uint64_t id, fd_cache_open_fn open, void *arg)
{
	pthread_mutex_lock(&c->lock);
	struct entry *e = use_locked(c, id);
	int fd = e ? e->fd : -1;
	pthread_mutex_unlock(&c->lock);
	if (e)
		return fd;
	fd = open(arg, id);
	struct entry *fresh = fd < 0 ? NULL : calloc(1, sizeof(*fresh));
	if (!fresh)
		return fd; /* without memory it is not kept: give_back closes it */
	pthread_mutex_lock(&c->lock);
	e = use_locked(c, id);
	int spare = e ? fd : -1;
	if (e) {
		fd = e->fd; /* somebody else was faster */
	} else {
		*fresh = (struct entry){ .id = id, .fd = fd, .n_users = 1 };
		struct entry **p = slot_of(c, id);
		*p = fresh;
		fresh = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	if (spare >= 0)
		close(spare);
	free(fresh);
	return fd;
}

void fd_cache_give_back(struct fd_cache *c, uint64_t id, int fd)
{
	int spare = -1;

	pthread_mutex_lock(&c->lock);
	struct entry *e = *slot_of(c, id);
	if (!e || e->fd != fd) {
		spare = fd; /* it was not kept for want of memory */
	} else if (--e->n_users) {
		/* others read it */
	} else if (e->is_forgotten) {
		spare = take_out(c, e);
	} else {
		e->prev = c->idle.prev;
		e->next = &c->idle;
		e->prev->next = e->next->prev = e;
		if (++c->n_idle > c->capacity)
			spare = take_out(c, c->idle.next);
	}
	pthread_mutex_unlock(&c->lock);
	if (spare >= 0)
		close(spare);
}

void fd_cache_forget(struct fd_cache *c, uint64_t id)
{
	int fd = -1;

	pthread_mutex_lock(&c->lock);
	struct entry *e = *slot_of(c, id);
	if (e && e->n_users)
		e->is_forgotten = true;
	else if (e)
		fd = take_out(c, e);
	pthread_mutex_unlock(&c->lock);
	if (fd >= 0)
		close(fd);
}

uint32_t fd_cache_trim(struct fd_cache *c)
{
	uint32_t n = 0;

	for (;; n++) {
		pthread_mutex_lock(&c->lock);
		int fd = c->n_idle ? take_out(c, c->idle.next) : -1;
		pthread_mutex_unlock(&c->lock);
		if (fd < 0)
			return n;
		close(fd);
	}
}

void fd_cache_destroy(struct fd_cache *c)
{
	if (!c)
		return;
	fd_cache_trim(c);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
