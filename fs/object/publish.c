/* SPDX-License-Identifier: Apache-2.0 */
#include "object/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "object/copies.h"
#include "object/draft.h"
#include "object/durable.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/space.h"
#include "object/version.h"

void published_fini(struct fs *fs, struct published *p)
{
	if (p->dir) {
		pthread_mutex_lock(&fs->lock);
		inode_put_locked(fs, p->dir);
		pthread_mutex_unlock(&fs->lock);
	}
	free(p->name);
	*p = (struct published){ 0 };
}

/* Memory follows the catalog; returns the object to free, if any. */
static struct object *commit_memory(struct fs *fs, struct commit *c)
{
	struct object *o = object_add_locked(fs, c->record, c->caller);
	struct object *old = c->old_id ? object_find_locked(fs, c->old_id) : NULL;
	struct inode *dir = inode_find(fs, c->dir_ino);
	bool must_free = false;

	object_set_ttl_locked(fs, o, c->entry->policy.ttl_s);
	if (o->ssd_frame)
		object_trust_copy_locked(o); /* made and synced for this publish */
	object_set_owner_locked(o, c->entry);
	if (c->draft) {
		object_open_locked(o);
		c->draft->published_id = o->id;
	}
	if (old && old->state == OBJECT_LIVE)
		must_free = object_retire_locked(fs, old, true);
	inode_dir_changed_locked(fs, c->dir_ino);
	if (dir && o->size)
		dir->last_size_bytes = o->size;
	c->object = o;
	return must_free ? old : NULL;
}

int publish_look(struct fs *fs, struct commit *c, struct entry *old)
{
	int rc = catalog_lookup(fs->catalog, c->dir_ino, c->name, old);

	if (rc == -ENOENT)
		*old = (struct entry){ 0 };
	else if (rc)
		return rc;
	c->has_replaced = rc == 0;
	c->old_id = old->object_id;
	if (S_ISDIR(old->mode))
		rc = -EISDIR;
	else
		rc = c->has_replaced && c->must_be_new ? -EEXIST : 0;
	if (rc)
		entry_fini(old);
	return rc;
}

int publish_prepare(struct fs *fs, struct commit *c, struct catalog_batch *b)
{
	uint64_t made_as = c->record->object_id;
	if (c->old_id > made_as) {
		/* The other one was numbered later and published first: what comes last is newest. */
		c->record->object_id = version_next(fs->clock);
		if (!c->record->object_id)
			return -EIO;
	}

	c->entry->object_id = c->record->object_id;
	c->entry->size = c->record->size;
	c->entry->ctime_ns = now_real_ns();
	c->record->parent = c->dir_ino;
	c->record->ino = c->entry->ino;
	c->record->class = c->entry->policy.class;
	c->record->pin = c->entry->policy.pin;
	c->record->ttl_s = c->entry->policy.ttl_s;
	c->record->name_len = (uint8_t)strlen(c->name);
	memcpy(c->record->name, c->name, c->record->name_len + 1u);

	catalog_batch_put_entry(b, c->dir_ino, c->name, c->entry);
	catalog_batch_put_object(b, c->record);
	if (c->old_id)
		catalog_batch_del_object(b, c->old_id);
	if (c->drop_promise_id)
		catalog_batch_del_object(b, c->drop_promise_id);
	if (made_as != c->record->object_id)
		catalog_batch_del_object(b, made_as); /* a kept promise has a record by its first number */
	return 0;
}

int publish_finish(struct fs *fs, struct commit *const *commits, size_t n, struct catalog_batch *b)
{
	struct object *to_free[PUBLISH_MAX];
	bool must_sync = false;

	for (size_t k = 0; k < n; k++)
		must_sync |= commits[k]->must_sync;
	int rc = catalog_batch_commit(b, must_sync);
	if (rc) {
		counter_inc(catalog_errors);
		return rc;
	}
	pthread_mutex_lock(&fs->lock);
	for (size_t k = 0; k < n; k++)
		to_free[k] = commit_memory(fs, commits[k]);
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	for (size_t k = 0; k < n; k++) {
		if (to_free[k])
			object_free_unlocked(fs, to_free[k]);
		counter_inc(publishes);
		counter_add(publish_bytes, commits[k]->record->size);
		cluster_published(fs, commits[k]->dir_ino, commits[k]->name, commits[k]->entry,
				  commits[k]->has_replaced ||
					  (commits[k]->draft && commits[k]->draft->is_of_remote));
		if (commits[k]->has_replaced)
			counter_inc(publish_replaces);
	}
	return 0;
}

