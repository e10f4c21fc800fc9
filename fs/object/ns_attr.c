/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of an inode to the catalog: chmod, chown, utimens and the settable xattrs make no version. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "object/namespace.h"
#include "object/object.h"

/* What of the inode must be written, and which version or file it must still be. */
static uint64_t copy_attr(struct fs *fs, struct inode *i, uint64_t *dir_out, char *name,
			  struct entry *e)
{
	uint64_t key = i->key;

	guard_lock(&fs->lock);
	if (i->kind == INODE_DRAFT)
		key = i->draft ? draft_shown_id(i->draft) : i->dropped_id; /* dirty: stored when it publishes */
	if (!key || !i->name || i->state == INODE_GONE ||
	    (i->kind == INODE_OBJECT && i->state != INODE_LIVE))
		return 0;
	*dir_out = i->parent;
	strcpy(name, i->name);
	*e = i->e;
	/* Stat of the published object must agree with its draft's. */
	struct inode *object_inode = i->kind == INODE_DRAFT ? inode_find(fs, key) : NULL;
	if (object_inode) {
		object_inode->e.mode = e->mode;
		object_inode->e.uid = e->uid;
		object_inode->e.gid = e->gid;
		object_inode->e.atime_ns = e->atime_ns;
		object_inode->e.mtime_ns = e->mtime_ns;
		object_inode->e.ctime_ns = e->ctime_ns;
		object_inode->e.policy = e->policy;
	}
	return key;
}

/* The record keeps copies of what a start needs. */
static void put_policy_copy(struct fs *fs, struct catalog_batch *b, const struct entry *e)
{
	struct object_record r;

	if (catalog_object_get(fs->catalog, e->object_id, &r))
		return;
	if (r.class != e->policy.class || r.pin != e->policy.pin || r.ttl_s != e->policy.ttl_s) {
		r.class = e->policy.class;
		r.pin = e->policy.pin;
		r.ttl_s = e->policy.ttl_s;
		catalog_batch_put_object(b, &r);
	}
	object_record_fini(&r);
}

static void note_owner(struct fs *fs, const struct entry *e)
{
	guard_lock(&fs->lock);
	struct object *o = e->object_id ? object_find_locked(fs, e->object_id) : NULL;

	if (o)
		object_set_owner_locked(o, e);
}

static int store_root(struct fs *fs, struct inode *root)
{
	pthread_mutex_lock(&fs->lock);
	struct entry e = root->e;
	pthread_mutex_unlock(&fs->lock);
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	catalog_batch_put_entry(b, ROOT_PARENT, ROOT_NAME, &e);
	return catalog_batch_commit(b, false);
}

/* Under the stripe of the name: the entry gets the attributes, if it is still the same file. */
static int store_entry(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t key,
		       struct entry *e)
{
	struct entry old;
	int rc = catalog_lookup(fs->catalog, dir_ino, name, &old);

	if (rc)
		return rc;
	if ((old.object_id ? old.object_id : old.ino) == key) {
		e->object_id = old.object_id;
		e->size = old.size;
		e->ino = old.ino;
		e->target = old.target;
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_entry(b, dir_ino, name, e);
		if (e->object_id)
			put_policy_copy(fs, b, e);
		rc = catalog_batch_commit(b, false);
		if (rc)
			counter_inc(catalog_errors);
		else
			note_owner(fs, e);
		if (!rc && !S_ISDIR(e->mode))
			cluster_published(fs, dir_ino, name, e, true);
	}
	entry_fini(&old);
	return rc;
}

int ns_store_attr(struct fs *fs, struct inode *i)
{
	char name[CATALOG_NAME_MAX + 1], now_name[CATALOG_NAME_MAX + 1];
	uint64_t dir_ino, now_dir, key;
	struct entry e;
	int rc = -EAGAIN;

	if (i->key == CATALOG_ROOT_INO)
		return store_root(fs, i);
	while (rc == -EAGAIN) {
		if (!copy_attr(fs, i, &dir_ino, name, &e))
			return 0; /* unlinked or replaced: only its open handles see it */
		pthread_mutex_t *stripe = ns_lock_name(fs, dir_ino, name);
		/* The newest, now that others wait, and under the name it has now. */
		key = copy_attr(fs, i, &now_dir, now_name, &e);
		if (!key)
			rc = 0;
		else if (now_dir == dir_ino && !strcmp(now_name, name))
			rc = store_entry(fs, dir_ino, name, key, &e);
		pthread_mutex_unlock(stripe);
	}
	return rc == -ENOENT ? 0 : rc;
}
