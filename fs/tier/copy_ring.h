/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_ring: an io_uring and the buffers of the pieces in flight on it; what one frame_copy works with.
 *
 * Rings are made when first needed and kept, at most COPY_RINGS_MAX with COPY_DEPTH pieces each (24 MiB
 * in all). Who finds none free, and everybody where the kernel refuses io_uring (seccomp profiles of
 * containers: EPERM, ENOSYS), gets one buffer without a ring for as long as it is held.
 *
 * Thread safety: copy_ring_get, _put and _refuse from any thread; a ring is used by who got it.
 */
#ifndef MCFS_COPY_RING_H
#define MCFS_COPY_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "tier/frame_copy.h"

#define COPY_DEPTH 4
#define COPY_RINGS_MAX 6

struct copy_piece {
	struct copy_piece *next; /* free pieces of the ring */
	char *buf;		 /* FRAME_COPY_PIECE_BYTES, page aligned */
	uint64_t off;
	uint32_t len;
	bool is_write; /* what is in flight */
};

struct copy_ring {
	struct copy_ring *next; /* free rings */
	struct io_uring uring;
	bool has_uring, is_pooled;
	bool is_broken; /* the kernel may still write to its buffers: never used, never freed */
	uint32_t n_buffers;
	char *buffers;
	struct copy_piece *free_pieces;
	struct copy_piece pieces[COPY_DEPTH];
};

/* Never waits for a ring. NULL: no memory. */
struct copy_ring *copy_ring_get(void);
/* Nothing is in flight, unless the ring is broken. */
void copy_ring_put(struct copy_ring *r);

/* Tests: err not 0: from now on no ring is had, as if the kernel said err. */
void copy_ring_refuse(int err);

#endif
