/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: one open of .mooncake/session, owner of registrations, submissions and completions.
 *
 * It acts with the credentials of the process that opened it, whoever uses the descriptor later. When it
 * is closed, queued submissions are cancelled, running ones stop at the next item, and the last of them
 * takes the registrations along: no memory of a buffer is touched after that.
 *
 * Locks: session->lock is a leaf, except that buffers are unregistered after it.
 */
#ifndef MCFS_SESSION_FASTPATH_H
#define MCFS_SESSION_FASTPATH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mooncakefs.h"

struct batch;
struct buffer;
struct fs;

#define SESSION_MAX_BUFFERS 256
#define SESSION_MAX_TICKETS 4096
#define SESSION_MAX_ITEMS 65536
#define SESSION_MAX_SEGMENTS 65536
/* Of decoded submissions under way: the largest one takes 28 MiB. */
#define SESSION_MAX_BATCH_BYTES (UINT64_C(128) << 20)
#define ALL_MAX_BATCH_BYTES (UINT64_C(1) << 30)
#define CRED_MAX_GROUPS 64

struct cred {
	uid_t uid;
	gid_t gid;
	gid_t groups[CRED_MAX_GROUPS];
	int n_groups;
};

bool cred_in_group(const struct cred *c, gid_t gid);
/* Whether it may do all of want (R_OK, W_OK, X_OK of unistd.h) with a file of that owner and mode. */
bool cred_may(const struct cred *c, uint32_t mode, uid_t uid, gid_t gid, int want);

struct registration {
	struct buffer *buffer; /* NULL: free */
	uint64_t offset, length;
	char *map;             /* of offset; touched by system calls only */
	uint32_t n_users;      /* batches under way */
};

/* A read(2) that waits for a completion. */
struct session_reader {
	struct session_reader *next;
	void *request;
};

/*
 * What a session needs of the FUSE side. is_interrupted: the read need not wait. deliver answers a waiting
 * read with n completions (n 0: error). wake tells a poller (and gives up its handle).
 */
struct session_callbacks {
	bool (*is_interrupted)(void *request);
	void (*deliver)(void *request, const struct mcfs_completion *c, size_t n, int error);
	void (*wake)(void *poll);
};

struct session {
	struct fs *fs;
	struct cred cred;
	const struct session_callbacks *callbacks;

	pthread_mutex_t lock;  /* guards what follows */
	uint32_t refs;         /* the handle and every batch */
	bool is_closed;
	struct registration regs[SESSION_MAX_BUFFERS];
	uint64_t next_ticket;
	uint32_t n_tickets;    /* submitted, not collected */
	uint64_t batch_bytes;  /* decoded, of batches under way */
	struct batch *batches; /* asynchronous ones, queued or running */
	struct mcfs_completion *done; /* ring of SESSION_MAX_TICKETS, made when needed */
	uint32_t done_head, n_done;
	struct session_reader *readers; /* oldest first */
	void *poll;            /* who is told that there is something to read */
};

struct session *session_create(struct fs *fs, const struct cred *c,
			       const struct session_callbacks *callbacks);
void session_get(struct session *s);
void session_put(struct session *s);
/* Its descriptor is gone: cancels, answers waiting reads, drops the handle's ref. */
void session_close(struct session *s);
/* The daemon ends, no request is served any more: closes those whose descriptors are still open. */
void session_end_all(struct fs *fs);

/* What an ioctl does: 0 or -errno as mooncakefs.h says. */
int session_hello(struct session *s, struct mcfs_hello *io);
int session_register(struct session *s, struct mcfs_register *io, struct buffer *b);
int session_unregister(struct session *s, const struct mcfs_unregister *io);

/* Takes a registration for a batch; 0, -ENOENT. */
int session_use_buffer(struct session *s, uint32_t number, struct registration **out);
void session_release_buffer(struct session *s, struct registration *r);

/* Memory for a batch's copies: bytes more, for the session and for all. -EAGAIN: too much is under way. */
int session_take_memory(struct session *s, uint64_t bytes);
void session_give_memory(struct session *s, uint64_t bytes);

/* ---- tickets and completions ---- */

/* A ticket for an asynchronous batch. -EAGAIN: too many, -ENOTCONN: closed. */
int session_add_batch(struct session *s, struct batch *b, uint64_t *ticket_out);
/* It was not taken: its ticket never was. */
void session_drop_batch(struct session *s, struct batch *b);
/* It is over: off the list, its completion can be read. */
void session_finish_batch(struct session *s, struct batch *b, const struct mcfs_completion *c);
/* -ENOENT: no such ticket under way. */
int session_cancel(struct session *s, uint64_t ticket);
/*
 * read(2): up to max completions into out, their number returned; 0: none yet, and request waits (it is
 * answered through deliver, maybe before this returns) unless request is NULL. -EINTR: request is
 * interrupted already.
 */
ssize_t session_collect(struct session *s, struct mcfs_completion *out, size_t max, void *request);
/* A waiting read is interrupted: true if it was waiting and is the caller's to answer now. */
bool session_forget_reader(struct session *s, void *request);
/*
 * poll(2): whether there is something to read. poll (unless NULL) is told of the next completion, also
 * when there is one already: edge-triggered epoll waits for more. *spare_out is the caller's to give up:
 * the one that was to be told before.
 */
bool session_poll(struct session *s, void *poll, void **spare_out);

#endif
