/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/fetch.h"
#include "cluster/paths.h"
#include "fs.h"
#include "inode_table.h"
#include "object/namespace.h"
#include "object/object.h"

#define ANNOUNCE_NS (2ll * 1000 * 1000 * 1000)

static void make_record(struct fetch *f, struct object_record *r)
{
	*r = (struct object_record){ .object_id = f->id, .size = f->e.size, .parent = f->dir->key,
				     .ino = f->e.ino, .name_len = (uint8_t)strlen(f->name) };
	strcpy(r->name, f->name);
	if (f->crc) {
		r->crc = xcalloc(f->n_crc, sizeof(*f->crc));
		memcpy(r->crc, f->crc, f->n_crc * sizeof(*f->crc));
		r->n_crc = f->n_crc;
	}
}

/* fs->lock held. Returns what must be freed. */
static struct object *commit_memory_locked(struct fs *fs, struct fetch *f, const struct object_record *r,
					   uint64_t old_id)
{
	struct object *old = old_id ? object_find_locked(fs, old_id) : NULL;
	struct object *o = object_add_locked(fs, r, 0);
	struct inode *i = inode_find(fs, f->id);
	bool must_free = false;

	object_set_owner_locked(o, &f->e);
	/* Files open on the nodeid read by direct_io, with which the kernel mixes nothing else. */
	for (uint32_t k = 0; k < f->n_handles; k++) {
		object_open_locked(o);
		object_direct_locked(o);
	}
	for (uint32_t k = 0; k < f->n_served; k++)
		object_open_locked(o);
	f->object = f->n_handles || f->n_served ? o : NULL;
	f->is_committed = true;
	if (i && i->kind == INODE_OBJECT && !i->object && i->is_remote) {
		object_attach_inode_locked(fs, i);
		i->is_remote = false;
	}
	if (old && old->state == OBJECT_LIVE)
		must_free = object_retire_locked(fs, old, true);
	inode_dir_changed_locked(fs, f->dir->key);
	pthread_cond_broadcast(&fs->changed);
	return must_free ? old : NULL;
}

bool fetch_is_cancelled(struct fetch *f)
{
	guard_lock(&f->c->fetcher->lock);
	return f->is_cancelled;
}

/* Under the stripe. *old_id_out: the version that the name showed here. */
static int may_commit(struct fs *fs, struct fetch *f, uint64_t *old_id_out)
{
	struct entry old;
	int rc = fetch_is_cancelled(f) ? -ESTALE : catalog_lookup(fs->catalog, f->dir->key, f->name, &old);

	*old_id_out = 0;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	*old_id_out = old.object_id;
	if (old.object_id == f->id)
		rc = -EALREADY; /* another fetch was faster */
	else
		rc = !old.object_id || name_version(&old) >= name_version(&f->e) ? -EEXIST : 0;
	entry_fini(&old);
	return rc;
}

/* The stripe is held from the look at the name to the change of memory. */
static int commit_locked(struct fs *fs, struct fetch *f, struct object_record *r)
{
	uint64_t old_id;
	int rc = may_commit(fs, f, &old_id);

	if (rc)
		return rc;
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	catalog_batch_put_entry(b, f->dir->key, f->name, &f->e);
	catalog_batch_put_object(b, r);
	if (old_id)
		catalog_batch_del_object(b, old_id);
	rc = catalog_batch_commit(b, false);
	if (rc) {
		counter_inc(catalog_errors);
		return rc;
	}
	pthread_mutex_lock(&fs->lock);
	struct object *to_free = commit_memory_locked(fs, f, r, old_id);
	pthread_mutex_unlock(&fs->lock);
	if (to_free)
		object_free_unlocked(fs, to_free);
	if (dir_path_is_kv(f->path))
		cluster_published(fs, f->dir->key, f->name, &f->e, false);
	return 0;
}

static int commit(struct fetch *f)
{
	struct fs *fs = f->c->fs;
	struct object_record r;
	int rc = 0;

	make_record(f, &r);
	r.dram_frame = f->frame.id;
	if (f->frame.id)
		rc = tier_call(fs->dram, seal, &f->frame, &r.charged_bytes);
	if (!rc) {
		f->sealed.id = r.dram_frame;
		f->sealed.charged_bytes = r.charged_bytes;
		pthread_mutex_t *stripe = ns_lock_name(fs, f->dir->key, f->name);
		rc = commit_locked(fs, f, &r);
		pthread_mutex_unlock(stripe);
		if (!rc)
			f->sealed.id = 0;
		rc = rc == -EALREADY ? 0 : rc; /* who reads from it meanwhile goes on there */
	}
	object_record_fini(&r);
	return rc;
}

void fetch_complete(struct fetch *f)
{
	struct cluster *c = f->c;
	uint64_t n_resyncs = changes_resyncs(c);
	int rc = 0;

	/* Names below kv/ do not change: their copies are announced behind. */
	if (!dir_path_is_kv(f->path)) {
		pthread_mutex_lock(&c->fetcher->lock);
		f->is_announced = true;
		pthread_mutex_unlock(&c->fetcher->lock);
		rc = announce_copy(c, f->dir->key, f->path, f->name, &f->e, now_mono_ns() + ANNOUNCE_NS,
				   NULL);
	}
	if (rc == -ESTALE) {
		fetch_end(f, rc);
		return;
	}
	/* Without a directory nobody hears of us; the resync that follows finds out what is newer. */
	rc = commit(f);
	if (!rc && changes_resyncs(c) != n_resyncs)
		announce_entry(c, f->dir->key, f->path, f->name, &f->e); /* it may have passed the name before */
	fetch_end(f, rc == -EEXIST ? -ESTALE : rc);
}