int publish_commit(struct fs *fs, struct commit *c)
{
	struct entry old;
	int rc = publish_look(fs, c, &old);

	if (rc)
		return rc;
	entry_fini(&old);
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	rc = publish_prepare(fs, c, b);
	if (rc) {
		catalog_batch_destroy(b);
		return rc;
	}
	return publish_finish(fs, &c, 1, b);
}

struct read_arg {
	struct fs *fs;
	struct draft *d;
};

/* For the checksum: a piece that was never written is zeros, no need to ask the frame. */
static int read_for_crc(void *arg, void *buf, size_t len, uint64_t off)
{
	struct read_arg *a = arg;
	uint64_t piece_end;

	if (!ranges_next(&a->d->written, off, off + len, &piece_end) && piece_end == off + len) {
		memset(buf, 0, len);
		return 0;
	}
	return tier_call(a->fs->dram, read, &a->d->frame, buf, len, off);
}

/* A consistent copy of the name and the attributes, or false when the draft may not publish. */
static bool copy_name(struct fs *fs, struct draft *d, struct published *p, struct entry *e)
{
	bool may_publish = false;

	pthread_mutex_lock(&fs->lock);
	if (d->dir && !d->is_poisoned) {
		may_publish = true;
		inode_get_locked(d->dir);
		p->dir = d->dir;
		p->name = xstrdup(d->inode->name);
		*e = d->inode->e;
	}
	pthread_mutex_unlock(&fs->lock);
	return may_publish;
}

/* The draft's name may move until its stripe is held. Returns the stripe, or NULL: not linked. */
static pthread_mutex_t *lock_current_name(struct fs *fs, struct draft *d, struct published *p,
					  struct entry *e)
{
	while (copy_name(fs, d, p, e)) {
		pthread_mutex_t *stripe = ns_lock_name(fs, p->dir->key, p->name);
		pthread_mutex_lock(&fs->lock);
		bool is_same = d->dir == p->dir && !strcmp(d->inode->name, p->name);
		pthread_mutex_unlock(&fs->lock);
		if (is_same)
			return stripe;
		pthread_mutex_unlock(stripe);
		published_fini(fs, p);
	}
	return NULL;
}

/* Durable copy before the name is changed: keep objects, and drafts whose writer called fsync. */
static int copy_to_ssd(struct fs *fs, struct draft *d, struct object_record *r)
{
	if (!r->size)
		return 0;
	return durable_copy_fd(fs, d->frame.fd, r->size, &r->ssd_frame);
}

/* data owned, bytes finished: seals the frame and commits. On failure the bytes stay the draft's. */
static int seal_and_commit(struct fs *fs, struct draft *d, uint64_t caller, struct object_record *r,
			   bool must_sync, struct published *out)
{
	struct entry e;
	struct object *o = NULL;
	int rc = 0;

	r->dram_frame = d->frame.id;
	if (d->frame.id)
		rc = tier_call(fs->dram, seal, &d->frame, &r->charged_bytes);
	if (rc) {
		if (r->ssd_frame)
			tier_call(fs->ssd, drop, r->ssd_frame, r->size, ssd_charge(r->size));
		return rc;
	}
	pthread_mutex_t *stripe = lock_current_name(fs, d, out, &e);
	if (stripe) {
		struct commit c = { .dir_ino = out->dir->key, .name = out->name, .entry = &e,
				    .record = r, .caller = caller, .must_sync = must_sync,
				    .drop_promise_id = d->promise_id, .draft = d };
		rc = publish_commit(fs, &c);
		pthread_mutex_unlock(stripe);
		o = rc ? NULL : c.object;
		out->has_replaced = c.has_replaced && !rc;
	}
	if (!o) {
		/* Unlinked or failed: an object without a name keeps the bytes for the open handles. */
		pthread_mutex_lock(&fs->lock);
		o = object_add_locked(fs, r, 0);
		if (o->ssd_frame)
			object_trust_copy_locked(o);
		object_open_locked(o);
		object_retire_locked(fs, o, false);
		pthread_mutex_unlock(&fs->lock);
	}
	draft_rebase_owned(d, o);
	if (rc)
		d->has_writes = true; /* a later close tries again */
	return rc;
}

