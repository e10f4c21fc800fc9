/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking names up, making and removing them. Write opens and CREATE are in ns_open.c, renames in
 * ns_rename.c, attributes in ns_attr.c.
 */
#include "object/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "fs.h"
#include "inode_table.h"
#include "object/caller.h"
#include "object/durable.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/space.h"
#include "object/version.h"

/* A name that comes and goes faster than it can be opened is answered as it is after so many. */
#define MAX_TRIES 64

unsigned int ns_stripe_of(uint64_t dir_ino, const char *name)
{
	return XXH3_64bits_withSeed(name, strlen(name), dir_ino) % NAME_STRIPES;
}

pthread_mutex_t *ns_stripe(struct fs *fs, uint64_t dir_ino, const char *name)
{
	return &fs->name_stripes[ns_stripe_of(dir_ino, name)];
}

pthread_mutex_t *ns_lock_name(struct fs *fs, uint64_t dir_ino, const char *name)
{
	pthread_mutex_t *m = ns_stripe(fs, dir_ino, name);

	pthread_mutex_lock(m);
	return m;
}

int ns_lock_object(struct fs *fs, uint64_t object_id, struct object_record *r,
		   pthread_mutex_t **stripe_out)
{
	struct object_record before;

	for (;;) {
		int rc = catalog_object_get(fs->catalog, object_id, &before);
		if (rc)
			return rc;
		pthread_mutex_t *stripe = ns_lock_name(fs, before.parent, before.name);
		rc = catalog_object_get(fs->catalog, object_id, r);
		bool is_there = !rc && r->parent == before.parent && !strcmp(r->name, before.name);
		object_record_fini(&before);
		if (is_there) {
			*stripe_out = stripe;
			return 0;
		}
		pthread_mutex_unlock(stripe);
		if (rc)
			return rc;
		object_record_fini(r); /* renamed meanwhile */
	}
}

struct caller_id ns_caller_always(pid_t tid, uid_t uid)
{
	if (!tid)
		counter_inc(pid0_calls);
	return (struct caller_id){ .tid = tid, .tgid = caller_tgid(tid), .uid = uid };
}

struct caller_id ns_caller(struct fs *fs, pid_t tid, uid_t uid, uint64_t dir_ino, const char *name,
			   uint64_t dir2_ino, const char *name2)
{
	pthread_mutex_lock(&fs->lock);
	bool is_busy = draft_name_is_busy_locked(fs, dir_ino, name) ||
		       (name2 && draft_name_is_busy_locked(fs, dir2_ino, name2));
	pthread_mutex_unlock(&fs->lock);
	if (is_busy)
		return ns_caller_always(tid, uid);
	return (struct caller_id){ .tid = tid, .tgid = tid, .uid = uid };
}

int ns_exists(struct fs *fs, uint64_t dir_ino, const char *name)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, dir_ino, name, &e);

	if (rc)
		return rc;
	if (e.object_id) {
		guard_lock(&fs->lock);
		rc = object_find_locked(fs, e.object_id) ? 0 : -ENOENT;
	}
	entry_fini(&e);
	return rc;
}

/* ---- lookup ---- */

static bool has_expired(const struct entry *e)
{
	return e->policy.ttl_s && S_ISREG(e->mode) &&
	       version_age_s(e->object_id) > e->policy.ttl_s;
}

/* The caller's draft; first waits for others' of that name whose RELEASE is on the way. fs->lock held. */
static struct draft *find_settled_draft(struct fs *fs, struct inode *dir, const char *name,
					const struct caller_id *who, bool *has_draft_out)
{
	struct draft *d;

	while ((d = draft_find_settling_locked(fs, dir->key, name, who))) {
		draft_get_locked(d);
		draft_settle_locked(fs, d);
		draft_put_locked(fs, d);
	}
	return draft_find_locked(fs, dir->key, name, who, has_draft_out);
}

