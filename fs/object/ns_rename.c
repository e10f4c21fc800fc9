/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename of files, symlinks, directories and drafts.
 *
 * An open draft takes its name along and publishes at close; an older object of the target stays
 * visible till then. A draft that is dirty but closed (stores through a mapping that was just undone)
 * publishes first. What a private draft would have replaced under the old name goes with that name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/durable.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/space.h"
#include "object/version.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#endif

struct renaming {
	struct inode *dir, *dir2;
	const char *name, *name2;
	const struct caller_id *who;
	struct entry from, to;      /* published entries; mode 0: none */
	struct draft *draft;        /* the caller's active draft under the old name, one ref */
	int move_error;             /* in a cluster: if it is a directory, 0 or why it has to stay */
	uint64_t removed_version;   /* in a cluster: of the old name's end */
	bool moves_entry;           /* else the published entry under the old name goes */
	struct draft_list touched;  /* drafts that lost or changed their name */
};

static void lock_two(struct fs *fs, const struct renaming *r, pthread_mutex_t *m[2])
{
	unsigned int a = ns_stripe_of(r->dir->key, r->name), b = ns_stripe_of(r->dir2->key, r->name2);

	m[0] = &fs->name_stripes[a < b ? a : b];
	m[1] = a == b ? NULL : &fs->name_stripes[a < b ? b : a];
	pthread_mutex_lock(m[0]);
	if (m[1])
		pthread_mutex_lock(m[1]);
}

static void unlock_two(pthread_mutex_t *m[2])
{
	if (m[1])
		pthread_mutex_unlock(m[1]);
	pthread_mutex_unlock(m[0]);
}

/* A closed draft whose mapped stores are still unpublished: munmap has sent them, so it is complete. */
static int publish_closed_draft(struct fs *fs, const struct renaming *r)
{
	struct published p;
	struct space_wait w = { 0 };
	bool has_draft;

	pthread_mutex_lock(&fs->lock);
	struct draft *d = draft_find_locked(fs, r->dir->key, r->name, r->who, &has_draft);
	if (!d || !draft_is_dirty(d) || !draft_is_flushed_locked(d)) {
		pthread_mutex_unlock(&fs->lock);
		return 0;
	}
	draft_get_locked(d);
	pthread_mutex_unlock(&fs->lock);
	int rc = publish_draft(fs, d, (uint64_t)r->who->tid, &w, &p);
	if (!rc && p.has_replaced)
		notifier_inval(fs, p.dir, p.name, NULL, NULL);
	published_fini(fs, &p);
	draft_put(fs, d);
	return rc;
}

static int read_entry(struct fs *fs, struct inode *dir, const char *name, struct entry *e)
{
	int rc = catalog_lookup(fs->catalog, dir->key, name, e);

	if (rc == -ENOENT) {
		*e = (struct entry){ 0 };
		return 0;
	}
	return rc;
}

