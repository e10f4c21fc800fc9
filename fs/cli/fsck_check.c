/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fsck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DISK_OF(frame) ((frame) >> 56)

/* ---- objects ---- */

static int add_object(void *arg, const struct object_record *r)
{
	struct fsck *f = arg;
	int rc = fsck_grow((void **)&f->objects, f->n_objects, &f->cap_objects, sizeof(*f->objects));

	if (rc)
		return rc;
	f->objects[f->n_objects++] = (struct fsck_object){
		.id = r->object_id,
		.size = r->size,
		.parent = r->parent,
		.cookie = r->name_len ? catalog_name_cookie(r->name) : 0,
		.dram_frame = r->dram_frame,
		.ssd_frame = r->ssd_frame,
		.is_promise = r->is_promise,
	};
	f->object_bytes += r->size;
	f->n_promises += r->is_promise;
	if (r->object_id > f->max_number)
		f->max_number = r->object_id;
	if (r->ino > f->max_number)
		f->max_number = r->ino;
	bar_update(&f->bar, "objects", f->n_objects, 0);
	return 0;
}

static int tell_damaged(void *arg, const struct catalog_damage *d)
{
	struct fsck *f = arg;
	enum fsck_finding what = d->error == -EPROTO ? FSCK_NEWER : FSCK_DAMAGED;

	if (d->name)
		fsck_found(f, what, "%s: \"%.*s\" in directory %" PRIu64, d->table, (int)d->name_len,
			   d->name, d->parent);
	else
		fsck_found(f, what, "%s: %016" PRIx64, d->table, d->object_id);
	return 0;
}

/* Frames are judged first, by all who claim them; then the objects by their frames. */
static void judge_frame(struct fsck *f, struct fsck_tier *t, const struct fsck_object *o, uint64_t id)
{
	struct fsck_frame *frame = id ? fsck_frame(t, id) : NULL;

	if (!frame)
		return;
	if (frame->n_users < UINT16_MAX && frame->n_users++) {
		/* Whose bytes it has, nobody can tell. */
		frame->is_bad = true;
		fsck_found(f, FSCK_FRAME_SHARED, "%s frame %016" PRIx64 ": object %016" PRIx64,
			   t->name, id, o->id);
	}
	if (frame->size == o->size)
		return;
	frame->is_bad = true;
	fsck_found(f, FSCK_FRAME_SIZE,
		   "%s frame %016" PRIx64 " has %" PRIu64 " bytes, object %016" PRIx64 " %" PRIu64,
		   t->name, id, frame->size, o->id, o->size);
}

enum copy { COPY_NONE, COPY_GOOD, COPY_BAD, COPY_MISSING, COPY_UNKNOWN };

static enum copy copy_of(const struct fsck *f, const struct fsck_tier *t, uint64_t id)
{
	const struct fsck_frame *frame = id ? fsck_frame(t, id) : NULL;

	if (!id)
		return COPY_NONE;
	if (frame)
		return frame->is_bad ? COPY_BAD : COPY_GOOD;
	return t == &f->ssd && f->disk_is_absent[DISK_OF(id)] ? COPY_UNKNOWN : COPY_MISSING;
}

static void settle_object(struct fsck *f, struct fsck_object *o)
{
	enum copy dram = copy_of(f, &f->dram, o->dram_frame), ssd = copy_of(f, &f->ssd, o->ssd_frame);
	bool dram_is_gone = dram == COPY_MISSING && !f->dram.is_there;

	/* Eviction to a copy on the ssd writes no record: the number of the DRAM frame stays in it. */
	o->drops_dram = dram == COPY_BAD || (dram == COPY_MISSING && ssd != COPY_GOOD);
	o->drops_ssd = ssd == COPY_BAD || ssd == COPY_MISSING;
	if (!o->size || dram == COPY_GOOD || ssd == COPY_GOOD) {
		o->bytes = FSCK_BYTES_OK;
		if (o->size && ssd == COPY_MISSING)
			fsck_found(f, FSCK_FRAME_MISSING, "object %016" PRIx64, o->id);
	} else if (ssd == COPY_UNKNOWN) {
		o->bytes = FSCK_BYTES_UNKNOWN;
	} else if (dram_is_gone && ssd == COPY_NONE) {
		o->bytes = FSCK_BYTES_LOST_DRAM;
		fsck_found(f, FSCK_LOST_DRAM, "object %016" PRIx64, o->id);
	} else {
		o->bytes = FSCK_BYTES_GONE;
		fsck_found(f, FSCK_NO_BYTES, "object %016" PRIx64 ", %" PRIu64 " bytes", o->id, o->size);
	}
}

