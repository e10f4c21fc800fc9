/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops: the FUSE operations. They unpack a request, call the object layer and reply exactly once; the
 * sign of an errno flips in reply_err and nowhere else.
 */
#ifndef MCFS_OPS_H
#define MCFS_OPS_H

#include <fuse_lowlevel.h>
#include <stdbool.h>

#include "fs.h"
#include "inode_table.h"
#include "object/draft.h"
#include "object/space.h"
#include "fuse_compat.h"

/* Objects never change under their nodeid, and every other change goes through this kernel. */
#define OBJECT_TIMEOUT_S 86400.0
/* Publishing changes a directory's times without the kernel's knowing. */
#define DIR_ATTR_TIMEOUT_S 1.0

/* timed.c: all of them, as libfuse calls them. */
extern const struct fuse_lowlevel_ops mooncakefs_ops;

static inline struct fs *req_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- reply.c ---- */

/* rc: 0 or a negative errno. */
void reply_err(fuse_req_t req, int rc);
/* Entry of i, whose one ref becomes a kernel lookup (or is dropped when the reply fails). */
void reply_entry(fuse_req_t req, struct inode *i, bool has_draft);
void fill_entry_locked(struct fs *fs, struct inode *i, bool has_draft,
		       struct fuse_entry_param *e);
void fill_stat_locked(const struct inode *i, struct stat *st);
/* The wait of a write for space: interruptible, with the mount's deadline. */
struct space_wait req_space_wait(fuse_req_t req);

/* ---- the operations, one file per family ---- */

void op_init(void *userdata, struct fuse_conn_info *conn);
/* lookup.c */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
/* attr.c */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
/* names.c */
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags);
/* open.c */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* flush.c */
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* The last handle of a draft is gone: what is still unpublished is published now. */
void flush_released_draft(struct fs *fs, struct draft *d);
/* io.c */
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags);
/* fastpath.c */
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned flags, const void *in_buf, size_t in_bufsz,
	      size_t out_bufsz);
void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph);
void session_open(fuse_req_t req, struct inode *i, struct fuse_file_info *fi);
void session_read(fuse_req_t req, struct handle *h, size_t size, struct fuse_file_info *fi);
/* buffers.c: files below .mooncake/buffers */
void buffer_io_create(fuse_req_t req, const char *name, mode_t mode, struct fuse_file_info *fi);
void buffer_io_open(fuse_req_t req, struct inode *i, struct fuse_file_info *fi);
void buffer_io_read(fuse_req_t req, struct handle *h, size_t size, uint64_t off);
void buffer_io_write(fuse_req_t req, struct handle *h, const char *buf, size_t size, uint64_t off);
void buffer_io_setattr(fuse_req_t req, struct inode *i, struct stat *attr, int to_set);
/* dir.c */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* xattr.c */
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
/* lock.c */
/* A file description is gone: its lock too. */
void flock_release_owner(struct fs *fs, uint64_t owner);
void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op);

#endif
