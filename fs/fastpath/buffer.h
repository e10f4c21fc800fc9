/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffer: memory that clients and the daemon share, a file below .mooncake/buffers/.
 *
 * A buffer is a fresh frame of the dram tier, so it counts against that budget, has huge pages and is
 * zero. The client maps it through passthrough. All its pages are taken when it is sized: nobody ever
 * runs into a hole that cannot be filled. It goes with its last handle and registration; mappings keep
 * their pages (and their charge) beyond that.
 *
 * Locks: list, counts and the inode's attributes: fs->lock. frame and registrations: buffer->lock, which
 * comes before fs->lock.
 */
#ifndef MCFS_BUFFER_H
#define MCFS_BUFFER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/tier.h"

struct fs;
struct inode;
struct space_wait;

/* All buffers together take at most this part of the dram budget. */
#define BUFFER_BUDGET_PART 2
#define BUFFERS_MAX 4096
/* Mappings of ours: a process has 65,530, and everything else needs some. */
#define REGISTRATIONS_MAX 16384

struct buffer {
	struct buffer *next;
	struct inode *inode;     /* one ref */
	uint64_t number;         /* constant; its place in listings */
	pthread_mutex_t lock;
	struct frame frame;
	int32_t backing_id;      /* the kernel's passthrough id, 0: none yet */
	uint32_t n_handles, n_registered;
	bool is_gone;            /* no name any more */
};

/*
 * A new buffer with one handle. -EEXIST, -EMFILE (BUFFERS_MAX), -ENAMETOOLONG, -ENOSPC, -EIO. With
 * fs->lock free, as all that follows.
 */
int buffer_create(struct fs *fs, const char *name, mode_t mode, uid_t uid, gid_t gid,
		  struct buffer **out);
/* The buffer of that name: its inode with one more ref, or NULL. */
struct inode *buffer_lookup(struct fs *fs, const char *name);
/* One more handle of what the inode shows; NULL: it is gone. */
struct buffer *buffer_open(struct fs *fs, struct inode *i);
void buffer_close(struct fs *fs, struct buffer *b);
/* -ENOENT. */
int buffer_unlink(struct fs *fs, const char *name);
/*
 * Grows or shrinks it. -EBUSY: it is registered and would shrink; -EFBIG beyond all that buffers may
 * take; -ENOSPC and -EINTR as space_make.
 */
int buffer_resize(struct fs *fs, struct buffer *b, uint64_t bytes, struct space_wait *w);
/*
 * The name after number after in the order of creation, with its inode (no ref); NULL: no more. fs->lock
 * held.
 */
const struct buffer *buffer_next_locked(struct fs *fs, uint64_t after);

/*
 * Maps [offset, offset + *length) of it (*length 0: up to its end, which is then told); it stays, and does
 * not shrink, until unregistered. -EINVAL not whole pages, -EFAULT beyond the end, -ENOMEM, -EMFILE
 * (REGISTRATIONS_MAX).
 */
int buffer_register(struct fs *fs, struct buffer *b, uint64_t offset, uint64_t *length, char **map_out);
void buffer_unregister(struct fs *fs, struct buffer *b, char *map, uint64_t length);

/* The daemon ends. */
void buffers_destroy(struct fs *fs);

#endif