/* Under both stripes. */
static int check(struct fs *fs, struct renaming *r, unsigned int flags)
{
	bool has_draft;
	int rc = read_entry(fs, r->dir, r->name, &r->from);

	if (!rc)
		rc = read_entry(fs, r->dir2, r->name2, &r->to);
	if (rc)
		return rc;
	pthread_mutex_lock(&fs->lock);
	r->draft = draft_find_locked(fs, r->dir->key, r->name, r->who, &has_draft);
	if (r->draft)
		draft_get_locked(r->draft);
	bool target_draft = draft_find_locked(fs, r->dir2->key, r->name2, r->who, &has_draft);
	bool is_dead = r->dir2->is_dead;
	bool will_publish = r->draft &&
			    (draft_is_dirty(r->draft) || !draft_is_flushed_locked(r->draft));
	pthread_mutex_unlock(&fs->lock);

	if (is_dead || (!will_publish && !r->from.mode))
		return -ENOENT;
	if ((flags & RENAME_NOREPLACE) && (r->to.mode || target_draft))
		return -EEXIST;
	/* A private draft that will publish yet stands for the name, unless it is what is published. */
	bool is_published = r->from.object_id && r->draft &&
			    r->draft->published_id == r->from.object_id;
	bool stands = r->draft && r->draft->is_private && !is_published && will_publish;
	r->moves_entry = r->from.mode && !stands;
	if (!r->moves_entry && S_ISDIR(r->from.mode)) {
		entry_fini(&r->from);
		r->from = (struct entry){ 0 }; /* another process's directory stays where it is */
	}
	bool from_is_dir = S_ISDIR(r->from.mode);
	if (from_is_dir && r->move_error)
		return r->move_error; /* every name below it would change on every node: mv copies instead */
	if (S_ISDIR(r->to.mode)) {
		if (!from_is_dir)
			return -EISDIR;
		return ns_remove_empty_dir(fs, &r->to);
	}
	return from_is_dir && r->to.mode ? -ENOTDIR : 0;
}

static bool has_ssd_copy(struct fs *fs, uint64_t object_id)
{
	guard_lock(&fs->lock);
	const struct object *o = object_id ? object_find_locked(fs, object_id) : NULL;
	return o && o->ssd_frame;
}

/*
 * A durable file takes the place of a durable file. The frame of the old one goes soon: if the log were
 * behind it when the power fails, the name would have neither.
 */
static bool must_sync(struct fs *fs, const struct renaming *r)
{
	return r->moves_entry && has_ssd_copy(fs, r->to.object_id) && has_ssd_copy(fs, r->from.object_id);
}

static int commit_catalog(struct fs *fs, struct renaming *r)
{
	struct object_record rec;

	if (!r->from.mode)
		return 0; /* a draft alone: nothing published moves */
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	catalog_batch_del_entry(b, r->dir->key, r->name);
	r->removed_version = cluster_tombstone(fs, b, r->dir->key, r->name);
	if (r->moves_entry) {
		/* Ahead of whatever another node has given the new name, also where this clock is behind. */
		uint64_t version = fs->cluster ? version_next(fs->clock) : 0;
		r->from.ctime_ns = version ? version_time_ns(version) : now_real_ns();
		catalog_batch_put_entry(b, r->dir2->key, r->name2, &r->from);
		if (r->to.object_id)
			catalog_batch_del_object(b, r->to.object_id);
		if (r->from.object_id &&
		    catalog_object_get(fs->catalog, r->from.object_id, &rec) == 0) {
			rec.parent = r->dir2->key;
			rec.name_len = (uint8_t)strlen(r->name2);
			strcpy(rec.name, r->name2);
			catalog_batch_put_object(b, &rec);
			object_record_fini(&rec);
		}
	} else if (r->from.object_id) {
		catalog_batch_del_object(b, r->from.object_id);
	}
	int rc = catalog_batch_commit(b, must_sync(fs, r));
	if (rc)
		counter_inc(catalog_errors);
	return rc;
}

/* Retires the object of an entry that lost its name; returns it when it must be freed. */
static struct object *retire(struct fs *fs, const struct entry *e, bool grace)
{
	struct object *o = e->object_id ? object_find_locked(fs, e->object_id) : NULL;
	bool must_free = o && o->state == OBJECT_LIVE && object_retire_locked(fs, o, grace);

	if (!e->object_id && e->mode) {
		struct inode *i = inode_find(fs, e->ino);
		if (i)
			i->state = INODE_GONE;
	}
	return must_free ? o : NULL;
}

static void unlink_draft_locked(struct fs *fs, struct renaming *r, struct draft *d)
{
	draft_list_add_locked(&r->touched, d);
	draft_unlink_locked(fs, d);
}

static void move_draft_locked(struct fs *fs, struct renaming *r, struct draft *d)
{
	draft_list_add_locked(&r->touched, d);
	draft_rename_locked(fs, d, r->dir2, r->name2);
}

