/* SPDX-License-Identifier: Apache-2.0 */
#include "object/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/crc.h"
#include "base/log.h"
#include "fs.h"
#include "inode_table.h"
#include "object/copies.h"
#include "object/draft.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/verify.h"
#include "object/version.h"

#define COPY_BYTES (1u << 20)
/* An object's copy may be given up and made again by others while an fsync looks at it. */
#define MAX_TRIES 16

/* ---- published objects ---- */

int durable_copy_fd(struct fs *fs, int fd, uint64_t size, uint64_t *frame_out)
{
	struct copies_fd source = { .fd = fd };

	return copies_to_ssd(fs, size, copies_fill_fd, &source, true, frame_out);
}

/* The copy that a worker made, or an earlier daemon, was not synced. -ENOENT: it is bad, or gone. */
static int sync_copy(struct fs *fs, struct object *o)
{
	uint64_t frame = o->ssd_frame;
	struct frame f = { .id = frame, .size_bytes = o->size };

	if (!frame)
		return -ENOENT;
	f.fd = verify_open(fs, o, fs->ssd, NULL);
	if (f.fd < 0)
		return f.fd;
	int rc = tier_call(fs->ssd, sync, &f);
	close(f.fd);
	guard_lock(&fs->lock);
	if (!rc && o->ssd_frame == frame)
		o->is_ssd_synced = true;
	return rc;
}

static int make_copy(struct fs *fs, struct object *o)
{
	struct copy_change c = { .o = o, .is_synced = true };
	const char *tier;
	int fd = object_open_frame(fs, o, &tier);

	if (fd < 0)
		return fd;
	int rc = durable_copy_fd(fs, fd, o->size, &c.frame);
	close(fd);
	return rc ? rc : copies_record(fs, &c, 1, true);
}

/* -ENOENT: replaced or unlinked for good, though memory may not say so for a moment yet. */
static int has_record(struct fs *fs, const struct object *o)
{
	struct object_record r;
	int rc = catalog_object_get(fs->catalog, o->id, &r);

	if (!rc)
		object_record_fini(&r);
	return rc;
}

int durable_object(struct fs *fs, struct object *o)
{
	int rc = 0;

	for (int n = 0; n < MAX_TRIES && !rc; n++) {
		pthread_mutex_lock(&fs->lock);
		bool is_bare = !o->size || o->state != OBJECT_LIVE; /* unlinked: nothing to promise */
		bool is_done = is_bare || (o->ssd_frame && o->is_ssd_synced);
		bool has_copy = o->ssd_frame;
		pthread_mutex_unlock(&fs->lock);
		if (is_done)
			return catalog_sync(fs->catalog);
		rc = has_copy ? sync_copy(fs, o) : make_copy(fs, o);
		if (rc && rc != -ENOENT)
			return rc;
		if (rc)
			verify_drop_bad(fs); /* the dram frame, if there is one, is copied anew */
		rc = has_record(fs, o);
	}
	if (rc == -ENOENT)
		return catalog_sync(fs->catalog);
	return rc ? rc : -EIO;
}

/* ---- promises ---- */

struct snapshot_source {
	struct draft *d;
	uint32_t *crc;
};

static int read_draft(struct fs *fs, struct draft *d, void *buf, size_t len, uint64_t off)
{
	size_t n = 0;
	int rc = draft_read(fs, d, buf, len, off, &n);

	if (!rc && n < len) /* cut by a truncate during the copy: zeros, as truncate says */
		memset((char *)buf + n, 0, len - n);
	return rc;
}

static int fill_snapshot(struct fs *fs, struct frame *f, uint64_t size, void *arg)
{
	struct snapshot_source *s = arg;
	autofree char *buf = malloc(COPY_BYTES);
	int rc = buf ? 0 : -ENOMEM;

	_Static_assert(COPY_BYTES == CATALOG_CRC_CHUNK, "one checksum per copied piece");
	if (!rc && f->size_bytes != size)
		rc = tier_call(fs->ssd, resize, f, size);
	for (uint64_t off = 0; !rc && off < size; off += COPY_BYTES) {
		size_t n = size - off < COPY_BYTES ? (size_t)(size - off) : COPY_BYTES;
		rc = read_draft(fs, s->d, buf, n, off);
		if (!rc)
			rc = tier_call(fs->ssd, write, f, buf, n, off);
		if (!rc)
			s->crc[off / COPY_BYTES] = crc32c(0, buf, n);
	}
	return rc;
}

static int put_promise(struct fs *fs, struct draft *d, struct object_record *r)
{
	struct entry e;

	pthread_mutex_lock(&fs->lock);
	bool is_linked = d->dir && !d->is_poisoned;
	if (is_linked) {
		e = d->inode->e;
		r->parent = d->dir->key;
		r->name_len = (uint8_t)strlen(d->inode->name);
		strcpy(r->name, d->inode->name);
	}
	pthread_mutex_unlock(&fs->lock);
	if (!is_linked)
		return -ENOENT;
	e.object_id = r->object_id;
	e.size = r->size;
	r->ino = e.ino;
	r->class = e.policy.class;
	r->pin = e.policy.pin;
	r->ttl_s = e.policy.ttl_s;
	r->is_promise = 1;
	r->promise_entry = &e;
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	catalog_batch_put_object(b, r);
	if (d->promise_id)
		catalog_batch_del_object(b, d->promise_id);
	int rc = catalog_batch_commit(b, true);
	r->promise_entry = NULL;
	return rc;
}

