/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cluster/cluster.h"
#include "control/control.h"
#include "fastpath/buffer.h"
#include "mcfs/catalog.h"
#include "object/namespace.h"
#include "ops/ops.h"

/* The control directory takes no names; others take any of up to CATALOG_NAME_MAX bytes. */
static int check_name(struct inode *dir, const char *name)
{
	if (strlen(name) > CATALOG_NAME_MAX)
		return -ENAMETOOLONG;
	if (dir->kind == INODE_CONTROL || control_is_reserved(dir, name))
		return -EPERM;
	return 0;
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct inode *i = inode_of(req_fs(req), ino);

	if (i->e.target)
		fuse_reply_readlink(req, i->e.target);
	else
		reply_err(req, -EINVAL);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		 const char *target)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct inode *dir = inode_of(fs, parent), *i;
	struct ns_new n = { .mode = mode, .uid = ctx->uid, .gid = ctx->gid, .target = target };
	int rc = check_name(dir, name);

	if (!rc) {
		struct caller_id who = ns_caller(fs, ctx->pid, ctx->uid, dir->key, name, 0, NULL);
		rc = ns_make(fs, dir, name, &n, &who, &i);
		cluster_settle(fs);
	}
	if (rc)
		reply_err(req, rc);
	else
		reply_entry(req, i, false);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)rdev;
	make(req, parent, name, mode, NULL);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make(req, parent, name, S_IFDIR | (mode & 07777), NULL);
}

void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	if (strlen(link) > CATALOG_SYMLINK_MAX)
		reply_err(req, -ENAMETOOLONG);
	else
		make(req, parent, name, S_IFLNK | 0777, link);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	(void)ino;
	(void)newparent;
	(void)newname;
	reply_err(req, -EPERM); /* link(2): the file system does not support hard links */
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct inode *dir = inode_of(fs, parent);
	if (dir->kind == INODE_CONTROL && dir->control_id == CONTROL_BUFFERS) {
		reply_err(req, buffer_unlink(fs, name));
		return;
	}
	int rc = check_name(dir, name);

	if (!rc) {
		struct caller_id who = ns_caller(fs, ctx->pid, ctx->uid, dir->key, name, 0, NULL);
		rc = ns_unlink(fs, dir, name, &who);
		cluster_settle(fs);
	}
	reply_err(req, rc);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	struct inode *dir = inode_of(fs, parent);
	int rc = check_name(dir, name);

	if (!rc) {
		rc = ns_rmdir(fs, dir, name);
		cluster_settle(fs);
	}
	reply_err(req, rc);
}

/* What others have is brought here before it gets another name; so is what a name must not replace. */
static int bring_here(fuse_req_t req, struct inode *dir, const char *name)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);

	if (!fs->cluster || catalog_exists(fs->catalog, dir->key, name) != -ENOENT)
		return 0;
	int rc = remote_bring(fs, dir, name, &w);
	return rc == -ENOENT ? 0 : rc;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct inode *dir = inode_of(fs, parent), *dir2 = inode_of(fs, newparent);
	int rc = check_name(dir, name);

	if (!rc)
		rc = check_name(dir2, newname);
	if (!rc)
		rc = bring_here(req, dir, name);
	if (!rc && (flags & RENAME_NOREPLACE))
		rc = bring_here(req, dir2, newname);
	if (!rc) {
		struct caller_id who = ns_caller(fs, ctx->pid, ctx->uid, dir->key, name, dir2->key,
						 newname);
		rc = ns_rename(fs, dir, name, dir2, newname, flags, &who);
		cluster_settle(fs);
	}
	reply_err(req, rc);
}
