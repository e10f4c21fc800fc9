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
#include "object/draft.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/space.h"
#include "object/version.h"

#define COPY_BYTES (1u << 20)

static uint64_t ssd_charge(uint64_t size)
{
	return (size + 4095) & ~4095ull;
}

/*
 * Record and table get an ssd frame, or (0) none any more. Under the name's stripe, so that of two
 * copies made at a time one stays. *old_out: the frame that has to be dropped afterwards, 0: none.
 */
static int record_copy(struct fs *fs, struct object *o, uint64_t frame, uint64_t *old_out)
{
	struct object_record r;
	pthread_mutex_t *stripe;
	int rc = ns_lock_object(fs, o->id, &r, &stripe);

	*old_out = frame;
	if (rc)
		return rc;
	bool has_copy = o->ssd_frame;
	if (has_copy != (frame != 0)) {
		r.ssd_frame = frame;
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_object(b, &r);
		rc = catalog_batch_commit(b, true);
		if (!rc) {
			pthread_mutex_lock(&fs->lock);
			*old_out = o->ssd_frame;
			object_set_frames_locked(fs, o, o->dram_frame, frame);
			pthread_mutex_unlock(&fs->lock);
		}
	}
	pthread_mutex_unlock(stripe);
	object_record_fini(&r);
	return rc;
}

/* ---- room on the ssd ---- */

static void find_oldest_copy(void *arg, struct object *o)
{
	struct object **oldest = arg;

	if (o->ssd_frame && o->state == OBJECT_LIVE && o->class == MCFS_CLASS_CACHE && !o->pin &&
	    !o->n_open && !o->is_evicting && (!*oldest || o->id < (*oldest)->id))
		*oldest = o;
}

/* The copy goes, the object, which is open for the caller, stays in DRAM. */
static int drop_copy(struct fs *fs, struct object *o)
{
	uint64_t frame;
	int rc = record_copy(fs, o, 0, &frame);

	if (frame)
		tier_call(fs->ssd, drop, frame, o->size, ssd_charge(o->size));
	object_close(fs, o);
	return rc;
}

/* Durable copies of evictable objects go oldest first when the ssd is full. */
static int make_ssd_room(struct fs *fs)
{
	struct object *oldest = NULL;

	pthread_mutex_lock(&fs->lock);
	object_visit_locked(fs, find_oldest_copy, &oldest);
	uint64_t id = oldest ? oldest->id : 0;
	bool is_in_dram = oldest && oldest->dram_frame;
	if (is_in_dram)
		object_open_locked(oldest);
	pthread_mutex_unlock(&fs->lock);
	if (!id)
		return -ENOSPC;
	int rc = is_in_dram ? drop_copy(fs, oldest) : space_remove_by_id(fs, id);
	if (!rc)
		counter_inc(evictions);
	return rc == -ENOENT ? 0 : rc; /* somebody else removes it: look again */
}

/* ---- writing an ssd frame from any source of bytes ---- */

typedef int (*source_fn)(void *arg, void *buf, size_t len, uint64_t off);

static int fill_frame(struct fs *fs, struct frame *f, uint64_t size, source_fn source, void *arg,
		      uint32_t *crc)
{
	autofree char *buf = malloc(COPY_BYTES);
	int rc = buf ? 0 : -ENOMEM;

	_Static_assert(COPY_BYTES == CATALOG_CRC_CHUNK, "one checksum per copied piece");
	if (!rc && f->size_bytes != size)
		rc = tier_call(fs->ssd, resize, f, size);
	for (uint64_t off = 0; !rc && off < size; off += COPY_BYTES) {
		size_t n = size - off < COPY_BYTES ? (size_t)(size - off) : COPY_BYTES;
		rc = source(arg, buf, n, off);
		if (!rc)
			rc = tier_call(fs->ssd, write, f, buf, n, off);
		if (!rc && crc)
			crc[off / COPY_BYTES] = crc32c(0, buf, n);
	}
	return rc ? rc : tier_call(fs->ssd, sync, f);
}

static int copy_to_ssd(struct fs *fs, uint64_t size, source_fn source, void *arg, uint32_t *crc,
		       uint64_t *frame_out)
{
	struct frame f = FRAME_NONE;
	uint64_t charged;
	int rc;

	for (;;) {
		rc = tier_call(fs->ssd, take, size, &f);
		if (!rc)
			rc = tier_call(fs->ssd, charge, &f, ssd_charge(size));
		if (!rc)
			rc = fill_frame(fs, &f, size, source, arg, crc);
		if (!rc)
			break;
		if (f.id)
			tier_call(fs->ssd, discard, &f);
		if (rc != -ENOSPC || make_ssd_room(fs))
			break;
	}
	uint64_t id = f.id;
	if (!rc)
		rc = tier_call(fs->ssd, seal, &f, &charged);
	if (!rc) {
		*frame_out = id;
		return 0;
	}
	if (f.id)
		tier_call(fs->ssd, discard, &f);
	errno = -rc;
	log_warn("durable copy of %llu bytes failed: %m", (unsigned long long)size);
	return rc;
}

static int read_fd(void *arg, void *buf, size_t len, uint64_t off)
{
	int fd = *(int *)arg;
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);
		if (n == 0)
			return -EIO;
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int durable_copy_fd(struct fs *fs, int fd, uint64_t size, uint64_t *frame_out)
{
	return copy_to_ssd(fs, size, read_fd, &fd, NULL, frame_out);
}

/* ---- published objects ---- */

int durable_object(struct fs *fs, struct object *o)
{
	const char *tier;
	uint64_t frame = 0;

	pthread_mutex_lock(&fs->lock);
	bool needs_copy = o->size && !o->ssd_frame && o->state == OBJECT_LIVE;
	pthread_mutex_unlock(&fs->lock);
	if (!needs_copy)
		return catalog_sync(fs->catalog);
	int fd = object_open_frame(fs, o, &tier);
	if (fd < 0)
		return -EIO;
	int rc = durable_copy_fd(fs, fd, o->size, &frame);
	close(fd);
	if (!rc)
		rc = record_copy(fs, o, frame, &frame);
	if (frame)
		tier_call(fs->ssd, drop, frame, o->size, ssd_charge(o->size));
	return rc == -ENOENT ? 0 : rc; /* unlinked: nothing to promise */
}

/* ---- promises ---- */

static int read_draft(void *arg, void *buf, size_t len, uint64_t off)
{
	struct { struct fs *fs; struct draft *d; } *a = arg;
	size_t n = 0;
	int rc = draft_read(a->fs, a->d, buf, len, off, &n);

	if (!rc && n < len) /* cut by a truncate during the copy: zeros, as truncate says */
		memset((char *)buf + n, 0, len - n);
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
	struct { struct fs *fs; struct draft *d; } arg = { fs, d };
	struct object_record r = { .size = draft_size(d), .object_id = version_next(fs->clock) };
	int rc = r.object_id ? 0 : -EIO;

	r.n_crc = (uint32_t)((r.size + CATALOG_CRC_CHUNK - 1) / CATALOG_CRC_CHUNK);
	r.crc = r.n_crc ? xcalloc(r.n_crc, sizeof(*r.crc)) : NULL;
	if (!rc && r.size)
		rc = copy_to_ssd(fs, r.size, read_draft, &arg, r.crc, &r.ssd_frame);
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
	rc = publish_commit(fs, &c, NULL, &out->has_replaced);
	pthread_mutex_unlock(stripe);
	if (!rc) {
		d->promise_id = d->promise_frame = 0; /* it is an object now */
		counter_inc(promises_kept);
	}
	object_record_fini(&r);
	return rc;
}