static bool shows_version(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t object_id)
{
	struct entry e;

	if (catalog_lookup(fs->catalog, dir_ino, name, &e))
		return false;
	bool is_same = e.object_id == object_id;
	entry_fini(&e);
	return is_same;
}

/* The caller's draft. One that is published and closed counts only while the name shows its version. */
static bool lookup_draft(struct fs *fs, struct inode *dir, const char *name,
			 const struct caller_id *who, struct inode **inode_out, bool *has_draft_out)
{
	pthread_mutex_lock(&fs->lock);
	struct draft *d = find_settled_draft(fs, dir, name, who, has_draft_out);
	if (d && draft_is_hollow_locked(d))
		d = NULL;
	uint64_t shown_id = d && draft_is_flushed_locked(d) ? draft_shown_id(d) : 0;
	if (d) {
		inode_get_locked(d->inode);
		*inode_out = d->inode;
	}
	pthread_mutex_unlock(&fs->lock);
	if (!d || !shown_id || shows_version(fs, dir->key, name, shown_id))
		return d;
	pthread_mutex_lock(&fs->lock);
	inode_put_locked(fs, *inode_out);
	pthread_mutex_unlock(&fs->lock);
	return false;
}

/* -ESTALE: the version is not (or not yet, or no longer) in the table. */
static int lookup_entry(struct fs *fs, struct inode *dir, const char *name, uint32_t tid,
			struct inode **inode_out, uint64_t *expired_id_out)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, dir->key, name, &e);

	if (rc)
		return rc;
	if (has_expired(&e)) {
		*expired_id_out = e.object_id;
		entry_fini(&e);
		return -ENOENT;
	}
	guard_lock(&fs->lock);
	struct inode *i = inode_get_entry_locked(fs, dir->key, name, &e);
	/* Without an object: another node's, which has just come here. */
	bool is_unsettled = i->state == INODE_GONE || (i->kind == INODE_OBJECT && !i->object);
	if (i->kind == INODE_OBJECT && (is_unsettled || i->object->is_evicting)) {
		/* What is being evicted cannot be opened: its name is as good as gone. */
		rc = is_unsettled ? -ESTALE : -ENOENT;
		inode_put_locked(fs, i);
		return rc;
	}
	inode_looked_up_locked(i, tid);
	if (fs->cluster && remote_is_retrying(fs, (pid_t)tid))
		remote_promise_locked(i);
	*inode_out = i;
	return 0;
}

/* The retry of an OPEN for writing: the file that is there now becomes a draft. False: it is none. */
static bool lookup_for_write(struct fs *fs, struct inode *dir, const char *name,
			     const struct caller_id *who, struct inode **inode_out)
{
	bool is_private;
	struct draft *d;

	pthread_mutex_lock(&fs->lock);
	bool intends = draft_has_intent_locked(fs, who, &is_private);
	pthread_mutex_unlock(&fs->lock);
	if (!intends)
		return false;
	struct caller_id full = ns_caller_always(who->tid, who->uid);
	int rc = ns_open_for_write(fs, dir->key, name, is_private, true, &full, &d);
	/* What other nodes have is brought here, to be copied. */
	if (rc == -ENOENT && fs->cluster && who->wait && !fetch_name(fs, dir->key, name, who->wait))
		rc = ns_open_for_write(fs, dir->key, name, is_private, true, &full, &d);
	if (rc)
		return false; /* a directory of the path, or no such name: as any LOOKUP */
	guard_lock(&fs->lock);
	inode_get_locked(d->inode);
	*inode_out = d->inode;
	draft_put_locked(fs, d);
	return true;
}

/* Under the stripe: catalog and table agree while nobody changes the name. */
static int lookup_settled(struct fs *fs, struct inode *dir, const char *name, uint32_t tid, struct inode **inode_out,
			  uint64_t *expired_id_out)
{
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = lookup_entry(fs, dir, name, tid, inode_out, expired_id_out);

	pthread_mutex_unlock(stripe);
	return rc == -ESTALE ? -ENOENT : rc; /* its bytes are on a disk that is not there */
}

