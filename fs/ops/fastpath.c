/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ioctls of mooncakefs.h, and what a session's descriptor does: read and poll. Anything else that
 * comes by ioctl is answered ENOTTY at once (Python asks TCGETS of every file it opens).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "control/control.h"
#include "fastpath/batch.h"
#include "fastpath/buffer.h"
#include "fastpath/executor.h"
#include "fastpath/session.h"
#include "handle.h"
#include "object/object.h"
#include "ops/ops.h"

#define MAX_COMPLETIONS 256 /* per read */

/* ---- from a session back to its clients ---- */

static void deliver(void *request, const struct mcfs_completion *c, size_t n, int error)
{
	if (error)
		reply_err(request, error);
	else
		fuse_reply_buf(request, (const char *)c, n * sizeof(*c));
}

static void wake(void *poll)
{
	fuse_lowlevel_notify_poll(poll);
	fuse_pollhandle_destroy(poll);
}

/* Also when the daemon is to end: nobody waits for a long submission then. */
static bool is_interrupted(void *req)
{
	return fuse_req_interrupted(req) || fuse_session_exited(req_fs(req)->se);
}

static const struct session_callbacks callbacks = {
	.is_interrupted = is_interrupted,
	.deliver = deliver,
	.wake = wake,
};

void session_open(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct cred c = { .uid = ctx->uid, .gid = ctx->gid };
	int n = fuse_req_getgroups(req, CRED_MAX_GROUPS, c.groups);

	/* Groups that are too many, or not to be seen (another PID namespace), give no rights. */
	c.n_groups = n < 0 ? 0 : n > CRED_MAX_GROUPS ? CRED_MAX_GROUPS : n;
	pthread_mutex_lock(&fs->lock);
	inode_get_locked(i);
	pthread_mutex_unlock(&fs->lock);
	struct handle *h = handle_create(fs, HANDLE_SESSION, i);
	h->session = session_create(fs, &c, &callbacks);
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->direct_io = 1;
	fi->nonseekable = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

/* ---- read, poll ---- */

static void on_interrupt(fuse_req_t req, void *data)
{
	if (session_forget_reader(data, req)) {
		counter_inc(interrupts);
		reply_err(req, -EINTR);
	}
}

void session_read(fuse_req_t req, struct handle *h, size_t size, struct fuse_file_info *fi)
{
	struct mcfs_completion c[MAX_COMPLETIONS];
	size_t max = size / sizeof(*c) < MAX_COMPLETIONS ? size / sizeof(*c) : MAX_COMPLETIONS;
	bool may_wait = !(fi->flags & O_NONBLOCK);

	if (!max) {
		reply_err(req, -EINVAL);
		return;
	}
	if (may_wait)
		fuse_req_interrupt_func(req, on_interrupt, h->session);
	/* Once it waits, the request may be answered, and gone, at any time. */
	ssize_t n = session_collect(h->session, c, max, may_wait ? req : NULL);
	if (n > 0)
		fuse_reply_buf(req, (char *)c, (size_t)n * sizeof(*c));
	else if (n < 0 || !may_wait)
		reply_err(req, n ? (int)n : -EAGAIN);
}

void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;
	void *spare = NULL;

	(void)ino;
	if (h->kind != HANDLE_SESSION) {
		if (ph)
			fuse_pollhandle_destroy(ph);
		fuse_reply_poll(req, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
		return;
	}
	bool is_ready = session_poll(h->session, ph, &spare);
	if (spare)
		fuse_pollhandle_destroy(spare);
	fuse_reply_poll(req, is_ready ? POLLIN | POLLRDNORM : 0);
}

/* ---- ioctl ---- */

static void tell_handle(fuse_req_t req, struct handle *h)
{
	struct fs *fs = req_fs(req);
	struct mcfs_handle out = { 0 };

	switch (h->kind) {
	case HANDLE_OBJECT:
		out.kind = MCFS_HANDLE_FILE;
		out.size = h->object->size;
		break;
	case HANDLE_DIR: out.kind = MCFS_HANDLE_DIR; break;
	case HANDLE_BUFFER:
		out.kind = MCFS_HANDLE_BUFFER;
		pthread_mutex_lock(&fs->lock);
		out.size = h->inode->e.size;
		pthread_mutex_unlock(&fs->lock);
		break;
	case HANDLE_DRAFT: reply_err(req, -EBUSY); return; /* no version yet, or closed just now */
	default: reply_err(req, -EINVAL); return;
	}
	if (h->kind == HANDLE_DIR && h->inode->kind != INODE_DIR) {
		reply_err(req, -EINVAL);
		return;
	}
	int rc = handle_make_public(fs, h, fuse_req_ctx(req)->uid, &out.handle);
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_ioctl(req, 0, &out, sizeof(out));
}

/* The buffer behind a handle of the session's user, with one more handle. */
static int find_buffer(struct fs *fs, struct session *s, uint64_t handle, struct buffer **out)
{
	guard_lock(&fs->lock);
	struct handle *h = handle_find_locked(fs, handle);

	if (!h || h->kind != HANDLE_BUFFER)
		return -ENOENT;
	if (h->public_uid != s->cred.uid && s->cred.uid)
		return -EPERM;
	if (!h->is_writable)
		return -EACCES; /* a READ would write to it, a WRITE would read it */
	h->buffer->n_handles++;
	*out = h->buffer;
	return 0;
}

static void do_register(fuse_req_t req, struct session *s, struct mcfs_register *io)
{
	struct fs *fs = req_fs(req);
	struct buffer *b;
	int rc = find_buffer(fs, s, io->handle, &b);

	if (!rc) {
		rc = session_register(s, io, b);
		buffer_close(fs, b);
	}
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_ioctl(req, 0, io, sizeof(*io));
}

static void reply_submitted(void *arg)
{
	struct batch *b = arg;
	fuse_req_t req = b->arg;
	struct mcfs_submit io = b->io;
	int rc = b->stopped == -EINTR || io.op == MCFS_OP_LOOKUP ? b->stopped : 0;

	batch_destroy(b);
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_ioctl(req, 0, &io, sizeof(io));
}

static void submit_async(fuse_req_t req, struct session *s, struct batch *b)
{
	uint64_t ticket;
	int rc = session_add_batch(s, b, &ticket);

	if (rc) {
		batch_destroy(b);
		reply_err(req, rc);
		return;
	}
	struct mcfs_submit io = b->io;
	io.ticket = ticket;
	rc = executor_submit(req_fs(req)->executor, b);
	if (rc) {
		session_drop_batch(s, b);
		batch_destroy(b);
		reply_err(req, rc);
	} else {
		fuse_reply_ioctl(req, 0, &io, sizeof(io));
	}
}

static void do_submit(fuse_req_t req, struct session *s, const struct mcfs_submit *io)
{
	struct batch *b;
	int rc = batch_create(s, io, &b);

	if (rc) {
		reply_err(req, rc);
		return;
	}
	b->caller = (uint64_t)fuse_req_ctx(req)->pid;
	if (io->flags & MCFS_ASYNC) {
		submit_async(req, s, b);
		return;
	}
	b->is_interrupted = is_interrupted;
	b->arg = req;
	batch_run(b, reply_submitted);
}

static void session_ioctl(fuse_req_t req, struct session *s, unsigned int cmd, const void *in)
{
	union {
		struct mcfs_hello hello;
		struct mcfs_register reg;
		struct mcfs_unregister unreg;
		struct mcfs_submit submit;
		struct mcfs_cancel cancel;
	} io;

	memcpy(&io, in, _IOC_SIZE(cmd));
	int rc = 0;
	switch (cmd) {
	case MCFS_IOC_HELLO:
		rc = session_hello(s, &io.hello);
		if (!rc) {
			fuse_reply_ioctl(req, 0, &io.hello, sizeof(io.hello));
			return;
		}
		break;
	case MCFS_IOC_REGISTER: do_register(req, s, &io.reg); return;
	case MCFS_IOC_UNREGISTER: rc = session_unregister(s, &io.unreg); break;
	case MCFS_IOC_SUBMIT: do_submit(req, s, &io.submit); return;
	case MCFS_IOC_CANCEL: rc = session_cancel(s, io.cancel.ticket); break;
	}
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

static bool is_session_command(unsigned int cmd)
{
	return cmd == MCFS_IOC_HELLO || cmd == MCFS_IOC_REGISTER || cmd == MCFS_IOC_UNREGISTER ||
	       cmd == MCFS_IOC_SUBMIT || cmd == MCFS_IOC_CANCEL;
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in_buf, size_t in_bufsz, size_t out_bufsz)
{
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;

	(void)ino;
	(void)arg;
	(void)flags;
	if (cmd == MCFS_IOC_HANDLE && h && out_bufsz >= sizeof(struct mcfs_handle))
		tell_handle(req, h);
	else if (is_session_command(cmd) && h && h->kind == HANDLE_SESSION && in_bufsz == _IOC_SIZE(cmd))
		session_ioctl(req, h->session, cmd, in_buf);
	else
		reply_err(req, -ENOTTY);
}
