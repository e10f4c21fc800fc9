/* SPDX-License-Identifier: Apache-2.0 */
#include "inode_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs.h"
#include "object/draft.h"
#include "object/namespace.h"
#include "object/object.h"

#define ROOT_NODEID 1
#define MAX_FLUSH 256

struct inode_table {
	struct inode **buckets;
	size_t n_buckets; /* power of two */
	size_t n;
	struct inode *root;
	struct inode *dirty; /* may have become clean since */
};

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (!p) {
		log_error("out of memory");
		abort();
	}
	return p;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);
	if (!p) {
		log_error("out of memory");
		abort();
	}
	return p;
}

static size_t bucket_of(const struct inode_table *t, uint64_t key)
{
	return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (t->n_buckets - 1);
}

struct inode_table *inode_table_create(void)
{
	struct inode_table *t = xcalloc(1, sizeof(*t));
	t->n_buckets = 4096;
	t->buckets = xcalloc(t->n_buckets, sizeof(*t->buckets));
	return t;
}

static void inode_free(struct inode *i)
{
	free(i->name);
	entry_fini(&i->e);
	free(i);
}

void inode_table_destroy(struct inode_table *t)
{
	if (!t)
		return;
	for (size_t b = 0; b < t->n_buckets; b++)
		for (struct inode *i = t->buckets[b], *next; i; i = next) {
			next = i->hash_next;
			if (i->draft)
				draft_abandon(i->draft);
			inode_free(i);
		}
	free(t->buckets);
	free(t);
}

static void grow(struct inode_table *t)
{
	size_t old_n = t->n_buckets;
	struct inode **old = t->buckets;

	t->n_buckets *= 2;
	t->buckets = xcalloc(t->n_buckets, sizeof(*t->buckets));
	for (size_t b = 0; b < old_n; b++)
		for (struct inode *i = old[b], *next; i; i = next) {
			next = i->hash_next;
			size_t nb = bucket_of(t, i->key);
			i->hash_next = t->buckets[nb];
			t->buckets[nb] = i;
		}
	free(old);
}

struct inode *inode_of(struct fs *fs, uint64_t nodeid)
{
	return nodeid == ROOT_NODEID ? fs->inodes->root : (struct inode *)(uintptr_t)nodeid;
}

uint64_t inode_nodeid(struct fs *fs, const struct inode *i)
{
	return i == fs->inodes->root ? ROOT_NODEID : (uint64_t)(uintptr_t)i;
}

struct inode *inode_find(struct fs *fs, uint64_t key)
{
	struct inode_table *t = fs->inodes;
	struct inode *i = t->buckets[bucket_of(t, key)];

	while (i && i->key != key)
		i = i->hash_next;
	return i;
}

struct inode *inode_create_locked(struct fs *fs, uint64_t key, enum inode_kind kind, uint64_t parent,
				  const char *name, struct entry *e)
{
	struct inode_table *t = fs->inodes;
	struct inode *i = xcalloc(1, sizeof(*i));

	if (t->n >= t->n_buckets)
		grow(t);
	i->key = key;
	i->kind = kind;
	i->refs = 1;
	i->parent = parent;
	i->name = name ? xstrdup(name) : NULL;
	i->e = *e;
	e->target = NULL;
	size_t b = bucket_of(t, key);
	i->hash_next = t->buckets[b];
	t->buckets[b] = i;
	t->n++;
	if (key == CATALOG_ROOT_INO)
		t->root = i;
	return i;
}

struct inode *inode_get_entry_locked(struct fs *fs, uint64_t parent, const char *name,
				     struct entry *e)
{
	bool is_file = S_ISREG(e->mode);
	uint64_t key = is_file ? e->object_id : e->ino;
	struct inode *i = inode_find(fs, key);

	if (i) {
		i->refs++;
		entry_fini(e);
		return i;
	}
	enum inode_kind kind = is_file ? INODE_OBJECT : S_ISDIR(e->mode) ? INODE_DIR : INODE_SYMLINK;
	i = inode_create_locked(fs, key, kind, parent, name, e);
	if (is_file)
		object_attach_inode_locked(fs, i);
	return i;
}

static void maybe_free(struct fs *fs, struct inode *i)
{
	struct inode_table *t = fs->inodes;

	if (i->nlookup || i->refs || i == t->root || i->is_dirty || i->is_listed)
		return;
	for (struct inode **p = &t->buckets[bucket_of(t, i->key)]; *p; p = &(*p)->hash_next)
		if (*p == i) {
			*p = i->hash_next;
			break;
		}
	t->n--;
	if (i->object)
		object_detach_inode_locked(fs, i);
	inode_free(i);
}

void inode_get_locked(struct inode *i)
{
	i->refs++;
}

static uint32_t now_s(void)
{
	return (uint32_t)(now_mono_ns() / 1000000000);
}

void inode_looked_up_locked(struct inode *i, uint32_t tid)
{
	if (i->looker != tid)
		i->others_looked_s = i->looked_s;
	i->looker = tid;
	i->looked_s = now_s();
}

bool inode_is_awaited_locked(const struct inode *i, uint32_t tid)
{
	uint32_t when_s = i->looker == tid ? i->others_looked_s : i->looked_s;

	return when_s && now_s() - when_s <= REPLACED_GRACE_NS / 1000000000;
}

void inode_put_locked(struct fs *fs, struct inode *i)
{
	i->refs--;
	maybe_free(fs, i);
}

void inode_forget_locked(struct fs *fs, struct inode *i, uint64_t nlookup)
{
	i->nlookup -= nlookup < i->nlookup ? nlookup : i->nlookup;
	maybe_free(fs, i);
}

void inode_set_name_locked(struct inode *i, uint64_t parent, const char *name)
{
	i->parent = parent;
	free(i->name);
	i->name = name ? xstrdup(name) : NULL;
}

void inode_dir_changed_locked(struct fs *fs, uint64_t dir_ino)
{
	struct inode *dir = inode_find(fs, dir_ino);

	if (!dir || dir->kind != INODE_DIR)
		return;
	dir->e.mtime_ns = dir->e.ctime_ns = now_real_ns();
	dir->is_dirty = true;
	if (dir->is_listed)
		return;
	dir->is_listed = true;
	dir->dirty_next = fs->inodes->dirty;
	fs->inodes->dirty = dir;
}

uint64_t inode_count_locked(struct fs *fs)
{
	return fs->inodes->n;
}

static size_t collect_dirty(struct fs *fs, struct inode **list, size_t max)
{
	struct inode_table *t = fs->inodes;
	size_t n = 0;

	guard_lock(&fs->lock);
	while (t->dirty && n < max) {
		struct inode *i = t->dirty;
		t->dirty = i->dirty_next;
		i->is_listed = false;
		if (i->is_dirty) {
			i->refs++;
			i->is_dirty = false;
			list[n++] = i;
		} else {
			maybe_free(fs, i);
		}
	}
	return n;
}

int inode_flush_dirty(struct fs *fs)
{
	struct inode *list[MAX_FLUSH];
	size_t n = collect_dirty(fs, list, MAX_FLUSH);

	for (size_t k = 0; k < n; k++) {
		ns_store_attr(fs, list[k]);
		guard_lock(&fs->lock);
		inode_put_locked(fs, list[k]);
	}
	return (int)n;
}
