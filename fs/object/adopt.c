/* SPDX-License-Identifier: Apache-2.0 */
#include "object/adopt.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/parse.h"
#include "fs.h"
#include "inode_table.h"
#include "object/adopt_promise.h"
#include "object/copies.h"
#include "object/frame_set.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/sweep.h"
#include "options.h"

/* Records per batch when many have to go. */
#define BATCH_RECORDS 4096
/* From so many lost objects on, their names are found by one walk over all names. */
#define WALK_FROM_LOST 8192
/* So many orphans in DRAM are the free list and the drafts of a killed daemon, and take memory. */
#define DRAM_ORPHANS_AT_ONCE 4096

struct id_list {
	uint64_t *ids; /* ascending, as the scan found them */
	size_t n, cap;
};

struct adoption {
	struct fs *fs;
	struct frame_set dram, ssd;
	struct id_list lost, promises;
	uint64_t dram_bytes, n_corrupt;
	uint64_t n_absent; /* on a disk that is not there, and may be again */
	/* Of what is being removed: the batch under way. */
	struct catalog_batch *batch;
	unsigned n_in_batch;
};

static int id_list_add(struct id_list *l, uint64_t id)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 1024;
		uint64_t *ids = reallocarray(l->ids, cap, sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		l->ids = ids;
		l->cap = cap;
	}
	l->ids[l->n++] = id;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int scan_frames(struct tier *t, struct frame_set *s)
{
	int rc = tier_call(t, scan, frame_set_add, s);

	return rc ? rc : frame_set_sort(s);
}

/* ---- objects ---- */

static int adopt_one(void *arg, const struct object_record *r)
{
	struct adoption *a = arg;
	struct object_record here = *r;

	if (!frame_set_take(&a->dram, r->dram_frame))
		here.dram_frame = 0;
	if (!frame_set_take(&a->ssd, r->ssd_frame))
		here.ssd_frame = 0;
	if (r->size && !here.dram_frame && !here.ssd_frame) {
		if (r->ssd_frame && tier_call(a->fs->ssd, may_return, r->ssd_frame)) {
			a->n_absent++; /* its name shows nothing until then */
			return 0;
		}
		return id_list_add(&a->lost, r->object_id);
	}
	if (r->is_promise)
		return id_list_add(&a->promises, r->object_id);
	if (here.dram_frame) {
		tier_call(a->fs->dram, adopt, here.dram_frame, r->charged_bytes);
		a->dram_bytes += r->charged_bytes;
	} else {
		here.charged_bytes = 0;
	}
	if (here.ssd_frame)
		tier_call(a->fs->ssd, adopt, here.ssd_frame, ssd_charge(r->size));
	/* In the order of their ids the oldest version is the first to go. */
	struct object *o = object_add_locked(a->fs, &here, 0);
	object_set_ttl_locked(a->fs, o, r->ttl_s);
	a->fs->n_adopted++;
	return 0;
}

/* ---- what is lost ---- */

/* One more record is in the batch; a full one is written. */
static int batch_step(struct adoption *a)
{
	if (++a->n_in_batch < BATCH_RECORDS)
		return 0;
	a->n_in_batch = 0;
	int rc = catalog_batch_commit(a->batch, false);
	a->batch = catalog_batch_create(a->fs->catalog);
	return rc;
}

static int remove_name_of_lost(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	struct adoption *a = arg;

	if (!e->object_id ||
	    !bsearch(&e->object_id, a->lost.ids, a->lost.n, sizeof(*a->lost.ids), by_id))
		return 0;
	catalog_batch_del_entry(a->batch, parent, name);
	return batch_step(a);
}

/* The name goes with the object, if it still shows it. */
static int remove_name_by_record(struct adoption *a, uint64_t object_id)
{
	struct object_record r;
	struct entry e;

	int rc = catalog_object_get(a->fs->catalog, object_id, &r);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	if (r.name_len && catalog_lookup(a->fs->catalog, r.parent, r.name, &e) == 0) {
		if (e.object_id == object_id)
			catalog_batch_del_entry(a->batch, r.parent, r.name);
		entry_fini(&e);
	}
	object_record_fini(&r);
	return batch_step(a);
}

