/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote: names that other nodes have.
 *
 * A directory is made in our own catalog when it is met; it has no bytes and its entry is small. A file or symlink is an
 * inode alone, which the kernel looks up each time, since nobody tells us of its changes: only holders are told. A file's
 * inode has the number its object will have here (it is the same object), so the nodeid stays when it is fetched, and is
 * revived when the fetched copy is evicted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "inode_table.h"
#include "mcfs/catalog.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/version.h"

/* The directory bounds the wait of a lookup by itself; this is for whatever does not. */
#define LOOKUP_NS (1000ll * 1000 * 1000)
#define LIST_NS (5000ll * 1000 * 1000)
/* Between an open that was stale and the kernel's next walk, and from its LOOKUP to its OPEN. */
#define RETRY_NS (2000ll * 1000 * 1000)
#define MAX_TRIES 20

void entry_of_value(const struct directory_value *v, struct entry *e)
{
	static const uint32_t types[] = { [DIRECTORY_FILE] = S_IFREG, [DIRECTORY_DIR] = S_IFDIR,
					  [DIRECTORY_SYMLINK] = S_IFLNK };

	*e = (struct entry){
		.ino = v->object,
		.object_id = v->kind == DIRECTORY_FILE ? v->object : 0,
		.size = v->size,
		.mode = types[v->kind] | (v->mode & 07777),
		.uid = v->uid,
		.gid = v->gid,
		.atime_ns = v->mtime_ns,
		.mtime_ns = v->mtime_ns,
		.btime_ns = v->mtime_ns,
		/* name_version of a copy must be the one that was announced. */
		.ctime_ns = version_time_ns(v->version),
	};
	if (v->kind == DIRECTORY_SYMLINK)
		e->target = xstrdup(v->target ? v->target : "");
}

static bool is_there(const struct directory_value *v)
{
	return v->kind == DIRECTORY_FILE || v->kind == DIRECTORY_DIR || v->kind == DIRECTORY_SYMLINK;
}

/* Which slots have somebody else who is alive, as far as one call has found out. */
struct slots {
	struct cluster *c;
	uint8_t known[DIRECTORY_SLOTS]; /* 0: not known; ALIVE, DEAD */
};
enum { ALIVE = 1, DEAD };

static bool is_alive(struct slots *s, uint16_t slot)
{
	struct directory_node n;

	if (slot >= DIRECTORY_SLOTS)
		return false;
	if (!s->known[slot]) {
		int rc = directory_node_of(s->c->directory, slot, &n, now_mono_ns() + LOOKUP_NS);
		s->known[slot] = rc || n.id == s->c->self.node ? DEAD : ALIVE;
	}
	return s->known[slot] == ALIVE;
}

/*
 * Somebody else who is alive has it. Neither counts who has not heard yet that the name was removed here.
 */
static bool is_had(struct slots *s, const char *dir, const char *name, const struct directory_value *v)
{
	bool is_alive_somewhere = false;

	for (uint32_t k = 0; k < v->n_holders && !is_alive_somewhere; k++)
		is_alive_somewhere = is_alive(s, v->holders[k]);
	return is_alive_somewhere && (dir_path_is_kv(dir) || tombstone_of(s->c->fs, dir, name) < v->version);
}

static bool is_held_here(struct cluster *c, const struct directory_value *v)
{
	int self = directory_slot(c->directory);

	for (uint32_t k = 0; k < v->n_holders; k++)
		if (v->holders[k] == self)
			return true;
	return false;
}

/* -EAGAIN: we alone have it, says the directory; the catalog, asked before, did not. */
static int look_up(struct fs *fs, uint64_t dir_ino, const char *name, struct directory_value *v)
{
	struct cluster *c = fs->cluster;
	char dir[PEER_PATH_MAX];

	int rc = c ? dir_paths_get(c->paths, dir_ino, dir) : -ENOENT;
	if (rc)
		return -ENOENT;
	counter_inc(remote_lookups);
	if (directory_lookup(c->directory, &(struct directory_name){ dir, name }, 1, v, now_mono_ns() + LOOKUP_NS))
		return -ENOENT;
	if (v->version)
		version_observe(fs->clock, v->version); /* whoever changes the name after this look comes later */
	struct slots s = { .c = c };
	if (is_there(v) && is_had(&s, dir, name, v))
		return 0;
	rc = is_there(v) && is_held_here(c, v) ? -EAGAIN : -ENOENT;
	directory_value_fini(v);
	return rc;
}

static int find_entry(struct fs *fs, uint64_t dir_ino, const char *name, struct entry *e_out)
{
	struct directory_value v;
	int rc = look_up(fs, dir_ino, name, &v);

	if (rc)
		return rc;
	entry_of_value(&v, e_out);
	directory_value_fini(&v);
	return 0;
}