static void tell_orphans(struct fsck *f, const struct fsck_tier *t)
{
	for (size_t k = 0; k < t->n; k++)
		if (!t->v[k].n_users)
			fsck_found(f, FSCK_ORPHAN, "%s frame %016" PRIx64 ", %" PRIu64 " bytes", t->name,
				   t->v[k].id, t->v[k].size);
}

static void check_control(struct fsck *f)
{
	uint64_t value;

	/* Numbers that were given must not be given again: a version would be taken for another. */
	if (f->max_number &&
	    (catalog_control_get(f->catalog, "version_ceiling", &value) || value < f->max_number))
		fsck_found(f, FSCK_CONTROL, "version_ceiling");
}

int fsck_check_objects(struct fsck *f)
{
	int rc = catalog_scan_damaged(f->catalog, tell_damaged, f);

	if (!rc)
		rc = catalog_scan_objects(f->catalog, add_object, f, NULL);
	if (rc)
		return rc;
	for (size_t k = 0; k < f->n_objects; k++) {
		judge_frame(f, &f->dram, &f->objects[k], f->objects[k].dram_frame);
		judge_frame(f, &f->ssd, &f->objects[k], f->objects[k].ssd_frame);
	}
	tell_orphans(f, &f->dram);
	tell_orphans(f, &f->ssd);
	return 0;
}

/* ---- directories ---- */

static int add_dir(struct fsck *f, uint64_t parent, const struct entry *e)
{
	int rc = fsck_grow((void **)&f->dirs, f->n_dirs, &f->cap_dirs, sizeof(*f->dirs));

	if (!rc)
		f->dirs[f->n_dirs++] = (struct fsck_dir){.ino = e->ino, .parent = parent};
	return rc;
}

static int collect_dir(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	struct fsck *f = arg;

	if (e->ino > f->max_number)
		f->max_number = e->ino;
	bar_update(&f->bar, "directories", ++f->n_names, 0);
	return S_ISDIR(e->mode) ? add_dir(f, parent, e) : 0;
}

static int by_ino(const void *a, const void *b)
{
	uint64_t x = ((const struct fsck_dir *)a)->ino, y = ((const struct fsck_dir *)b)->ino;

	return x < y ? -1 : x > y;
}

static void drop_doubles(struct fsck *f)
{
	size_t n = 0;

	for (size_t k = 0; k < f->n_dirs; k++)
		if (!n || f->dirs[n - 1].ino != f->dirs[k].ino)
			f->dirs[n++] = f->dirs[k];
	f->n_dirs = n;
}

/*
 * Follows the parents up to the root, to what is settled, or to where there is nothing; then settles all
 * of the way. A ring of directories is broken at the one that the walk came back to: it counts as one
 * whose parent is not there.
 */
static void settle_dir(struct fsck *f, struct fsck_dir *dir)
{
	struct fsck_dir *top = dir;
	bool is_reachable = false;

	for (size_t steps = 0; !top->is_known; steps++) {
		struct fsck_dir *up = fsck_dir(f, top->parent);
		if (top->ino == CATALOG_ROOT_INO || top->parent == CATALOG_ROOT_INO) {
			is_reachable = true;
			break;
		}
		if (!up)
			break;
		if (steps > f->n_dirs) {
			top->parent = 0;
			break;
		}
		top = up;
	}
	if (top->is_known)
		is_reachable = top->is_reachable;
	for (struct fsck_dir *at = dir; at && !at->is_known; at = fsck_dir(f, at->parent)) {
		at->is_known = true;
		at->is_reachable = is_reachable;
		if (at == top)
			break;
	}
}

/* The directory is there, with or without a way to it. */
static bool parent_is_there(const struct fsck *f, uint64_t parent)
{
	return parent == CATALOG_ROOT_INO || parent == 0 || fsck_dir(f, parent);
}

/* ---- names ---- */

static enum fsck_action judge_dir(struct fsck *f, uint64_t parent, const char *name,
				  const struct entry *e, bool tells)
{
	struct fsck_dir *d = fsck_dir(f, e->ino);

	if (parent == 0 || e->ino == CATALOG_ROOT_INO)
		return FSCK_KEEP; /* the root's own attributes */
	if (d && d->is_seen_again) {
		if (tells)
			fsck_found(f, FSCK_DIR_TWICE, "\"%s\" in directory %" PRIu64, name, parent);
		return FSCK_DELETE;
	}
	if (d)
		d->is_seen_again = true;
	/* settle_dir cut a ring here. */
	bool is_cut = d && !d->is_reachable && d->parent == 0;
	if (parent_is_there(f, parent) && !is_cut)
		return FSCK_KEEP;
	if (tells)
		fsck_found(f, FSCK_UNREACHABLE, "directory \"%s\" in directory %" PRIu64, name, parent);
	return FSCK_MOVE;
}