/* It may be made here while others are asked, who say that it is ours, and replaced by others before we look again. */
static int lookup_elsewhere(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
			    struct inode **inode_out, uint64_t *expired_id_out)
{
	int rc = -EAGAIN;

	for (int tries = 0; rc == -EAGAIN && tries < MAX_TRIES; tries++) {
		rc = remote_lookup(fs, dir, name, who, inode_out);
		if (rc != -ENOENT && rc != -EAGAIN)
			break;
		int here_rc = lookup_settled(fs, dir, name, (uint32_t)who->tid, inode_out, expired_id_out);
		rc = here_rc == -ENOENT && !*expired_id_out ? rc : here_rc;
	}
	if (rc != -EAGAIN)
		return rc;
	remote_disown(fs, dir->key, name);
	return -ENOENT;
}

static int lookup_published(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
			    struct inode **inode_out)
{
	uint32_t tid = (uint32_t)who->tid;
	uint64_t expired_id = 0;
	int rc = lookup_entry(fs, dir, name, tid, inode_out, &expired_id);

	if (rc == -ESTALE)
		rc = lookup_settled(fs, dir, name, tid, inode_out, &expired_id);
	if (rc == -ENOENT && !expired_id && fs->cluster)
		rc = lookup_elsewhere(fs, dir, name, who, inode_out, &expired_id);
	if (expired_id) {
		counter_inc(expired);
		space_remove_by_id(fs, expired_id);
	}
	return rc;
}

int ns_lookup(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
	      struct inode **inode_out, bool *has_draft_out)
{
	bool is_private;

	for (int tries = 0;; tries++) {
		*has_draft_out = true;
		if (lookup_for_write(fs, dir, name, who, inode_out) ||
		    lookup_draft(fs, dir, name, who, inode_out, has_draft_out))
			return 0;
		int rc = lookup_published(fs, dir, name, who, inode_out);
		guard_lock(&fs->lock);
		if (rc || (*inode_out)->kind != INODE_OBJECT || tries == MAX_TRIES ||
		    !draft_has_intent_locked(fs, who, &is_private))
			return rc;
		/* It came into being after the look for what can be written: that must have it. */
		inode_put_locked(fs, *inode_out);
	}
}

/* ---- new names ---- */

void ns_init_entry_locked(struct inode *dir, const char *name, const struct ns_new *n,
			  struct entry *e)
{
	*e = (struct entry){ .mode = n->mode, .uid = n->uid, .gid = n->gid };
	e->atime_ns = e->mtime_ns = e->ctime_ns = e->btime_ns = now_real_ns();
	if (dir->e.mode & S_ISGID) {
		e->gid = dir->e.gid;
		if (S_ISDIR(n->mode))
			e->mode |= S_ISGID;
	}
	e->policy = dir->e.policy;
	e->policy.class_is_set = 0;
	/* Weights are kept unless somebody says otherwise. */
	if (dir->key == CATALOG_ROOT_INO && S_ISDIR(n->mode) && !strcmp(name, "weights"))
		e->policy.class = MCFS_CLASS_KEEP;
	if (n->target) {
		e->target = xstrdup(n->target);
		e->size = strlen(n->target);
	}
}

static int put_new_entry(struct fs *fs, struct inode *dir, const char *name, struct entry *e)
{
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	catalog_batch_put_entry(b, dir->key, name, e);
	int rc = catalog_batch_commit(b, false);
	if (rc)
		counter_inc(catalog_errors);
	return rc;
}

/* mknod of a regular file: an empty object. */
static int put_empty_object(struct fs *fs, struct inode *dir, const char *name, struct entry *e)
{
	struct object_record r = { .object_id = version_next(fs->clock) };
	int rc = r.object_id ? 0 : -EIO;

	struct commit c = { .dir_ino = dir->key, .name = name, .entry = e, .record = &r,
			    .must_be_new = true };
	return rc ? rc : publish_commit(fs, &c);
}