/*
 * Names before records: what is left of either when the machine fails in between is found again by the
 * next start. After a reboot that is most of the catalog, so a walk takes the place of many lookups.
 */
static int remove_lost(struct adoption *a)
{
	struct catalog *c = a->fs->catalog;
	int rc = 0;

	if (!a->lost.n)
		return 0;
	a->batch = catalog_batch_create(c);
	if (a->lost.n >= WALK_FROM_LOST)
		rc = catalog_scan_names(c, remove_name_of_lost, a, NULL);
	else
		for (size_t k = 0; !rc && k < a->lost.n; k++)
			rc = remove_name_by_record(a, a->lost.ids[k]);
	for (size_t k = 0; !rc && k < a->lost.n; k++) {
		catalog_batch_del_object(a->batch, a->lost.ids[k]);
		rc = batch_step(a);
	}
	if (!rc)
		return catalog_batch_commit(a->batch, false);
	catalog_batch_destroy(a->batch);
	return rc;
}

/* ---- what nobody needs ---- */

/* A frame may belong to a record that cannot be read: nothing is lost for good then. */
static void leave_orphans(struct adoption *a)
{
	if (a->n_corrupt) {
		log_error("%" PRIu64 " catalog records are damaged; no frame is removed as an orphan "
			  "('mooncakectl fsck %s' lists them)",
			  a->n_corrupt, a->fs->opt->state_dir);
		return;
	}
	frame_set_keep_untaken(&a->dram);
	frame_set_keep_untaken(&a->ssd);
	if (a->dram.n <= DRAM_ORPHANS_AT_ONCE) {
		for (size_t k = 0; k < a->dram.n; k++)
			if (!tier_call(a->fs->dram, remove_orphan, a->dram.ids[k]))
				counter_inc(orphans);
		a->dram.n = 0;
	}
	a->fs->sweep = sweep_create(a->fs, &a->dram, &a->ssd);
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

static void say_what_was_found(const struct adoption *a, uint64_t n_orphans, int64_t start_ns)
{
	char size[16];

	log_info("adopted %" PRIu64 " objects, %s in dram, in %lld ms; %zu lost, %zu fsynced drafts, %" PRIu64
		 " corrupt records, %" PRIu64 " orphan frames",
		 a->fs->n_adopted, format_size(a->dram_bytes, size, sizeof(size)),
		 (long long)(now_mono_ns() - start_ns) / 1000000, a->lost.n, a->promises.n, a->n_corrupt,
		 n_orphans);
	if (a->n_absent)
		log_warn("%" PRIu64 " objects are on disks that are not there; their names show nothing until a start "
			 "with them", a->n_absent);
}

int adopt_all(struct fs *fs)
{
	struct adoption a = { .fs = fs };
	uint64_t n_orphans = counter_get(COUNTER_orphans);
	int64_t start_ns = now_mono_ns();

	int rc = ensure_root(fs);
	if (!rc)
		rc = scan_frames(fs->dram, &a.dram);
	if (!rc)
		rc = scan_frames(fs->ssd, &a.ssd);
	if (!rc)
		rc = catalog_scan_objects(fs->catalog, adopt_one, &a, &a.n_corrupt);
	if (!rc)
		rc = remove_lost(&a);
	for (size_t k = 0; !rc && k < a.promises.n; k++)
		rc = adopt_promise(fs, a.promises.ids[k]);
	if (!rc) {
		leave_orphans(&a);
		n_orphans = counter_get(COUNTER_orphans) - n_orphans + sweep_left(fs);
		say_what_was_found(&a, n_orphans, start_ns);
	}
	frame_set_fini(&a.dram);
	frame_set_fini(&a.ssd);
	free(a.lost.ids);
	free(a.promises.ids);
	malloc_trim(0); /* what a start needs is more than what a day needs */
	return rc;
}
