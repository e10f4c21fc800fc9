/* SPDX-License-Identifier: Apache-2.0 */
#include "object/object.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs.h"
#include "inode_table.h"
#include "object/copies.h"
#include "object/residency.h"
#include "object/verify.h"
#include "object/version.h"

/* Passthrough ids kept open for the next open: it then costs no open of the frame. */
#define MAX_IDLE_BACKINGS 1024
/* Of object_visit_some_locked: fs->lock is held for some tens of microseconds. */
#define VISIT_BUCKETS 512

/* How an object is open: a part of it that most objects do without. */
struct backing {
	struct object *object;
	uint32_t n_backed, n_direct; /* passthrough and direct_io handles: never both */
	int32_t id;                  /* kernel passthrough id, 0: none; kept for a while after n_backed fell to 0 */
	bool is_old;                 /* id is of a frame that the next open should not use */
	struct backing *idle_prev, *idle_next; /* with an id nobody uses, oldest first */
};

struct object_table {
	struct object **buckets;
	size_t n_buckets, n;
	struct object *grace_head, *grace_tail;
	struct backing *idle_head, *idle_tail;
	uint32_t n_idle;
	int64_t n_ttl; /* objects with a ttl_s */
};

static size_t bucket_of(const struct object_table *t, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (t->n_buckets - 1);
}

struct object_table *object_table_create(void)
{
	struct object_table *t = xcalloc(1, sizeof(*t));
	t->n_buckets = 4096;
	t->buckets = xcalloc(t->n_buckets, sizeof(*t->buckets));
	return t;
}

void object_table_destroy(struct object_table *t)
{
	if (!t)
		return;
	for (size_t b = 0; b < t->n_buckets; b++)
		for (struct object *o = t->buckets[b], *next; o; o = next) {
			next = o->hash_next;
			free(o->backing);
			free(o);
		}
	free(t->buckets);
	free(t);
}

static void grow(struct object_table *t)
{
	size_t old_n = t->n_buckets;
	struct object **old = t->buckets;

	t->n_buckets *= 2;
	t->buckets = xcalloc(t->n_buckets, sizeof(*t->buckets));
	for (size_t b = 0; b < old_n; b++)
		for (struct object *o = old[b], *next; o; o = next) {
			next = o->hash_next;
			size_t nb = bucket_of(t, o->id);
			o->hash_next = t->buckets[nb];
			t->buckets[nb] = o;
		}
	free(old);
}

static void table_remove(struct object_table *t, struct object *o)
{
	if (!o->in_table)
		return;
	for (struct object **p = &t->buckets[bucket_of(t, o->id)]; *p; p = &(*p)->hash_next)
		if (*p == o) {
			*p = o->hash_next;
			break;
		}
	o->in_table = false;
	t->n--;
	t->n_ttl -= o->ttl_s != 0;
}

struct object *object_find_locked(struct fs *fs, uint64_t id)
{
	struct object_table *t = fs->objects;
	struct object *o = t->buckets[bucket_of(t, id)];

	while (o && o->id != id)
		o = o->hash_next;
	return o;
}

struct object *object_add_locked(struct fs *fs, const struct object_record *r, uint64_t caller)
{
	struct object_table *t = fs->objects;
	struct object *o = xcalloc(1, sizeof(*o));

	if (t->n >= t->n_buckets)
		grow(t);
	o->id = r->object_id;
	o->size = r->size;
	o->dram_frame = r->dram_frame;
	o->ssd_frame = r->ssd_frame;
	o->charged_bytes = r->charged_bytes;
	o->class = r->class;
	o->pin = r->pin;
	o->in_table = true;
	o->used_s = residency_now_s(fs);
	if (r->name_len)
		name_index_put_locked(fs, o, name_key_of(fs, r->parent, r->name, r->name_len));
	size_t b = bucket_of(t, o->id);
	o->hash_next = t->buckets[b];
	t->buckets[b] = o;
	t->n++;
	residency_place_locked(fs, o, caller);
	return o;
}

