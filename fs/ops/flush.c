/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FLUSH, FSYNC: when a draft becomes visible.
 *
 * FLUSH comes at every close(2) of a descriptor, also of duplicates and at process exit. Which of them
 * publishes is design rule 2, which of them is a death rule 3. The handler never waits for its client.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "handle.h"
#include "notifier.h"
#include "object/caller.h"
#include "object/durable.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "ops/ops.h"

/* Smaller than any KV block, larger than what a shell's echo writes. */
#define TINY_BYTES 4096

static void reply_ok(void *request)
{
	reply_err(request, 0);
}

/* Replies after the kernel forgot the replaced version, when there was one. */
static void reply_published(fuse_req_t req, struct published *p)
{
	struct fs *fs = req_fs(req);

	cluster_settle(fs);
	if (p->has_replaced && p->dir)
		notifier_inval(fs, p->dir, p->name, reply_ok, req);
	else
		reply_err(req, 0);
	published_fini(fs, p);
}

static bool is_member_locked(const struct draft *d, pid_t tgid)
{
	for (uint32_t k = 0; k < d->n_members; k++)
		if (d->members[k].tgid == tgid && d->members[k].has_opened)
			return true;
	return false;
}

/* The caller is dying by a signal: nothing it wrote becomes visible, except what it had fsynced. */
static void flush_killed(fuse_req_t req, struct handle *h, pid_t tgid)
{
	struct fs *fs = req_fs(req);
	struct draft *d = h->draft;
	struct published p = { 0 };

	pthread_mutex_lock(&fs->lock);
	if (h->opener_tgid == tgid)
		h->is_flushed = true;
	bool poisons = draft_is_dirty(d) && is_member_locked(d, tgid) && d->dir;
	if (poisons)
		draft_poison_locked(fs, d);
	pthread_mutex_unlock(&fs->lock);
	if (poisons && durable_keep_promise(fs, d, &p))
		log_error("a killed writer's fsynced file could not be published");
	reply_published(req, &p);
}

/*
 * Whether the opener holds the file by another descriptor too: a shell's dup2, a mapping's duplicate.
 * Asking costs a look at every descriptor of the process, so it is asked where duplicates are likely:
 * nothing written yet (open, dup2, close), hardly anything written (echo >&3), or seen before.
 */
static bool opener_has_duplicate(struct handle *h, pid_t tid)
{
	struct draft *d = h->draft;

	if (d->wrote_since_open && !h->is_duplicated && draft_size(d) >= TINY_BYTES)
		return false;
	if (!caller_has_open_ino(tid, h->inode->e.ino))
		return false;
	h->is_duplicated = true;
	return true;
}

/* Whether this close publishes; also notes that the opener has closed. */
static bool decide(struct fs *fs, struct handle *h, pid_t tid, pid_t tgid)
{
	struct draft *d = h->draft;
	bool is_opener = tid == 0 || h->opener_tgid == tgid;

	if (!is_opener)
		h->is_duplicated = true;
	else if (tid && opener_has_duplicate(h, tid))
		return false;
	guard_lock(&fs->lock);
	if (is_opener)
		h->is_flushed = true;
	if (!h->is_flushed || !draft_is_dirty(d) || !draft_is_flushed_locked(d))
		return false;
	/* Resized but not written: stores through a mapping follow, RELEASE publishes. */
	return d->has_writes || !d->has_resize;
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;
	pid_t tid = fuse_req_ctx(req)->pid;
	struct caller_state caller;
	struct published p = { 0 };
	struct space_wait w = { 0 };
	int rc = 0;

	(void)ino;
	if (h->kind != HANDLE_DRAFT || !h->is_writable) {
		reply_err(req, 0);
		return;
	}
	h->draft->last_use_ns = now_mono_ns();
	caller_inspect(tid, tid == h->opener_tid ? h->opener_tgid : 0, &caller);
	if (!tid)
		counter_inc(pid0_calls);
	if (caller.is_killed) {
		flush_killed(req, h, caller.tgid);
		return;
	}
	if (h->draft->is_poisoned) {
		reply_err(req, -EIO); /* another writer of it was killed: what is written is lost */
		return;
	}
	if (decide(fs, h, tid, caller.tgid))
		rc = publish_draft(fs, h->draft, (uint64_t)tid, &w, &p);
	if (rc) {
		cluster_settle(fs);
		reply_err(req, rc);
	} else {
		reply_published(req, &p);
	}
}

void flush_released_draft(struct fs *fs, struct draft *d)
{
	struct published p = { 0 };
	struct space_wait w = { 0 };

	if (d->is_poisoned || !draft_is_dirty(d))
		return;
	/* Nobody is left to tell an error to (it is logged); what was fsynced is not lost with the rest. */
	int rc = publish_draft(fs, d, 0, &w, &p);
	if (rc)
		rc = durable_keep_promise(fs, d, &p);
	if (!rc && p.has_replaced && p.dir)
		notifier_inval(fs, p.dir, p.name, NULL, NULL);
	published_fini(fs, &p);
	cluster_settle(fs);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;

	(void)ino;
	(void)datasync;
	counter_inc(fsyncs);
	if (h->kind == HANDLE_DRAFT)
		reply_err(req, durable_draft(fs, h->draft));
	else if (h->kind == HANDLE_OBJECT)
		reply_err(req, durable_object(fs, h->object));
	else
		reply_err(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);

	(void)ino;
	(void)datasync;
	(void)fi;
	counter_inc(fsyncs);
	inode_flush_dirty(fs);
	reply_err(req, catalog_sync(fs->catalog));
}
