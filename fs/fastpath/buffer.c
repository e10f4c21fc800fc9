/* SPDX-License-Identifier: Apache-2.0 */
#include "fastpath/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "control/control.h"
#include "fs.h"
#include "inode_table.h"
#include "object/object.h"
#include "object/space.h"
#include "object/version.h"

#define PAGE_BYTES UINT64_C(4096)
/* Pages are taken in pieces, so that an interrupt is noticed. */
#define FILL_BYTES (UINT64_C(64) << 20)

static struct buffer *find_locked(struct fs *fs, const char *name)
{
	struct buffer *b = fs->buffers;

	while (b && (b->is_gone || strcmp(b->inode->name, name)))
		b = b->next;
	return b;
}

/* ---- life ---- */

static struct buffer *new_buffer(struct fs *fs, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	int64_t now = now_real_ns();
	uint64_t number = version_next(fs->clock);
	struct entry e = { .ino = number, .mode = S_IFREG | (mode & 0777), .uid = uid, .gid = gid,
			   .atime_ns = now, .mtime_ns = now, .ctime_ns = now, .btime_ns = now };

	if (!number)
		return NULL;
	struct buffer *b = xcalloc(1, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	b->number = number;
	b->n_handles = 1;
	guard_lock(&fs->lock);
	b->inode = inode_create_locked(fs, number, INODE_BUFFER, control_ino(CONTROL_BUFFERS), name, &e);
	b->inode->buffer = b;
	return b;
}

static void free_buffer(struct fs *fs, struct buffer *b)
{
	if (b->backing_id)
		fs->close_backing(fs, b->backing_id);
	tier_call(fs->dram, discard, &b->frame);
	pthread_mutex_lock(&fs->lock);
	b->inode->buffer = NULL;
	b->inode->state = INODE_GONE;
	inode_put_locked(fs, b->inode);
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Takes it off the list when nobody needs it any more; true: the caller frees it. */
static bool drop_if_unused_locked(struct fs *fs, struct buffer *b)
{
	if (b->n_handles || b->n_registered)
		return false;
	b->is_gone = true;
	for (struct buffer **p = &fs->buffers; *p; p = &(*p)->next)
		if (*p == b) {
			*p = b->next;
			fs->n_buffers--;
			break;
		}
	return true;
}

int buffer_create(struct fs *fs, const char *name, mode_t mode, uid_t uid, gid_t gid,
		  struct buffer **out)
{
	struct space_wait w = { 0 };
	struct frame f;

	if (strlen(name) > CATALOG_NAME_MAX)
		return -ENAMETOOLONG;
	int rc = space_take_frame(fs, 0, &f, &w); /* no size: a fresh one, all zero */
	if (rc)
		return rc;
	struct buffer *b = new_buffer(fs, name, mode, uid, gid);
	if (!b) {
		tier_call(fs->dram, discard, &f);
		return -EIO;
	}
	b->frame = f;
	pthread_mutex_lock(&fs->lock);
	rc = find_locked(fs, name) ? -EEXIST : fs->n_buffers >= BUFFERS_MAX ? -EMFILE : 0;
	if (!rc) {
		/* Newest last. */
		struct buffer **tail = &fs->buffers;
		while (*tail)
			tail = &(*tail)->next;
		*tail = b;
		fs->n_buffers++;
	}
	pthread_mutex_unlock(&fs->lock);
	if (rc) {
		free_buffer(fs, b);
		return rc;
	}
	*out = b;
	return 0;
}

struct inode *buffer_lookup(struct fs *fs, const char *name)
{
	guard_lock(&fs->lock);
	struct buffer *b = find_locked(fs, name);

	if (!b)
		return NULL;
	inode_get_locked(b->inode);
	return b->inode;
}

struct buffer *buffer_open(struct fs *fs, struct inode *i)
{
	guard_lock(&fs->lock);
	struct buffer *b = i->buffer;

	if (b)
		b->n_handles++;
	return b;
}

void buffer_close(struct fs *fs, struct buffer *b)
{
	pthread_mutex_lock(&fs->lock);
	b->n_handles--;
	bool must_free = drop_if_unused_locked(fs, b);
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		free_buffer(fs, b);
}

int buffer_unlink(struct fs *fs, const char *name)
{
	guard_lock(&fs->lock);
	struct buffer *b = find_locked(fs, name);

	if (!b)
		return -ENOENT;
	b->is_gone = true; /* the bytes stay with its handles and registrations */
	return 0;
}

const struct buffer *buffer_next_locked(struct fs *fs, uint64_t after)
{
	struct buffer *b = fs->buffers;

	while (b && (b->is_gone || b->number <= after))
		b = b->next;
	return b;
}

/* ---- size ---- */

/* So that no page is missing when a client or the daemon touches it. */
static int fill(struct buffer *b, uint64_t from, uint64_t to, struct space_wait *w)
{
	while (from < to) {
		uint64_t n = to - from < FILL_BYTES ? to - from : FILL_BYTES;
		if (w->is_interrupted && w->is_interrupted(w->arg))
			return -EINTR;
		if (fallocate(b->frame.fd, 0, (off_t)from, (off_t)n)) {
			if (errno == EINTR)
				continue;
			return errno == ENOMEM ? -ENOSPC : -errno;
		}
		from += n;
	}
	return 0;
}

/* Counts b as that long from now on, if all buffers may take so much together. */
static bool reserve(struct fs *fs, struct buffer *b, uint64_t bytes, uint64_t max)
{
	uint64_t sum = 0;

	guard_lock(&fs->lock);
	for (struct buffer *o = fs->buffers; o; o = o->next)
		sum += o == b ? 0 : o->inode->e.size;
	if (sum > max || bytes > max - sum)
		return false;
	b->inode->e.size = bytes;
	return true;
}

/* b->lock held */
static int grow(struct fs *fs, struct buffer *b, uint64_t bytes, struct space_wait *w)
{
	struct tier_stats s;
	uint64_t old = b->frame.size_bytes;

	tier_call(fs->dram, get_stats, &s);
	if (!reserve(fs, b, bytes, s.budget_bytes / BUFFER_BUDGET_PART))
		return -EFBIG;
	int rc = space_charge(fs, &b->frame, bytes, w);
	if (rc)
		return rc;
	rc = tier_call(fs->dram, resize, &b->frame, bytes);
	while (!rc && (rc = fill(b, old, bytes, w)) == -ENOSPC) {
		/* The tmpfs itself may be full for a moment: frames are sized ahead. */
		rc = space_make(fs, bytes - old, w);
		if (rc)
			break;
	}
	if (rc)
		tier_call(fs->dram, resize, &b->frame, old);
	return rc;
}

int buffer_resize(struct fs *fs, struct buffer *b, uint64_t bytes, struct space_wait *w)
{
	int rc = 0;

	if (bytes > INT64_MAX)
		return -EFBIG;
	guard_lock(&b->lock);
	if (bytes > b->frame.size_bytes) {
		rc = grow(fs, b, bytes, w);
	} else if (bytes < b->frame.size_bytes) {
		pthread_mutex_lock(&fs->lock);
		rc = b->n_registered ? -EBUSY : 0;
		pthread_mutex_unlock(&fs->lock);
		if (!rc)
			rc = tier_call(fs->dram, resize, &b->frame, bytes);
	}
	guard_lock(&fs->lock);
	b->inode->e.size = b->frame.size_bytes;
	return rc;
}

/* ---- registration ---- */

int buffer_register(struct fs *fs, struct buffer *b, uint64_t offset, uint64_t *length_io, char **map_out)
{
	uint64_t end, length = *length_io;

	guard_lock(&b->lock); /* its size stays */
	if (!length && offset < b->frame.size_bytes)
		length = b->frame.size_bytes - offset;
	if (!length || (offset | length) % PAGE_BYTES)
		return -EINVAL;
	if (__builtin_add_overflow(offset, length, &end) || end > b->frame.size_bytes)
		return -EFAULT;
	pthread_mutex_lock(&fs->lock);
	bool may = fs->n_registered < REGISTRATIONS_MAX;
	fs->n_registered += may;
	b->n_registered += may;
	pthread_mutex_unlock(&fs->lock);
	if (!may)
		return -EMFILE;
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, b->frame.fd, (off_t)offset);
	if (p == MAP_FAILED) {
		int rc = errno == ENOMEM ? -ENOMEM : -EIO;
		guard_lock(&fs->lock);
		fs->n_registered--;
		b->n_registered--; /* its caller has a handle */
		return rc;
	}
	*map_out = p;
	*length_io = length;
	return 0;
}

void buffer_unregister(struct fs *fs, struct buffer *b, char *map, uint64_t length)
{
	munmap(map, length);
	pthread_mutex_lock(&fs->lock);
	fs->n_registered--;
	b->n_registered--;
	bool must_free = drop_if_unused_locked(fs, b);
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		free_buffer(fs, b);
}

void buffers_destroy(struct fs *fs)
{
	while (fs->buffers) {
		struct buffer *b = fs->buffers;
		fs->buffers = b->next;
		tier_call(fs->dram, discard, &b->frame);
		b->inode->buffer = NULL;
		pthread_mutex_destroy(&b->lock);
		free(b);
	}
}
