/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of drafts: frames, written ranges, copies of base objects. See draft.h for the locks. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "inode_table.h"
#include "object/draft.h"
#include "object/object.h"
#include "object/space.h"

#define COPY_BYTES (1u << 20)
#define HUGE_PAGE (2ull << 20)
/* A WRITE this large is cut by the kernel's request size: more of the same write(2) will follow. */
#define FULL_REQUEST_BYTES 1000000u

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * Expected final size, so that the frame can be sized before it is filled: what ftruncate announced,
 * else what was published last in the same directory (KV blocks of a model are equal-sized) when the
 * first write makes that plausible.
 */
static uint64_t expected_size(struct fs *fs, struct draft *d, uint64_t end, size_t len)
{
	uint64_t last = 0;

	if (d->size > end)
		return d->size;
	pthread_mutex_lock(&fs->lock);
	if (d->dir)
		last = d->dir->last_size_bytes;
	pthread_mutex_unlock(&fs->lock);
	if (last >= end && (len >= FULL_REQUEST_BYTES || last / 16 <= len))
		return last;
	return end;
}

static int open_base(struct fs *fs, struct draft *d)
{
	const char *tier;

	if (d->base_fd >= 0 || !d->base->size)
		return 0;
	int fd = object_open_frame(fs, d->base, &tier);
	if (fd < 0) {
		errno = -fd;
		log_error("object %016llx: cannot open the bytes a draft is based on: %m",
			  (unsigned long long)d->base->id);
		return -EIO;
	}
	d->base_fd = fd;
	return 0;
}

