/* SPDX-License-Identifier: Apache-2.0 */
#include "object/adopt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/parse.h"
#include "fs.h"
#include "inode_table.h"
#include "object/namespace.h"
#include "object/object.h"

/* Frame ids found on a tier, sorted; used: some object named it. */
struct frame_set {
	uint64_t *ids;
	bool *used;
	size_t n, cap;
};

struct adoption {
	struct fs *fs;
	struct frame_set dram, ssd;
	struct catalog_batch *lost;  /* records and names to remove */
	struct object_record **promises;
	size_t n_promises, n_lost;
	uint64_t dram_bytes;
};

static int add_frame(void *arg, uint64_t id)
{
	struct frame_set *s = arg;

	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 1024;
		s->ids = realloc(s->ids, s->cap * sizeof(*s->ids));
		if (!s->ids)
			abort();
	}
	s->ids[s->n++] = id;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int scan(struct tier *t, struct frame_set *s)
{
	int rc = tier_call(t, scan, add_frame, s);

	if (rc)
		return rc;
	if (s->n)
		qsort(s->ids, s->n, sizeof(*s->ids), by_id);
	s->used = xcalloc(s->n + 1, sizeof(*s->used));
	return 0;
}

static bool take_frame(struct frame_set *s, uint64_t id)
{
	uint64_t *p = id && s->n ? bsearch(&id, s->ids, s->n, sizeof(*s->ids), by_id) : NULL;

	if (!p)
		return false;
	s->used[p - s->ids] = true;
	return true;
}

/* The name goes with the object, if it still shows it. */
static void remove_lost(struct adoption *a, const struct object_record *r)
{
	struct entry e;

	catalog_batch_del_object(a->lost, r->object_id);
	if (catalog_lookup(a->fs->catalog, r->parent, r->name, &e) == 0) {
		if (e.object_id == r->object_id)
			catalog_batch_del_entry(a->lost, r->parent, r->name);
		entry_fini(&e);
	}
	a->n_lost++;
}

static void keep_promise_for_later(struct adoption *a, const struct object_record *r)
{
	struct object_record *copy = xcalloc(1, sizeof(*copy));

	/* The scan's iterator forbids writes here. */
	if (catalog_object_get(a->fs->catalog, r->object_id, copy)) {
		free(copy);
		return;
	}
	a->promises = realloc(a->promises, (a->n_promises + 1) * sizeof(*a->promises));
	if (!a->promises)
		abort();
	a->promises[a->n_promises++] = copy;
}

static int adopt_one(void *arg, const struct object_record *r)
{
	struct adoption *a = arg;
	struct object_record here = *r;

	if (!take_frame(&a->dram, r->dram_frame))
		here.dram_frame = 0;
	if (!take_frame(&a->ssd, r->ssd_frame))
		here.ssd_frame = 0;
	if (r->size && !here.dram_frame && !here.ssd_frame) {
		remove_lost(a, r);
		return 0;
	}
	if (r->is_promise) {
		keep_promise_for_later(a, r);
		return 0;
	}
	if (here.dram_frame) {
		tier_call(a->fs->dram, adopt, here.dram_frame, r->charged_bytes);
		a->dram_bytes += r->charged_bytes;
	} else {
		here.charged_bytes = 0;
	}
	if (here.ssd_frame)
		tier_call(a->fs->ssd, adopt, here.ssd_frame, (r->size + 4095) & ~4095ull);
	/* In the order of their ids the oldest version is the first to go. */
	object_add_locked(a->fs, &here, 0);
	a->fs->n_adopted++;
	return 0;
}

