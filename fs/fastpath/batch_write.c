/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WRITE: from a client's memory into new objects, each published whole under its name.
 *
 *   frame taken - filled in pieces: copied from the client's memory to ours, checksum, into the frame, so
 *   that the checksum is of what was stored, whatever the client changes meanwhile - sealed - a chunk of
 *   names committed in one catalog batch under all their stripes
 *
 * A group is one chunk: an item that fails takes the others along.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/crc.h"
#include "base/log.h"
#include "base/thread_buffer.h"
#include "control/control.h"
#include "cluster/cluster.h"
#include "fastpath/batch.h"
#include "fs.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/copies.h"
#include "object/durable.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/space.h"
#include "object/version.h"
#include "options.h"

#define CHUNK 64
/* A piece stays in the cache between its three passes. */
#define PIECE_BYTES (UINT64_C(128) << 10)
#define GATHER_IOV 64

/* One object on its way. */
struct fresh {
	uint32_t item;
	struct inode *dir; /* one ref, and counted in n_publishing: it stays a directory */
	struct frame frame;
	struct object_record record;
	struct entry entry;
	struct commit commit;
};

/* ---- bytes ---- */

static int take_frame(struct batch *b, uint64_t size, struct frame *f)
{
	struct fs *fs = b->session->fs;
	struct space_wait w = batch_wait(b);
	int rc = space_take_frame(fs, size, f, &w);

	if (!rc)
		rc = space_charge(fs, f, size, &w);
	if (!rc && f->size_bytes != size)
		rc = tier_call(fs->dram, resize, f, size);
	if (rc && f->id)
		tier_call(fs->dram, discard, f);
	return rc;
}

/* Bytes [off, off + len) of an item, from its segments. */
static int gather(const struct mcfs_item *i, const struct registration *reg, uint64_t off,
		  char *to, uint64_t len)
{
	struct iovec iov[GATHER_IOV];
	int rc = 0;

	for (uint64_t holds; !rc && len; off += holds, len -= holds) {
		int n = batch_segments(i, reg, off, len, iov, GATHER_IOV, &holds);
		for (int k = 0; !rc && k < n; to += iov[k++].iov_len) {
			uint64_t at = (uint64_t)((char *)iov[k].iov_base - reg->map);
			rc = batch_copy_in(reg, reg->offset + at, to, iov[k].iov_len);
		}
	}
	return rc;
}

static int fill_frame(struct batch *b, struct fresh *x)
{
	const struct mcfs_item *i = &b->items[x->item];
	uint64_t size = x->record.size;
	char *scratch = thread_buffer();

	_Static_assert(PIECE_BYTES <= THREAD_BUFFER_BYTES, "a piece fits");

	for (uint64_t off = 0; off < size; off += PIECE_BYTES) {
		uint64_t len = size - off < PIECE_BYTES ? size - off : PIECE_BYTES;
		uint32_t *crc = &x->record.crc[off / CATALOG_CRC_CHUNK];
		int rc = batch_stopped(b);
		if (!rc)
			rc = gather(i, b->targets[x->item].reg, off, scratch, len);
		if (rc)
			return rc;
		*crc = crc32c(off % CATALOG_CRC_CHUNK ? *crc : 0, scratch, len);
		struct space_wait w = batch_wait(b);
		rc = space_write(b->session->fs, &x->frame, scratch, len, off, &w);
		if (rc)
			return rc;
	}
	return 0;
}

