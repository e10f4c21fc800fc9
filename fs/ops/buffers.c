/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files below .mooncake/buffers: passthrough for mapping, one backing id for all opens; read(2) and
 * write(2) are served here. Without passthrough a mapping would be of the page cache instead of the
 * daemon's memory, so there are none then.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "control/control.h"
#include "fastpath/buffer.h"
#include "handle.h"
#include "object/object.h"
#include "ops/ops.h"

#define MAX_IO_BYTES (1u << 20)

static int set_backing(fuse_req_t req, struct buffer *b, struct fuse_file_info *fi)
{
	guard_lock(&b->lock);
	if (!b->backing_id) {
		int id = fuse_passthrough_open(req, b->frame.fd);
		if (id <= 0) {
			log_warn("a session's buffer cannot be passed through: %m");
			return -EOPNOTSUPP;
		}
		b->backing_id = id;
	}
	set_backing_id(fi, b->backing_id);
	/* Mappings go to the frame, write(2) comes here: nothing but ftruncate makes it longer. */
	fi->direct_io = 1;
	return 0;
}

/* h owns the buffer's handle from here on. */
static struct handle *attach(struct fs *fs, struct buffer *b, struct fuse_file_info *fi)
{
	pthread_mutex_lock(&fs->lock);
	inode_get_locked(b->inode);
	pthread_mutex_unlock(&fs->lock);
	struct handle *h = handle_create(fs, HANDLE_BUFFER, b->inode);
	h->buffer = b;
	h->is_writable = (fi->flags & O_ACCMODE) == O_RDWR;
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->noflush = 1;
	return h;
}

void buffer_io_create(fuse_req_t req, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct fuse_entry_param e;
	struct buffer *b;

	if (!fs->passthrough) {
		reply_err(req, -EOPNOTSUPP);
		return;
	}
	int rc = buffer_create(fs, name, mode, ctx->uid, ctx->gid, &b);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	rc = set_backing(req, b, fi);
	if (rc) {
		buffer_close(fs, b);
		reply_err(req, rc);
		return;
	}
	attach(fs, b, fi);
	pthread_mutex_lock(&fs->lock);
	fill_entry_locked(fs, b->inode, false, &e);
	b->inode->nlookup++;
	pthread_mutex_unlock(&fs->lock);
	fuse_reply_create(req, &e, fi);
}

void buffer_io_open(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct buffer *b = buffer_open(fs, i);
	int rc = b ? set_backing(req, b, fi) : -ESTALE;

	if (rc) {
		if (b)
			buffer_close(fs, b);
		reply_err(req, rc);
		return;
	}
	attach(fs, b, fi);
	fuse_reply_open(req, fi);
}

void buffer_io_read(fuse_req_t req, struct handle *h, size_t size, uint64_t off)
{
	autofree char *buf = malloc(MAX_IO_BYTES);
	size_t most = size < MAX_IO_BYTES ? size : MAX_IO_BYTES;
	ssize_t n = buf ? pread(h->buffer->frame.fd, buf, most, (off_t)off) : -1;

	if (n < 0)
		reply_err(req, -errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

void buffer_io_write(fuse_req_t req, struct handle *h, const char *buf, size_t size, uint64_t off)
{
	struct buffer *b = h->buffer;

	pthread_mutex_lock(&b->lock);
	bool is_inside = off <= b->frame.size_bytes && size <= b->frame.size_bytes - off;
	ssize_t n = is_inside ? pwrite(b->frame.fd, buf, size, (off_t)off) : -1;
	int err = is_inside ? errno : EFBIG; /* it is sized by ftruncate alone */
	pthread_mutex_unlock(&b->lock);
	if (n < 0)
		reply_err(req, -err);
	else
		fuse_reply_write(req, (size_t)n);
}

void buffer_io_setattr(fuse_req_t req, struct inode *i, struct stat *attr, int to_set)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);
	struct buffer *b = buffer_open(fs, i);
	struct stat st;

	int rc = b ? 0 : -ESTALE;
	if (!rc && (to_set & FUSE_SET_ATTR_SIZE))
		rc = buffer_resize(fs, b, (uint64_t)attr->st_size, &w);
	pthread_mutex_lock(&fs->lock);
	if (!rc && (to_set & FUSE_SET_ATTR_MODE))
		i->e.mode = (i->e.mode & S_IFMT) | (attr->st_mode & 0777);
	if (!rc && (to_set & FUSE_SET_ATTR_UID))
		i->e.uid = attr->st_uid;
	if (!rc && (to_set & FUSE_SET_ATTR_GID))
		i->e.gid = attr->st_gid;
	i->e.ctime_ns = now_real_ns();
	fill_stat_locked(i, &st);
	pthread_mutex_unlock(&fs->lock);
	if (b)
		buffer_close(fs, b);
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_attr(req, &st, 0);
}
