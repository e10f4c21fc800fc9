/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp_client: a client of the fast path on an fs_box: a session, a registered buffer whose bytes the test
 * sees, and the steps of ops/fastpath.c, so that tests speak of items, names and what became of them.
 *
 * Set-up that fails aborts; calls under test return what the ioctl would: 0 or a negative errno.
 * Thread safety: a client belongs to one thread, except fp_cancel and fp_collect.
 */
#ifndef MCFS_FP_CLIENT_H
#define MCFS_FP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fastpath/buffer.h"
#include "fastpath/session.h"
#include "lib/fs_box.h"

/* A buffer file that a client has open and mapped. */
struct fp_buffer {
	struct buffer *buffer;
	struct handle *handle;
	uint64_t id;	 /* public handle */
	uint32_t number; /* in its session, 0: not registered */
	char *mem;
	uint64_t bytes;
};

struct fp_client {
	struct fs_box *box;
	struct session *session;
	struct handle *handle; /* of the session; NULL: it has none */
	struct fp_buffer main; /* all of it registered */
	uint64_t used;	       /* of main, by fp_alloc */
};

/* root without groups */
struct cred fp_root(void);
struct cred fp_user(uid_t uid, gid_t gid);

struct session *fp_session(struct fs_box *box, struct cred cred);
void fp_open(struct fp_client *c, struct fs_box *box, struct cred cred, uint64_t bytes);
/* The session's and the buffer's descriptors go. Work under way may go on for a while. */
void fp_close(struct fp_client *c);
void fp_close_session(struct fp_client *c);

/* ---- buffers ---- */

void fp_buffer_open(struct fs_box *box, const char *name, uid_t uid, uint64_t bytes,
		    struct fp_buffer *out);
void fp_buffer_close(struct fs_box *box, struct fp_buffer *b);
/* REGISTER of all of it (or the given part); number is set. */
int fp_register(struct fp_client *c, struct fp_buffer *b, uint64_t offset, uint64_t length);
int fp_unregister(struct fp_client *c, uint32_t number);
int fp_resize(struct fs_box *box, struct fp_buffer *b, uint64_t bytes);

/* ---- handles: what open(2) and MCFS_IOC_HANDLE give, and close(2) ---- */

struct handle *fp_open_dir(struct fs_box *box, struct inode *dir, uid_t uid, uint64_t *id_out);
/* A published file. NULL: no such file. */
struct handle *fp_open_file(struct fs_box *box, struct inode *dir, const char *name, uid_t uid,
			    uint64_t *id_out);
void fp_close_handle(struct fs_box *box, struct handle *h);

/* ---- requests, laid out in the main buffer one after another ---- */

/* Forgets earlier requests. */
void fp_reset(struct fp_client *c);
/* Offset of len zeroed bytes, a multiple of 64. */
uint64_t fp_alloc(struct fp_client *c, uint64_t len);
char *fp_at(struct fp_client *c, uint64_t off);
/* An array of n zeroed items for op; the submission is filled in. */
struct mcfs_item *fp_items(struct fp_client *c, uint32_t op, uint32_t n, struct mcfs_submit *io);
void fp_name(struct fp_client *c, struct mcfs_item *i, uint64_t dir, const char *name);
void fp_binary_name(struct fp_client *c, struct mcfs_item *i, uint64_t dir, const void *hash,
		    uint16_t bytes);
void fp_suffix(struct fp_client *c, struct mcfs_submit *io, const char *suffix);
/* One piece of len bytes. Returns where it is, zeroed. */
char *fp_dense(struct fp_client *c, struct mcfs_item *i, uint32_t len);
/* A LOOKUP of n NUL-terminated names. */
struct mcfs_state *fp_lookup(struct fp_client *c, uint64_t dir, const char *const *names,
			     uint32_t n, struct mcfs_submit *io);

/* SUBMIT without MCFS_ASYNC. Outputs as the ioctl gives them. */
int fp_submit(struct fp_client *c, struct mcfs_submit *io);
/* The same, interrupted by a signal once this is true. */
int fp_submit_until(struct fp_client *c, struct mcfs_submit *io, bool (*is_interrupted)(void *),
		    void *arg);
/* With MCFS_ASYNC; the ticket is in io. */
int fp_submit_async(struct fp_client *c, struct mcfs_submit *io);
int fp_cancel(struct fp_client *c, uint64_t ticket);
/* read(2) of one completion, at most wait_ms: 1, 0 in time none, -EBADF closed meanwhile. */
int fp_collect(struct fp_client *c, struct mcfs_completion *out, int wait_ms);
/* Decode only, as a submission does first; nothing is run. */
int fp_decode(struct session *s, const struct mcfs_submit *io);

/* Writes one object by a WRITE of one item; its status. */
int fp_put(struct fp_client *c, uint64_t dir, const char *name, const void *bytes, uint32_t len);
/* Reads it by name: true if it holds exactly these bytes. */
bool fp_shows(struct fp_client *c, uint64_t dir, const char *name, const void *bytes, uint32_t len);

/* ---- books ---- */

struct fp_books {
	uint64_t used_bytes, n_open, n_sealed, n_zombies;
	uint32_t n_buffers, n_registered;
	uint64_t batch_bytes;
	int n_fds;
	int n_handles;
};
/* After the caches were emptied. */
struct fp_books fp_books(struct fs_box *box);
/* Waits a while until they are as before; else prints the difference. */
bool fp_books_are(struct fs_box *box, const struct fp_books *before);

#endif