int remote_entry(struct fs *fs, uint64_t dir_ino, const char *name, struct entry *e_out)
{
	int rc = find_entry(fs, dir_ino, name, e_out);

	return rc == -EAGAIN ? -ENOENT : rc;
}

void remote_disown(struct fs *fs, uint64_t dir_ino, const char *name)
{
	char dir[PEER_PATH_MAX];

	if (!dir_paths_get(fs->cluster->paths, dir_ino, dir))
		fetch_disown(fs->cluster, dir_ino, dir, name, 0);
}

void remote_sizes(struct fs *fs, uint64_t dir_ino, const char *const *names, size_t n, int64_t *sizes_out)
{
	struct cluster *c = fs->cluster;
	autofree struct directory_name *asked = xcalloc(n, sizeof(*asked));
	autofree struct directory_value *values = xcalloc(n, sizeof(*values));
	autofree struct slots *s = xcalloc(1, sizeof(*s));
	char dir[PEER_PATH_MAX];

	for (size_t k = 0; k < n; k++)
		sizes_out[k] = -1;
	if (!c || dir_paths_get(c->paths, dir_ino, dir))
		return;
	s->c = c;
	for (size_t k = 0; k < n; k++)
		asked[k] = (struct directory_name){ dir, names[k] };
	counter_add(remote_lookups, n);
	if (directory_lookup(c->directory, asked, n, values, now_mono_ns() + LOOKUP_NS))
		return;
	for (size_t k = 0; k < n; k++) {
		if (values[k].kind == DIRECTORY_FILE && is_had(s, dir, names[k], &values[k]))
			sizes_out[k] = (int64_t)values[k].size;
		directory_value_fini(&values[k]);
	}
}

ssize_t remote_holders(struct fs *fs, uint64_t dir_ino, const char *name, char *buf, size_t size)
{
	struct directory_node node;
	struct directory_value v;
	struct cluster *c = fs->cluster;
	char dir[PEER_PATH_MAX];
	size_t n = 0;

	if (!c || dir_paths_get(c->paths, dir_ino, dir) ||
	    directory_lookup(c->directory, &(struct directory_name){ dir, name }, 1, &v, now_mono_ns() + LOOKUP_NS))
		return -ENODATA;
	for (uint32_t k = 0; k < v.n_holders && n < size; k++)
		if (!directory_node_of(c->directory, v.holders[k], &node, now_mono_ns() + LOOKUP_NS))
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "," : "", node.name);
	directory_value_fini(&v);
	return n >= size ? -ERANGE : n ? (ssize_t)n : -ENODATA;
}

/* ---- lookup ---- */

/* A directory or symlink is in our catalog from now on, with the number and attributes it has elsewhere. */
static int make_here(struct fs *fs, struct inode *dir, const char *name, struct entry *e)
{
	struct entry old;
	pthread_mutex_t *stripe = ns_lock_name(fs, dir->key, name);
	int rc = catalog_lookup(fs->catalog, dir->key, name, &old);

	if (!rc) {
		entry_fini(e);
		*e = old; /* somebody was faster */
	} else if (rc == -ENOENT) {
		pthread_mutex_lock(&fs->lock);
		e->policy = dir->e.policy;
		e->policy.class_is_set = 0;
		if (dir->key == CATALOG_ROOT_INO && !strcmp(name, "weights"))
			e->policy.class = MCFS_CLASS_KEEP;
		struct inode *link = S_ISLNK(e->mode) ? inode_find(fs, e->ino) : NULL;
		if (link)
			link->is_remote = false;
		pthread_mutex_unlock(&fs->lock);
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_entry(b, dir->key, name, e);
		rc = catalog_batch_commit(b, false);
		if (!rc)
			cluster_published(fs, dir->key, name, e, false);
	}
	pthread_mutex_unlock(stripe);
	return rc;
}

/* fs->lock held. The object is not here: opens fetch it. */
static struct inode *get_file_locked(struct fs *fs, uint64_t dir_ino, const char *name, struct entry *e)
{
	struct inode *i = inode_find(fs, e->object_id);

	/* Files that are still open on a copy that has gone keep the nodeid, with the frame that the kernel has for it. */
	if (!i || (i->kind == INODE_OBJECT && i->object && i->state != INODE_LIVE)) {
		i = inode_create_locked(fs, e->object_id, INODE_OBJECT, dir_ino, name, e);
		object_attach_inode_locked(fs, i); /* it may be here under another name */
	} else {
		inode_get_locked(i);
	}
	if (i->kind == INODE_OBJECT && !i->object) {
		i->state = INODE_LIVE;
		i->is_remote = true;
		if (!i->name || i->parent != dir_ino || strcmp(i->name, name))
			inode_set_name_locked(i, dir_ino, name);
		i->e = *e;
	}
	return i;
}

