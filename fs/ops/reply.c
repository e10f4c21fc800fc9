/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "object/object.h"
#include "ops/ops.h"
#include "options.h"

#define BLOCK_BYTES 4096

void reply_err(fuse_req_t req, int rc)
{
	if (rc)
		log_trace("reply %d", rc);
	fuse_reply_err(req, rc < 0 ? -rc : 0);
}

static struct timespec to_timespec(int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += 1000000000;
	}
	return ts;
}

void fill_stat_locked(const struct inode *i, struct stat *st)
{
	const struct entry *e = &i->e;
	uint64_t size = i->draft ? draft_size(i->draft) : e->size;
	bool is_gone = i->state == INODE_GONE || (i->state == INODE_REPLACED && !i->draft);

	*st = (struct stat){
		.st_ino = e->ino,
		.st_mode = e->mode,
		/* 1 for directories, as file systems do that do not count subdirectories. */
		.st_nlink = is_gone ? 0 : 1,
		.st_uid = e->uid,
		.st_gid = e->gid,
		.st_size = (off_t)size,
		.st_blksize = 1 << 20,
		.st_blocks = S_ISREG(e->mode) ? (blkcnt_t)((size + BLOCK_BYTES - 1) / BLOCK_BYTES *
							   (BLOCK_BYTES / 512)) : 0,
		.st_atim = to_timespec(e->atime_ns),
		.st_mtim = to_timespec(e->mtime_ns),
		.st_ctim = to_timespec(e->ctime_ns),
	};
}

void fill_entry_locked(struct fs *fs, struct inode *i, bool has_draft, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){ .ino = inode_nodeid(fs, i), .generation = i->key };
	fill_stat_locked(i, &e->attr);
	switch (i->kind) {
	case INODE_DIR:
		e->entry_timeout = OBJECT_TIMEOUT_S;
		e->attr_timeout = DIR_ATTR_TIMEOUT_S;
		break;
	case INODE_SYMLINK:
		if (i->is_remote)
			break;
		e->entry_timeout = e->attr_timeout = OBJECT_TIMEOUT_S;
		break;
	case INODE_OBJECT:
		if (i->state != INODE_LIVE || !i->object || i->object->is_evicting)
			break;
		e->attr_timeout = OBJECT_TIMEOUT_S;
		e->entry_timeout = has_draft ? 0 : OBJECT_TIMEOUT_S;
		if (i->e.policy.ttl_s && e->entry_timeout > 1)
			e->entry_timeout = 1; /* the name ends by itself */
		break;
	case INODE_DRAFT:
	case INODE_BUFFER:
		break;
	case INODE_CONTROL:
		e->entry_timeout = OBJECT_TIMEOUT_S;
		break;
	}
}

void reply_entry(fuse_req_t req, struct inode *i, bool has_draft)
{
	struct fs *fs = req_fs(req);
	struct fuse_entry_param e;

	pthread_mutex_lock(&fs->lock);
	fill_entry_locked(fs, i, has_draft, &e);
	i->nlookup++; /* before the reply: a FORGET may follow at once */
	inode_put_locked(fs, i);
	pthread_mutex_unlock(&fs->lock);
	if (fuse_reply_entry(req, &e)) {
		pthread_mutex_lock(&fs->lock);
		inode_forget_locked(fs, i, 1);
		pthread_mutex_unlock(&fs->lock);
	}
}

static bool is_interrupted(void *arg)
{
	return fuse_req_interrupted(arg);
}

struct space_wait req_space_wait(fuse_req_t req)
{
	return (struct space_wait){
		.deadline_ns = now_mono_ns() + req_fs(req)->opt->space_wait_ms * 1000000ll,
		.is_interrupted = is_interrupted,
		.arg = req,
	};
}