/*
 * data owned, so that nobody changes the bytes from here until they are published. Whoever has opened the file for
 * writing meanwhile, and may have changed them already, publishes them with its own close.
 */
static bool may_publish(struct fs *fs, struct draft *d, bool *must_sync_out)
{
	pthread_mutex_lock(&fs->lock);
	bool may = d->dir && !d->is_poisoned && draft_is_dirty(d) && draft_is_flushed_locked(d);
	*must_sync_out = d->promise_id || d->inode->e.policy.class == MCFS_CLASS_KEEP;
	pthread_mutex_unlock(&fs->lock);
	return may;
}

static int publish_owned(struct fs *fs, struct draft *d, uint64_t caller, struct space_wait *w,
			 struct published *out)
{
	struct object_record r = { 0 };
	bool must_sync;

	if (!may_publish(fs, d, &must_sync))
		return 0;
	if (d->write_error)
		return d->write_error;
	int rc = draft_finish_bytes_owned(fs, d, w);
	struct read_arg arg = { fs, d };
	if (!rc)
		rc = crc_track_finish(&d->crc, d->size, read_for_crc, &arg, &r.crc, &r.n_crc);
	r.size = d->size;
	r.object_id = version_next(fs->clock);
	if (!rc && !r.object_id)
		rc = -EIO;
	if (!rc && must_sync)
		rc = copy_to_ssd(fs, d, &r);
	if (!rc)
		rc = seal_and_commit(fs, d, caller, &r, must_sync, out);
	object_record_fini(&r);
	if (!rc && d->promise_id && out->dir) { /* else unlink forgets it */
		if (d->promise_frame)
			tier_call(fs->ssd, drop, d->promise_frame, d->promise_size,
				  ssd_charge(d->promise_size));
		d->promise_id = d->promise_frame = 0;
	}
	return rc;
}

int publish_draft(struct fs *fs, struct draft *d, uint64_t caller, struct space_wait *w,
		  struct published *out)
{
	*out = (struct published){ 0 };
	int rc = space_make_object(fs);
	if (!rc) {
		pthread_mutex_lock(&d->promise_lock);
		pthread_rwlock_wrlock(&d->data);
		rc = publish_owned(fs, d, caller, w, out);
		pthread_rwlock_unlock(&d->data);
		pthread_mutex_unlock(&d->promise_lock);
	}
	if (rc) {
		counter_inc(publish_failures);
		errno = -rc;
		log_warn("publish of \"%s\" failed: %m", d->inode->name ? d->inode->name : "?");
		published_fini(fs, out);
	}
	pthread_mutex_lock(&fs->lock);
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	return rc;
}

int publish_resized(struct fs *fs, struct inode *i, uint64_t size, uint64_t caller,
		    struct space_wait *w, struct published *out)
{
	struct caller_id nobody = { .tid = -1, .tgid = -1 };
	struct draft *d = NULL;

	*out = (struct published){ 0 };
	pthread_mutex_lock(&fs->lock);
	uint64_t dir_ino = i->parent;
	char *name = xstrdup(i->name);
	pthread_mutex_unlock(&fs->lock);
	/* A draft of nobody: the same copy, resize and publish as any other change. */
	int rc = ns_open_for_write(fs, dir_ino, name, true, false, &nobody, &d);
	free(name);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = draft_resize(fs, d, size, w);
	if (!rc) {
		pthread_mutex_lock(&fs->lock);
		d->inode->e.mtime_ns = now_real_ns();
		pthread_mutex_unlock(&fs->lock);
		rc = publish_draft(fs, d, caller, w, out);
	}
	draft_put(fs, d);
	return rc;
}
