/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle: one open file or directory of a client (fuse_file_info.fh). Created by OPEN, CREATE and
 * OPENDIR, destroyed by RELEASE. Fields are constant unless a lock is named.
 */
#ifndef MCFS_HANDLE_H
#define MCFS_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buffer;
struct fetch;
struct inode;
struct object;
struct session;
struct draft;

enum handle_kind { HANDLE_OBJECT, HANDLE_FETCH, HANDLE_DRAFT, HANDLE_DIR, HANDLE_CONTROL, HANDLE_BUFFER, HANDLE_SESSION };

struct handle {
	enum handle_kind kind;
	struct inode *inode;        /* one ref */
	struct handle *prev, *next; /* fs->lock; all handles of the mount */

	/* Its name in a session's items, 0: none yet. fs->lock */
	uint64_t public_id;
	uid_t public_uid;           /* of who asked for it */
	struct handle *public_next;

	/* HANDLE_OBJECT */
	struct object *object;
	int fd;                     /* direct_io only, else -1 */
	bool is_passthrough, is_direct;
	int32_t backing_id;         /* the kernel's, while is_passthrough */
	pthread_rwlock_t map_lock;  /* held for as long as a reply looks at the mapping */
	char *_Atomic map;          /* the frame, mapped at the first large read */

	struct fetch *fetch;        /* HANDLE_FETCH: of an object that was not here when it was opened */

	/* HANDLE_DRAFT */
	struct draft *draft;
	struct handle *draft_next;  /* fs->lock */
	bool is_writable;           /* BUFFER: and readable */
	pid_t opener_tid, opener_tgid; /* 0: of another PID namespace */
	bool is_flushed;            /* fs->lock; its opener has closed it once */
	_Atomic bool is_duplicated; /* other descriptors of it were seen: closes are looked at closely */

	/* HANDLE_DIR */
	_Atomic unsigned int n_listed; /* names given since the listing began */

	struct buffer *buffer;      /* HANDLE_BUFFER */
	struct session *session;    /* HANDLE_SESSION */

	/* HANDLE_CONTROL */
	char *text;                 /* snapshot taken at open */
	size_t text_len;
};

struct fs;

/* Takes over one ref of i. */
struct handle *handle_create(struct fs *fs, enum handle_kind kind, struct inode *i);
void handle_free(struct fs *fs, struct handle *h);
/* Waits for the replies that look at its mapping. */
void handle_close_frame(struct handle *h);
/*
 * A random id by which sessions of uid (and root's) may name it from now on; the one it has, if it has.
 * -EPERM: that one is another user's. -EAGAIN: no random bytes.
 */
int handle_make_public(struct fs *fs, struct handle *h, uid_t uid, uint64_t *id_out);
/* No session finds it any more: before what it holds is given up. */
void handle_revoke(struct fs *fs, struct handle *h);
/* fs->lock held. NULL: none has that id. */
struct handle *handle_find_locked(struct fs *fs, uint64_t public_id);
/* The daemon ends while clients have files open: memory and fds only. */
void handle_abandon_all(struct fs *fs);

#endif