static int make_checked(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
			const struct caller_id *who, struct entry *e)
{
	bool has_draft;

	pthread_mutex_lock(&fs->lock);
	int rc = dir->is_dead ? -ENOENT : 0;
	if (!rc && draft_find_locked(fs, dir->key, name, who, &has_draft))
		rc = -EEXIST;
	ns_init_entry_locked(dir, name, n, e);
	pthread_mutex_unlock(&fs->lock);
	if (rc)
		return rc;
	e->ino = version_next(fs->clock);
	if (!e->ino)
		return -EIO;
	if (S_ISREG(n->mode))
		return put_empty_object(fs, dir, name, e);
	rc = catalog_exists(fs->catalog, dir->key, name);
	if (rc != -ENOENT)
		return rc ? rc : -EEXIST;
	rc = put_new_entry(fs, dir, name, e);
	if (!rc)
		cluster_published(fs, dir->key, name, e, false);
	return rc;
}

int ns_make(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
	    const struct caller_id *who, struct inode **inode_out)
{
	struct entry e = { 0 };

	if (!S_ISREG(n->mode) && !S_ISDIR(n->mode) && !S_ISLNK(n->mode))
		return -EPERM;
	if (S_ISREG(n->mode)) {
		int rc = space_make_object(fs);
		if (rc)
			return rc;
	}
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = make_checked(fs, dir, name, n, who, &e);
	if (!rc) {
		pthread_mutex_lock(&fs->lock);
		inode_dir_changed_locked(fs, dir->key);
		*inode_out = inode_get_entry_locked(fs, dir->key, name, &e);
		pthread_mutex_unlock(&fs->lock);
	} else {
		entry_fini(&e);
	}
	pthread_mutex_unlock(stripe);
	return rc;
}

/* ---- unlink, rmdir ---- */

/* The drafts that a process's unlink of a name takes along: its own, and the shared one. */
static int unlink_drafts_locked(struct fs *fs, uint64_t dir_ino, const char *name,
				const struct caller_id *who, uint64_t object_id,
				struct draft_list *gone)
{
	struct draft *d;
	bool has_draft;
	int n = 0;

	while ((d = draft_find_locked(fs, dir_ino, name, who, &has_draft)) ||
	       (d = draft_find_shared_locked(fs, dir_ino, name, object_id))) {
		draft_list_add_locked(gone, d);
		draft_unlink_locked(fs, d);
		n++;
	}
	return n;
}

/* Under the stripe. e NULL: other nodes have the name, this one does not. */
static int unlink_entry(struct fs *fs, struct inode *dir, const char *name, const struct entry *e)
{
	struct catalog_batch *b = catalog_batch_create(fs->catalog);

	if (e)
		catalog_batch_del_entry(b, dir->key, name);
	if (e && e->object_id)
		catalog_batch_del_object(b, e->object_id);
	uint64_t version = cluster_tombstone(fs, b, dir->key, name);
	int rc = catalog_batch_commit(b, false);
	if (rc)
		counter_inc(catalog_errors);
	else
		cluster_removed(fs, dir->key, name, version);
	return rc;
}

/* Others have the file, this node does not. */
static int unlink_remote(struct fs *fs, struct inode *dir, const char *name)
{
	struct entry e;
	int rc = remote_entry(fs, dir->key, name, &e);

	if (rc)
		return rc;
	bool is_dir = S_ISDIR(e.mode);
	entry_fini(&e);
	if (is_dir)
		return -EISDIR;
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	rc = unlink_entry(fs, dir, name, NULL);
	pthread_mutex_unlock(stripe);
	return rc;
}

