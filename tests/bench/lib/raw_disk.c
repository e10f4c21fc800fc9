/* SPDX-License-Identifier: Apache-2.0 */
#include "raw_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int raw_ring_open(struct raw_ring *r, uint32_t depth)
{
	int rc = io_uring_queue_init(depth, &r->uring, 0);

	r->depth = rc ? 0 : depth;
	return rc ? bench_fail(rc, "io_uring of depth %u", depth) : 0;
}

void raw_ring_close(struct raw_ring *r)
{
	if (r->depth)
		io_uring_queue_exit(&r->uring);
	r->depth = 0;
}

int raw_file_create(const char *path, uint64_t bytes, int flags)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0600);

	if (fd < 0)
		return bench_fail(-errno, "create %s", path);
	int err = fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0;
	if (!err)
		return fd;
	close(fd);
	return bench_fail(-err, "fallocate %s to %llu bytes", path, (unsigned long long)bytes);
}

int raw_file_fill(const char *path, uint64_t bytes, uint64_t seed)
{
	int fd = raw_file_create(path, bytes, O_WRONLY | O_DIRECT), rc = 0;
	char *buffer = fd < 0 ? NULL : bench_buffer_create(RAW_PIECE_BYTES);

	if (fd < 0)
		return fd;
	if (!buffer)
		rc = bench_fail(-ENOMEM, "buffer");
	for (uint64_t off = 0; !rc && off < bytes; off += RAW_PIECE_BYTES) {
		size_t len = bytes - off < RAW_PIECE_BYTES ? (size_t)(bytes - off) :
							     RAW_PIECE_BYTES;
		pattern_fill(buffer, len, off, seed);
		rc = bench_write_fully(fd, buffer, len);
		if (rc)
			bench_fail(rc, "write %s", path);
	}
	bench_buffer_destroy(buffer, RAW_PIECE_BYTES);
	close(fd);
	return rc;
}

struct transfer {
	struct raw_ring *ring;
	int fd;
	int is_write;
	char *buffer;
	uint64_t bytes, off;
	uint64_t next, n_in_flight;
};

static void ask(struct transfer *t)
{
	uint64_t left = t->bytes - t->next;
	unsigned len = left < RAW_PIECE_BYTES ? (unsigned)left : (unsigned)RAW_PIECE_BYTES;
	/* There is one: as many as the ring is deep. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring->uring);

	if (t->is_write)
		io_uring_prep_write(sqe, t->fd, t->buffer, len, t->off + t->next);
	else
		io_uring_prep_read(sqe, t->fd, t->buffer + t->next, len, t->off + t->next);
	sqe->user_data = len;
	t->next += len;
	t->n_in_flight++;
}

/* Waits for one, takes all that are there. A short transfer is an error: the file is as long as asked. */
static int collect(struct transfer *t)
{
	struct io_uring_cqe *cqe;
	int failed = 0, rc = io_uring_submit_and_wait(&t->ring->uring, 1);

	if (rc < 0 && rc != -EINTR)
		return bench_fail(rc, "io_uring_enter");
	while (t->n_in_flight && !io_uring_peek_cqe(&t->ring->uring, &cqe)) {
		if (cqe->res < 0)
			failed = cqe->res;
		else if ((uint64_t)cqe->res != cqe->user_data)
			failed = -EIO;
		io_uring_cqe_seen(&t->ring->uring, cqe);
		t->n_in_flight--;
	}
	return failed ? bench_fail(failed, "transfer of %s", t->is_write ? "a write" : "a read") :
			0;
}

static int run(struct transfer *t)
{
	int rc = 0;

	while (!rc && (t->next < t->bytes || t->n_in_flight)) {
		while (t->next < t->bytes && t->n_in_flight < t->ring->depth)
			ask(t);
		rc = collect(t);
	}
	return rc;
}

int raw_ring_read(struct raw_ring *r, int fd, char *buffer, uint64_t bytes, uint64_t off)
{
	return run(&(struct transfer){
		.ring = r, .fd = fd, .buffer = buffer, .bytes = bytes, .off = off});
}

int raw_ring_write(struct raw_ring *r, int fd, char *buffer, uint64_t bytes)
{
	return run(&(struct transfer){
		.ring = r, .fd = fd, .is_write = 1, .buffer = buffer, .bytes = bytes});
}
