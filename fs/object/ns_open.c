/* SPDX-License-Identifier: Apache-2.0 */
/* From a name to the draft that is written: opens of published names for writing, and CREATE. */
#include <errno.h>
#include <sys/stat.h>

#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/version.h"

/* Under the stripe. base: the published object to diverge from, when it can be opened. */
static struct draft *new_draft_locked(struct fs *fs, struct inode *dir, const char *name,
				      struct entry *e, uint64_t id, const struct caller_id *who,
				      struct object *base)
{
	struct draft *d = draft_create_locked(fs, dir, name, e, id, who, base);

	draft_join_locked(d, who)->has_opened = true;
	d->last_writer_tid = who->tid;
	return d;
}

/* Of what is published; NULL: that cannot be opened any more. */
static struct draft *copy_draft_locked(struct fs *fs, struct inode *dir, const char *name, struct entry *e, uint64_t id,
				       const struct caller_id *who)
{
	struct object *base = object_find_locked(fs, e->object_id);

	if (!base || base->state != OBJECT_LIVE || base->is_evicting)
		return NULL;
	object_touch_locked(fs, base, (uint64_t)who->tid);
	return new_draft_locked(fs, dir, name, e, id, who, base);
}

/* A file that other nodes have is emptied: nothing of it is needed but its attributes. */
static bool is_emptied_remote(struct fs *fs, uint64_t dir_ino, const char *name, bool is_private, struct entry *e_out)
{
	if (!fs->cluster || !is_private || catalog_exists(fs->catalog, dir_ino, name) != -ENOENT ||
	    remote_entry(fs, dir_ino, name, e_out))
		return false;
	if (S_ISREG(e_out->mode))
		return true;
	entry_fini(e_out);
	return false;
}

static struct draft *empty_draft_locked(struct fs *fs, struct inode *dir, const char *name, const struct entry *remote,
					uint64_t id, const struct caller_id *who)
{
	struct ns_new n = { .mode = remote->mode, .uid = remote->uid, .gid = remote->gid };
	struct entry e;

	ns_init_entry_locked(dir, name, &n, &e);
	e.gid = remote->gid;
	struct draft *d = new_draft_locked(fs, dir, name, &e, id, who, NULL);
	d->is_private = d->is_of_remote = true;
	return d;
}

int ns_open_for_write(struct fs *fs, uint64_t dir_ino, const char *name, bool is_private,
		      bool pin_for_retry, const struct caller_id *who, struct draft **out)
{
	struct entry e = { 0 }, remote = { 0 };
	bool has_draft;
	bool is_remote = is_emptied_remote(fs, dir_ino, name, is_private, &remote);
	uint64_t id = version_next(fs->clock);
	int rc = 0;

	if (!id)
		return -EIO;
	pthread_mutex_t *stripe = ns_lock_name(fs, dir_ino, name);
	pthread_mutex_lock(&fs->lock);
	struct inode *dir = inode_find(fs, dir_ino);
	struct draft *d = draft_find_locked(fs, dir_ino, name, who, &has_draft);
	if (d)
		draft_get_locked(d);
	pthread_mutex_unlock(&fs->lock);
	if (!d) {
		rc = dir ? catalog_lookup(fs->catalog, dir_ino, name, &e) : -ENOENT;
		if (!rc && !S_ISREG(e.mode))
			rc = S_ISDIR(e.mode) ? -EISDIR : -ESTALE; /* a symlink: walk again */
	}
	pthread_mutex_lock(&fs->lock);
	if (rc == -ENOENT && is_remote && dir && !dir->is_dead) {
		d = empty_draft_locked(fs, dir, name, &remote, id, who);
		rc = 0;
	}
	if (!rc && !d && !is_private) {
		d = draft_find_joinable_locked(fs, dir_ino, name, e.object_id);
		if (d)
			draft_get_locked(d);
	}
	if (!rc && !d) {
		d = copy_draft_locked(fs, dir, name, &e, id, who);
		if (d)
			d->is_private = is_private;
		else
			rc = -ENOENT;
	}
	if (d) {
		draft_join_locked(d, who)->has_opened = true;
		if (pin_for_retry)
			draft_pin_redirect_locked(d, who);
	}
	pthread_mutex_unlock(&fs->lock);
	pthread_mutex_unlock(stripe);
	entry_fini(&e);
	if (!rc)
		*out = d;
	return rc;
}

static int create_new(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
		      bool is_excl, const struct caller_id *who, struct draft **out)
{
	struct entry e;
	uint64_t id = version_next(fs->clock);
	bool has_draft;

	if (!id)
		return -EIO;
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = ns_exists(fs, dir->key, name);
	rc = rc == -ENOENT ? 0 : rc ? rc : -EEXIST;
	pthread_mutex_lock(&fs->lock);
	if (!rc && dir->is_dead)
		rc = -ENOENT;
	if (!rc && (draft_find_locked(fs, dir->key, name, who, &has_draft) ||
		    (is_excl && draft_excl_exists_locked(fs, dir->key, name, who))))
		rc = -EEXIST;
	if (!rc) {
		ns_init_entry_locked(dir, name, n, &e);
		struct draft *d = new_draft_locked(fs, dir, name, &e, id, who, NULL);
		d->is_private = true;
		d->is_excl = is_excl;
		d->is_opening = true;
		d->never_published = true;
		*out = d;
	}
	pthread_mutex_unlock(&fs->lock);
	pthread_mutex_unlock(stripe);
	return rc;
}

int ns_create(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
	      bool is_excl, bool is_trunc, const struct caller_id *who, struct draft **out)
{
	for (;;) {
		int rc = create_new(fs, dir, name, n, is_excl, who, out);
		if (rc != -EEXIST || is_excl)
			return rc;
		/* It was published since the kernel looked: an open of what is there now. */
		rc = ns_open_for_write(fs, dir->key, name, is_trunc, false, who, out);
		if (rc != -ENOENT)
			return rc;
	}
}