void object_attach_inode_locked(struct fs *fs, struct inode *i)
{
	struct object *o = object_find_locked(fs, i->key);

	if (!o || o->state == OBJECT_DROPPED) {
		i->state = INODE_GONE;
		return;
	}
	i->object = o;
	o->inode = i;
	object_set_owner_locked(o, &i->e);
	if (o->state == OBJECT_REPLACED) {
		i->state = INODE_REPLACED;
		i->replaced_ns = o->replaced_ns;
	}
}

void object_detach_inode_locked(struct fs *fs, struct inode *i)
{
	(void)fs;
	i->object->inode = NULL;
	i->object = NULL;
}

void object_touch_locked(struct fs *fs, struct object *o, uint64_t caller)
{
	residency_touch_locked(fs, o, caller);
}

void object_set_policy_locked(struct fs *fs, struct object *o, const struct policy_attr *p)
{
	o->class = p->class;
	o->pin = p->pin;
	object_set_ttl_locked(fs, o, p->ttl_s);
	residency_place_locked(fs, o, 0);
}

void object_set_ttl_locked(struct fs *fs, struct object *o, uint32_t ttl_s)
{
	fs->objects->n_ttl += (ttl_s != 0) - (o->ttl_s != 0);
	o->ttl_s = ttl_s;
}

void object_set_owner_locked(struct object *o, const struct entry *e)
{
	o->mode = (uint16_t)e->mode;
	o->uid = e->uid;
	o->gid = e->gid;
}

bool object_is_expired(const struct object *o)
{
	return o->ttl_s && version_age_s(o->id) > o->ttl_s;
}

bool object_any_ttl_locked(struct fs *fs)
{
	return fs->objects->n_ttl > 0;
}

void object_set_frames_locked(struct fs *fs, struct object *o, uint64_t dram_frame,
			      uint64_t ssd_frame)
{
	o->dram_frame = dram_frame;
	o->ssd_frame = ssd_frame;
	residency_place_locked(fs, o, 0);
}

void object_trust_copy_locked(struct object *o)
{
	o->is_ssd_checked = true;
	o->is_ssd_synced = true;
}

void object_open_locked(struct object *o)
{
	o->n_open++;
}

static void grace_remove(struct object_table *t, struct object *o)
{
	*(o->grace_prev ? &o->grace_prev->grace_next : &t->grace_head) = o->grace_next;
	*(o->grace_next ? &o->grace_next->grace_prev : &t->grace_tail) = o->grace_prev;
	o->grace_prev = o->grace_next = NULL;
}

/* Cuts the last ties; true when the caller has to free it. */
static bool drop_if_unused(struct fs *fs, struct object *o)
{
	if (o->state != OBJECT_DROPPED || o->n_open)
		return false;
	if (o->inode)
		object_detach_inode_locked(fs, o->inode);
	table_remove(fs->objects, o);
	return true;
}

/* ---- how it is open ---- */

static struct backing *backing_of(struct object *o)
{
	if (!o->backing) {
		o->backing = xcalloc(1, sizeof(*o->backing));
		o->backing->object = o;
	}
	return o->backing;
}

static void drop_unused_backing(struct backing *b)
{
	if (b->n_backed || b->n_direct || b->id)
		return;
	b->object->backing = NULL;
	free(b);
}

static void idle_add(struct object_table *t, struct backing *b)
{
	b->idle_prev = t->idle_tail;
	*(t->idle_tail ? &t->idle_tail->idle_next : &t->idle_head) = b;
	t->idle_tail = b;
	t->n_idle++;
}

static void idle_remove(struct object_table *t, struct backing *b)
{
	*(b->idle_prev ? &b->idle_prev->idle_next : &t->idle_head) = b->idle_next;
	*(b->idle_next ? &b->idle_next->idle_prev : &t->idle_tail) = b->idle_prev;
	b->idle_prev = b->idle_next = NULL;
	t->n_idle--;
}

