/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_ring: the pool of rings.
 *
 * Lock: lock, over the pool; a ring is made outside it, its place in the pool reserved before.
 * Failure: io_uring that is refused once for lack of rights is not asked for again.
 */
#include "tier/copy_ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct copy_ring *free_rings; /* guarded by lock, as what follows */
static uint32_t n_rings;
static int refused; /* errno: this process gets no io_uring */

static struct copy_ring *make(uint32_t n_buffers)
{
	struct copy_ring *r = calloc(1, sizeof(*r));
	size_t bytes = (size_t)n_buffers * FRAME_COPY_PIECE_BYTES;

	if (!r)
		return NULL;
	r->buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->buffers == MAP_FAILED) {
		free(r);
		return NULL;
	}
	r->n_buffers = n_buffers;
	for (uint32_t k = 0; k < n_buffers; k++) {
		struct copy_piece *p = &r->pieces[k];
		p->buf = r->buffers + (size_t)k * FRAME_COPY_PIECE_BYTES;
		p->next = r->free_pieces;
		r->free_pieces = p;
	}
	return r;
}

static void destroy(struct copy_ring *r)
{
	munmap(r->buffers, (size_t)r->n_buffers * FRAME_COPY_PIECE_BYTES);
	free(r);
}

/* A pooled ring of its full depth; NULL: no memory, or no io_uring to be had. */
static struct copy_ring *make_pooled(void)
{
	struct copy_ring *r = make(COPY_DEPTH);
	int rc = r ? io_uring_queue_init(COPY_DEPTH, &r->uring, 0) : -ENOMEM;

	if (rc) {
		if (r)
			destroy(r);
		guard_lock(&lock);
		n_rings--;
		if (rc == -EPERM || rc == -ENOSYS || rc == -EACCES) {
			if (!refused)
				log_info(
					"ssd: io_uring is refused (%s): plain system calls instead",
					strerror(-rc));
			refused = -rc;
		}
		return NULL;
	}
	r->has_uring = r->is_pooled = true;
	return r;
}

struct copy_ring *copy_ring_get(void)
{
	pthread_mutex_lock(&lock);
	struct copy_ring *r = refused ? NULL : free_rings;
	bool may_make = !refused && !r && n_rings < COPY_RINGS_MAX;
	if (r)
		free_rings = r->next;
	if (may_make)
		n_rings++;
	pthread_mutex_unlock(&lock);
	if (may_make)
		r = make_pooled();
	return r ? r : make(1);
}

void copy_ring_put(struct copy_ring *r)
{
	if (r->is_broken)
		return; /* its place in the pool stays taken, so this can happen but a few times */
	if (!r->is_pooled) {
		destroy(r);
		return;
	}
	guard_lock(&lock);
	r->next = free_rings;
	free_rings = r;
}

void copy_ring_refuse(int err)
{
	guard_lock(&lock);
	refused = err;
}
