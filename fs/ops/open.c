/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN, CREATE and RELEASE.
 *
 * A published object is opened for reading alone: by passthrough, or by direct_io where that is off.
 * An open for writing is answered ESTALE after a draft was set up; the kernel walks the path once more
 * and its LOOKUP finds the draft (design rule 4).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "control/control.h"
#include "fastpath/buffer.h"
#include "fastpath/session.h"
#include "handle.h"
#include "object/caller.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/verify.h"
#include "ops/ops.h"

static bool wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

/* ---- objects ---- */

static int hold_object(struct fs *fs, struct inode *i, uint64_t caller, struct object **out)
{
	guard_lock(&fs->lock);
	struct object *o = i->object;
	if (i->state == INODE_GONE || !o || o->is_evicting || o->state == OBJECT_DROPPED ||
	    (i->state == INODE_REPLACED && now_mono_ns() - i->replaced_ns > REPLACED_GRACE_NS))
		return -ESTALE;
	i->promised_ns = 0; /* this open is what it was for */
	object_open_locked(o);
	object_touch_locked(fs, o, caller);
	inode_get_locked(i);
	*out = o;
	return 0;
}

static void close_object(struct fs *fs, struct handle *h)
{
	struct object *o = h->object;
	int32_t unused_id = 0;

	handle_close_frame(h);
	pthread_mutex_lock(&fs->lock);
	if (h->is_passthrough)
		unused_id = object_unbacked_locked(fs, o);
	else if (h->is_direct)
		object_undirect_locked(o);
	bool must_free = object_close_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (unused_id)
		fs->close_backing(fs, unused_id);
	if (must_free)
		object_free_unlocked(fs, o);
}

/*
 * All opens of a nodeid share one backing id while any is open, and passthrough does not mix with
 * direct_io (the kernel answers EIO). id: a new one to offer, or 0. False: this open must be direct.
 */
static bool claim_passthrough(struct fs *fs, struct handle *h, struct fuse_file_info *fi, int32_t id)
{
	guard_lock(&fs->lock);
	h->backing_id = object_backed_locked(fs, h->object, id);
	h->is_passthrough = h->backing_id != 0;
	if (h->is_passthrough)
		set_backing_id(fi, h->backing_id);
	return h->is_passthrough;
}

static bool claim_direct(struct fs *fs, struct handle *h)
{
	guard_lock(&fs->lock);
	h->is_direct = object_direct_locked(h->object);
	return h->is_direct;
}

/* The kernel offered passthrough but does not let us use it: serve by direct_io from now on. */
static void lose_passthrough(struct fs *fs, int err)
{
	errno = err;
	log_warn("passthrough open failed: %m; reads are served by direct_io from now on");
	snprintf(fs->passthrough_reason, sizeof(fs->passthrough_reason),
		 "the kernel refused a backing file: %s", strerror(err));
	fs->passthrough = false;
}

/* 0: done; -ENOENT: lost; -EAGAIN: open it direct. */
static int open_passthrough(fuse_req_t req, struct handle *h, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	const char *tier;

	if (claim_passthrough(fs, h, fi, 0))
		return 0;
	int fd = object_open_frame(fs, h->object, &tier);
	if (fd < 0)
		return fd;
	int id = fuse_passthrough_open(req, fd);
	int err = errno;
	close(fd);
	if (id <= 0) {
		if (err == EPERM || err == EOPNOTSUPP || err == ELOOP)
			lose_passthrough(fs, err);
		return -EAGAIN;
	}
	bool is_claimed = claim_passthrough(fs, h, fi, id);
	if (!is_claimed || h->backing_id != id)
		fuse_passthrough_close(req, id); /* another open was faster */
	return is_claimed ? 0 : -EAGAIN;
}

static int open_direct(struct fs *fs, struct handle *h, struct fuse_file_info *fi)
{
	const char *tier;

	if (!claim_direct(fs, h))
		return claim_passthrough(fs, h, fi, 0) ? 0 : -EAGAIN;
	fi->direct_io = 1;
	if (!h->object->size)
		return 0;
	h->fd = object_open_frame(fs, h->object, &tier);
	return h->fd < 0 ? h->fd : 0;
}

static int open_bytes(fuse_req_t req, struct handle *h, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);
	int rc = verify_before_open(fs, h->object, &w);

	if (rc)
		return rc;
	rc = -EAGAIN;
	/* -EAGAIN from both: another open changed the mode in between, so it is settled now. */
	for (int tries = 0; rc == -EAGAIN && tries < 8; tries++) {
		if (fs->passthrough && h->object->size)
			rc = open_passthrough(req, h, fi);
		if (rc == -EAGAIN)
			rc = open_direct(fs, h, fi);
	}
	return rc == -EAGAIN ? -EBUSY : rc;
}

static void reply_opened(fuse_req_t req, struct handle *h, struct fuse_file_info *fi)
{
	fi->fh = (uint64_t)(uintptr_t)h;
	if (fuse_reply_open(req, fi))
		log_debug("open was interrupted"); /* the kernel sends RELEASE for an open it has seen only */
}