int32_t object_backed_locked(struct fs *fs, struct object *o, int32_t id)
{
	struct backing *b = o->backing;

	if (b ? b->n_direct || (!b->id && !id) : !id)
		return 0;
	b = backing_of(o);
	if (!b->id) {
		b->id = id;
		/* Kept for later opens only if of dram: an ssd frame is looked at before each first one. */
		b->is_old = !o->dram_frame;
	} else if (!b->n_backed) {
		idle_remove(fs->objects, b);
	}
	b->n_backed++;
	return b->id;
}

/* The id of one that is not in use; it may go with it. */
static int32_t take_id(struct backing *b)
{
	int32_t id = b->id;

	b->id = 0;
	b->is_old = false;
	drop_unused_backing(b);
	return id;
}

int32_t object_unbacked_locked(struct fs *fs, struct object *o)
{
	struct object_table *t = fs->objects;
	struct backing *b = o->backing;

	if (--b->n_backed)
		return 0;
	if (b->is_old)
		return take_id(b);
	idle_add(t, b);
	return t->n_idle <= MAX_IDLE_BACKINGS ? 0 : object_take_backing_locked(fs, t->idle_head->object);
}

bool object_direct_locked(struct object *o)
{
	if (o->backing && o->backing->n_backed)
		return false;
	backing_of(o)->n_direct++;
	return true;
}

void object_undirect_locked(struct object *o)
{
	o->backing->n_direct--;
	drop_unused_backing(o->backing);
}

int32_t object_take_backing_locked(struct fs *fs, struct object *o)
{
	struct backing *b = o->backing;

	if (!b || !b->id || b->n_backed)
		return 0;
	idle_remove(fs->objects, b);
	return take_id(b);
}

int32_t object_renew_backing_locked(struct fs *fs, struct object *o)
{
	if (o->backing)
		o->backing->is_old = o->backing->n_backed != 0;
	return object_take_backing_locked(fs, o);
}

/* ---- its end ---- */

bool object_close_locked(struct fs *fs, struct object *o)
{
	o->n_open--;
	return drop_if_unused(fs, o);
}

void object_begin_evict_locked(struct fs *fs, struct object *o)
{
	o->is_evicting = true;
	o->n_open++;
	residency_place_locked(fs, o, 0);
}

bool object_end_evict_locked(struct fs *fs, struct object *o)
{
	o->is_evicting = false;
	residency_place_locked(fs, o, 0);
	return object_close_locked(fs, o);
}

bool object_retire_locked(struct fs *fs, struct object *o, bool grace)
{
	struct object_table *t = fs->objects;

	bool was_live = o->state == OBJECT_LIVE;

	if (o->state == OBJECT_REPLACED)
		grace_remove(t, o);
	o->state = grace && o->inode && was_live ? OBJECT_REPLACED : OBJECT_DROPPED;
	residency_place_locked(fs, o, 0);
	name_index_remove_locked(fs, o);
	if (o->state == OBJECT_REPLACED) {
		o->replaced_ns = now_mono_ns();
		o->inode->state = INODE_REPLACED;
		o->inode->replaced_ns = o->replaced_ns;
		o->grace_prev = t->grace_tail;
		o->grace_next = NULL;
		*(t->grace_tail ? &t->grace_tail->grace_next : &t->grace_head) = o;
		t->grace_tail = o;
		return false;
	}
	if (o->inode)
		o->inode->state = INODE_GONE;
	return drop_if_unused(fs, o);
}

struct object *object_grace_pop_locked(struct fs *fs, int64_t before_ns, bool *must_free_out)
{
	struct object *o = fs->objects->grace_head;

	if (!o || o->replaced_ns >= before_ns)
		return NULL;
	*must_free_out = object_retire_locked(fs, o, false);
	return o;
}

uint64_t object_count_locked(struct fs *fs)
{
	return fs->objects->n;
}

