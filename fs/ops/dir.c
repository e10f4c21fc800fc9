/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READDIR: a directory is the catalog's names merged with the drafts the caller sees, and with the names that other
 * nodes have, in cookie order.
 * The position of an entry is its cookie, so a listing needs no state here and survives changes; "."
 * and ".." have 1 and 2. READDIRPLUS takes a kernel inode per name: it goes on for PLUS_ENTRIES only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "control/control.h"
#include "fastpath/buffer.h"
#include "handle.h"
#include "mcfs/catalog.h"
#include "object/caller.h"
#include "object/object.h"
#include "ops/ops.h"

#define PLUS_ENTRIES 1000
#define MAX_LISTING_BYTES (1u << 20)

/* Of a part of the listing at a time: about what fits a reply. */
#define MAX_REMOTE 2048

/* A name that the catalog does not have, or shows as something else: the caller's draft, a remote name. */
struct extra {
	uint64_t cookie;
	char *name;
	struct entry e; /* without target */
	bool is_draft;
};

struct listing {
	fuse_req_t req;
	struct fs *fs;
	struct inode *dir;
	struct handle *h;
	bool is_plus;
	char *buf;
	size_t size, used;
	size_t run_start;       /* where the entries with the last cookie begin */
	uint64_t last_cookie;
	bool is_full;
	struct extra *extras;   /* in the order of their cookies, drafts before remote names */
	size_t n_extras, cap_extras, next_extra;
	uint64_t end;           /* remote names behind this cookie have not been asked for: so far it goes */
};

/* ---- one entry into the buffer; false: it does not fit ---- */

static bool add(struct listing *l, const char *name, struct inode *i, const struct entry *e,
		uint64_t cookie)
{
	struct fuse_entry_param p = { .attr = { .st_ino = e->ino, .st_mode = e->mode } };
	size_t room = l->size - l->used, need;

	need = l->is_plus ? fuse_add_direntry_plus(l->req, NULL, 0, name, NULL, 0)
			  : fuse_add_direntry(l->req, NULL, 0, name, NULL, 0);
	if (need > room) {
		/* A run of equal cookies is taken whole or not at all: it can only be resumed before. */
		if (cookie == l->last_cookie && l->run_start > 0)
			l->used = l->run_start;
		l->is_full = true;
		return false;
	}
	if (cookie != l->last_cookie) {
		l->run_start = l->used;
		l->last_cookie = cookie;
	}
	if (l->is_plus && i) {
		pthread_mutex_lock(&l->fs->lock);
		fill_entry_locked(l->fs, i, false, &p);
		i->nlookup++;
		pthread_mutex_unlock(&l->fs->lock);
	}
	l->used += l->is_plus ? fuse_add_direntry_plus(l->req, l->buf + l->used, room, name, &p,
						       (off_t)cookie)
			      : fuse_add_direntry(l->req, l->buf + l->used, room, name, &p.attr,
						  (off_t)cookie);
	l->h->n_listed++;
	return true;
}

static bool add_extra(struct listing *l)
{
	struct extra *x = &l->extras[l->next_extra];

	/* nodeid 0: the kernel learns the name, not an inode that other processes must not see */
	if (!add(l, x->name, NULL, &x->e, x->cookie))
		return false;
	l->next_extra++;
	return true;
}

/* Extras up to a cookie; one of the name that the catalog lists there is left out. False: the reply is full. */
static bool add_extras(struct listing *l, uint64_t cookie, const char *name)
{
	while (l->next_extra < l->n_extras && l->extras[l->next_extra].cookie <= cookie) {
		const struct extra *x = &l->extras[l->next_extra];
		bool is_twin = l->next_extra && !strcmp(x->name, x[-1].name);
		if (is_twin || (name && !strcmp(x->name, name)))
			l->next_extra++; /* one name, listed once */
		else if (!add_extra(l))
			return false;
	}
	return true;
}

static int on_entry(void *arg, uint64_t cookie, const char *name, size_t name_len,
		    const struct entry *e)
{
	struct listing *l = arg;
	struct inode *i = NULL;

	(void)name_len;
	if (cookie > l->end || !add_extras(l, cookie, name))
		return 1;
	if (l->is_plus && l->h->n_listed < PLUS_ENTRIES) {
		struct entry copy = *e;
		copy.target = e->target ? xstrdup(e->target) : NULL;
		pthread_mutex_lock(&l->fs->lock);
		i = inode_get_entry_locked(l->fs, l->dir->key, name, &copy);
		if (i->kind == INODE_OBJECT && (i->state != INODE_LIVE || l->dir->n_drafts)) {
			inode_put_locked(l->fs, i); /* shows different things to different processes */
			i = NULL;
		}
		pthread_mutex_unlock(&l->fs->lock);
	}
	bool fits = add(l, name, i, e, cookie);
	if (i) {
		pthread_mutex_lock(&l->fs->lock);
		inode_put_locked(l->fs, i);
		pthread_mutex_unlock(&l->fs->lock);
	}
	return fits ? 0 : 1;
}

/* ---- the caller's drafts in this directory, and what others have ---- */

static int by_cookie(const void *a, const void *b)
{
	const struct extra *x = a, *y = b;

	if (x->cookie != y->cookie)
		return x->cookie < y->cookie ? -1 : 1;
	int order = strcmp(x->name, y->name);
	return order ? order : y->is_draft - x->is_draft;
}