static void move_drafts_locked(struct fs *fs, struct renaming *r)
{
	struct draft *d;
	bool has_draft;

	/* Drafts of the caller under the new name are what the rename replaces. */
	while ((d = draft_find_locked(fs, r->dir2->key, r->name2, r->who, &has_draft)))
		unlink_draft_locked(fs, r, d);
	if (r->draft && !r->draft->is_dropped && r->draft->dir)
		move_draft_locked(fs, r, r->draft);
	while (r->moves_entry &&
	       (d = draft_find_shared_locked(fs, r->dir->key, r->name, r->from.object_id)))
		move_draft_locked(fs, r, d);
}

static void commit_memory(struct fs *fs, struct renaming *r)
{
	struct object *to_free[2] = { NULL, NULL };

	pthread_mutex_lock(&fs->lock);
	move_drafts_locked(fs, r);
	if (r->moves_entry) {
		struct inode *i = inode_find(fs, r->from.object_id ? r->from.object_id : r->from.ino);
		if (i) {
			inode_set_name_locked(i, r->dir2->key, r->name2);
			i->e.ctime_ns = r->from.ctime_ns;
		}
		struct object *o = r->from.object_id ? object_find_locked(fs, r->from.object_id) : NULL;
		if (o && o->state == OBJECT_LIVE)
			name_index_put_locked(fs, o, name_key_of(fs, r->dir2->key, r->name2,
								 strlen(r->name2)));
		to_free[0] = retire(fs, &r->to, true);
	} else if (r->from.mode) {
		to_free[1] = retire(fs, &r->from, true);
	}
	inode_dir_changed_locked(fs, r->dir->key);
	inode_dir_changed_locked(fs, r->dir2->key);
	pthread_mutex_unlock(&fs->lock);
	for (int k = 0; k < 2; k++)
		if (to_free[k])
			object_free_unlocked(fs, to_free[k]);
}

/* Others are asked before the stripes are taken. */
static int move_error(struct fs *fs, struct inode *dir, const char *name)
{
	struct entry e;

	if (!fs->cluster || catalog_lookup(fs->catalog, dir->key, name, &e))
		return 0;
	bool is_dir = S_ISDIR(e.mode);
	entry_fini(&e);
	return is_dir ? cluster_may_move_dir(fs, dir->key, name) : 0;
}

int ns_rename(struct fs *fs, struct inode *dir, const char *name, struct inode *dir2,
	      const char *name2, unsigned int flags, const struct caller_id *who)
{
	struct renaming r = { .dir = dir, .dir2 = dir2, .name = name, .name2 = name2, .who = who };
	pthread_mutex_t *stripes[2];

	if (flags & ~(unsigned int)RENAME_NOREPLACE)
		return -EINVAL;
	if (dir == dir2 && !strcmp(name, name2))
		return 0;
	int rc = publish_closed_draft(fs, &r);
	if (rc)
		return rc;
	r.move_error = move_error(fs, dir, name);
	lock_two(fs, &r, stripes);
	rc = check(fs, &r, flags);
	if (!rc) {
		rc = commit_catalog(fs, &r);
		if (rc)
			ns_revive_dir(fs, &r.to);
	}
	if (!rc) {
		commit_memory(fs, &r);
		if (r.moves_entry && S_ISDIR(r.from.mode))
			cluster_dir_moved(fs, r.from.ino, dir2->key, name2);
		if (r.from.mode)
			cluster_removed(fs, dir->key, name, r.removed_version);
		if (r.moves_entry)
			cluster_published(fs, dir2->key, name2, &r.from, true);
	}
	unlock_two(stripes);
	durable_follow_names(fs, &r.touched);
	if (r.draft) {
		draft_put(fs, r.draft);
	}
	entry_fini(&r.from);
	entry_fini(&r.to);
	return rc;
}