void object_visit_locked(struct fs *fs, object_visit_fn fn, void *arg)
{
	struct object_table *t = fs->objects;

	for (size_t b = 0; b < t->n_buckets; b++)
		for (struct object *o = t->buckets[b]; o; o = o->hash_next)
			fn(arg, o);
}

bool object_visit_some_locked(struct fs *fs, size_t *at, object_visit_fn fn, void *arg)
{
	struct object_table *t = fs->objects;
	size_t end = *at + VISIT_BUCKETS;

	/* A table that grew meanwhile has moved objects to later buckets only. */
	for (; *at < t->n_buckets && *at < end; ++*at)
		for (struct object *o = t->buckets[*at]; o; o = o->hash_next)
			fn(arg, o);
	return *at < t->n_buckets;
}

void object_free_unlocked(struct fs *fs, struct object *o)
{
	pthread_mutex_lock(&fs->lock);
	int32_t id = object_take_backing_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (id)
		fs->close_backing(fs, id);
	if (o->dram_frame)
		tier_call(fs->dram, drop, o->dram_frame, o->size, o->charged_bytes);
	if (o->ssd_frame)
		tier_call(fs->ssd, drop, o->ssd_frame, o->size, ssd_charge(o->size));
	free(o);
	pthread_mutex_lock(&fs->lock);
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
}

/* Where an object's bytes were at a moment; others may promote, spill or drop a copy meanwhile. */
struct places {
	uint64_t dram, ssd;
};

static struct places places_of(const struct object *o)
{
	return (struct places){ o->dram_frame, o->ssd_frame };
}

/* No copy was found, because they moved while they were looked at. */
static bool has_moved(const struct object *o, struct places seen, int rc)
{
	return rc == -ENOENT && (o->dram_frame != seen.dram || o->ssd_frame != seen.ssd);
}

int object_open_frame(struct fs *fs, struct object *o, const char **tier_out)
{
	struct places seen;
	int fd;

	do {
		seen = places_of(o);
		fd = -ENOENT;
		if (seen.dram) {
			fd = verify_open(fs, o, fs->dram, NULL);
			*tier_out = "dram";
		}
		if (fd < 0 && o->ssd_frame) {
			fd = verify_open(fs, o, fs->ssd, NULL);
			*tier_out = "ssd";
		}
	} while (has_moved(o, seen, fd));
	return fd;
}

static void borrow_dram(struct fs *fs, struct object *o, struct borrowed_frame *out)
{
	uint64_t frame = o->dram_frame;

	*out = (struct borrowed_frame){ .tier = fs->dram, .id = frame, .fd = -ENOENT };
	if (!frame)
		return;
	out->fd = tier_call(fs->dram, borrow, frame);
	if (out->fd == -ENOENT && o->dram_frame == frame)
		verify_report_bad(fs, o, fs->dram, frame, ENOENT);
}

static void borrow_ssd(struct fs *fs, struct object *o, const struct space_wait *w,
		       struct borrowed_frame *out)
{
	int rc = verify_before_open(fs, o, w);

	*out = (struct borrowed_frame){ .tier = fs->ssd, .id = o->ssd_frame, .fd = rc };
	if (!rc)
		out->fd = verify_open(fs, o, fs->ssd, w);
}

int object_borrow_frame(struct fs *fs, struct object *o, const struct space_wait *w,
			struct borrowed_frame *out)
{
	struct places seen;

	do {
		seen = places_of(o);
		borrow_dram(fs, o, out);
		if (out->fd < 0 && o->ssd_frame)
			borrow_ssd(fs, o, w, out);
	} while (has_moved(o, seen, out->fd));
	return out->fd < 0 ? out->fd : 0;
}

void object_give_back_frame(struct fs *fs, const struct borrowed_frame *f)
{
	if (f->tier == fs->dram)
		tier_call(f->tier, give_back, f->id, f->fd);
	else
		close(f->fd);
}

void object_close(struct fs *fs, struct object *o)
{
	pthread_mutex_lock(&fs->lock);
	bool must_free = object_close_locked(fs, o);
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		object_free_unlocked(fs, o);
}