static int promise(struct fs *fs, struct draft *d)
{
	struct object_record r = { .size = draft_size(d), .object_id = version_next(fs->clock) };
	int rc = r.object_id ? 0 : -EIO;

	r.n_crc = (uint32_t)((r.size + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	r.crc = r.n_crc ? xcalloc(r.n_crc, sizeof(*r.crc)) : NULL;
	struct snapshot_source source = { d, r.crc };
	if (!rc && r.size)
		rc = copies_to_ssd(fs, r.size, fill_snapshot, &source, true, &r.ssd_frame);
	if (!rc)
		rc = put_promise(fs, d, &r);
	if (!rc) {
		if (d->promise_frame)
			tier_call(fs->ssd, drop, d->promise_frame, d->promise_size,
				  ssd_charge(d->promise_size));
		d->promise_id = r.object_id;
		d->promise_frame = r.ssd_frame;
		d->promise_size = r.size;
	} else if (r.ssd_frame) {
		tier_call(fs->ssd, drop, r.ssd_frame, r.size, ssd_charge(r.size));
	}
	object_record_fini(&r);
	return rc == -ENOENT ? 0 : rc; /* unlinked: nothing to promise */
}

/* The object a clean draft shows, held open; NULL: none (or it has diverged meanwhile). */
static struct object *hold_base(struct fs *fs, struct draft *d)
{
	pthread_rwlock_rdlock(&d->data);
	struct object *base = d->base;
	if (base) {
		pthread_mutex_lock(&fs->lock);
		object_open_locked(base);
		pthread_mutex_unlock(&fs->lock);
	}
	pthread_rwlock_unlock(&d->data);
	return base;
}

int durable_draft(struct fs *fs, struct draft *d)
{
	guard_lock(&d->promise_lock);
	if (d->is_poisoned)
		return -EIO;
	if (draft_is_dirty(d))
		return promise(fs, d);
	struct object *base = hold_base(fs, d);
	if (!base)
		return catalog_sync(fs->catalog);
	int rc = durable_object(fs, base);
	object_close(fs, base);
	return rc;
}

void durable_forget_promise(struct fs *fs, struct draft *d)
{
	struct catalog_batch *b = catalog_batch_create(fs->catalog);

	catalog_batch_del_object(b, d->promise_id);
	if (catalog_batch_commit(b, false))
		counter_inc(catalog_errors);
	if (d->promise_frame)
		tier_call(fs->ssd, drop, d->promise_frame, d->promise_size,
			  ssd_charge(d->promise_size));
	d->promise_id = d->promise_frame = 0;
}

static void follow_name(struct fs *fs, struct draft *d)
{
	struct object_record r;

	guard_lock(&d->promise_lock);
	if (!d->promise_id || catalog_object_get(fs->catalog, d->promise_id, &r))
		return;
	pthread_mutex_lock(&fs->lock);
	bool is_linked = d->dir, is_unlinked = !d->dir && !d->is_poisoned;
	if (is_linked) {
		r.parent = d->dir->key;
		r.name_len = (uint8_t)strlen(d->inode->name);
		strcpy(r.name, d->inode->name);
	}
	pthread_mutex_unlock(&fs->lock);
	if (is_unlinked)
		durable_forget_promise(fs, d);
	if (is_linked) {
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_object(b, &r);
		if (catalog_batch_commit(b, true))
			counter_inc(catalog_errors);
	}
	object_record_fini(&r);
}

void durable_follow_names(struct fs *fs, struct draft_list *l)
{
	for (size_t k = 0; k < l->n; k++) {
		follow_name(fs, l->v[k]);
		guard_lock(&fs->lock);
		draft_put_locked(fs, l->v[k]);
	}
	free(l->v);
	*l = (struct draft_list){ 0 };
}

int durable_keep_promise(struct fs *fs, struct draft *d, struct published *out)
{
	struct object_record r;

	*out = (struct published){ 0 };
	guard_lock(&d->promise_lock);
	if (!d->promise_id)
		return 0;
	int rc = catalog_object_get(fs->catalog, d->promise_id, &r);
	if (rc)
		return rc;
	pthread_mutex_lock(&fs->lock);
	out->dir = inode_find(fs, r.parent);
	if (out->dir)
		inode_get_locked(out->dir);
	pthread_mutex_unlock(&fs->lock);
	out->name = xstrdup(r.name);
	struct entry e = *r.promise_entry;
	e.target = NULL;
	r.is_promise = 0;
	struct commit c = { .dir_ino = r.parent, .name = out->name, .entry = &e, .record = &r,
			    .must_sync = true };
	entry_fini(r.promise_entry);
	free(r.promise_entry);
	r.promise_entry = NULL;
	pthread_mutex_t *stripe = ns_lock_name(fs, r.parent, r.name);
	rc = publish_commit(fs, &c);
	out->has_replaced = !rc && c.has_replaced;
	pthread_mutex_unlock(stripe);
	if (!rc) {
		d->promise_id = d->promise_frame = 0; /* it is an object now */
		counter_inc(promises_kept);
	}
	object_record_fini(&r);
	return rc;
}