static void put_extra(struct listing *l, uint64_t cookie, const char *name, const struct entry *e, bool is_draft)
{
	if (l->n_extras == l->cap_extras) {
		l->cap_extras = l->cap_extras ? l->cap_extras * 2 : 64;
		l->extras = realloc(l->extras, l->cap_extras * sizeof(*l->extras));
		if (!l->extras)
			abort();
	}
	struct extra *x = &l->extras[l->n_extras++];
	*x = (struct extra){ .cookie = cookie, .name = xstrdup(name), .e = *e, .is_draft = is_draft };
	x->e.target = NULL;
}

static void collect_drafts(struct listing *l, uint64_t after)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(l->req);

	pthread_mutex_lock(&l->fs->lock);
	bool has_drafts = l->dir->n_drafts;
	pthread_mutex_unlock(&l->fs->lock);
	if (!has_drafts)
		return;
	struct caller_id who = { .tid = ctx->pid, .tgid = caller_tgid(ctx->pid), .uid = ctx->uid };
	guard_lock(&l->fs->lock);
	for (struct draft *d = l->dir->drafts; d; d = d->dir_next) {
		uint64_t cookie = catalog_name_cookie(d->inode->name);
		if (cookie > after && draft_is_visible_locked(d, &who))
			put_extra(l, cookie, d->inode->name, &d->inode->e, true);
	}
}

static int on_remote(void *arg, uint64_t cookie, const char *name, const struct entry *e)
{
	struct listing *l = arg;

	if (l->n_extras >= MAX_REMOTE && cookie != l->extras[l->n_extras - 1].cookie) {
		l->end = cookie - 1;
		return 1;
	}
	put_extra(l, cookie, name, e, false);
	return 0;
}

/* Before the drafts: whose end is known by the last one. */
static void collect_remote(struct listing *l, uint64_t after)
{
	l->end = UINT64_MAX;
	int rc = l->fs->cluster ? remote_list(l->fs, l->dir->key, after, on_remote, l) : 0;
	if (rc < 0)
		log_debug("the names that others have are not listed: %s", strerror(-rc));
}

static void release_extras(struct listing *l)
{
	for (size_t k = 0; k < l->n_extras; k++)
		free(l->extras[k].name);
	free(l->extras);
}

/* ---- the operations ---- */

static int list_buffers(struct listing *l, uint64_t after)
{
	char name[CATALOG_NAME_MAX + 1];

	for (;;) {
		pthread_mutex_lock(&l->fs->lock);
		const struct buffer *b = buffer_next_locked(l->fs, after);
		struct entry e = b ? b->inode->e : (struct entry){ 0 };
		if (b)
			strcpy(name, b->inode->name);
		pthread_mutex_unlock(&l->fs->lock);
		if (!b || !add(l, name, NULL, &e, e.ino))
			return 0;
		after = e.ino;
	}
}

static int list_control(struct listing *l, uint64_t after)
{
	struct inode *i;
	const char *name;

	for (unsigned int k = 0; (name = control_dir_entry(l->fs, k, &i)); k++)
		if (k + 3 > after && !add(l, name, NULL, &i->e, k + 3))
			break;
	return 0;
}

static int list(struct listing *l, uint64_t after)
{
	if (after < 1 && !add(l, ".", NULL, &l->dir->e, 1))
		return 0;
	if (after < 2 && !add(l, "..", NULL, &l->dir->e, 2))
		return 0;
	if (l->dir->kind == INODE_CONTROL && l->dir->control_id == CONTROL_BUFFERS)
		return list_buffers(l, after);
	if (l->dir->kind == INODE_CONTROL)
		return list_control(l, after);
	if (after < 2)
		after = 2;
	collect_remote(l, after);
	collect_drafts(l, after);
	if (l->n_extras)
		qsort(l->extras, l->n_extras, sizeof(*l->extras), by_cookie);
	int rc = catalog_readdir(l->fs->catalog, l->dir->key, after, on_entry, l);
	if (rc >= 0 && !l->is_full)
		add_extras(l, l->end, NULL);
	release_extras(l);
	return rc < 0 ? rc : 0;
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi, bool is_plus)
{
	struct fs *fs = req_fs(req);

	if (size > MAX_LISTING_BYTES)
		size = MAX_LISTING_BYTES;
	autofree char *buf = malloc(size);
	if (!buf) {
		reply_err(req, -ENOMEM);
		return;
	}
	struct listing l = { .req = req, .fs = fs, .dir = inode_of(fs, ino), .is_plus = is_plus,
			     .h = (struct handle *)(uintptr_t)fi->fh, .buf = buf, .size = size };
	if (off == 0)
		l.h->n_listed = 0;
	int rc = list(&l, (uint64_t)off);
	if (rc)
		reply_err(req, rc);
	else
		fuse_reply_buf(req, buf, l.used);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct inode *dir = inode_of(fs, ino);

	pthread_mutex_lock(&fs->lock);
	inode_get_locked(dir);
	pthread_mutex_unlock(&fs->lock);
	struct handle *h = handle_create(fs, HANDLE_DIR, dir);
	fi->fh = (uint64_t)(uintptr_t)h;
	fuse_reply_open(req, fi);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;

	(void)ino;
	handle_free(fs, h);
	reply_err(req, 0);
}
