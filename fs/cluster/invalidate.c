/* SPDX-License-Identifier: Apache-2.0 */
/*
 * invalidate: a name that this node holds has changed on another one. Our older version goes: from the catalog, then
 * from memory, where an open of its nodeid answers ESTALE from then on, so that the kernel walks the path anew. The
 * kernel is told behind the acknowledgement, by the notifier.
 *
 * Who does not reach us says so in a letter, through the directory.
 *
 * A change that arrives twice, or late, finds nothing older and is acknowledged.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/letter.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "inode_table.h"
#include "mcfs/catalog.h"
#include "notifier.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/version.h"

static int delete_entry(struct fs *fs, uint64_t dir_ino, const char *name, const struct entry *e)
{
	struct catalog_batch *b = catalog_batch_create(fs->catalog);

	catalog_batch_del_entry(b, dir_ino, name);
	if (e->object_id)
		catalog_batch_del_object(b, e->object_id);
	int rc = catalog_batch_commit(b, false);
	if (rc)
		counter_inc(catalog_errors);
	return rc;
}

/* Under the stripe. */
static void forget_version(struct fs *fs, uint64_t dir_ino, const struct entry *e)
{
	bool must_free = false;

	pthread_mutex_lock(&fs->lock);
	struct object *o = e->object_id ? object_find_locked(fs, e->object_id) : NULL;
	struct inode *i = inode_find(fs, e->object_id ? e->object_id : e->ino);
	bool is_promised = i && i->promised_ns > now_mono_ns();
	if (o && o->state != OBJECT_DROPPED)
		must_free = object_retire_locked(fs, o, is_promised);
	if (i && i->state != INODE_REPLACED) {
		i->state = INODE_GONE;
		i->replaced_ns = now_mono_ns();
	}
	inode_dir_changed_locked(fs, dir_ino);
	pthread_mutex_unlock(&fs->lock);
	if (must_free)
		object_free_unlocked(fs, o);
}

static void tell_kernel(struct fs *fs, uint64_t dir_ino, const char *name)
{
	pthread_mutex_lock(&fs->lock);
	struct inode *dir = inode_find(fs, dir_ino);
	if (dir)
		inode_get_locked(dir);
	pthread_mutex_unlock(&fs->lock);
	if (!dir)
		return; /* the kernel does not know it either */
	notifier_inval(fs, dir, name, NULL, NULL);
	pthread_mutex_lock(&fs->lock);
	inode_put_locked(fs, dir);
	pthread_mutex_unlock(&fs->lock);
}

/* A directory goes when it is empty; else something was made in it meanwhile, and it stays. */
static int remove_dir(struct fs *fs, uint64_t dir_ino, const char *name, const struct entry *e)
{
	int rc = ns_remove_empty_dir(fs, e);

	if (!rc) {
		rc = delete_entry(fs, dir_ino, name, e);
		if (rc)
			ns_revive_dir(fs, e);
		else
			dir_paths_remove(fs->cluster->paths, e->ino);
	}
	return rc;
}

/* Under the stripe: what the catalog shows, if that is older. */
static bool forget_older(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t version)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, dir_ino, name, &e);

	if (rc)
		return false;
	if (name_version(&e) >= version)
		rc = -EEXIST;
	else if (S_ISDIR(e.mode))
		rc = remove_dir(fs, dir_ino, name, &e);
	else
		rc = delete_entry(fs, dir_ino, name, &e);
	if (!rc)
		forget_version(fs, dir_ino, &e);
	entry_fini(&e);
	return !rc;
}

bool invalidate_name(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t version)
{
	pthread_mutex_t *stripe = ns_lock_name(fs, dir_ino, name);

	fetch_cancel_older(fs->cluster->fetcher, dir_ino, name, version);
	bool is_gone = forget_older(fs, dir_ino, name, version);
	pthread_mutex_unlock(stripe);
	if (is_gone)
		tell_kernel(fs, dir_ino, name);
	return is_gone;
}

/* Under the stripe: the same object, with other attributes by now. */
static int take_attributes(struct fs *fs, uint64_t dir_ino, const char *name, const struct directory_value *v)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, dir_ino, name, &e);

	if (rc)
		return rc;
	if (e.object_id == v->object && name_version(&e) < v->version) {
		e.mode = (e.mode & S_IFMT) | (v->mode & 07777);
		e.uid = v->uid;
		e.gid = v->gid;
		e.mtime_ns = v->mtime_ns;
		e.ctime_ns = version_time_ns(v->version);
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_entry(b, dir_ino, name, &e);
		rc = catalog_batch_commit(b, false);
		guard_lock(&fs->lock);
		struct inode *i = inode_find(fs, e.object_id);
		struct object *o = object_find_locked(fs, e.object_id);
		if (!rc && o)
			object_set_owner_locked(o, &e);
		if (!rc && i) {
			i->e.mode = e.mode;
			i->e.uid = e.uid;
			i->e.gid = e.gid;
			i->e.mtime_ns = e.mtime_ns;
			i->e.ctime_ns = e.ctime_ns;
		}
	}
	entry_fini(&e);
	return rc;
}

/* False: the name shows another object now, or nobody can say. */
static bool has_other_attributes(struct cluster *c, const struct peer_invalidation *v, uint64_t dir_ino,
				 int64_t deadline_ns)
{
	struct directory_value now;
	struct entry e;

	if (v->is_removed || catalog_lookup(c->fs->catalog, dir_ino, v->name, &e))
		return false;
	uint64_t object = e.object_id;
	entry_fini(&e);
	if (!object ||
	    directory_lookup(c->directory, &(struct directory_name){ v->dir, v->name }, 1, &now, deadline_ns))
		return false;
	bool is_same = now.kind == DIRECTORY_FILE && now.object == object;
	if (is_same) {
		pthread_mutex_t *stripe = ns_lock_name(c->fs, dir_ino, v->name);
		is_same = !take_attributes(c->fs, dir_ino, v->name, &now);
		pthread_mutex_unlock(stripe);
		tell_kernel(c->fs, dir_ino, v->name);
	}
	directory_value_fini(&now);
	return is_same;
}

int invalidate_names(void *arg, const struct peer_id *from, const struct peer_invalidation *v, size_t n,
		     int64_t deadline_ns)
{
	struct cluster *c = arg;
	uint64_t dir_ino;

	(void)from;
	counter_add(invalidations, n);
	for (size_t k = 0; k < n; k++)
		if (!dir_paths_find(c->fs->catalog, v[k].dir, &dir_ino) &&
		    !has_other_attributes(c, &v[k], dir_ino, deadline_ns))
			invalidate_name(c->fs, dir_ino, v[k].name, v[k].version);
	return 0;
}

void invalidate_letter(void *arg, const void *bytes, size_t len)
{
	struct cluster *c = arg;
	autofree struct peer_invalidation *v = xcalloc(PEER_INVALIDATE_MAX, sizeof(*v));
	size_t n;
	int rc = letter_decode(bytes, len, v, &n);

	guard_lock(&c->letter_lock);
	if (!c->takes_letters)
		return; /* this node ends: what it has is compared with the directory when it comes back */
	if (rc)
		log_error("a letter of %zu bytes: %s", len, strerror(-rc));
	else
		invalidate_names(c, NULL, v, n, INT64_MAX);
}