/* Of another node: read by direct_io while its bytes come, and until it is closed. */
static void open_arriving(fuse_req_t req, struct inode *i, struct fetch *f, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);

	pthread_mutex_lock(&fs->lock);
	inode_get_locked(i);
	pthread_mutex_unlock(&fs->lock);
	remote_retry_ends(fs, fuse_req_ctx(req)->pid);
	struct handle *h = handle_create(fs, HANDLE_FETCH, i);
	h->fetch = f;
	fi->direct_io = 1;
	fi->noflush = 1;
	counter_inc(opens_direct);
	reply_opened(req, h, fi);
}

static void open_object(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);
	struct fetch *arriving;
	struct object *o;
	int rc = fetch_open(fs, i, &w, &arriving);

	counter_inc(opens);
	if (arriving) {
		open_arriving(req, i, arriving, fi);
		return;
	}
	if (!rc)
		rc = hold_object(fs, i, (uint64_t)fuse_req_ctx(req)->pid, &o);
	if (rc == -ESTALE)
		remote_retry_follows(fs, fuse_req_ctx(req)->pid);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	remote_retry_ends(fs, fuse_req_ctx(req)->pid);
	struct handle *h = handle_create(fs, HANDLE_OBJECT, i);
	h->object = o;
	fi->noflush = 1;
	rc = open_bytes(req, h, fi);
	if (rc) {
		uint64_t id = h->object->id;
		close_object(fs, h);
		handle_free(fs, h);
		if (rc == -ENOENT) {
			space_remove_by_id(fs, id); /* the last copy was bad: who found it has said so */
			rc = -ESTALE; /* the kernel looks again and finds no such name */
		}
		reply_err(req, rc);
		return;
	}
	if (h->is_passthrough)
		counter_inc(opens_passthrough);
	else
		counter_inc(opens_direct);
	reply_opened(req, h, fi);
}

/* ---- drafts ---- */

static void redirect(fuse_req_t req, int flags)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct caller_id who = { .tid = ctx->pid, .uid = ctx->uid };

	counter_inc(redirects);
	pthread_mutex_lock(&fs->lock);
	draft_leave_intent_locked(fs, &who, flags & O_TRUNC);
	pthread_mutex_unlock(&fs->lock);
	reply_err(req, -ESTALE);
}

/* Adds a handle to a draft that the caller holds by a ref. */
static struct handle *attach_handle(struct fs *fs, struct draft *d, int flags,
				    const struct caller_id *who)
{
	struct handle *h = handle_create(fs, HANDLE_DRAFT, d->inode);

	h->draft = d;
	h->is_writable = wants_write(flags);
	h->opener_tid = who->tid;
	h->opener_tgid = who->tgid;
	guard_lock(&fs->lock);
	inode_get_locked(d->inode);
	struct member *m = draft_join_locked(d, who);
	if (h->is_writable)
		m->has_opened = true;
	draft_attach_locked(d, h);
	return h;
}

static void detach_handle(struct fs *fs, struct handle *h)
{
	struct draft *d = h->draft;

	pthread_mutex_lock(&fs->lock);
	draft_get_locked(d);
	bool is_last = draft_detach_locked(d, h);
	pthread_mutex_unlock(&fs->lock);
	if (is_last)
		flush_released_draft(fs, d);
	pthread_mutex_lock(&fs->lock);
	pthread_cond_broadcast(&fs->changed);
	draft_put_locked(fs, d);
	pthread_mutex_unlock(&fs->lock);
}

static void set_draft_flags(struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	set_parallel_writes(fi);
}

/* A handle on a draft that the caller holds by a ref. */
static int open_handle(struct fs *fs, struct draft *d, int flags, const struct caller_id *who,
		       struct handle **out)
{
	struct handle *h = attach_handle(fs, d, flags, who);
	int rc = flags & O_TRUNC ? draft_truncate_at_open(fs, d) : 0;

	if (rc) {
		detach_handle(fs, h);
		handle_free(fs, h);
		return rc;
	}
	*out = h;
	return 0;
}

/* The draft published and closed between this LOOKUP and its OPEN: the version it became will do. */
static void open_dropped(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);

	pthread_mutex_lock(&fs->lock);
	struct object *o = i->dropped_id ? object_find_locked(fs, i->dropped_id) : NULL;
	if (o && (o->is_evicting || o->state == OBJECT_DROPPED))
		o = NULL;
	if (o) {
		object_open_locked(o);
		inode_get_locked(i);
	}
	pthread_mutex_unlock(&fs->lock);
	if (!o) {
		reply_err(req, -ESTALE);
		return;
	}
	struct handle *h = handle_create(fs, HANDLE_OBJECT, i);
	const char *tier;
	h->object = o;
	h->fd = o->size ? object_open_frame(fs, o, &tier) : -1;
	if (o->size && h->fd < 0) {
		close_object(fs, h);
		handle_free(fs, h);
		reply_err(req, -ESTALE);
		return;
	}
	fi->direct_io = 1; /* the nodeid was a draft's: direct_io for ever */
	fi->noflush = 1;
	counter_inc(opens_direct);
	reply_opened(req, h, fi);
}

