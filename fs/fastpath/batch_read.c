/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READ: from frames into a client's memory, with one preadv for as many segments as it takes. Objects
 * are held open for a chunk of items at a time, so that none is evicted between its turn and its read.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "fastpath/batch.h"
#include "fastpath/ssd_read.h"
#include "fs.h"
#include "handle.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/residency.h"
#include "object/space.h"
#include "object/verify.h"

#define CHUNK 64
/* Of a batch, so that several threads have something to do until its end. */
#define MIN_CHUNKS 8
#define MAX_IOV 1024
/* Between two looks at the clock and the interrupt flag: some milliseconds. */
#define MAX_READ_BYTES (UINT64_C(16) << 20)

/* ---- from an item to its object ---- */

/* fs->lock held */
static int find_by_handle(struct batch *b, const struct mcfs_item *i, struct object **out)
{
	const struct cred *c = &b->session->cred;
	struct handle *h = handle_find_locked(b->session->fs, i->object);

	if (!h)
		return -ENOENT;
	if (h->public_uid != c->uid && c->uid)
		return -EPERM;
	if (h->kind == HANDLE_FETCH)
		return -EBUSY; /* its bytes are on their way; by name it is waited for */
	if (h->kind != HANDLE_OBJECT)
		return h->kind == HANDLE_DIR ? -EISDIR : -EINVAL;
	*out = h->object; /* open already, whatever became of its name */
	return 0;
}

/* fs->lock held. -EAGAIN: its owner is not known yet. */
static int find_by_name(struct batch *b, const struct target *t, struct object **out)
{
	struct object *o = name_index_find_locked(b->session->fs, t->key);

	if (!o || o->is_evicting || o->state != OBJECT_LIVE)
		return -ENOENT;
	if (object_is_expired(o))
		return -ENOENT;
	if (!o->mode)
		return -EAGAIN;
	if (!cred_may(&b->session->cred, o->mode, o->uid, o->gid, R_OK))
		return -EACCES;
	*out = o;
	return 0;
}

/* An adopted object's owner is in the catalog only, until somebody asks. */
static int learn_owner(struct batch *b, const struct target *t)
{
	struct fs *fs = b->session->fs;
	struct entry e;
	int rc = catalog_lookup(fs->catalog, t->dir_ino, t->name, &e);

	if (rc)
		return rc;
	pthread_mutex_lock(&fs->lock);
	struct object *o = object_find_locked(fs, e.object_id);
	if (o)
		object_set_owner_locked(o, &e);
	pthread_mutex_unlock(&fs->lock);
	entry_fini(&e);
	return o ? 0 : -ENOENT;
}

/* fs->lock held. Opens it for the batch. */
static int hold_locked(struct batch *b, uint32_t k, struct object **out)
{
	const struct target *t = &b->targets[k];
	struct object *o;
	int rc = t->name ? find_by_name(b, t, &o) : find_by_handle(b, &b->items[k], &o);

	if (rc)
		return rc;
	object_open_locked(o);
	object_touch_locked(b->session->fs, o, b->caller);
	b->items[k].size = o->size;
	b->items[k].version = o->id;
	*out = o;
	return 0;
}

/* What other nodes have of a chunk comes here, all of it on its way together. */
static void fetch_chunk(struct batch *b, uint32_t from, uint32_t to, struct object **held)
{
	struct fs *fs = b->session->fs;
	struct fetch_want wants[CHUNK];
	uint32_t items[CHUNK], n = 0;
	struct space_wait w = batch_wait(b);

	for (uint32_t k = from; k < to; k++)
		if (b->items[k].status == -ENOENT && b->targets[k].name && b->targets[k].dir_ino) {
			wants[n] = (struct fetch_want){ b->targets[k].dir_ino, b->targets[k].name, NULL };
			items[n++] = k;
		}
	fetch_begin_all(fs, wants, n, &w);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = items[i];
		uint64_t bytes;
		if (!wants[i].fetch)
			continue;
		int rc = fetch_wait(wants[i].fetch, &w, &bytes);
		if (b->io.op == MCFS_OP_PREFETCH)
			b->items[k].bytes = bytes;
		if (rc) {
			b->items[k].status = rc == -ESTALE ? -ENOENT : rc == -EINTR ? batch_stopped(b) : rc;
			continue;
		}
		guard_lock(&fs->lock);
		b->items[k].status = hold_locked(b, k, &held[k - from]);
	}
}

