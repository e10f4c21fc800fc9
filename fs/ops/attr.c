/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "handle.h"
#include "notifier.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "ops/ops.h"
#include "options.h"

static double attr_timeout(const struct inode *i)
{
	switch (i->kind) {
	case INODE_DIR: return DIR_ATTR_TIMEOUT_S;
	case INODE_SYMLINK: return i->is_remote ? 0 : OBJECT_TIMEOUT_S;
	case INODE_OBJECT: return i->state == INODE_LIVE && !i->is_remote ? OBJECT_TIMEOUT_S : 0;
	default: return 0;
	}
}

/* A version that is gone for good answers ESTALE, so that the kernel walks the path again. */
static bool is_stale_locked(const struct inode *i)
{
	if (i->draft || i->state == INODE_LIVE || i->kind == INODE_DIR)
		return false;
	if (i->kind == INODE_OBJECT && i->object && i->object->n_open)
		return false;
	/* Of one that another node has replaced, too: its OPEN, which tells what the walk is for, may be on its way. */
	if (i->state == INODE_REPLACED || (i->state == INODE_GONE && i->replaced_ns))
		return now_mono_ns() - i->replaced_ns > REPLACED_GRACE_NS;
	return i->kind == INODE_OBJECT || i->kind == INODE_DRAFT;
}

static void copy_settable(struct entry *to, const struct entry *from)
{
	to->mode = from->mode;
	to->uid = from->uid;
	to->gid = from->gid;
	to->atime_ns = from->atime_ns;
	to->mtime_ns = from->mtime_ns;
	to->ctime_ns = from->ctime_ns;
}

/*
 * A descriptor may still have the nodeid of the draft that its version was, while changes by path go to
 * the version's own: fstat agrees with stat.
 */
static void follow_version(struct fs *fs, struct inode *i)
{
	struct entry e = { 0 };

	pthread_mutex_lock(&fs->lock);
	bool is_dropped = i->kind == INODE_DRAFT && !i->draft && i->dropped_id && i->name;
	struct inode *version = is_dropped ? inode_find(fs, i->dropped_id) : NULL;
	uint64_t dir_ino = i->parent, id = i->dropped_id;
	if (version)
		copy_settable(&i->e, &version->e);
	autofree char *name = is_dropped && !version ? xstrdup(i->name) : NULL;
	pthread_mutex_unlock(&fs->lock);
	if (!name || catalog_lookup(fs->catalog, dir_ino, name, &e))
		return;
	pthread_mutex_lock(&fs->lock);
	if (e.object_id == id)
		copy_settable(&i->e, &e);
	pthread_mutex_unlock(&fs->lock);
	entry_fini(&e);
}

static void reply_attr(fuse_req_t req, struct inode *i)
{
	struct fs *fs = req_fs(req);
	struct stat st;

	follow_version(fs, i);
	pthread_mutex_lock(&fs->lock);
	bool is_stale = is_stale_locked(i);
	fill_stat_locked(i, &st);
	double timeout = attr_timeout(i);
	pthread_mutex_unlock(&fs->lock);
	if (is_stale)
		reply_err(req, -ESTALE);
	else
		fuse_reply_attr(req, &st, timeout);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	reply_attr(req, inode_of(req_fs(req), ino));
}


static void reply_stale(void *request)
{
	reply_err(request, -ESTALE);
}

/*
 * truncate(2) by path of a published object: a new version, then ESTALE. The kernel walks the path
 * once more and its SETATTR on the new version has nothing left to do.
 */
static void resize_object(fuse_req_t req, struct inode *i, uint64_t size)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);
	struct published p;

	int rc = publish_resized(fs, i, size, (uint64_t)fuse_req_ctx(req)->pid, &w, &p);
	cluster_settle(fs);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	if (p.has_replaced && p.dir)
		notifier_inval(fs, p.dir, p.name, reply_stale, req);
	else
		reply_err(req, -ESTALE);
	published_fini(fs, &p);
}