void remote_retry_follows(struct fs *fs, pid_t tid)
{
	struct cluster *c = fs->cluster;

	if (!c)
		return;
	guard_lock(&c->retry_lock);
	uint32_t k = c->next_retry++ % (sizeof(c->retries) / sizeof(*c->retries));
	c->retries[k].tid = tid;
	c->retries[k].until_ns = now_mono_ns() + RETRY_NS;
}

void remote_retry_ends(struct fs *fs, pid_t tid)
{
	struct cluster *c = fs->cluster;

	if (!c)
		return;
	guard_lock(&c->retry_lock);
	for (size_t k = 0; k < sizeof(c->retries) / sizeof(*c->retries); k++)
		if (c->retries[k].tid == tid)
			c->retries[k].until_ns = 0;
}

bool remote_is_retrying(struct fs *fs, pid_t tid)
{
	struct cluster *c = fs->cluster;

	guard_lock(&c->retry_lock);
	for (size_t k = 0; k < sizeof(c->retries) / sizeof(*c->retries); k++)
		if (c->retries[k].tid == tid && c->retries[k].until_ns > now_mono_ns())
			return true;
	return false;
}

void remote_promise_locked(struct inode *i)
{
	i->promised_ns = now_mono_ns() + RETRY_NS;
}

/* Here, and openable for a moment even if it is replaced at once. */
static int lookup_fetched(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
			  struct inode **inode_out)
{
	struct entry e;
	int rc = -ENOENT;

	/* It may be replaced between the two. */
	for (int n = 0; rc == -ENOENT && n < MAX_TRIES; n++) {
		rc = fetch_name(fs, dir->key, name, who->wait);
		if (rc)
			return rc;
		rc = catalog_lookup(fs->catalog, dir->key, name, &e);
	}
	if (rc)
		return rc;
	guard_lock(&fs->lock);
	*inode_out = inode_get_entry_locked(fs, dir->key, name, &e);
	remote_promise_locked(*inode_out);
	return 0;
}

int remote_lookup(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
		  struct inode **inode_out)
{
	struct entry e;
	int rc = dir->kind == INODE_DIR ? find_entry(fs, dir->key, name, &e) : -ENOENT;

	if (rc)
		return rc;
	if (S_ISREG(e.mode) && who->wait && remote_is_retrying(fs, who->tid))
		return lookup_fetched(fs, dir, name, who, inode_out);
	if (S_ISDIR(e.mode)) {
		rc = make_here(fs, dir, name, &e);
		cluster_settle(fs);
		if (rc)
			return rc;
	}
	guard_lock(&fs->lock);
	if (S_ISREG(e.mode)) {
		*inode_out = get_file_locked(fs, dir->key, name, &e);
	} else {
		*inode_out = inode_get_entry_locked(fs, dir->key, name, &e);
		if ((*inode_out)->kind == INODE_SYMLINK)
			(*inode_out)->is_remote = true;
	}
	return 0;
}

int remote_bring(struct fs *fs, struct inode *dir, const char *name, struct space_wait *w)
{
	struct entry e;
	int rc = fetch_name(fs, dir->key, name, w);

	if (rc != -ENOENT || remote_entry(fs, dir->key, name, &e))
		return rc;
	if (S_ISLNK(e.mode)) {
		rc = make_here(fs, dir, name, &e);
		cluster_settle(fs); /* takes it away again where it has changed meanwhile */
	}
	entry_fini(&e);
	return rc;
}

/* ---- listing ---- */

struct remote_listing {
	struct slots slots;
	const char *dir;
	remote_list_fn fn;
	void *arg;
};

static int on_listed(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	struct remote_listing *l = arg;
	struct entry e;

	if (!is_there(v) || !is_had(&l->slots, l->dir, name, v))
		return 0;
	entry_of_value(v, &e);
	int rc = l->fn(l->arg, cookie, name, &e);
	entry_fini(&e);
	return rc;
}

int remote_list(struct fs *fs, uint64_t dir_ino, uint64_t after, remote_list_fn fn, void *arg)
{
	char dir[PEER_PATH_MAX];
	struct remote_listing l = { { .c = fs->cluster }, dir, fn, arg };

	if (!fs->cluster || dir_paths_get(fs->cluster->paths, dir_ino, dir))
		return 0;
	return directory_list(fs->cluster->directory, dir, after, on_listed, &l, now_mono_ns() + LIST_NS);
}

static int on_any(void *arg, uint64_t cookie, const char *name, const struct entry *e)
{
	(void)arg;
	(void)cookie;
	(void)name;
	(void)e;
	return 1;
}

bool remote_has_entries(struct fs *fs, uint64_t dir_ino)
{
	return remote_list(fs, dir_ino, 0, on_any, NULL) == 1;
}