static enum fsck_action judge_file(struct fsck *f, uint64_t parent, const char *name,
				   const struct entry *e, bool tells)
{
	struct fsck_object *o = fsck_object(f, e->object_id);

	if (!o || o->is_promise) {
		if (tells)
			fsck_found(f, FSCK_NO_OBJECT, "\"%s\" in directory %" PRIu64, name, parent);
		return FSCK_DELETE;
	}
	if (o->is_named) {
		if (tells)
			fsck_found(f, FSCK_NAME_TWICE, "\"%s\" in directory %" PRIu64, name, parent);
		return FSCK_DELETE;
	}
	o->is_named = true;
	if (o->bytes == FSCK_BYTES_GONE || o->bytes == FSCK_BYTES_LOST_DRAM)
		return FSCK_DELETE; /* told with the object */
	if (!parent_is_there(f, parent)) {
		if (tells)
			fsck_found(f, FSCK_UNREACHABLE, "\"%s\" in directory %" PRIu64, name, parent);
		return FSCK_MOVE;
	}
	if (o->parent != parent || o->cookie != catalog_name_cookie(name)) {
		if (tells)
			fsck_found(f, FSCK_WRONG_BACK, "object %016" PRIx64 " of \"%s\"", o->id, name);
		return FSCK_FIX_BACK;
	}
	if (e->size != o->size) {
		if (tells)
			fsck_found(f, FSCK_WRONG_SIZE,
				   "\"%s\" in directory %" PRIu64 ": %" PRIu64 " instead of %" PRIu64,
				   name, parent, e->size, o->size);
		return FSCK_FIX_SIZE;
	}
	return FSCK_KEEP;
}

enum fsck_action fsck_judge_name(struct fsck *f, uint64_t parent, const char *name,
				 const struct entry *e, bool tells)
{
	if (S_ISDIR(e->mode))
		return judge_dir(f, parent, name, e, tells);
	if (S_ISREG(e->mode))
		return judge_file(f, parent, name, e, tells);
	if (parent_is_there(f, parent))
		return FSCK_KEEP;
	if (tells)
		fsck_found(f, FSCK_UNREACHABLE, "\"%s\" in directory %" PRIu64, name, parent);
	return FSCK_MOVE;
}

void fsck_forget_names(struct fsck *f)
{
	for (size_t k = 0; k < f->n_dirs; k++)
		f->dirs[k].is_seen_again = false;
	for (size_t k = 0; k < f->n_objects; k++)
		f->objects[k].is_named = false;
}

static int check_name(void *arg, uint64_t parent, const char *name, const struct entry *e)
{
	struct fsck *f = arg;

	f->n_files += S_ISREG(e->mode);
	f->n_symlinks += S_ISLNK(e->mode);
	bar_update(&f->bar, "names", f->n_files, f->n_objects);
	fsck_judge_name(f, parent, name, e, true);
	return 0;
}

/* A promise is published at the next start, into a directory that has to be there. */
static void check_unnamed(struct fsck *f)
{
	for (size_t k = 0; k < f->n_objects; k++) {
		const struct fsck_object *o = &f->objects[k];
		bool has_bytes = o->bytes == FSCK_BYTES_OK || o->bytes == FSCK_BYTES_UNKNOWN;
		if (o->is_promise && has_bytes && !parent_is_there(f, o->parent))
			fsck_found(f, FSCK_UNREACHABLE,
				   "fsynced draft %016" PRIx64 " in directory %" PRIu64, o->id, o->parent);
		if (!o->is_promise && !o->is_named && has_bytes)
			fsck_found(f, FSCK_NO_NAME, "object %016" PRIx64 ", %" PRIu64 " bytes", o->id,
				   o->size);
	}
}

int fsck_check_names(struct fsck *f)
{
	int rc = catalog_scan_names(f->catalog, collect_dir, f, NULL);

	if (rc)
		return rc;
	if (f->n_dirs)
		qsort(f->dirs, f->n_dirs, sizeof(*f->dirs), by_ino);
	drop_doubles(f);
	for (size_t k = 0; k < f->n_dirs; k++)
		settle_dir(f, &f->dirs[k]);
	for (size_t k = 0; k < f->n_objects; k++)
		settle_object(f, &f->objects[k]);
	rc = catalog_scan_names(f->catalog, check_name, f, NULL);
	if (rc)
		return rc;
	check_unnamed(f);
	check_control(f);
	return 0;
}
