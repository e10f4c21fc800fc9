/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/ssd_read.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "fastpath/batch.h"

#define DEPTH 64
#define MAX_PIECE_BYTES (UINT64_C(1) << 20)
#define ALIGN_BYTES UINT64_C(4096)
/* Between two looks at the clock and the interrupt flag. */
#define WAIT_NS 50000000

/* ---- a ring per thread ---- */

static pthread_key_t ring_key;
static pthread_once_t ring_once = PTHREAD_ONCE_INIT;
static atomic_bool is_refused;

static void free_ring(void *arg)
{
	io_uring_queue_exit(arg);
	free(arg);
}

static void make_key(void)
{
	pthread_key_create(&ring_key, free_ring);
}

static struct io_uring *thread_ring(void)
{
	pthread_once(&ring_once, make_key);
	struct io_uring *ring = pthread_getspecific(ring_key);
	if (ring || is_refused)
		return ring;
	ring = calloc(1, sizeof(*ring));
	int rc = ring ? io_uring_queue_init(DEPTH, ring, 0) : -ENOMEM;
	if (rc) {
		free(ring);
		/* Seccomp profiles of containers: it will not be otherwise the next time. */
		if ((rc == -EPERM || rc == -ENOSYS || rc == -EACCES) && !atomic_exchange(&is_refused, true))
			log_info("session: io_uring is refused (%s): ssd objects are read one after another",
				 strerror(-rc));
		return NULL;
	}
	pthread_setspecific(ring_key, ring);
	return ring;
}

/* A ring whose requests cannot be waited for must not be used, nor its memory forgotten. */
static void drop_ring(struct io_uring *ring)
{
	pthread_setspecific(ring_key, NULL);
	free_ring(ring);
}

/* ---- pieces ---- */

/* The next piece of r: where it goes and how long it is; 0: no more of it can be read this way. */
static uint64_t next_piece(const struct ssd_read *r, char **to_out)
{
	struct iovec iov;
	uint64_t left = r->len - r->next, len;

	if (r->failed || !left)
		return 0;
	batch_segments(r->item, r->reg, r->next, left < MAX_PIECE_BYTES ? left : MAX_PIECE_BYTES, &iov, 1, &len);
	len &= ~(ALIGN_BYTES - 1);
	*to_out = iov.iov_base;
	return (uintptr_t)iov.iov_base % ALIGN_BYTES || (r->item->file_offset + r->next) % ALIGN_BYTES ? 0 : len;
}

/* One more request if there is a place for it. */
static bool ask(struct io_uring *ring, struct ssd_read *r)
{
	char *to;
	uint64_t len = next_piece(r, &to);
	struct io_uring_sqe *sqe = len ? io_uring_get_sqe(ring) : NULL;

	if (!sqe)
		return false;
	io_uring_prep_read(sqe, r->direct_fd, to, (unsigned int)len, r->item->file_offset + r->next);
	/* Pieces of an item complete in any order; what counts is that all did. */
	sqe->user_data = (uint64_t)(uintptr_t)r;
	r->next += len;
	r->n_in_flight++;
	return true;
}

static void settle(struct ssd_read *r, int result)
{
	r->n_in_flight--;
	if (result <= 0 || (uint64_t)result % ALIGN_BYTES)
		r->failed = result < 0 ? result : -EIO;
	else
		r->done += (uint64_t)result;
}

/* Waits for at least one; true: the ring is of no use any more. */
static bool collect(struct io_uring *ring, uint32_t *n_in_flight)
{
	struct __kernel_timespec ts = { .tv_nsec = WAIT_NS };
	struct io_uring_cqe *cqe;
	int rc = io_uring_wait_cqe_timeout(ring, &cqe, &ts);

	if (rc == -ETIME || rc == -EINTR || rc == -EAGAIN)
		return false;
	if (rc)
		return true;
	do {
		settle((struct ssd_read *)(uintptr_t)cqe->user_data, cqe->res);
		io_uring_cqe_seen(ring, cqe);
		--*n_in_flight;
	} while (*n_in_flight && !io_uring_peek_cqe(ring, &cqe));
	return false;
}

static void open_direct(struct ssd_read *r)
{
	char path[32];

	r->next = 0;
	r->n_in_flight = 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", r->fd);
	r->direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	r->failed = r->direct_fd < 0 ? -errno : 0;
}

/* What came of an item all of whose pieces are back: all that was asked for, or nothing that counts. */
static void finish(struct ssd_read *r)
{
	if (r->failed || r->done != r->next)
		r->done = 0;
	if (r->direct_fd >= 0)
		close(r->direct_fd);
}

void ssd_read_all(struct batch *b, struct ssd_read *reads, uint32_t n)
{
	struct io_uring *ring = thread_ring();
	uint32_t n_in_flight = 0, k = 0;
	bool is_broken = false;

	for (uint32_t m = 0; m < n; m++)
		reads[m].done = 0;
	if (!ring)
		return; /* the caller reads it all */
	for (uint32_t m = 0; m < n; m++)
		open_direct(&reads[m]);
	while (!is_broken) {
		bool may_ask = !batch_stopped(b);
		while (may_ask && k < n && n_in_flight < DEPTH) {
			if (ask(ring, &reads[k]))
				n_in_flight++;
			else
				k++; /* all of it is asked for, or none can be */
		}
		if (!n_in_flight)
			break;
		int rc = io_uring_submit(ring);
		is_broken = (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) ||
			    collect(ring, &n_in_flight);
	}
	if (is_broken) {
		log_error("session: io_uring failed with %u reads in flight", n_in_flight);
		drop_ring(ring); /* waits for, or cancels, what is in flight */
		for (uint32_t m = 0; m < n; m++)
			reads[m].failed = -EIO;
	}
	for (uint32_t m = 0; m < n; m++)
		finish(&reads[m]);
}
