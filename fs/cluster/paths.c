/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "mcfs/catalog.h"
#include "object/object.h"

/* Deeper than any path that fits. */
#define MAX_DEPTH (PEER_PATH_MAX / 2)

struct row {
	struct row *next;
	uint64_t ino, parent;
	char name[];
};

struct dir_paths {
	pthread_mutex_t lock;
	struct row **buckets;
	size_t n_buckets, n; /* n_buckets: a power of two */
};

static size_t bucket_of(const struct dir_paths *p, uint64_t ino)
{
	return (size_t)((ino * 0x9e3779b97f4a7c15ull) >> 20) & (p->n_buckets - 1);
}

static struct row *find(const struct dir_paths *p, uint64_t ino)
{
	struct row *r = p->buckets[bucket_of(p, ino)];

	while (r && r->ino != ino)
		r = r->next;
	return r;
}

static void grow(struct dir_paths *p)
{
	struct row **old = p->buckets;
	size_t old_n = p->n_buckets;

	p->n_buckets *= 2;
	p->buckets = xcalloc(p->n_buckets, sizeof(*p->buckets));
	for (size_t b = 0; b < old_n; b++)
		for (struct row *r = old[b], *next; r; r = next) {
			next = r->next;
			struct row **to = &p->buckets[bucket_of(p, r->ino)];
			r->next = *to;
			*to = r;
		}
	free(old);
}

void dir_paths_put(struct dir_paths *p, uint64_t ino, uint64_t parent, const char *name)
{
	size_t len = strlen(name);

	guard_lock(&p->lock);
	if (find(p, ino))
		return;
	if (p->n == p->n_buckets)
		grow(p);
	struct row *r = xcalloc(1, sizeof(*r) + len + 1);
	r->ino = ino;
	r->parent = parent;
	memcpy(r->name, name, len);
	struct row **b = &p->buckets[bucket_of(p, ino)];
	r->next = *b;
	*b = r;
	p->n++;
}

void dir_paths_remove(struct dir_paths *p, uint64_t ino)
{
	guard_lock(&p->lock);
	for (struct row **at = &p->buckets[bucket_of(p, ino)]; *at; at = &(*at)->next)
		if ((*at)->ino == ino) {
			struct row *r = *at;
			*at = r->next;
			free(r);
			p->n--;
			return;
		}
}

static int on_name(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	if (S_ISDIR(e->mode) && e->ino != CATALOG_ROOT_INO)
		dir_paths_put(arg, e->ino, parent, name);
	return 0;
}

int dir_paths_create(struct catalog *c, struct dir_paths **out)
{
	struct dir_paths *p = xcalloc(1, sizeof(*p));

	pthread_mutex_init(&p->lock, NULL);
	p->n_buckets = 1024;
	p->buckets = xcalloc(p->n_buckets, sizeof(*p->buckets));
	int rc = catalog_scan_names(c, on_name, p, NULL);
	if (rc) {
		dir_paths_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

void dir_paths_destroy(struct dir_paths *p)
{
	if (!p)
		return;
	for (size_t b = 0; b < p->n_buckets; b++)
		for (struct row *r = p->buckets[b], *next; r; r = next) {
			next = r->next;
			free(r);
		}
	free(p->buckets);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int dir_paths_get(struct dir_paths *p, uint64_t ino, char path_out[PEER_PATH_MAX])
{
	char buf[PEER_PATH_MAX];
	size_t at = sizeof(buf) - 1;

	buf[at] = '\0';
	guard_lock(&p->lock);
	for (int depth = 0; ino != CATALOG_ROOT_INO; depth++) {
		const struct row *r = find(p, ino);
		if (!r || depth == MAX_DEPTH)
			return -ENOENT;
		size_t len = strlen(r->name);
		if (len + 1 > at)
			return -ENAMETOOLONG;
		at -= len;
		memcpy(buf + at, r->name, len);
		buf[--at] = '/';
		ino = r->parent;
	}
	strcpy(path_out, buf[at] ? buf + at : "/");
	return 0;
}

int dir_paths_find(struct catalog *c, const char *path, uint64_t *ino_out)
{
	char name[CATALOG_NAME_MAX + 1];
	uint64_t ino = CATALOG_ROOT_INO;
	struct entry e;

	for (const char *p = path; *(p += strspn(p, "/"));) {
		size_t len = strcspn(p, "/");
		if (len > CATALOG_NAME_MAX)
			return -ENOENT;
		memcpy(name, p, len);
		name[len] = '\0';
		p += len;
		int rc = catalog_lookup(c, ino, name, &e);
		if (rc)
			return rc;
		bool is_dir = S_ISDIR(e.mode);
		ino = e.ino;
		entry_fini(&e);
		if (!is_dir)
			return -ENOTDIR;
	}
	*ino_out = ino;
	return 0;
}

bool dir_path_is_kv(const char *path)
{
	return !strncmp(path, "/kv", 3) && (path[3] == '/' || !path[3]);
}
