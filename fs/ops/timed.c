/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of operations that libfuse calls: each as its family's file has it, with the time it took
 * recorded. A request that is answered later (a lock that waits for its turn) counts until it was queued.
 */
#include <linux/fuse.h>

#include "base/latency.h"
#include "ops/ops.h"

/* params, args: what follows the request in the operation's signature. */
#define TIMED(op, opcode, params, args)                                                            \
	static void timed_##op params                                                              \
	{                                                                                          \
		int64_t begin_ns = now_mono_ns();                                                  \
		op_##op args;                                                                      \
		latency_record(FUSE_##opcode, now_mono_ns() - begin_ns);                           \
	}

TIMED(lookup, LOOKUP,
      (fuse_req_t req, fuse_ino_t parent, const char *name),
      (req, parent, name))
TIMED(forget, FORGET,
      (fuse_req_t req, fuse_ino_t ino, uint64_t nlookup),
      (req, ino, nlookup))
TIMED(forget_multi, BATCH_FORGET,
      (fuse_req_t req, size_t count, struct fuse_forget_data *forgets),
      (req, count, forgets))
TIMED(getattr, GETATTR,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(setattr, SETATTR,
      (fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi),
      (req, ino, attr, to_set, fi))
TIMED(statfs, STATFS,
      (fuse_req_t req, fuse_ino_t ino),
      (req, ino))
TIMED(readlink, READLINK,
      (fuse_req_t req, fuse_ino_t ino),
      (req, ino))
TIMED(mknod, MKNOD,
      (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev),
      (req, parent, name, mode, rdev))
TIMED(mkdir, MKDIR,
      (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode),
      (req, parent, name, mode))
TIMED(symlink, SYMLINK,
      (fuse_req_t req, const char *link, fuse_ino_t parent, const char *name),
      (req, link, parent, name))
TIMED(link, LINK,
      (fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname),
      (req, ino, newparent, newname))
TIMED(unlink, UNLINK,
      (fuse_req_t req, fuse_ino_t parent, const char *name),
      (req, parent, name))
TIMED(rmdir, RMDIR,
      (fuse_req_t req, fuse_ino_t parent, const char *name),
      (req, parent, name))
TIMED(rename, RENAME,
      (fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char
       *newname, unsigned int flags),
      (req, parent, name, newparent, newname, flags))
TIMED(open, OPEN,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(create, CREATE,
      (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info
       *fi),
      (req, parent, name, mode, fi))
TIMED(release, RELEASE,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(flush, FLUSH,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(fsync, FSYNC,
      (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi),
      (req, ino, datasync, fi))
TIMED(fsyncdir, FSYNCDIR,
      (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi),
      (req, ino, datasync, fi))
TIMED(read, READ,
      (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
      (req, ino, size, off, fi))
TIMED(write, WRITE,
      (fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct
       fuse_file_info *fi),
      (req, ino, buf, size, off, fi))
TIMED(fallocate, FALLOCATE,
      (fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info
       *fi),
      (req, ino, mode, offset, length, fi))
TIMED(copy_file_range, COPY_FILE_RANGE,
      (fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in, fuse_ino_t
       ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags),
      (req, ino_in, off_in, fi_in, ino_out, off_out, fi_out, len, flags))
TIMED(ioctl, IOCTL,
      (fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
       unsigned flags, const void *in_buf, size_t in_bufsz, size_t out_bufsz),
      (req, ino, cmd, arg, fi, flags, in_buf, in_bufsz, out_bufsz))
TIMED(poll, POLL,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph),
      (req, ino, fi, ph))
TIMED(opendir, OPENDIR,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(readdir, READDIR,
      (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
      (req, ino, size, off, fi))
TIMED(readdirplus, READDIRPLUS,
      (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
      (req, ino, size, off, fi))
TIMED(releasedir, RELEASEDIR,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
      (req, ino, fi))
TIMED(setxattr, SETXATTR,
      (fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int
       flags),
      (req, ino, name, value, size, flags))
TIMED(getxattr, GETXATTR,
      (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),
      (req, ino, name, size))
TIMED(listxattr, LISTXATTR,
      (fuse_req_t req, fuse_ino_t ino, size_t size),
      (req, ino, size))
TIMED(removexattr, REMOVEXATTR,
      (fuse_req_t req, fuse_ino_t ino, const char *name),
      (req, ino, name))
TIMED(flock, SETLK,
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op),
      (req, ino, fi, op))

const struct fuse_lowlevel_ops mooncakefs_ops = {
	.init = op_init,
	.lookup = timed_lookup,
	.forget = timed_forget,
	.forget_multi = timed_forget_multi,
	.getattr = timed_getattr,
	.setattr = timed_setattr,
	.statfs = timed_statfs,
	.readlink = timed_readlink,
	.mknod = timed_mknod,
	.mkdir = timed_mkdir,
	.symlink = timed_symlink,
	.link = timed_link,
	.unlink = timed_unlink,
	.rmdir = timed_rmdir,
	.rename = timed_rename,
	.open = timed_open,
	.create = timed_create,
	.release = timed_release,
	.flush = timed_flush,
	.fsync = timed_fsync,
	.fsyncdir = timed_fsyncdir,
	.read = timed_read,
	.write = timed_write,
	.fallocate = timed_fallocate,
	.copy_file_range = timed_copy_file_range,
	.ioctl = timed_ioctl,
	.poll = timed_poll,
	.opendir = timed_opendir,
	.readdir = timed_readdir,
	.readdirplus = timed_readdirplus,
	.releasedir = timed_releasedir,
	.setxattr = timed_setxattr,
	.getxattr = timed_getxattr,
	.listxattr = timed_listxattr,
	.removexattr = timed_removexattr,
	.flock = timed_flock,
};