int ns_unlink(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who)
{
	struct entry e = { 0 };
	struct object *o = NULL;
	struct draft_list gone = { 0 };
	bool must_free = false;

	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = catalog_lookup(fs->catalog, dir->key, name, &e);
	bool has_entry = rc == 0;
	if (has_entry && S_ISDIR(e.mode))
		rc = -EISDIR;
	else if (has_entry)
		rc = unlink_entry(fs, dir, name, &e);
	if (rc == 0 || rc == -ENOENT) {
		pthread_mutex_lock(&fs->lock);
		if (unlink_drafts_locked(fs, dir->key, name, who, has_entry ? e.object_id : 0, &gone))
			rc = 0;
		if (has_entry) {
			o = e.object_id ? object_find_locked(fs, e.object_id) : NULL;
			struct inode *i = inode_find(fs, e.object_id ? e.object_id : e.ino);
			bool is_awaited = i && inode_is_awaited_locked(i, (uint32_t)who->tid);
			if (o && o->state != OBJECT_DROPPED)
				must_free = object_retire_locked(fs, o, is_awaited);
			if (i && i->state != INODE_REPLACED)
				i->state = INODE_GONE;
		}
		inode_dir_changed_locked(fs, dir->key);
		pthread_mutex_unlock(&fs->lock);
	}
	pthread_mutex_unlock(stripe);
	if (must_free)
		object_free_unlocked(fs, o);
	durable_follow_names(fs, &gone);
	entry_fini(&e);
	if (rc == -ENOENT && fs->cluster)
		rc = unlink_remote(fs, dir, name);
	if (!rc)
		counter_inc(unlinks);
	return rc;
}

/* Nobody can make a name in it from now on, if it is empty. */
static int kill_empty_dir(struct fs *fs, uint64_t ino)
{
	pthread_mutex_lock(&fs->lock);
	struct inode *i = inode_find(fs, ino);
	bool has_drafts = i && (i->n_drafts || i->n_publishing);
	if (i && !has_drafts)
		i->is_dead = true;
	pthread_mutex_unlock(&fs->lock);
	if (has_drafts)
		return -ENOTEMPTY;
	int rc = catalog_dir_is_empty(fs->catalog, ino);
	rc = rc == 1 ? 0 : rc == 0 ? -ENOTEMPTY : rc;
	if (rc && i) {
		pthread_mutex_lock(&fs->lock);
		i->is_dead = false;
		pthread_mutex_unlock(&fs->lock);
	}
	return rc;
}

int ns_remove_empty_dir(struct fs *fs, const struct entry *e)
{
	return S_ISDIR(e->mode) ? kill_empty_dir(fs, e->ino) : -ENOTDIR;
}

void ns_revive_dir(struct fs *fs, const struct entry *e)
{
	guard_lock(&fs->lock);
	struct inode *i = S_ISDIR(e->mode) ? inode_find(fs, e->ino) : NULL;

	if (i)
		i->is_dead = false;
}

/* Before the stripe is taken: others are asked. */
static bool has_entries_elsewhere(struct fs *fs, struct inode *dir, const char *name)
{
	struct entry e;

	if (!fs->cluster || catalog_lookup(fs->catalog, dir->key, name, &e))
		return false;
	bool has_entries = S_ISDIR(e.mode) && remote_has_entries(fs, e.ino);
	entry_fini(&e);
	return has_entries;
}

int ns_rmdir(struct fs *fs, struct inode *dir, const char *name)
{
	struct entry e = { 0 };

	if (has_entries_elsewhere(fs, dir, name))
		return -ENOTEMPTY;
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = catalog_lookup(fs->catalog, dir->key, name, &e);
	if (!rc)
		rc = ns_remove_empty_dir(fs, &e);
	if (!rc) {
		rc = unlink_entry(fs, dir, name, &e);
		if (rc)
			ns_revive_dir(fs, &e);
	}
	if (!rc) {
		pthread_mutex_lock(&fs->lock);
		struct inode *i = inode_find(fs, e.ino);
		if (i) {
			i->state = INODE_GONE;
			i->is_dirty = false;
		}
		inode_dir_changed_locked(fs, dir->key);
		pthread_mutex_unlock(&fs->lock);
	}
	pthread_mutex_unlock(stripe);
	entry_fini(&e);
	return rc;
}
