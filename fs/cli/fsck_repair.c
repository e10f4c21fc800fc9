/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck_repair: carries out what the check found, in an order that may be interrupted anywhere: damaged
 * records, names, object records, and once all that is on disk, frames. A second run finishes it.
 *
 * Nothing is invented. A name without bytes goes. Bytes without a name, and what is in a directory that is
 * not there, get a name in /lost+found, not the one they had: software that looks for a name must not take
 * for good what may be an older version. Frames that no record names go.
 */
#include "cli/fsck.h"

#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOST_FOUND "lost+found"
#define BATCH_CHANGES 1024
#define NUMBER_STEP 4096 /* numbers end in a node's bits */

struct repair {
	struct fsck *f;
	struct catalog_batch *batch;
	unsigned n_changes;
	uint64_t lost_found; /* its inode number, 0: not made yet */
	int64_t now_ns;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void repaired(struct repair *r, enum fsck_finding what)
{
	r->f->tallies[what].n_repaired++;
}

static int batch_renew(struct repair *r, bool sync)
{
	int rc = catalog_batch_commit(r->batch, sync);

	r->n_changes = 0;
	r->batch = catalog_batch_create(r->f->catalog);
	return rc ? rc : r->batch ? 0 : -ENOMEM;
}

static int changed(struct repair *r)
{
	return ++r->n_changes < BATCH_CHANGES ? 0 : batch_renew(r, false);
}

static struct entry new_entry(const struct repair *r, uint64_t ino, uint32_t mode)
{
	return (struct entry){.ino = ino,
			      .mode = mode,
			      .atime_ns = r->now_ns,
			      .mtime_ns = r->now_ns,
			      .ctime_ns = r->now_ns,
			      .btime_ns = r->now_ns};
}

/* Finds or makes /lost+found. */
static int need_lost_found(struct repair *r)
{
	struct entry e;

	if (r->lost_found)
		return 0;
	int rc = catalog_lookup(r->f->catalog, CATALOG_ROOT_INO, LOST_FOUND, &e);
	bool is_dir = !rc && S_ISDIR(e.mode);
	if (!rc) {
		r->lost_found = is_dir ? e.ino : 0;
		entry_fini(&e);
	}
	if (is_dir)
		return 0;
	if (!rc) {
		cli_error("/" LOST_FOUND " is a file: rename it, then repair again");
		return -EEXIST;
	}
	if (rc != -ENOENT)
		return rc;
	r->f->max_number += NUMBER_STEP;
	r->lost_found = r->f->max_number;
	e = new_entry(r, r->lost_found, S_IFDIR | 0700);
	catalog_batch_put_entry(r->batch, CATALOG_ROOT_INO, LOST_FOUND, &e);
	return changed(r);
}

static void number_name(char *name, size_t len, uint64_t number)
{
	snprintf(name, len, "%016" PRIx64, number);
}

/* The object's record gets the name that shows it. */
static int put_back_name(struct repair *r, uint64_t object_id, uint64_t parent, const char *name)
{
	struct object_record record;
	int rc = catalog_object_get(r->f->catalog, object_id, &record);

	if (rc)
		return rc;
	record.parent = parent;
	record.name_len = (uint8_t)strlen(name);
	strcpy(record.name, name);
	catalog_batch_put_object(r->batch, &record);
	object_record_fini(&record);
	return changed(r);
}

/* ---- damaged records ---- */

static int delete_damaged(void *arg, const struct catalog_damage *d)
{
	struct repair *r = arg;

	if (d->error != -EIO)
		return 0;
	catalog_batch_del_damaged(r->batch, d);
	repaired(r, FSCK_DAMAGED);
	return changed(r);
}

/* ---- names ---- */

static int move_entry(struct repair *r, uint64_t parent, const char *name, const struct entry *e)
{
	char found[32];
	int rc = need_lost_found(r);

	if (rc)
		return rc;
	number_name(found, sizeof(found), e->ino);
	catalog_batch_put_entry(r->batch, r->lost_found, found, e);
	catalog_batch_del_entry(r->batch, parent, name);
	rc = changed(r);
	return rc || !e->object_id ? rc : put_back_name(r, e->object_id, r->lost_found, found);
}

static int repair_name(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	struct repair *r = arg;
	struct fsck *f = r->f;
	struct entry right = *e;

	switch (fsck_judge_name(f, parent, name, e, false)) {
	case FSCK_KEEP:
		return 0;
	case FSCK_DELETE:
		catalog_batch_del_entry(r->batch, parent, name);
		return changed(r);
	case FSCK_FIX_SIZE:
		right.size = fsck_object(f, e->object_id)->size;
		catalog_batch_put_entry(r->batch, parent, name, &right);
		return changed(r);
	case FSCK_FIX_BACK:
		right.size = fsck_object(f, e->object_id)->size;
		catalog_batch_put_entry(r->batch, parent, name, &right);
		return put_back_name(r, e->object_id, parent, name);
	case FSCK_MOVE:
		return move_entry(r, parent, name, e);
	}
	return -EINVAL;
}

/* ---- objects ---- */

/* Bytes that nothing shows: they get a name and the rights of nobody but the owner of the daemon. */
static int name_object(struct repair *r, struct object_record *record)
{
	int rc = need_lost_found(r);
	struct entry e = new_entry(r, record->ino ? record->ino : record->object_id, S_IFREG | 0600);

	if (rc)
		return rc;
	e.object_id = record->object_id;
	e.size = record->size;
	e.policy.class = record->class;
	e.policy.pin = record->pin;
	e.policy.ttl_s = record->ttl_s;
	record->parent = r->lost_found;
	number_name(record->name, sizeof(record->name), record->object_id);
	record->name_len = (uint8_t)strlen(record->name);
	catalog_batch_put_entry(r->batch, r->lost_found, record->name, &e);
	return changed(r);
}

static bool is_without_parent(const struct fsck *f, const struct fsck_object *o)
{
	return o->parent != CATALOG_ROOT_INO && !fsck_dir(f, o->parent);
}

static int repair_record(struct repair *r, const struct fsck_object *o, bool needs_name,
			 bool needs_parent)
{
	struct object_record record;
	int rc = catalog_object_get(r->f->catalog, o->id, &record);

	if (rc)
		return rc;
	if (o->drops_dram)
		record.dram_frame = record.charged_bytes = 0;
	if (o->drops_ssd)
		record.ssd_frame = 0;
	if (needs_name)
		rc = name_object(r, &record);
	if (!rc && needs_parent)
		rc = need_lost_found(r);
	if (!rc && needs_parent)
		record.parent = r->lost_found;
	if (!rc) {
		catalog_batch_put_object(r->batch, &record);
		rc = changed(r);
	}
	object_record_fini(&record);
	return rc;
}

static int repair_object(struct repair *r, const struct fsck_object *o)
{
	bool has_bytes = o->bytes == FSCK_BYTES_OK || o->bytes == FSCK_BYTES_UNKNOWN;
	bool needs_name = !o->is_promise && !o->is_named;
	bool needs_parent = o->is_promise && is_without_parent(r->f, o);

	if (!has_bytes) {
		catalog_batch_del_object(r->batch, o->id);
		return changed(r);
	}
	if (!needs_name && !needs_parent && !o->drops_dram && !o->drops_ssd)
		return 0;
	/* What this pass has put already must be there to be read again. */
	int rc = batch_renew(r, false);
	return rc ? rc : repair_record(r, o, needs_name, needs_parent);
}

/* ---- control and frames ---- */

static int repair_control(struct repair *r)
{
	if (!r->f->tallies[FSCK_CONTROL].n && !r->lost_found)
		return 0;
	catalog_batch_set_control(r->batch, "version_ceiling", r->f->max_number + NUMBER_STEP);
	return changed(r);
}

static int remove_frames(struct repair *r, const struct fsck_tier *t)
{
	for (size_t k = 0; k < t->n; k++) {
		const struct fsck_frame *frame = &t->v[k];
		if (frame->n_users && !frame->is_bad)
			continue;
		int rc = fsck_frame_remove(t, frame);
		if (rc)
			return rc == -EIO ? -EREMOTEIO : rc;
		if (!frame->n_users)
			repaired(r, FSCK_ORPHAN);
	}
	return 0;
}

/* All that the passes carry out is done by now, or they would have failed. */
static void settle_tallies(struct fsck *f)
{
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		if (k != FSCK_DATABASE && k != FSCK_DAMAGED && k != FSCK_NEWER && k != FSCK_ORPHAN &&
		    k != FSCK_DISK_ABSENT)
			f->tallies[k].n_repaired = f->tallies[k].n;
}

static int repair_catalog(struct repair *r)
{
	struct fsck *f = r->f;
	int rc = catalog_scan_damaged(f->catalog, delete_damaged, r);

	fsck_forget_names(f);
	if (!rc)
		rc = catalog_scan_names(f->catalog, repair_name, r, NULL);
	if (!rc)
		rc = batch_renew(r, false);
	for (size_t k = 0; !rc && k < f->n_objects; k++) {
		rc = repair_object(r, &f->objects[k]);
		bar_update(&f->bar, "repair", k, f->n_objects);
	}
	if (!rc)
		rc = repair_control(r);
	if (!rc)
		rc = batch_renew(r, true);
	return rc;
}

int fsck_repair(struct fsck *f)
{
	struct repair r = {.f = f, .now_ns = now_ns()};

	if (!fsck_n_left(f))
		return 0;
	r.batch = catalog_batch_create(f->catalog);
	int rc = r.batch ? repair_catalog(&r) : -ENOMEM;
	catalog_batch_destroy(r.batch);
	/* A frame may be that of a record which only a later version reads. */
	bool may_remove = !rc && !f->tallies[FSCK_NEWER].n;
	if (may_remove)
		rc = remove_frames(&r, &f->dram);
	if (may_remove && !rc)
		rc = remove_frames(&r, &f->ssd);
	if (!rc)
		settle_tallies(f);
	else
		cli_error("%s: the repair stopped: %s", f->state_dir, strerror(-rc));
	return rc;
}
