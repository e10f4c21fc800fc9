/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_copy: a frame travels in pieces of 1 MiB, a few at a time.
 *
 *   piece: free --begin--> being read --checksum--> being written --> free
 *
 * A side that is a disk's file is reached by O_DIRECT through the ring, so that the disk works on some
 * pieces while this thread copies and sums others; a tmpfs, and what refuses O_DIRECT, by plain calls in
 * this thread. Direct transfers are whole blocks of 4 KiB: a read may ask past the end of the file, of a
 * write the last part block goes by a plain write. Whatever a direct transfer leaves undone (short, or
 * refused by this file system), a plain one finishes.
 *
 * The destination's blocks are allocated first: what does not fit is known before a byte is moved, and
 * direct writes that neither allocate nor extend may run side by side.
 *
 * Small frames take one read and one write through a buffer on the stack: no ring, no further fds.
 *
 * Failure: the first error ends the copy, after what is in flight has come back.
 */
#include "tier/frame_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/log.h"
#include "base/pread_full.h"
#include "tier/copy_ring.h"

#define SMALL_BYTES 65536
#define DIRECT_MIN_BYTES (UINT64_C(256) << 10)
#define BLOCK_BYTES UINT32_C(4096)
#define CANCEL_SLICE_NS INT64_C(50000000)

struct side {
	int fd;	       /* plain, the caller's */
	int direct_fd; /* O_DIRECT, ours; -1: none */
};

struct copy {
	const struct frame_copy_limits *limits;
	struct copy_ring *ring; /* NULL: small */
	struct side src, dst;
	uint64_t size, next_off;
	uint32_t *crc;
	int64_t start_ns;
	uint32_t n_in_flight;
	int err; /* positive errno; 0: none so far */
	enum frame_copy_side failed;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* The first error is the one that counts. */
static void fail(struct copy *c, enum frame_copy_side side, int err)
{
	if (c->err)
		return;
	c->err = err;
	c->failed = side;
}

/* ---- plain transfers ---- */

static void read_plain(struct copy *c, char *buf, size_t len, uint64_t off)
{
	ssize_t n = pread_full(c->src.fd, buf, len, off);

	if (n < 0)
		fail(c, FRAME_COPY_SRC, (int)-n);
	else if ((size_t)n < len)
		fail(c, FRAME_COPY_NONE, EIO); /* too short: the frame's fault */
}

/* No space of any kind is one case for the caller. */
static int write_error(int err)
{
	return err == EDQUOT || err == ENOMEM ? ENOSPC : err;
}

static void write_plain(struct copy *c, const char *buf, size_t len, uint64_t off)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(c->dst.fd, buf + done, len - done, (off_t)(off + done));
		if (n > 0) {
			done += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			fail(c, FRAME_COPY_DST, n == 0 ? EIO : write_error(errno));
			return;
		}
	}
}

/* ---- pieces ---- */

static void complete(struct copy *c, struct copy_piece *p, int res);

static void release(struct copy *c, struct copy_piece *p)
{
	p->next = c->ring->free_pieces;
	c->ring->free_pieces = p;
}

/* Starts (with a ring) or does a direct transfer of len bytes, whole blocks. */
static void transfer(struct copy *c, struct copy_piece *p, uint32_t len)
{
	int fd = p->is_write ? c->dst.direct_fd : c->src.direct_fd;

	if (!c->ring->has_uring) {
		ssize_t n = p->is_write ? pwrite(fd, p->buf, len, (off_t)p->off) :
					  pread(fd, p->buf, len, (off_t)p->off);
		complete(c, p, n < 0 ? -errno : (int)n);
		return;
	}
	/* There is one: as many as pieces. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&c->ring->uring);
	if (p->is_write)
		io_uring_prep_write(sqe, fd, p->buf, len, p->off);
	else
		io_uring_prep_read(sqe, fd, p->buf, len, p->off);
	io_uring_sqe_set_data(sqe, p);
	c->n_in_flight++;
	(void)io_uring_submit(&c->ring->uring); /* what it leaves, the next wait submits */
}

static void finish_write(struct copy *c, struct copy_piece *p, uint32_t done)
{
	if (!c->err && done < p->len)
		write_plain(c, p->buf + done, p->len - done, p->off + done);
	release(c, p);
}

/* The piece has been read as far as done; the rest, then its checksum, then it is written. */
static void finish_read(struct copy *c, struct copy_piece *p, uint32_t done)
{
	if (!c->err && done < p->len)
		read_plain(c, p->buf + done, p->len - done, p->off + done);
	if (c->err) {
		release(c, p);
		return;
	}
	if (c->crc)
		c->crc[p->off / FRAME_COPY_PIECE_BYTES] = crc32c(0, p->buf, p->len);
	uint32_t whole = p->len & ~(BLOCK_BYTES - 1);
	p->is_write = true;
	if (c->dst.direct_fd >= 0 && whole > 0)
		transfer(c, p, whole);
	else
		finish_write(c, p, 0);
}

/* Errors that say "not like this" rather than "this failed". */
static bool is_refusal(int err)
{
	return err == EINVAL || err == EOPNOTSUPP || err == EAGAIN || err == EINTR;
}

static void complete(struct copy *c, struct copy_piece *p, int res)
{
	uint32_t done = res < 0 ? 0 : (uint32_t)res;

	if (res < 0 && !is_refusal(-res))
		fail(c, p->is_write ? FRAME_COPY_DST : FRAME_COPY_SRC,
		     p->is_write ? write_error(-res) : -res);
	if (p->is_write)
		finish_write(c, p, done);
	else
		finish_read(c, p, done < p->len ? done : p->len);
}

