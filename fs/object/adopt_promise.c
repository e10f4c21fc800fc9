/* SPDX-License-Identifier: Apache-2.0 */
#include "object/adopt_promise.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "object/copies.h"
#include "object/object.h"

#define SUFFIX_BYTES sizeof(".fsynced-0123456789abcdef")

/* The bytes were promised, and the name is a directory's: a name beside it that nobody else makes up. */
static void take_free_name(struct object_record *r)
{
	char name[CATALOG_NAME_MAX + 1];
	int keep = (int)(CATALOG_NAME_MAX + 1 - SUFFIX_BYTES);

	snprintf(name, sizeof(name), "%.*s.fsynced-%016" PRIx64, keep, r->name, r->object_id);
	log_warn("fsynced file \"%s\": a directory has its name now, the file is \"%s\" beside it", r->name,
		 name);
	strcpy(r->name, name);
	r->name_len = (uint8_t)strlen(name);
}

/* What the name shows makes way. *retired_out: the object it was, for object_free_unlocked, or NULL. */
static int make_way(struct fs *fs, struct catalog_batch *b, struct object_record *r,
		    struct object **retired_out)
{
	struct entry old;
	int rc = catalog_lookup(fs->catalog, r->parent, r->name, &old);

	*retired_out = NULL;
	if (rc == -ENOMEM)
		return rc;
	if (rc)
		return 0; /* none, or a damaged one, which is as good as none */
	if (S_ISDIR(old.mode)) {
		take_free_name(r);
	} else if (old.object_id) {
		struct object *o = object_find_locked(fs, old.object_id);
		catalog_batch_del_object(b, old.object_id);
		if (o && object_retire_locked(fs, o, false))
			*retired_out = o;
	}
	entry_fini(&old);
	return 0;
}

static int commit(struct fs *fs, struct object_record *r)
{
	struct entry *e = r->promise_entry;
	struct catalog_batch *b = catalog_batch_create(fs->catalog);
	struct object *retired;

	int rc = make_way(fs, b, r, &retired);
	if (rc) {
		catalog_batch_destroy(b);
		return rc;
	}
	r->promise_entry = NULL;
	r->is_promise = 0;
	r->dram_frame = r->charged_bytes = 0;
	r->ttl_s = e->policy.ttl_s;
	catalog_batch_put_entry(b, r->parent, r->name, e);
	catalog_batch_put_object(b, r);
	rc = catalog_batch_commit(b, true);
	r->promise_entry = e;
	if (!rc && retired)
		object_free_unlocked(fs, retired);
	return rc;
}

int adopt_promise(struct fs *fs, uint64_t object_id)
{
	struct object_record r;
	int rc = catalog_object_get(fs->catalog, object_id, &r);

	if (rc || !r.is_promise) {
		if (!rc)
			object_record_fini(&r);
		return rc == -ENOENT ? 0 : rc;
	}
	rc = commit(fs, &r);
	if (!rc) {
		if (r.ssd_frame)
			tier_call(fs->ssd, adopt, r.ssd_frame, ssd_charge(r.size));
		struct object *o = object_add_locked(fs, &r, 0);
		object_set_ttl_locked(fs, o, r.ttl_s);
		counter_inc(promises_kept);
		log_info("\"%s\" is published as of its last fsync", r.name);
	}
	object_record_fini(&r);
	return rc;
}