static void hold_chunk(struct batch *b, uint32_t from, uint32_t to, struct object **held)
{
	struct fs *fs = b->session->fs;
	bool must_learn = false;

	batch_find_directories(b, from, to, X_OK);
	memset(held, 0, (to - from) * sizeof(*held));
	pthread_mutex_lock(&fs->lock);
	for (uint32_t k = from; k < to; k++)
		if (!b->items[k].status) {
			b->items[k].status = hold_locked(b, k, &held[k - from]);
			must_learn |= b->items[k].status == -EAGAIN;
		}
	pthread_mutex_unlock(&fs->lock);
	for (uint32_t k = from; must_learn && k < to; k++) {
		if (b->items[k].status != -EAGAIN)
			continue;
		b->items[k].status = learn_owner(b, &b->targets[k]);
		guard_lock(&fs->lock);
		if (!b->items[k].status)
			b->items[k].status = hold_locked(b, k, &held[k - from]);
		if (b->items[k].status == -EAGAIN)
			b->items[k].status = -ENOENT; /* another version took the name just now */
	}
	if (fs->cluster)
		fetch_chunk(b, from, to, held);
}

static void let_go(struct batch *b, struct object **held, uint32_t n)
{
	struct fs *fs = b->session->fs;
	struct object *to_free[CHUNK];
	uint32_t n_free = 0;

	pthread_mutex_lock(&fs->lock);
	for (uint32_t k = 0; k < n; k++)
		if (held[k] && object_close_locked(fs, held[k]))
			to_free[n_free++] = held[k];
	pthread_mutex_unlock(&fs->lock);
	for (uint32_t k = 0; k < n_free; k++)
		object_free_unlocked(fs, to_free[k]);
}

/* ---- bytes ---- */

