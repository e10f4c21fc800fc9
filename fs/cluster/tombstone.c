/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tombstone: that a name was removed here, kept in the catalog beside the directory's own tombstone: if the directory
 * loses what it had, a holder that was away and comes back would bring the name back. Below kv/ that is no harm.
 *
 * In the catalog: control value "tombstone:" and the path of the name -> the version of the removal. One that is older
 * than a week is dropped when it is met.
 *
 * Thread safety: all functions. Locks: as of the catalog.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/version.h"

#define PREFIX "tombstone:"
/* As long as the directory keeps its own. */
#define KEEP_S (7ull * 24 * 3600)

uint64_t cluster_tombstone(struct fs *fs, struct catalog_batch *b, uint64_t dir_ino, const char *name)
{
	char dir[PEER_PATH_MAX], key[sizeof(PREFIX) + PEER_PATH_MAX + PEER_NAME_MAX + 2];

	if (!fs->cluster || dir_paths_get(fs->cluster->paths, dir_ino, dir))
		return 0;
	uint64_t version = version_next(fs->clock);
	if (!version || dir_path_is_kv(dir))
		return version;
	snprintf(key, sizeof(key), PREFIX "%s/%s", dir[1] ? dir : "", name);
	catalog_batch_put_control(b, key, version);
	return version;
}

uint64_t tombstone_of(struct fs *fs, const char *dir, const char *name)
{
	char key[sizeof(PREFIX) + PEER_PATH_MAX + PEER_NAME_MAX + 2];
	uint64_t version;

	snprintf(key, sizeof(key), PREFIX "%s/%s", dir[1] ? dir : "", name);
	return catalog_control_get(fs->catalog, key, &version) ? 0 : version;
}

struct walk {
	struct cluster *c;
	struct catalog_batch *expired;
	uint64_t n;
};

static int on_tombstone(void *arg, const char *path, uint64_t version)
{
	struct walk *w = arg;
	char dir[PEER_PATH_MAX], key[sizeof(PREFIX) + PEER_PATH_MAX + PEER_NAME_MAX + 2];
	const char *name = strrchr(path, '/');

	if (!name || (size_t)(name - path) >= sizeof(dir))
		return 0;
	if (version_age_s(version) > KEEP_S) {
		snprintf(key, sizeof(key), PREFIX "%s", path);
		catalog_batch_del_control(w->expired, key);
		return 0;
	}
	snprintf(dir, sizeof(dir), "%.*s", name == path ? 1 : (int)(name - path), path);
	announce_removed(w->c, dir, name + 1, version);
	w->n++;
	return 0;
}

uint64_t tombstones_announce(struct cluster *c)
{
	struct walk w = { .c = c, .expired = catalog_batch_create(c->fs->catalog) };
	int rc = catalog_control_scan(c->fs->catalog, PREFIX, on_tombstone, &w);

	if (!rc)
		rc = catalog_batch_commit(w.expired, false);
	else
		catalog_batch_destroy(w.expired);
	if (rc)
		log_error("cannot read the tombstones: %s", strerror(-rc));
	return w.n;
}
