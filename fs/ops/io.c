/* SPDX-License-Identifier: Apache-2.0 */
/* READ, WRITE, FALLOCATE, COPY_FILE_RANGE: what passthrough does not take off our hands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/thread_buffer.h"
#include "cluster/cluster.h"
#include "control/control.h"
#include "handle.h"
#include "object/caller.h"
#include "object/object.h"
#include "object/verify.h"
#include "ops/ops.h"

/* Reads from here on reply straight from a mapping; below, a copy through a cache-warm buffer wins. */
#define MAP_READ_BYTES (256u << 10)
#define COPY_RANGE_MAX (16u << 20) /* per request, so that it can be interrupted */

/* ---- READ ---- */

static int pread_whole(int fd, char *buf, size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		buf += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static void map_frame(struct handle *h)
{
	pthread_rwlock_wrlock(&h->map_lock);
	if (!h->map) {
		void *p = mmap(NULL, h->object->size, PROT_READ, MAP_SHARED, h->fd, 0);
		if (p != MAP_FAILED)
			h->map = p;
	}
	pthread_rwlock_unlock(&h->map_lock);
}

/* False: there is no mapping. The client may have closed the file by the time the reply call returns. */
static bool reply_mapped(fuse_req_t req, struct handle *h, size_t size, uint64_t off)
{
	if (!h->map)
		map_frame(h);
	pthread_rwlock_rdlock(&h->map_lock);
	bool is_mapped = h->map;
	if (is_mapped)
		fuse_reply_buf(req, h->map + off, size);
	pthread_rwlock_unlock(&h->map_lock);
	return is_mapped;
}

/* The handle keeps the frame it has; who opens next gets the other copy, or is told that there is none. */
static void report_read_error(struct fs *fs, const struct object *o, int rc)
{
	uint64_t dram_frame = o->dram_frame, ssd_frame = o->ssd_frame;
	struct tier *t = dram_frame ? fs->dram : fs->ssd;
	uint64_t frame = dram_frame ? dram_frame : ssd_frame;

	if (!frame)
		return;
	tier_call(t, report_error, frame, rc);
	verify_report_bad(fs, o, t, frame, -rc);
}

static void read_object(fuse_req_t req, struct handle *h, size_t size, uint64_t off)
{
	uint64_t file_size = h->object->size;

	if (off >= file_size)
		size = 0;
	else if (size > file_size - off)
		size = (size_t)(file_size - off);
	counter_add(read_bytes, size);
	if (h->fd < 0 && size) {
		/* A passthrough handle whose read came here after all (a mapping's readahead, say). */
		const char *tier;
		int fd = object_open_frame(req_fs(req), h->object, &tier);
		int rc = fd < 0 ? -EIO : pread_whole(fd, thread_buffer(), size, off);
		if (fd >= 0)
			close(fd);
		if (rc)
			reply_err(req, -EIO);
		else
			fuse_reply_buf(req, thread_buffer(), size);
		return;
	}
	if (size >= MAP_READ_BYTES && reply_mapped(req, h, size, off))
		return;
	int rc = pread_whole(h->fd, thread_buffer(), size, off);
	if (rc) {
		report_read_error(req_fs(req), h->object, rc);
		reply_err(req, -EIO);
		return;
	}
	fuse_reply_buf(req, thread_buffer(), size);
}

static size_t cut(uint64_t file_size, size_t size, uint64_t off)
{
	if (off >= file_size)
		return 0;
	return size < file_size - off ? size : (size_t)(file_size - off);
}

static void read_arriving(fuse_req_t req, struct fetch *f, size_t size, uint64_t off)
{
	struct space_wait w = req_space_wait(req);
	size_t n = cut(fetch_size(f), size, off);
	const void *bytes = NULL;
	int rc = n ? fetch_await(f, n, off, &w, &bytes) : 0;

	counter_add(read_bytes, n);
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_buf(req, bytes, n);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;
	size_t n;

	(void)ino;
	if (size > THREAD_BUFFER_BYTES)
		size = THREAD_BUFFER_BYTES;
	counter_inc(reads);
	if (h->kind == HANDLE_OBJECT) {
		read_object(req, h, size, (uint64_t)off);
	} else if (h->kind == HANDLE_FETCH) {
		read_arriving(req, h->fetch, size, (uint64_t)off);
	} else if (h->kind == HANDLE_SESSION) {
		session_read(req, h, size, fi);
	} else if (h->kind == HANDLE_BUFFER) {
		buffer_io_read(req, h, size, (uint64_t)off);
	} else if (h->kind == HANDLE_CONTROL) {
		n = (size_t)off < h->text_len ? h->text_len - (size_t)off : 0;
		n = n < size ? n : size;
		/* Copied: the client may have closed the file by the time the reply call returns. */
		char *buf = thread_buffer();
		if (n)
			memcpy(buf, h->text + off, n);
		fuse_reply_buf(req, buf, n);
	} else {
		int rc = draft_read(req_fs(req), h->draft, thread_buffer(), size, (uint64_t)off, &n);
		if (rc) {
			reply_err(req, rc);
			return;
		}
		counter_add(read_bytes, n);
		fuse_reply_buf(req, thread_buffer(), n);
	}
}

/* ---- WRITE ---- */

/* Times, set-id bits, and whose death would poison the draft. */
static void note_write(fuse_req_t req, struct draft *d, bool is_mapped)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct caller_id who = { 0 };

	d->last_use_ns = now_mono_ns();
	bool is_new_writer = !is_mapped && ctx->pid && ctx->pid != d->last_writer_tid;
	if (is_new_writer)
		who = (struct caller_id){ .tid = ctx->pid, .tgid = caller_tgid(ctx->pid), .uid = ctx->uid };
	guard_lock(&fs->lock);
	if (is_new_writer) {
		d->last_writer_tid = ctx->pid;
		draft_join_locked(d, &who)->has_opened = true;
	}
	struct entry *e = &d->inode->e;
	e->mtime_ns = e->ctime_ns = now_real_ns();
	if (e->mode & (S_ISUID | S_ISGID)) {
		e->mode &= ~(mode_t)S_ISUID;
		if (e->mode & S_IXGRP)
			e->mode &= ~(mode_t)S_ISGID;
	}
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;
	size_t len = size;

	(void)ino;
	if (h->kind == HANDLE_CONTROL) {
		int rc = control_command(fs, buf, size);
		if (rc < 0)
			reply_err(req, rc);
		else
			fuse_reply_write(req, size);
		return;
	}
	if (h->kind == HANDLE_BUFFER) {
		buffer_io_write(req, h, buf, size, (uint64_t)off);
		return;
	}
	if (h->kind != HANDLE_DRAFT) {
		reply_err(req, -EBADF);
		return;
	}
	struct space_wait w = req_space_wait(req);
	counter_inc(writes);
	note_write(req, h->draft, fi->writepage);
	if (fi->writepage) {
		/* Stores of a mapping come in whole pages: what lies past the end is not the file's. */
		uint64_t file_size = draft_size(h->draft);
		len = (uint64_t)off >= file_size ? 0 : size;
		if (len > file_size - (uint64_t)off)
			len = (size_t)(file_size - (uint64_t)off);
	}
	int rc = draft_write(fs, h->draft, buf, len, (uint64_t)off, &w);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	counter_add(write_bytes, len);
	fuse_reply_write(req, size);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;

	(void)ino;
	if (h->kind != HANDLE_DRAFT || !h->is_writable) {
		/* A buffer has all its pages. */
		reply_err(req, h->kind == HANDLE_BUFFER ? -EOPNOTSUPP : -EBADF);
		return;
	}
	struct space_wait w = req_space_wait(req);
	note_write(req, h->draft, false);
	reply_err(req, draft_fallocate(fs, h->draft, mode, (uint64_t)offset, (uint64_t)length, &w));
}