static void apply(struct inode *i, const struct stat *attr, int to_set)
{
	struct entry *e = &i->e;
	int64_t now = now_real_ns();

	if (to_set & FUSE_SET_ATTR_MODE)
		e->mode = (e->mode & S_IFMT) | (attr->st_mode & 07777);
	if (to_set & FUSE_SET_ATTR_UID)
		e->uid = attr->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		e->gid = attr->st_gid;
	if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_SIZE)) &&
	    !(to_set & FUSE_SET_ATTR_MODE) && S_ISREG(e->mode)) {
		e->mode &= ~(mode_t)S_ISUID;
		if (e->mode & S_IXGRP)
			e->mode &= ~(mode_t)S_ISGID;
	}
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		e->atime_ns = now;
	else if (to_set & FUSE_SET_ATTR_ATIME)
		e->atime_ns = attr->st_atim.tv_sec * 1000000000ll + attr->st_atim.tv_nsec;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		e->mtime_ns = now;
	else if (to_set & FUSE_SET_ATTR_MTIME)
		e->mtime_ns = attr->st_mtim.tv_sec * 1000000000ll + attr->st_mtim.tv_nsec;
	else if (to_set & FUSE_SET_ATTR_SIZE)
		e->mtime_ns = now;
	e->ctime_ns = now;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct inode *i = inode_of(fs, ino);
	int rc = 0;

	(void)fi;
	if (i->kind == INODE_CONTROL) {
		reply_err(req, -EPERM);
		return;
	}
	if (i->kind == INODE_BUFFER) {
		buffer_io_setattr(req, i, attr, to_set);
		return;
	}
	struct space_wait fetching = req_space_wait(req);
	rc = fetch_object(fs, i, &fetching);
	if (rc == -ESTALE)
		remote_retry_follows(fs, fuse_req_ctx(req)->pid);
	else
		remote_retry_ends(fs, fuse_req_ctx(req)->pid);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	pthread_mutex_lock(&fs->lock);
	bool is_stale = is_stale_locked(i);
	struct draft *d = i->draft;
	uint64_t size = i->e.size;
	if (d)
		draft_get_locked(d);
	pthread_mutex_unlock(&fs->lock);
	if (is_stale) {
		rc = -ESTALE;
	} else if ((to_set & FUSE_SET_ATTR_SIZE) && i->kind == INODE_OBJECT) {
		if ((uint64_t)attr->st_size != size) {
			resize_object(req, i, (uint64_t)attr->st_size);
			return;
		}
	} else if ((to_set & FUSE_SET_ATTR_SIZE) && d) {
		struct space_wait w = req_space_wait(req);
		rc = draft_resize(fs, d, (uint64_t)attr->st_size, &w);
	} else if (to_set & FUSE_SET_ATTR_SIZE) {
		rc = i->kind == INODE_DRAFT ? -ESTALE : -EISDIR;
	}
	if (!rc) {
		pthread_mutex_lock(&fs->lock);
		apply(i, attr, to_set);
		if (i->kind == INODE_DIR)
			i->is_dirty = false;
		pthread_mutex_unlock(&fs->lock);
		rc = ns_store_attr(fs, i);
		cluster_settle(fs);
	}
	if (d) {
		draft_put(fs, d);
	}
	if (rc)
		reply_err(req, rc);
	else
		reply_attr(req, i);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = req_fs(req);
	struct tier_stats s;

	(void)ino;
	tier_call(fs->dram, get_stats, &s);
	pthread_mutex_lock(&fs->lock);
	uint64_t n_objects = object_count_locked(fs);
	pthread_mutex_unlock(&fs->lock);
	uint64_t used = s.used_bytes - s.free_list_bytes;
	uint64_t max = fs->opt->max_objects;
	struct statvfs st = {
		.f_bsize = 1 << 20,
		.f_frsize = 4096,
		.f_blocks = s.budget_bytes / 4096,
		.f_bfree = used < s.budget_bytes ? (s.budget_bytes - used) / 4096 : 0,
		.f_files = max,
		.f_ffree = n_objects < max ? max - n_objects : 0,
		.f_namemax = CATALOG_NAME_MAX,
	};
	st.f_bavail = st.f_bfree;
	st.f_favail = st.f_ffree;
	fuse_reply_statfs(req, &st);
}