static int read_base(struct fs *fs, struct draft *d, char *buf, size_t len, uint64_t off)
{
	int rc = open_base(fs, d);

	while (!rc && len) {
		ssize_t n = pread(d->base_fd, buf, len, (off_t)off);
		if (n > 0) {
			buf += n;
			off += (uint64_t)n;
			len -= (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			log_error("object %016llx: short read at %llu: %m",
				  (unsigned long long)d->base->id, (unsigned long long)off);
			rc = -EIO;
		}
	}
	return rc;
}

static void leave_base(struct fs *fs, struct draft *d)
{
	struct object *base = d->base;

	if (d->base_fd >= 0)
		close(d->base_fd);
	d->base_fd = -1;
	d->base = NULL;
	if (!base)
		return;
	object_close(fs, base);
}

static int copy_base(struct fs *fs, struct draft *d, uint64_t len, struct space_wait *w)
{
	autofree char *buf = len ? malloc(COPY_BYTES) : NULL;
	int rc = 0;

	if (len && !buf)
		return -ENOMEM;
	if (len)
		rc = space_charge(fs, &d->frame, len, w);
	for (uint64_t off = 0; !rc && off < len;) {
		size_t n = len - off < COPY_BYTES ? (size_t)(len - off) : COPY_BYTES;
		rc = read_base(fs, d, buf, n, off);
		if (!rc)
			rc = space_write(fs, &d->frame, buf, n, off, w);
		if (!rc) {
			crc_track_write(&d->crc, buf, n, off);
			off += n;
		}
	}
	if (!rc)
		ranges_add(&d->written, 0, len);
	return rc;
}

/* data owned: the draft gets a frame of its own with the first keep bytes of its base. */
static int own_frame(struct fs *fs, struct draft *d, uint64_t keep, uint64_t hint,
		     struct space_wait *w)
{
	if (d->frame.id)
		return 0;
	int rc = space_take_frame(fs, hint, &d->frame, w);
	if (rc)
		return rc;
	ranges_cut(&d->written, 0);
	d->crc.n = 0;
	if (d->base) {
		rc = copy_base(fs, d, keep < d->base->size ? keep : d->base->size, w);
		if (rc) {
			ranges_cut(&d->written, 0);
			d->crc.n = 0;
			tier_call(fs->dram, discard, &d->frame);
			return rc;
		}
		if (keep)
			counter_inc(drafts_copied);
		leave_base(fs, d);
	}
	return 0;
}

/* data shared, bytes locked: room in the frame and in the budget for [off, off + len). */
static int reserve(struct fs *fs, struct draft *d, uint64_t off, size_t len)
{
	uint64_t end = off + len;
	uint64_t total = d->written.total + ranges_missing(&d->written, off, end);
	int rc = tier_call(fs->dram, charge, &d->frame, total);
	if (rc || end <= d->frame.size_bytes)
		return rc;
	/* Ahead in whole huge pages: a frame that is grown write by write gets small pages only. */
	uint64_t ahead = max_u64(end, d->size);
	if (ahead > HUGE_PAGE)
		ahead = (max_u64(ahead, d->frame.size_bytes + d->frame.size_bytes / 4) +
			 HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	return tier_call(fs->dram, resize, &d->frame, ahead);
}

static uint32_t begin_write(struct draft *d)
{
	if (d->n_writing++)
		d->crowd++;
	return d->crowd;
}

static void end_write(struct draft *d, const void *buf, size_t len, uint64_t off, bool was_alone,
		      int rc)
{
	d->n_writing--;
	if (rc) {
		/* Part of it may be in the frame: as good as an earlier object's bytes. */
		d->frame.stale_bytes = max_u64(d->frame.stale_bytes, off + len);
		crc_track_forget(&d->crc, off, len);
		return;
	}
	if (d->write_error && off <= d->failed_off && off + len > d->failed_off)
		d->write_error = 0; /* what failed has been repeated */
	/* Of overlapping writes nobody knows which came last: read the bytes again at publish. */
	crc_track_write(&d->crc, buf, len, off);
	if (!was_alone)
		crc_track_forget(&d->crc, off, len);
	ranges_add(&d->written, off, off + len);
	d->size = max_u64(d->size, off + len);
	d->has_writes = true;
	d->wrote_since_open = true;
}

/* One attempt; -EAGAIN: make room and try again. */
static int try_write(struct fs *fs, struct draft *d, const void *buf, size_t len, uint64_t off)
{
	pthread_mutex_lock(&d->bytes);
	int rc = reserve(fs, d, off, len);
	bool alone = d->n_writing == 0;
	uint32_t crowd = rc ? 0 : begin_write(d);
	pthread_mutex_unlock(&d->bytes);
	if (rc)
		return rc == -ENOSPC ? -EAGAIN : rc;

	rc = tier_call(fs->dram, write, &d->frame, buf, len, off);

	pthread_mutex_lock(&d->bytes);
	end_write(d, buf, len, off, alone && d->crowd == crowd, rc);
	pthread_mutex_unlock(&d->bytes);
	return rc == -ENOSPC ? -EAGAIN : rc;
}

/* A file with a hole where a write failed must not be published as if it were whole. */
static void note_failure(struct draft *d, int rc, uint64_t off)
{
	/* A writer that was interrupted and gives up must not publish half a file either. */
	if (rc == -EINTR)
		rc = -EIO;
	pthread_mutex_lock(&d->bytes);
	if (!d->write_error || off < d->failed_off)
		d->failed_off = off;
	d->write_error = rc;
	d->has_writes = true;
	d->wrote_since_open = true;
	pthread_mutex_unlock(&d->bytes);
}

int draft_write(struct fs *fs, struct draft *d, const void *buf, size_t len, uint64_t off,
		struct space_wait *w)
{
	int rc;

	if (!len)
		return 0;
	if (off + len > (uint64_t)INT64_MAX)
		return -EFBIG;
	for (;;) {
		pthread_rwlock_rdlock(&d->data);
		if (d->is_poisoned) {
			rc = -EIO;
		} else if (d->frame.id) {
			rc = try_write(fs, d, buf, len, off);
		} else {
			pthread_rwlock_unlock(&d->data);
			pthread_rwlock_wrlock(&d->data);
			rc = own_frame(fs, d, d->size, expected_size(fs, d, off + len, len), w);
			pthread_rwlock_unlock(&d->data);
			if (rc)
				break;
			continue;
		}
		pthread_rwlock_unlock(&d->data);
		if (rc == -EAGAIN)
			rc = space_make(fs, len, w);
		else
			break;
		if (rc)
			break;
	}
	if (rc)
		note_failure(d, rc, off);
	return rc;
}

/* bytes locked */
static int read_pieces(struct fs *fs, struct draft *d, char *buf, size_t len, uint64_t off)
{
	uint64_t end = off + len, piece_end;
	int rc = 0;

	for (; !rc && off < end; buf += piece_end - off, off = piece_end) {
		if (ranges_next(&d->written, off, end, &piece_end))
			rc = tier_call(fs->dram, read, &d->frame, buf, (size_t)(piece_end - off), off);
		else
			memset(buf, 0, (size_t)(piece_end - off));
	}
	return rc;
}

int draft_read(struct fs *fs, struct draft *d, void *buf, size_t len, uint64_t off, size_t *n_out)
{
	/* Who reads without d->bytes, which stat waits for: the frame and the base stay with data shared. */
	enum { NOBODY, FROM_FRAME, FROM_BASE } source = NOBODY;
	uint64_t piece_end;
	int rc = 0;

	pthread_rwlock_rdlock(&d->data);
	pthread_mutex_lock(&d->bytes);
	if (off >= d->size)
		len = 0;
	else if (len > d->size - off)
		len = (size_t)(d->size - off);
	if (len && d->frame.id) {
		if (ranges_next(&d->written, off, off + len, &piece_end) && piece_end == off + len)
			source = FROM_FRAME;
		else
			rc = read_pieces(fs, d, buf, len, off);
	} else if (len && d->base) {
		rc = open_base(fs, d);
		source = rc ? NOBODY : FROM_BASE;
	} else if (len) {
		memset(buf, 0, len);
	}
	pthread_mutex_unlock(&d->bytes);
	if (source == FROM_FRAME)
		rc = tier_call(fs->dram, read, &d->frame, buf, len, off);
	else if (source == FROM_BASE)
		rc = read_base(fs, d, buf, len, off); /* as long as the draft: it has not diverged */
	pthread_rwlock_unlock(&d->data);
	if (!rc)
		*n_out = len;
	return rc;
}

static int resize_owned(struct fs *fs, struct draft *d, uint64_t size, struct space_wait *w)
{
	struct tier_stats stats;
	int rc = 0;

	if (d->is_poisoned)
		return -EIO;
	if (size == d->size)
		return 0;
	tier_call(fs->dram, get_stats, &stats);
	if (size > d->size && size > stats.budget_bytes)
		return -EFBIG;
	if (size == 0) {
		leave_base(fs, d);
		if (d->frame.id)
			tier_call(fs->dram, discard, &d->frame);
		ranges_cut(&d->written, 0);
		crc_track_cut(&d->crc, 0);
	} else if (d->base) {
		rc = own_frame(fs, d, size < d->size ? size : d->size, size, w);
	} else if (size < d->size && d->frame.id) {
		/* Bytes past the new end must not come back when it grows again. */
		if (d->frame.size_bytes > size)
			rc = tier_call(fs->dram, resize, &d->frame, size);
		if (!rc)
			ranges_cut(&d->written, size);
	}
	if (!rc) {
		if (size <= d->failed_off)
			d->write_error = 0; /* cut off, as programs do after a full disk */
		crc_track_cut(&d->crc, size < d->size ? size : d->size);
		pthread_mutex_lock(&d->bytes);
		d->size = size;
		pthread_mutex_unlock(&d->bytes);
		d->has_resize = true;
	}
	return rc;
}

int draft_resize(struct fs *fs, struct draft *d, uint64_t size, struct space_wait *w)
{
	pthread_rwlock_wrlock(&d->data);
	int rc = resize_owned(fs, d, size, w);
	pthread_rwlock_unlock(&d->data);
	return rc;
}

int draft_truncate_at_open(struct fs *fs, struct draft *d)
{
	struct space_wait w = { 0 };
	int rc = draft_resize(fs, d, 0, &w);

	if (!rc) {
		d->has_resize = false; /* publishes at close, as a new file does: nothing is mapped yet */
		d->never_published = true;
	}
	return rc;
}

static int zero_owned(struct fs *fs, struct draft *d, uint64_t off, uint64_t end,
		      struct space_wait *w)
{
	if (end > d->size)
		end = d->size;
	if (off >= end || (!d->frame.id && !d->base))
		return 0;
	int rc = own_frame(fs, d, d->size, d->size, w);
	for (uint64_t piece_end; !rc && off < end; off = piece_end) {
		if (!ranges_next(&d->written, off, end, &piece_end))
			continue;
		rc = tier_call(fs->dram, zero, &d->frame, off, piece_end - off);
		crc_track_forget(&d->crc, off, piece_end - off);
	}
	if (!rc)
		d->has_resize = true;
	return rc;
}

int draft_fallocate(struct fs *fs, struct draft *d, int mode, uint64_t off, uint64_t len,
		    struct space_wait *w)
{
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	int op = mode & ~FALLOC_FL_KEEP_SIZE, rc = 0;

	if (op != 0 && op != FALLOC_FL_ZERO_RANGE && op != FALLOC_FL_PUNCH_HOLE)
		return -EOPNOTSUPP;
	if (!len || off + len > (uint64_t)INT64_MAX)
		return -EINVAL;
	pthread_rwlock_wrlock(&d->data);
	if (op)
		rc = zero_owned(fs, d, off, off + len, w);
	if (!rc && !keep_size && off + len > d->size)
		rc = resize_owned(fs, d, off + len, w);
	pthread_rwlock_unlock(&d->data);
	return rc;
}

uint64_t draft_size(struct draft *d)
{
	pthread_mutex_lock(&d->bytes);
	uint64_t size = d->size;
	pthread_mutex_unlock(&d->bytes);
	return size;
}

int draft_finish_bytes_owned(struct fs *fs, struct draft *d, struct space_wait *w)
{
	if (!d->size) {
		leave_base(fs, d);
		if (d->frame.id)
			tier_call(fs->dram, discard, &d->frame);
		return 0;
	}
	int rc = own_frame(fs, d, d->size, d->size, w);
	uint64_t stale_end = d->size < d->frame.stale_bytes ? d->size : d->frame.stale_bytes;
	uint64_t off = 0, piece_end;
	for (; !rc && off < stale_end; off = piece_end)
		if (!ranges_next(&d->written, off, stale_end, &piece_end))
			rc = tier_call(fs->dram, zero, &d->frame, off, piece_end - off);
	if (!rc && d->frame.size_bytes != d->size)
		rc = tier_call(fs->dram, resize, &d->frame, d->size);
	return rc;
}

void draft_rebase_owned(struct draft *d, struct object *o)
{
	d->base = o;
	d->base_fd = -1;
	ranges_cut(&d->written, 0);
	d->crc.n = 0;
	d->has_writes = d->has_resize = d->never_published = false;
}

struct object *draft_release_bytes(struct fs *fs, struct draft *d)
{
	struct object *base = d->base;

	if (d->base_fd >= 0)
		close(d->base_fd);
	if (d->frame.id)
		tier_call(fs->dram, discard, &d->frame);
	ranges_fini(&d->written);
	crc_track_fini(&d->crc);
	d->base = NULL;
	return base;
}