/* ---- COPY_FILE_RANGE ---- */

/* Bytes [off, off + len) of what a handle shows, cut at its end. */
static int read_handle(struct fs *fs, struct handle *h, int fd, char *buf, size_t len, uint64_t off,
		       struct space_wait *w, size_t *n_out)
{
	if (h->kind == HANDLE_DRAFT)
		return draft_read(fs, h->draft, buf, len, off, n_out);
	if (h->kind == HANDLE_FETCH) {
		const void *bytes;
		*n_out = cut(fetch_size(h->fetch), len, off);
		int rc = *n_out ? fetch_await(h->fetch, *n_out, off, w, &bytes) : 0;
		if (!rc && *n_out)
			memcpy(buf, bytes, *n_out);
		return rc;
	}
	*n_out = cut(h->object->size, len, off);
	return *n_out ? pread_whole(fd, buf, *n_out, off) : 0;
}

static ssize_t copy_range(fuse_req_t req, struct handle *in, uint64_t off_in, struct handle *out,
			  uint64_t off_out, size_t len)
{
	struct fs *fs = req_fs(req);
	struct space_wait w = req_space_wait(req);
	autoclose int fd = -1;
	const char *tier;
	size_t done = 0, n = 0;
	int rc = 0;

	if (in->kind == HANDLE_OBJECT && in->object->size) {
		fd = object_open_frame(fs, in->object, &tier);
		if (fd < 0)
			return -EIO;
	}
	while (done < len && !fuse_req_interrupted(req)) {
		size_t want = len - done < THREAD_BUFFER_BYTES ? len - done : THREAD_BUFFER_BYTES;
		char *buf = thread_buffer();
		rc = read_handle(fs, in, fd, buf, want, off_in + done, &w, &n);
		if (!rc && n)
			rc = draft_write(fs, out->draft, buf, n, off_out + done, &w);
		if (rc || !n)
			break;
		done += n;
	}
	return done ? (ssize_t)done : rc;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct handle *in = (struct handle *)(uintptr_t)fi_in->fh;
	struct handle *out = (struct handle *)(uintptr_t)fi_out->fh;

	(void)ino_in;
	(void)ino_out;
	if (flags || out->kind != HANDLE_DRAFT || !out->is_writable ||
	    (in->kind != HANDLE_DRAFT && in->kind != HANDLE_OBJECT && in->kind != HANDLE_FETCH)) {
		reply_err(req, flags ? -EINVAL : -EBADF);
		return;
	}
	note_write(req, out->draft, false);
	ssize_t n = copy_range(req, in, (uint64_t)off_in, out, (uint64_t)off_out,
			       len < COPY_RANGE_MAX ? len : COPY_RANGE_MAX);
	if (n < 0)
		reply_err(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}