/* A writer died with the daemon: what it fsynced is published under the name it had. */
static int publish_promise(struct adoption *a, struct object_record *r)
{
	struct fs *fs = a->fs;
	struct entry old;
	struct entry *e = r->promise_entry;
	struct catalog_batch *b = catalog_batch_create(fs->catalog);

	if (catalog_lookup(fs->catalog, r->parent, r->name, &old) == 0) {
		struct object *o = old.object_id ? object_find_locked(fs, old.object_id) : NULL;
		bool is_dir = S_ISDIR(old.mode);
		if (!is_dir && old.object_id)
			catalog_batch_del_object(b, old.object_id);
		entry_fini(&old);
		if (is_dir) {
			catalog_batch_destroy(b);
			log_error("fsynced file \"%s\": a directory has its name now", r->name);
			return 0;
		}
		if (o && object_retire_locked(fs, o, false))
			object_free_unlocked(fs, o);
	}
	r->promise_entry = NULL;
	r->is_promise = 0;
	r->dram_frame = r->charged_bytes = 0;
	catalog_batch_put_entry(b, r->parent, r->name, e);
	catalog_batch_put_object(b, r);
	entry_fini(e);
	free(e);
	int rc = catalog_batch_commit(b, true);
	if (rc)
		return rc;
	if (r->ssd_frame)
		tier_call(fs->ssd, adopt, r->ssd_frame, (r->size + 4095) & ~4095ull);
	object_add_locked(fs, r, 0);
	counter_inc(promises_kept);
	log_info("\"%s\" is published as of its last fsync", r->name);
	return 0;
}

static uint64_t remove_orphans(struct tier *t, const struct frame_set *s)
{
	uint64_t n = 0;

	for (size_t k = 0; k < s->n; k++)
		if (!s->used[k] && tier_call(t, remove_orphan, s->ids[k]) == 0)
			n++;
	return n;
}

static int ensure_root(struct fs *fs)
{
	struct entry e;
	int rc = catalog_lookup(fs->catalog, ROOT_PARENT, ROOT_NAME, &e);

	if (rc == -ENOENT) {
		e = (struct entry){ .ino = CATALOG_ROOT_INO, .mode = S_IFDIR | 0755, .uid = geteuid(),
				    .gid = getegid() };
		e.atime_ns = e.mtime_ns = e.ctime_ns = e.btime_ns = now_real_ns();
		struct catalog_batch *b = catalog_batch_create(fs->catalog);
		catalog_batch_put_entry(b, ROOT_PARENT, ROOT_NAME, &e);
		rc = catalog_batch_commit(b, true);
	}
	if (rc)
		return rc;
	pthread_mutex_lock(&fs->lock);
	struct inode *root = inode_create_locked(fs, CATALOG_ROOT_INO, INODE_DIR, 0, NULL, &e);
	root->nlookup = 1;
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

int adopt_all(struct fs *fs)
{
	struct adoption a = { .fs = fs };
	uint64_t n_corrupt = 0;
	char size[16];

	int rc = ensure_root(fs);
	if (!rc)
		rc = scan(fs->dram, &a.dram);
	if (!rc)
		rc = scan(fs->ssd, &a.ssd);
	a.lost = catalog_batch_create(fs->catalog);
	if (!rc)
		rc = catalog_scan_objects(fs->catalog, adopt_one, &a, &n_corrupt);
	if (!rc)
		rc = catalog_batch_commit(a.lost, false);
	else
		catalog_batch_destroy(a.lost);
	for (size_t k = 0; k < a.n_promises; k++) {
		if (!rc)
			rc = publish_promise(&a, a.promises[k]);
		object_record_fini(a.promises[k]);
		free(a.promises[k]);
	}
	free(a.promises);
	if (!rc) {
		/* A frame may belong to a record that cannot be read: nothing is lost for good then. */
		uint64_t n_orphans = n_corrupt ? 0 : remove_orphans(fs->dram, &a.dram) +
						     remove_orphans(fs->ssd, &a.ssd);
		if (n_corrupt)
			log_error("%" PRIu64 " catalog records are damaged; no frame is removed as an orphan",
				  n_corrupt);
		log_info("adopted %" PRIu64 " objects, %s in dram; %zu lost, %" PRIu64
			 " corrupt records, %" PRIu64 " orphan frames removed",
			 fs->n_adopted, format_size(a.dram_bytes, size, sizeof(size)), a.n_lost,
			 n_corrupt, n_orphans);
	}
	free(a.dram.ids);
	free(a.dram.used);
	free(a.ssd.ids);
	free(a.ssd.used);
	return rc;
}