/* Everything but its name. */
static int make_object(struct batch *b, struct fresh *x)
{
	struct fs *fs = b->session->fs;

	x->record.object_id = version_next(fs->clock);
	x->record.n_crc = (uint32_t)((x->record.size + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	if (!x->record.object_id)
		return -EIO;
	int rc = space_make_object(fs);
	if (rc || !x->record.size)
		return rc;
	x->record.crc = xcalloc(x->record.n_crc, sizeof(*x->record.crc));
	rc = take_frame(b, x->record.size, &x->frame);
	if (!rc) {
		rc = fill_frame(b, x);
		x->record.dram_frame = x->frame.id;
	}
	return rc;
}

/* Durable first, then sealed. */
static int seal(struct batch *b, struct fresh *x)
{
	struct fs *fs = b->session->fs;
	int rc = 0;

	if (!x->record.size)
		return 0;
	if (x->commit.must_sync)
		rc = durable_copy_fd(fs, x->frame.fd, x->record.size, &x->record.ssd_frame);
	return rc ? rc : tier_call(fs->dram, seal, &x->frame, &x->record.charged_bytes);
}

/* Not published: what it has goes back. */
static void give_up(struct batch *b, struct fresh *x)
{
	struct fs *fs = b->session->fs;

	if (x->frame.id)
		tier_call(fs->dram, discard, &x->frame);
	else if (x->record.dram_frame)
		tier_call(fs->dram, drop, x->record.dram_frame, x->record.size, x->record.charged_bytes);
	if (x->record.ssd_frame)
		tier_call(fs->ssd, drop, x->record.ssd_frame, x->record.size, ssd_charge(x->record.size));
}

/* ---- names ---- */

static int init_entry(struct batch *b, struct fresh *x)
{
	struct fs *fs = b->session->fs;
	const struct cred *c = &b->session->cred;
	const struct target *t = &b->targets[x->item];
	struct ns_new n = { .mode = S_IFREG | (b->items[x->item].mode & 07777), .uid = c->uid, .gid = c->gid };

	guard_lock(&fs->lock);
	struct inode *dir = inode_find(fs, t->dir_ino);
	if (!dir || dir->is_dead || dir->state != INODE_LIVE)
		return -ENOENT;
	if (control_is_reserved(dir, t->name))
		return -EPERM;
	inode_get_locked(dir);
	dir->n_publishing++;
	x->dir = dir;
	ns_init_entry_locked(dir, t->name, &n, &x->entry);
	if (c->uid && !cred_in_group(c, x->entry.gid))
		x->entry.mode &= ~(mode_t)S_ISGID;
	x->entry.ino = x->record.object_id;
	x->commit = (struct commit){ .dir_ino = t->dir_ino, .name = t->name, .entry = &x->entry,
				     .record = &x->record, .caller = b->caller,
				     .must_sync = x->entry.policy.class == MCFS_CLASS_KEEP };
	return 0;
}

/* Whoever writes over a file needs to be allowed to; it keeps its inode number, owner and mode. */
static int inherit_old(struct batch *b, struct fresh *x)
{
	const struct cred *c = &b->session->cred;
	struct entry old;
	int rc = publish_look(b->session->fs, &x->commit, &old);

	if (rc || !old.mode)
		return rc;
	if (!S_ISREG(old.mode))
		rc = -ELOOP; /* a symlink is not followed */
	else if (!cred_may(c, old.mode, old.uid, old.gid, W_OK))
		rc = -EACCES;
	if (!rc) {
		x->entry.ino = old.ino;
		x->entry.mode = old.mode & ~(mode_t)(S_ISUID | (old.mode & S_IXGRP ? S_ISGID : 0));
		x->entry.uid = old.uid;
		x->entry.gid = old.gid;
		x->entry.btime_ns = old.btime_ns;
		x->entry.policy = old.policy;
	}
	entry_fini(&old);
	return rc;
}

/* What replaces a file to be kept is to be kept: durable before it is published. */
static int keep_as_old(struct batch *b, struct fresh *x)
{
	struct fs *fs = b->session->fs;

	if (x->entry.policy.class != MCFS_CLASS_KEEP)
		return 0;
	x->commit.must_sync = true;
	if (!x->record.size || x->record.ssd_frame)
		return 0;
	autoclose int fd = tier_call(fs->dram, open, x->record.dram_frame);
	return fd < 0 ? fd : durable_copy_fd(fs, fd, x->record.size, &x->record.ssd_frame);
}

struct stripes {
	bool is_wanted[NAME_STRIPES];
};

static void lock_stripes(struct fs *fs, struct stripes *s)
{
	for (int k = 0; k < NAME_STRIPES; k++)
		if (s->is_wanted[k])
			pthread_mutex_lock(&fs->name_stripes[k]);
}

static void unlock_stripes(struct fs *fs, struct stripes *s)
{
	for (int k = 0; k < NAME_STRIPES; k++)
		if (s->is_wanted[k])
			pthread_mutex_unlock(&fs->name_stripes[k]);
}

/* Older versions whose dentry the kernel may have. */
static void forget_replaced(struct batch *b, struct fresh *x)
{
	notifier_inval(b->session->fs, x->dir, x->commit.name, NULL, NULL);
	b->has_replaced = true;
}

static void let_go_of_dirs(struct fs *fs, struct fresh *xs, uint32_t n)
{
	guard_lock(&fs->lock);
	for (uint32_t k = 0; k < n; k++)
		if (xs[k].dir) {
			xs[k].dir->n_publishing--;
			inode_put_locked(fs, xs[k].dir);
		}
}

/* Under the stripes: fresh objects of different names get them; false: one did not (its status says why). */
static bool commit_names(struct batch *b, struct fresh *xs, uint32_t n, bool is_group)
{
	struct fs *fs = b->session->fs;
	struct catalog_batch *batch = catalog_batch_create(fs->catalog);
	struct commit *commits[PUBLISH_MAX];
	size_t n_commits = 0;
	bool all = true;

	for (uint32_t k = 0; k < n; k++) {
		int32_t *status = &b->items[xs[k].item].status;
		if (!*status)
			*status = inherit_old(b, &xs[k]);
		if (!*status)
			*status = keep_as_old(b, &xs[k]);
		if (!*status)
			*status = publish_prepare(fs, &xs[k].commit, batch);
		if (!*status)
			commits[n_commits++] = &xs[k].commit;
		all &= *status == 0;
	}
	if (!n_commits || (is_group && !all)) {
		catalog_batch_destroy(batch);
		return all;
	}
	int rc = publish_finish(fs, commits, n_commits, batch);
	for (uint32_t k = 0; rc && k < n; k++)
		if (!b->items[xs[k].item].status)
			b->items[xs[k].item].status = rc;
	return all && !rc;
}

/* An item of a group failed: none of the others is published. */
static void cancel_group(struct batch *b)
{
	for (uint32_t k = 0; k < b->io.n_items; k++)
		if (!b->items[k].status)
			b->items[k].status = -ECANCELED;
}

static void finish(struct batch *b, struct fresh *xs, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < n; k++) {
		struct mcfs_item *i = &b->items[xs[k].item];
		if (i->status) {
			give_up(b, &xs[k]);
		} else {
			i->bytes = i->size = xs[k].record.size;
			i->version = xs[k].record.object_id;
			i->tier = MCFS_TIER_DRAM;
			bytes += i->bytes;
			if (xs[k].commit.has_replaced)
				forget_replaced(b, &xs[k]);
		}
		entry_fini(&xs[k].entry);
		object_record_fini(&xs[k].record);
	}
	let_go_of_dirs(b->session->fs, xs, n);
	cluster_settle(b->session->fs);
	counter_add(fastpath_write_bytes, bytes);
}

static bool repeats_name(const struct batch *b, const struct fresh *xs, uint32_t n, const struct target *t)
{
	for (uint32_t k = 0; k < n; k++) {
		const struct target *o = &b->targets[xs[k].item];
		if (o->key.low == t->key.low && o->key.high == t->key.high)
			return true;
	}
	return false;
}

/* Items that are published together. */
struct chunk {
	struct batch *batch;
	struct fresh *fresh; /* n */
	uint32_t n;
	uint64_t bytes;
	bool is_group;
	atomic_bool has_failed;
};

/*
 * Which items from "from" on, at most max, make the chunk. Returns where the next one begins: after max, or
 * before a name that is in the chunk already, which comes after it.
 */
static uint32_t choose(struct chunk *c, uint32_t from, uint32_t max)
{
	struct batch *b = c->batch;
	uint32_t k = from, to = b->io.n_items - from < max ? b->io.n_items : from + max;

	batch_find_directories(b, from, to, W_OK | X_OK);
	for (; k < to; k++) {
		struct mcfs_item *i = &b->items[k];
		if (!i->status)
			i->status = batch_stopped(b);
		if (!i->status && repeats_name(b, c->fresh, c->n, &b->targets[k])) {
			if (!c->is_group)
				break;
			i->status = -EEXIST;
		}
		if (i->status) {
			c->has_failed = true;
			continue;
		}
		struct fresh *x = &c->fresh[c->n++];
		*x = (struct fresh){ .item = k, .frame = FRAME_NONE };
		x->record.size = (uint64_t)i->segment_bytes * i->segment_count;
		c->bytes += x->record.size;
	}
	return k;
}

/* Everything up to publishing it; of a group that has failed already, nothing. */
static void prepare(void *arg, uint32_t m)
{
	struct chunk *c = arg;
	struct batch *b = c->batch;
	struct fresh *x = &c->fresh[m];
	int rc = c->is_group && c->has_failed ? -ECANCELED : batch_stopped(b);

	if (!rc)
		rc = make_object(b, x);
	if (rc == -EINTR || rc == -ENOSPC)
		rc = batch_stopped(b) ? b->stopped : rc;
	if (!rc)
		rc = init_entry(b, x);
	if (!rc)
		rc = seal(b, x);
	b->items[x->item].status = rc;
	if (rc)
		c->has_failed = true;
}

static void publish(struct chunk *c)
{
	struct batch *b = c->batch;
	struct fs *fs = b->session->fs;
	struct stripes stripes = { { false } };

	for (uint32_t m = 0; m < c->n; m++) {
		const struct target *t = &b->targets[c->fresh[m].item];
		stripes.is_wanted[ns_stripe_of(t->dir_ino, t->name)] = true;
	}
	lock_stripes(fs, &stripes);
	if (!commit_names(b, c->fresh, c->n, c->is_group))
		c->has_failed = true;
	unlock_stripes(fs, &stripes);
}

static uint32_t write_chunk(struct batch *b, uint32_t from, uint32_t max, struct fresh *fresh)
{
	struct chunk c = { .batch = b, .fresh = fresh, .is_group = b->io.flags & MCFS_GROUP };
	uint32_t next = choose(&c, from, max);

	if (!c.is_group || !c.has_failed)
		batch_share(b, prepare, &c, c.n, c.bytes);
	if (!c.is_group || !c.has_failed)
		publish(&c);
	if (c.is_group && c.has_failed)
		cancel_group(b);
	finish(b, fresh, c.n);
	return next;
}

void batch_write(struct batch *b)
{
	bool is_group = b->io.flags & MCFS_GROUP;
	uint32_t max = is_group ? PUBLISH_MAX : CHUNK;
	autofree struct fresh *fresh = xcalloc(b->io.n_items < max ? b->io.n_items : max, sizeof(*fresh));

	for (uint32_t k = 0; k < b->io.n_items;) {
		if (is_group && b->io.n_items > PUBLISH_MAX)
			b->items[k++].status = -E2BIG;
		else
			k = write_chunk(b, k, max, fresh);
	}
	counter_add(fastpath_writes, b->io.n_items);
}
