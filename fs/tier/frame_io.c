/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_io: bytes in and out of an open frame.
 *
 * f->size_bytes is the file's size at all times, also after a failed write; tier_read and tier_write
 * of several threads meet on it, so it is accessed atomically here.
 *
 * A file that is larger than the page to be filled gets huge pages, one that grows with its writes
 * does not. So a write that ends past 2 MiB sizes the file ahead (whole 2 MiB, a quarter at least).
 * Below that the file ends where the write ends: most objects are small, and a huge page that is
 * filled with 64 KiB and then cut costs some 400 us where the write alone costs 15 (measured).
 *
 * Lock: grow_lock, over the ftruncate that moves the end ahead.
 */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/pread_full.h"
#include "tier/frame_dir.h"

#define ZERO_CHUNK_BYTES 65536
#define ZERO_CHUNKS 16

static uint64_t load_size(const struct frame *f)
{
	return __atomic_load_n(&f->size_bytes, __ATOMIC_RELAXED);
}

static void raise_size(struct frame *f, uint64_t end)
{
	uint64_t size = load_size(f);

	while (size < end && !__atomic_compare_exchange_n(&f->size_bytes, &size, end, true,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* No space of any kind is one case for the caller: it evicts and repeats. */
static int write_error(struct frame_dir *d, const struct frame *f, size_t len, uint64_t off,
		       int err)
{
	if (err == ENOSPC || err == EDQUOT || err == ENOMEM)
		return -ENOSPC;
	errno = err;
	log_error("%s: write frame %016llx, %zu bytes at %llu: %m", d->conf.name,
		  (unsigned long long)f->id, len, (unsigned long long)off);
	return -err;
}

static int grow_ahead(struct frame_dir *d, struct frame *f, uint64_t end)
{
	guard_lock(&d->grow_lock);
	uint64_t size = load_size(f);
	uint64_t ahead = size + size / 4;

	if (end <= size)
		return 0;
	ahead = ahead < end ? end : ahead;
	ahead = (ahead + FRAME_HUGE_BYTES - 1) & ~(FRAME_HUGE_BYTES - 1);
	/* The file may not reach that far (rlimit, file system): then as far as this write needs. */
	if (ahead > INT64_MAX || ftruncate(f->fd, (off_t)ahead)) {
		ahead = end;
		if (ftruncate(f->fd, (off_t)ahead))
			return -errno;
	}
	raise_size(f, ahead);
	return 0;
}

int frame_dir_write(struct tier *t, struct frame *f, const void *buf, size_t len, uint64_t off)
{
	struct frame_dir *d = frame_dir_of(t);
	uint64_t end;

	if (__builtin_add_overflow(off, (uint64_t)len, &end) || end > INT64_MAX)
		return -EFBIG;
	if (d->conf.grows_ahead && end > FRAME_HUGE_BYTES && end > load_size(f)) {
		int rc = grow_ahead(d, f, end);
		if (rc)
			return write_error(d, f, len, off, -rc);
	}
	for (size_t done = 0; done < len;) {
		ssize_t n =
			pwrite(f->fd, (const char *)buf + done, len - done, (off_t)(off + done));
		if (n > 0) {
			done += (size_t)n;
			raise_size(f, off + done);
		} else if (n == 0 || errno != EINTR) {
			return write_error(d, f, len, off, n == 0 ? EIO : errno);
		}
	}
	return 0;
}

int frame_dir_read(struct tier *t, struct frame *f, void *buf, size_t len, uint64_t off)
{
	struct frame_dir *d = frame_dir_of(t);
	ssize_t n = pread_full(f->fd, buf, len, off);

	if (n == (ssize_t)len)
		return 0;
	int err = n < 0 ? (int)-n : EIO;
	errno = err;
	log_error("%s: read frame %016llx of %llu bytes, %zu at %llu: %m", d->conf.name,
		  (unsigned long long)f->id, (unsigned long long)load_size(f), len, (unsigned long long)off);
	return -err;
}

static int write_zeros(struct frame_dir *d, struct frame *f, uint64_t off, uint64_t end)
{
	static const char zeros[ZERO_CHUNK_BYTES];
	struct iovec iov[ZERO_CHUNKS];

	while (off < end) {
		uint64_t left = end - off;
		int n_iov = 0;
		for (; n_iov < ZERO_CHUNKS && left > 0; n_iov++) {
			size_t len = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
			iov[n_iov] = (struct iovec){.iov_base = (void *)(uintptr_t)zeros,
						    .iov_len = len};
			left -= len;
		}
		ssize_t n = pwritev(f->fd, iov, n_iov, (off_t)off);
		if (n > 0)
			off += (uint64_t)n;
		else if (n == 0 || errno != EINTR)
			return write_error(d, f, (size_t)(end - off), off, n == 0 ? EIO : errno);
	}
	return 0;
}

/*
 * Holes are zero already and stay holes, so clearing takes no new page. Punching would be quicker for
 * long ranges but takes pages away that a NIC may have registered.
 */
int frame_dir_zero(struct tier *t, struct frame *f, uint64_t off, uint64_t len)
{
	struct frame_dir *d = frame_dir_of(t);
	uint64_t size = load_size(f);
	uint64_t end = len > size || off > size - len ? size : off + len;

	while (off < end) {
		uint64_t hole = end;
		off_t data = lseek(f->fd, (off_t)off, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return 0; /* holes up to the end of the file */
		if (data >= 0) {
			off_t next = lseek(f->fd, data, SEEK_HOLE);
			off = (uint64_t)data;
			if (next >= 0 && (uint64_t)next < hole)
				hole = (uint64_t)next;
		} /* else the file system cannot tell: all of it may be data */
		int rc = off < end ? write_zeros(d, f, off, hole) : 0;
		if (rc)
			return rc;
		off = hole;
	}
	return 0;
}
