/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/counters.h"
#include "cluster/cluster.h"
#include "control/control.h"
#include "mcfs/catalog.h"
#include "object/namespace.h"
#include "ops/ops.h"

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct inode *dir = inode_of(fs, parent), *i;
	bool has_draft;

	counter_inc(lookups);
	if (strlen(name) > CATALOG_NAME_MAX) {
		reply_err(req, -ENAMETOOLONG);
		return;
	}
	i = control_lookup(fs, dir, name);
	if (i) {
		reply_entry(req, i, false);
		return;
	}
	struct caller_id who = ns_caller(fs, ctx->pid, ctx->uid, dir->key, name, 0, NULL);
	struct space_wait w = req_space_wait(req);
	who.wait = &w;
	int rc = ns_lookup(fs, dir, name, &who, &i, &has_draft);
	if (rc) {
		remote_retry_ends(fs, ctx->pid);
		if (rc == -ENOENT)
			counter_inc(lookup_misses);
		reply_err(req, rc);
		return;
	}
	reply_entry(req, i, has_draft);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	struct fs *fs = req_fs(req);

	pthread_mutex_lock(&fs->lock);
	inode_forget_locked(fs, inode_of(fs, ino), nlookup);
	pthread_mutex_unlock(&fs->lock);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *fs = req_fs(req);

	pthread_mutex_lock(&fs->lock);
	for (size_t k = 0; k < count; k++)
		inode_forget_locked(fs, inode_of(fs, forgets[k].ino), forgets[k].nlookup);
	pthread_mutex_unlock(&fs->lock);
	fuse_reply_none(req);
}
