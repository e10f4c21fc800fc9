/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog_upgrade.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "catalog_internal.h"
#include "catalog_parts.h"

/* In control while a step is under way. */
#define FROM_KEY "upgrading_from"
#define CURSOR_KEY "upgrade_cursor"

#define SLICE_RECORDS 4096u

/* ---- the steps ---- */

struct ttl_slice {
	struct catalog *c;
	struct catalog_batch *b;
	uint64_t last;
	unsigned n;
};

static uint32_t shown_ttl(struct catalog *c, const struct object_record *r)
{
	struct entry e;
	uint32_t ttl_s = 0;

	if (r->promise_entry)
		return r->promise_entry->policy.ttl_s;
	if (!r->name_len || catalog_lookup(c, r->parent, r->name, &e))
		return 0;
	if (e.object_id == r->object_id)
		ttl_s = e.policy.ttl_s;
	entry_fini(&e);
	return ttl_s;
}

static int put_ttl(void *arg, const struct object_record *r)
{
	struct ttl_slice *s = arg;
	struct object_record changed = *r;

	changed.ttl_s = shown_ttl(s->c, r);
	catalog_batch_put_object(s->b, &changed);
	s->last = r->object_id;
	return ++s->n == SLICE_RECORDS;
}

static int ttl_step(struct catalog *c, struct catalog_batch *b, uint64_t *cursor)
{
	struct ttl_slice s = {.c = c, .b = b, .last = *cursor};
	int rc = catalog_scan_objects_after(c, *cursor, put_ttl, &s, NULL);

	*cursor = s.last;
	return rc;
}

const struct catalog_step catalog_steps[] = {
	{1, "object records get the time to live of their names", ttl_step},
};
const size_t catalog_n_steps = sizeof(catalog_steps) / sizeof(*catalog_steps);

/* ---- taking them ---- */

static int step_begin(struct catalog *c, const struct catalog_step *step)
{
	struct catalog_batch *b = catalog_batch_create(c);

	catalog_batch_put_control(b, CATALOG_FORMAT_KEY, step->from + 1);
	catalog_batch_put_control(b, FROM_KEY, step->from);
	catalog_batch_put_control(b, CURSOR_KEY, 0);
	return catalog_batch_commit(b, true);
}

static int step_end(struct catalog *c)
{
	struct catalog_batch *b = catalog_batch_create(c);

	catalog_batch_del_raw(b, CATALOG_CONTROL, FROM_KEY, strlen(FROM_KEY));
	catalog_batch_del_raw(b, CATALOG_CONTROL, CURSOR_KEY, strlen(CURSOR_KEY));
	return catalog_batch_commit(b, true);
}

/* Returns as a step's slice does. */
static int step_slice(struct catalog *c, const struct catalog_step *step, uint64_t *cursor)
{
	struct catalog_batch *b = catalog_batch_create(c);

	if (!b)
		return -ENOMEM;
	int more = step->slice(c, b, cursor);
	if (more < 0) {
		catalog_batch_destroy(b);
		return more;
	}
	catalog_batch_put_control(b, CURSOR_KEY, *cursor);
	int rc = catalog_batch_commit(b, false);
	return rc ? rc : more;
}

/* From where it was interrupted. */
static int step_run(struct catalog *c, const struct catalog_step *step)
{
	uint64_t cursor = 0;
	int rc = catalog_control_get(c, CURSOR_KEY, &cursor);

	log_info("catalog %s: upgrade from format %llu to %llu%s: %s", c->path,
		 (unsigned long long)step->from, (unsigned long long)step->from + 1,
		 cursor ? " goes on where it was interrupted" : "", step->what);
	if (rc == -ENOENT)
		rc = 0;
	for (int more = 1; !rc && more > 0;) {
		more = step_slice(c, step, &cursor);
		rc = more < 0 ? more : 0;
	}
	if (!rc)
		rc = step_end(c);
	if (rc)
		log_error("catalog %s: the upgrade from format %llu to %llu stopped: %s; the next "
			  "start goes on with it",
			  c->path, (unsigned long long)step->from, (unsigned long long)step->from + 1,
			  strerror(-rc));
	return rc;
}

static const struct catalog_step *step_from(const struct catalog_step *steps, size_t n_steps,
					    uint64_t from)
{
	for (size_t k = 0; k < n_steps; k++)
		if (steps[k].from == from)
			return &steps[k];
	return NULL;
}

int catalog_upgrade(struct catalog *c, const struct catalog_step *steps, size_t n_steps, uint64_t to)
{
	const struct catalog_step *step;
	uint64_t format, from;
	int rc = catalog_control_get(c, CATALOG_FORMAT_KEY, &format);

	if (rc)
		return rc;
	rc = catalog_control_get(c, FROM_KEY, &from);
	bool is_interrupted = !rc;
	if (rc == -ENOENT)
		rc = 0;
	while (!rc && (is_interrupted || format < to)) {
		if (!is_interrupted)
			from = format;
		step = step_from(steps, n_steps, from);
		if (!step) {
			log_error("catalog %s: it has format %llu, this program knows formats %llu "
				  "to %llu: run an older mooncakefs that upgrades it first, or move "
				  "the folder away to start empty",
				  c->path, (unsigned long long)from,
				  (unsigned long long)(n_steps ? steps[0].from : to),
				  (unsigned long long)to);
			return -EPROTO;
		}
		if (!is_interrupted)
			rc = step_begin(c, step);
		if (!rc)
			rc = step_run(c, step);
		format = from + 1;
		is_interrupted = false;
	}
	return rc;
}
