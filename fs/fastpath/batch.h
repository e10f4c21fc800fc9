/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch: one submission of a session, from the client's buffer through the store and back.
 *
 *   decode (everything copied, then checked) -> run (item by item; stops when interrupted, cancelled or
 *   late) -> outcomes written back to the client's array
 *
 * A client may change or truncate anything in its buffer meanwhile: what was decoded is the daemon's, and
 * bytes are moved by system calls, which answer EFAULT where a page is missing.
 */
#ifndef MCFS_BATCH_H
#define MCFS_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fastpath/executor.h"
#include "fastpath/session.h"
#include "mcfs/catalog.h"
#include "object/name_index.h"

struct fs;
struct space_wait;

/* What a decoded item is, beside its copy of the client's struct. */
struct target {
	struct registration *reg; /* NULL: the item is not to be run, its status says why */
	const char *name;         /* NUL-terminated, or NULL */
	size_t name_len;
	uint64_t dir_ino;
	struct name_key key;
};

struct batch {
	struct session *session;   /* one ref */
	struct batch *next_of_session;
	struct job job;            /* asynchronous: its place in the executor's queue */
	struct mcfs_submit io;
	uint64_t caller;           /* thread id, for the eviction order */
	int64_t deadline_ns;       /* CLOCK_MONOTONIC */
	uint64_t ticket;           /* 0: synchronous */
	atomic_bool is_cancelled;
	bool (*is_interrupted)(void *arg); /* NULL: cannot be */
	void *arg;

	struct registration *reg;  /* of the submission's buffer */
	char *names;               /* storage of all names */
	char suffix[65];
	struct mcfs_item *items;   /* n_items, as in the buffer */
	struct target *targets;
	struct mcfs_state *states; /* LOOKUP */
	uint64_t bytes;            /* taken for the copies */
	bool has_replaced;         /* WRITE: the kernel has to forget older versions */
	_Atomic int32_t stopped;   /* why it ended early: -EINTR, -ECANCELED, -ETIMEDOUT; 0: it did not */
};

/*
 * Copies and checks a submission. -EINVAL, -EFAULT, -ENOENT (buffer), -EMFILE (n_items), -EAGAIN (too
 * much is under way): nothing of it will be done. What is wrong with one item is that item's status.
 */
int batch_create(struct session *s, const struct mcfs_submit *io, struct batch **out);
void batch_destroy(struct batch *b);
/* No buffer is touched any more, its copies go: before its client hears that it is over. */
void batch_leave_memory(struct batch *b);

/*
 * Does it all and writes the outcomes back. done is called once, maybe by another thread: after what was
 * published is what every later open finds.
 */
typedef void (*batch_done_fn)(void *batch);
void batch_run(struct batch *b, batch_done_fn done);
/* 0, or why the next item must not begin. Of any thread that works for it. */
int batch_stopped(struct batch *b);
/*
 * Moves the bytes of n items: part(arg, k) once for each k below n, by the calling thread and, where there
 * are enough bytes to be worth their waking, by idle threads of the executor. Returns when all are done.
 */
void batch_share(struct batch *b, executor_part_fn part, void *arg, uint32_t n, uint64_t bytes);

/* The same for what waits in the store: as long as any writer waits, but not beyond the deadline. */
struct space_wait batch_wait(struct batch *b);

/* ---- parts ---- */

void batch_lookup(struct batch *b);
void batch_read(struct batch *b);
void batch_prefetch(struct batch *b);
void batch_write(struct batch *b);

/* Copies bytes of a registered buffer, by a system call. -EFAULT: not inside it, or not there any more. */
int batch_copy_in(const struct registration *r, uint64_t off, void *to, size_t len);
/*
 * Spells a client's name (enum mcfs_name_kind) into "to", with its NUL; a binary one as hexadecimal digits
 * and the suffix: 2 * bytes + suffix_bytes + 1. Returns its length.
 */
size_t batch_spell_name(const struct batch *b, uint16_t kind, const char *raw, size_t bytes, char *to);
/*
 * Where segment bytes of an item lie, for one readv or writev: fills iov with at most max pieces of its
 * bytes [from, from + len); returns how many, *len_out is what they hold.
 */
struct iovec;
int batch_segments(const struct mcfs_item *i, const struct registration *reg, uint64_t from, uint64_t len,
		   struct iovec *iov, int max, uint64_t *len_out);
/*
 * The inode number behind a DIR handle that the session may search (want: X_OK, W_OK). -EPERM, -ENOENT,
 * -EACCES.
 */
int batch_directory(struct batch *b, uint64_t handle, int want, uint64_t *ino_out);
/* The same for the named items [from, to): their directories and keys, or what is wrong as their status. */
void batch_find_directories(struct batch *b, uint32_t from, uint32_t to, int want);

#endif
