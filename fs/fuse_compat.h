/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse_compat: one libfuse API for 3.17 (passthrough) and 3.14 (without): with the older one every read
 * is served by direct_io, one write of a file at a time, and direct_io files cannot be mapped shared.
 */
#ifndef MCFS_FUSE_COMPAT_H
#define MCFS_FUSE_COMPAT_H

#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* FUSE_DEV_IOC_BACKING_CLOSE of linux/fuse.h (6.9): libfuse offers it within a request only. */
#define BACKING_CLOSE_IOCTL _IOW(229, 2, uint32_t)

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

static inline void set_backing_id(struct fuse_file_info *fi, int32_t id)
{
	fi->backing_id = id;
}

static inline void set_parallel_writes(struct fuse_file_info *fi)
{
	fi->parallel_direct_writes = 1;
}

static inline void set_backing_depth(struct fuse_conn_info *conn)
{
	conn->max_backing_stack_depth = FUSE_BACKING_STACKED_UNDER;
}

static inline int notify_expire(struct fuse_session *se, fuse_ino_t parent, const char *name,
				size_t len)
{
	return fuse_lowlevel_notify_expire_entry(se, parent, name, len);
}

#else

/* Capabilities it does not know: never granted. */
#define FUSE_CAP_PASSTHROUGH 0
#define FUSE_CAP_DIRECT_IO_ALLOW_MMAP 0
#define FUSE_CAP_HANDLE_KILLPRIV_V2 0

static inline bool fuse_set_feature_flag(struct fuse_conn_info *conn, uint64_t flag)
{
	if (!flag || (conn->capable & flag) != flag)
		return false;
	conn->want |= (unsigned int)flag;
	return true;
}

static inline void fuse_unset_feature_flag(struct fuse_conn_info *conn, uint64_t flag)
{
	conn->want &= ~(unsigned int)flag;
}

static inline int fuse_passthrough_open(fuse_req_t req, int fd)
{
	(void)req;
	(void)fd;
	errno = EOPNOTSUPP;
	return 0;
}

static inline int fuse_passthrough_close(fuse_req_t req, int backing_id)
{
	(void)req;
	(void)backing_id;
	return -EOPNOTSUPP;
}

static inline void set_backing_id(struct fuse_file_info *fi, int32_t id)
{
	(void)fi;
	(void)id;
}

static inline void set_parallel_writes(struct fuse_file_info *fi)
{
	(void)fi;
}

static inline void set_backing_depth(struct fuse_conn_info *conn)
{
	(void)conn;
}

static inline int notify_expire(struct fuse_session *se, fuse_ino_t parent, const char *name,
				size_t len)
{
	return fuse_lowlevel_notify_expire_entry(se, parent, name, len, FUSE_LL_EXPIRE_ONLY);
}

#endif

#endif