static void begin(struct copy *c)
{
	struct copy_piece *p = c->ring->free_pieces;
	uint64_t left = c->size - c->next_off;

	c->ring->free_pieces = p->next;
	p->off = c->next_off;
	p->len = left < FRAME_COPY_PIECE_BYTES ? (uint32_t)left : FRAME_COPY_PIECE_BYTES;
	p->is_write = false;
	c->next_off += p->len;
	if (c->src.direct_fd >= 0)
		transfer(c, p, (p->len + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1));
	else
		finish_read(c, p, 0);
}

/* Waits until something has come back. False: the ring is of no use any more. */
static bool wait_for_one(struct copy *c)
{
	struct io_uring *uring = &c->ring->uring;
	struct io_uring_cqe *cqe;
	int rc = io_uring_submit_and_wait(uring, 1);

	if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
		log_error("ssd: io_uring_enter: %s", strerror(-rc));
		c->ring->is_broken = true;
		fail(c, FRAME_COPY_NONE, EIO);
		return false;
	}
	while (!io_uring_peek_cqe(uring, &cqe)) {
		struct copy_piece *p = io_uring_cqe_get_data(cqe);
		int res = cqe->res;
		io_uring_cqe_seen(uring, cqe);
		c->n_in_flight--;
		complete(c, p, res);
	}
	return true;
}

/* ---- limits ---- */

static bool is_cancelled(struct copy *c)
{
	if (!c->limits || !c->limits->is_cancelled || !c->limits->is_cancelled(c->limits->arg))
		return false;
	fail(c, FRAME_COPY_NONE, ECANCELED);
	return true;
}

/* Waits until off bytes may have been copied. */
static void keep_pace(struct copy *c, uint64_t off)
{
	if (!c->limits || c->limits->bytes_per_second == 0)
		return;
	double seconds = (double)off / (double)c->limits->bytes_per_second;
	int64_t until_ns = seconds < 1e9 ? c->start_ns + (int64_t)(seconds * 1e9) : INT64_MAX;
	while (!is_cancelled(c)) {
		int64_t left_ns = until_ns - now_ns();
		if (left_ns <= 0)
			return;
		struct timespec ts = {.tv_nsec = left_ns < CANCEL_SLICE_NS ? left_ns :
									     CANCEL_SLICE_NS};
		nanosleep(&ts, NULL);
	}
}

/* ---- the two files ---- */

static bool is_memory(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) || st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC;
}

/* A further open of the same file: O_DIRECT is the description's, and the caller's may be shared. */
static int open_direct(int fd, int flags)
{
	char path[32];

	if (is_memory(fd))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_DIRECT | O_CLOEXEC);
}

static void close_direct(struct side *s)
{
	if (s->direct_fd >= 0)
		close(s->direct_fd);
}

static void allocate(struct copy *c)
{
	int rc;

	do
		rc = fallocate(c->dst.fd, 0, 0, (off_t)c->size);
	while (rc && errno == EINTR && !is_cancelled(c));
	if (!rc || (errno != ENOSPC && errno != EDQUOT))
		return; /* what else may be wrong the writes will tell */
	fail(c, FRAME_COPY_DST, ENOSPC);
	/* It may have taken all there was, which others can use. */
	if (ftruncate(c->dst.fd, 0))
		log_debug("ssd: give back what a failed fallocate took: %m");
}

static void set_size(struct copy *c)
{
	struct stat st;

	if (fstat(c->dst.fd, &st) ||
	    ((uint64_t)st.st_size != c->size && ftruncate(c->dst.fd, (off_t)c->size)))
		fail(c, FRAME_COPY_DST, errno);
}

/* ---- the copy ---- */

static void copy_small(struct copy *c)
{
	char buf[SMALL_BYTES];

	if (is_cancelled(c))
		return;
	read_plain(c, buf, c->size, 0);
	if (!c->err && c->crc && c->size > 0)
		c->crc[0] = crc32c(0, buf, c->size);
	if (!c->err)
		write_plain(c, buf, c->size, 0);
}

static void copy_large(struct copy *c)
{
	c->ring = copy_ring_get();
	if (!c->ring) {
		fail(c, FRAME_COPY_NONE, ENOMEM);
		return;
	}
	if (c->size >= DIRECT_MIN_BYTES) {
		c->src.direct_fd = open_direct(c->src.fd, O_RDONLY);
		c->dst.direct_fd = open_direct(c->dst.fd, O_WRONLY);
	}
	if (c->dst.direct_fd >= 0)
		allocate(c);
	do {
		while (!c->err && c->next_off < c->size && c->ring->free_pieces) {
			keep_pace(c, c->next_off);
			if (!is_cancelled(c))
				begin(c);
		}
	} while (c->n_in_flight > 0 ? wait_for_one(c) : !c->err && c->next_off < c->size);
	close_direct(&c->src);
	close_direct(&c->dst);
	copy_ring_put(c->ring);
}

int frame_copy(int dst_fd, int src_fd, uint64_t size, uint32_t *crc,
	       const struct frame_copy_limits *limits)
{
	struct copy c = {.limits = limits,
			 .src = {src_fd, -1},
			 .dst = {dst_fd, -1},
			 .size = size,
			 .crc = crc,
			 .start_ns = limits && limits->bytes_per_second > 0 ? now_ns() : 0};

	if (size > INT64_MAX - FRAME_COPY_PIECE_BYTES)
		return -EFBIG;
	if (size <= SMALL_BYTES)
		copy_small(&c);
	else
		copy_large(&c);
	if (!c.err)
		set_size(&c);
	if (!c.err)
		keep_pace(&c, size);
	if (c.err && limits && limits->failed_out)
		*limits->failed_out = c.failed;
	return -c.err;
}