static void open_draft(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	pthread_mutex_lock(&fs->lock);
	struct draft *d = i->draft;
	bool is_hollow = d && !wants_write(fi->flags) && draft_is_hollow_locked(d);
	if (is_hollow)
		draft_end_intent_locked(fs, d, &(struct caller_id){ .tid = ctx->pid, .uid = ctx->uid });
	else if (d)
		draft_get_locked(d);
	pthread_mutex_unlock(&fs->lock);
	if (is_hollow) {
		reply_err(req, -ESTALE); /* the open it was made for has failed: the kernel walks to what there is to read */
		return;
	}
	if (!d) {
		if (wants_write(fi->flags))
			redirect(req, fi->flags);
		else
			open_dropped(req, i, fi);
		return;
	}
	struct caller_id who = ns_caller_always(ctx->pid, ctx->uid);
	struct handle *h;
	int rc = open_handle(fs, d, fi->flags, &who, &h);
	pthread_mutex_lock(&fs->lock);
	if (wants_write(fi->flags))
		draft_end_intent_locked(fs, d, &who);
	draft_put_locked(fs, d);
	pthread_mutex_unlock(&fs->lock);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	set_draft_flags(fi);
	reply_opened(req, h, fi);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct inode *dir = inode_of(fs, parent);
	struct ns_new n = { .mode = S_IFREG | (mode & 07777), .uid = ctx->uid, .gid = ctx->gid };
	struct fuse_entry_param e;
	struct handle *h;
	struct draft *d;

	if (dir->kind == INODE_CONTROL && dir->control_id == CONTROL_BUFFERS) {
		buffer_io_create(req, name, mode, fi);
		return;
	}
	if (strlen(name) > CATALOG_NAME_MAX || dir->kind == INODE_CONTROL ||
	    control_is_reserved(dir, name)) {
		reply_err(req, strlen(name) > CATALOG_NAME_MAX ? -ENAMETOOLONG : -EPERM);
		return;
	}
	struct caller_id who = ns_caller_always(ctx->pid, ctx->uid);
	int rc = ns_create(fs, dir, name, &n, fi->flags & O_EXCL, fi->flags & O_TRUNC, &who, &d);
	if (!rc) {
		rc = open_handle(fs, d, fi->flags | O_WRONLY, &who, &h);
		if (rc)
			draft_put(fs, d);
	}
	if (rc) {
		reply_err(req, rc);
		return;
	}
	counter_inc(creates);
	pthread_mutex_lock(&fs->lock);
	fill_entry_locked(fs, d->inode, true, &e);
	d->inode->nlookup++;
	draft_end_intent_locked(fs, d, &who);
	draft_put_locked(fs, d);
	pthread_mutex_unlock(&fs->lock);
	set_draft_flags(fi);
	fi->fh = (uint64_t)(uintptr_t)h;
	fuse_reply_create(req, &e, fi);
}

/* ---- the operations ---- */

static void open_control(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	bool is_write = wants_write(fi->flags);

	if (is_write != (i->control_id == CONTROL_CONTROL)) {
		reply_err(req, -EACCES); /* also for root, whom the mode does not stop */
		return;
	}
	pthread_mutex_lock(&fs->lock);
	inode_get_locked(i);
	pthread_mutex_unlock(&fs->lock);
	struct handle *h = handle_create(fs, HANDLE_CONTROL, i);
	if (!is_write)
		h->text = control_text(fs, i->control_id, &h->text_len);
	fi->direct_io = 1;
	reply_opened(req, h, fi);
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_of(req_fs(req), ino);

	switch (i->kind) {
	case INODE_BUFFER: buffer_io_open(req, i, fi); break;
	case INODE_OBJECT:
		if (wants_write(fi->flags))
			redirect(req, fi->flags);
		else
			open_object(req, i, fi);
		break;
	case INODE_DRAFT: open_draft(req, i, fi); break;
	case INODE_CONTROL:
		if (i->control_id == CONTROL_SESSION)
			session_open(req, i, fi);
		else
			open_control(req, i, fi);
		break;
	default: reply_err(req, -EISDIR); break;
	}
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;

	(void)ino;
	if (fi->flock_release)
		flock_release_owner(fs, fi->lock_owner);
	handle_revoke(fs, h);
	if (h->kind == HANDLE_OBJECT)
		close_object(fs, h);
	else if (h->kind == HANDLE_FETCH)
		fetch_close(fs, h->fetch);
	else if (h->kind == HANDLE_DRAFT)
		detach_handle(fs, h);
	else if (h->kind == HANDLE_SESSION)
		session_close(h->session);
	else if (h->kind == HANDLE_BUFFER)
		buffer_close(fs, h->buffer);
	handle_free(fs, h);
	reply_err(req, 0);
}