static int read_pieces(struct batch *b, struct mcfs_item *i, const struct registration *reg, int fd,
		       uint64_t len)
{
	struct iovec iov[MAX_IOV];

	while (i->bytes < len) {
		uint64_t want = len - i->bytes < MAX_READ_BYTES ? len - i->bytes : MAX_READ_BYTES, holds;
		int rc = batch_stopped(b);
		if (rc)
			return rc;
		int n_iov = batch_segments(i, reg, i->bytes, want, iov, MAX_IOV, &holds);
		ssize_t n = preadv(fd, iov, n_iov, (off_t)(i->file_offset + i->bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		i->bytes += (uint64_t)n;
	}
	return 0;
}

/* An ssd object of a chunk: read together with the others of it. */
struct on_disk {
	uint32_t item;
	struct object *object;
	struct borrowed_frame frame;
};

struct chunk {
	struct object *held[CHUNK];
	struct on_disk on_disk[CHUNK];
	struct ssd_read reads[CHUNK];
	uint32_t n_on_disk;
};

/* Reads the rest of an item one piece after another; gives the frame back. */
static int read_rest(struct batch *b, uint32_t k, struct object *o, const struct borrowed_frame *f,
		     uint64_t len)
{
	struct fs *fs = b->session->fs;
	int rc = read_pieces(b, &b->items[k], b->targets[k].reg, f->fd, len);

	object_give_back_frame(fs, f);
	if (rc == -EIO) {
		tier_call(f->tier, report_error, f->id, rc);
		verify_report_bad(fs, o, f->tier, f->id, EIO);
	}
	return rc;
}

/* What an item has room for. */
static uint64_t room_of(const struct mcfs_item *i)
{
	return (uint64_t)i->segment_bytes * i->segment_count;
}

/* What is in dram is read at once, what is on the ssd put down for later. */
static int read_item(struct batch *b, uint32_t k, struct object *o, struct chunk *c)
{
	struct mcfs_item *i = &b->items[k];
	uint64_t room = room_of(i);
	uint64_t left = i->file_offset < o->size ? o->size - i->file_offset : 0;
	struct fs *fs = b->session->fs;
	struct space_wait w = batch_wait(b);
	struct borrowed_frame f;

	if (!left)
		return 0;
	int rc = object_borrow_frame(fs, o, &w, &f);
	if (rc)
		return rc;
	left = left < room ? left : room;
	i->tier = f.tier == fs->ssd ? MCFS_TIER_SSD : MCFS_TIER_DRAM;
	if (f.tier != fs->ssd)
		return read_rest(b, k, o, &f, left);
	c->on_disk[c->n_on_disk] = (struct on_disk){ .item = k, .object = o, .frame = f };
	c->reads[c->n_on_disk++] = (struct ssd_read){ .item = i, .reg = b->targets[k].reg, .fd = f.fd,
						      .len = left };
	return 0;
}

static void read_disks(struct batch *b, struct chunk *c)
{
	if (c->n_on_disk)
		ssd_read_all(b, c->reads, c->n_on_disk);
	for (uint32_t m = 0; m < c->n_on_disk; m++) {
		struct on_disk *d = &c->on_disk[m];
		b->items[d->item].bytes = c->reads[m].done;
		b->items[d->item].status = read_rest(b, d->item, d->object, &d->frame, c->reads[m].len);
	}
}

static void read_chunk(struct batch *b, uint32_t from, uint32_t to)
{
	struct chunk c = { .n_on_disk = 0 };
	uint64_t bytes = 0;

	hold_chunk(b, from, to, c.held);
	for (uint32_t k = from; k < to; k++) {
		if (!c.held[k - from])
			continue;
		b->items[k].status = batch_stopped(b);
		if (!b->items[k].status)
			b->items[k].status = read_item(b, k, c.held[k - from], &c);
	}
	read_disks(b, &c);
	for (uint32_t k = from; k < to; k++) {
		bytes += b->items[k].bytes;
		if (c.held[k - from] && b->items[k].status == -ENOENT)
			space_remove_by_id(b->session->fs, c.held[k - from]->id); /* its last copy was bad */
	}
	let_go(b, c.held, to - from);
	counter_add(fastpath_read_bytes, bytes);
}

/* Items that were not begun. */
static void give_up(struct batch *b, uint32_t from, uint32_t to)
{
	for (uint32_t k = from; k < to; k++)
		if (!b->items[k].status)
			b->items[k].status = b->stopped;
}

struct reading {
	struct batch *batch;
	uint32_t chunk; /* items of one */
};

static void read_part(void *arg, uint32_t n)
{
	const struct reading *r = arg;
	struct batch *b = r->batch;
	uint32_t from = n * r->chunk, left = b->io.n_items - from;
	uint32_t to = from + (left < r->chunk ? left : r->chunk);

	if (!batch_stopped(b)) {
		read_chunk(b, from, to);
		return;
	}
	give_up(b, from, to);
}

void batch_read(struct batch *b)
{
	struct reading r = { b, b->io.n_items / MIN_CHUNKS };
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < b->io.n_items; k++)
		bytes += b->items[k].status ? 0 : room_of(&b->items[k]);
	r.chunk = r.chunk < 1 ? 1 : r.chunk > CHUNK ? CHUNK : r.chunk;
	batch_share(b, read_part, &r, (b->io.n_items - 1) / r.chunk + 1, bytes);
	counter_add(fastpath_reads, b->io.n_items);
}

void batch_prefetch(struct batch *b)
{
	struct object *held[CHUNK];

	for (uint32_t k = 0; k < b->io.n_items; k += CHUNK) {
		uint32_t to = b->io.n_items - k < CHUNK ? b->io.n_items : k + CHUNK;
		if (batch_stopped(b)) {
			give_up(b, k, b->io.n_items);
			break;
		}
		hold_chunk(b, k, to, held);
		pthread_mutex_lock(&b->session->fs->lock);
		for (uint32_t m = k; m < to; m++) {
			struct object *o = held[m - k];
			if (!o)
				continue;
			b->items[m].tier = o->dram_frame || !o->size ? MCFS_TIER_DRAM : MCFS_TIER_SSD;
			residency_queue_promotion_locked(b->session->fs, o);
		}
		pthread_mutex_unlock(&b->session->fs->lock);
		let_go(b, held, to - k);
	}
}
