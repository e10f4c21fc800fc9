/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move: a directory gets another name, and with it everything below. Between nodes names are paths, so all of them
 * change: allowed while nobody else has any of them, then announced anew behind the rename.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/object.h"

#define LIST_NS (5000ll * 1000 * 1000)

static bool is_ours_alone(struct cluster *c, const struct directory_value *v)
{
	int self = directory_slot(c->directory);

	for (uint32_t k = 0; k < v->n_holders; k++)
		if (v->holders[k] != self)
			return false;
	return true;
}

/* ---- before ---- */

struct search {
	struct cluster *c;
	char *subdirs[1024]; /* names met, to be looked into; more are too many to be sure */
	size_t n;
};

static int on_listed(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	struct search *s = arg;

	(void)cookie;
	if (!is_ours_alone(s->c, v))
		return 1;
	if (v->kind != DIRECTORY_DIR)
		return 0;
	if (s->n == sizeof(s->subdirs) / sizeof(*s->subdirs))
		return 1;
	s->subdirs[s->n++] = xstrdup(name);
	return 0;
}

static int search_below(struct cluster *c, const char *path);

static int search_subdir(struct cluster *c, const char *path, const char *name)
{
	autofree char *below = NULL;

	if (asprintf(&below, "%s/%s", path, name) < 0)
		return -ENOMEM;
	return strlen(below) < PEER_PATH_MAX ? search_below(c, below) : 1;
}

/* Everything below a path is ours alone: 0; else 1 or an error. */
static int search_below(struct cluster *c, const char *path)
{
	autofree struct search *s = xcalloc(1, sizeof(*s));

	s->c = c;
	int rc = directory_list(c->directory, path, 0, on_listed, s, now_mono_ns() + LIST_NS);
	for (size_t k = 0; k < s->n; k++) {
		if (!rc)
			rc = search_subdir(c, path, s->subdirs[k]);
		free(s->subdirs[k]);
	}
	return rc;
}

int cluster_may_move_dir(struct fs *fs, uint64_t dir_ino, const char *name)
{
	struct cluster *c = fs->cluster;
	char path[PEER_PATH_MAX];
	struct directory_value v;

	int rc = dir_paths_get(c->paths, dir_ino, path);
	if (!rc)
		rc = directory_lookup(c->directory, &(struct directory_name){ path, name }, 1, &v,
				      now_mono_ns() + LIST_NS);
	if (rc)
		return -EXDEV;
	bool is_ours = is_ours_alone(c, &v);
	directory_value_fini(&v);
	size_t len = strlen(path);
	if (!is_ours || snprintf(path + len, sizeof(path) - len, "%s%s", len > 1 ? "/" : "", name) >=
				(int)(sizeof(path) - len))
		return -EXDEV;
	return search_below(c, path) ? -EXDEV : 0;
}

/* ---- after ---- */

struct walk {
	struct cluster *c;
	uint64_t ino;
	const char *from, *to; /* paths of that directory */
};

static void announce_below(struct cluster *c, uint64_t ino, const char *from, const char *to);

static int on_entry(void *arg, uint64_t cookie, const char *name, size_t name_len, const struct entry *e)
{
	struct walk *w = arg;
	autofree char *from = NULL, *to = NULL;

	(void)cookie;
	(void)name_len;
	directory_retract(w->c->directory, w->from, name, 0, NULL, NULL);
	announce_entry(w->c, w->ino, w->to, name, e);
	if (S_ISDIR(e->mode) && asprintf(&from, "%s/%s", w->from, name) > 0 && asprintf(&to, "%s/%s", w->to, name) > 0)
		announce_below(w->c, e->ino, from, to);
	return 0;
}

static void announce_below(struct cluster *c, uint64_t ino, const char *from, const char *to)
{
	struct walk w = { c, ino, from, to };

	if (strlen(from) < PEER_PATH_MAX && strlen(to) < PEER_PATH_MAX)
		catalog_readdir(c->fs->catalog, ino, 0, on_entry, &w);
}

void cluster_dir_moved(struct fs *fs, uint64_t ino, uint64_t to_dir, const char *to_name)
{
	struct cluster *c = fs->cluster;
	char from[PEER_PATH_MAX], to[PEER_PATH_MAX];

	if (!c)
		return;
	int rc = dir_paths_get(c->paths, ino, from);
	dir_paths_remove(c->paths, ino);
	dir_paths_put(c->paths, ino, to_dir, to_name);
	if (!rc && !dir_paths_get(c->paths, ino, to))
		announce_below(c, ino, from, to);
}
