/* SPDX-License-Identifier: Apache-2.0 */
#include "mcfs/catalog_repair.h"

#include <errno.h>
#include <string.h>

#include "catalog_internal.h"
#include "catalog_key.h"
#include "catalog_parts.h"
#include "catalog_record.h"

static const char *const tables[CATALOG_N_TABLES] = {"names", "objects", "control"};

struct damage_scan {
	enum catalog_table table;
	catalog_damage_fn fn;
	void *arg;
};

static int name_error(const uint8_t *value, size_t value_len, struct catalog_damage *d)
{
	struct entry e;
	uint64_t cookie;
	int rc = names_key_decode(d->key, d->key_len, &d->parent, &cookie, &d->name, &d->name_len);

	if (!rc)
		rc = entry_record_decode(value, value_len, &e);
	if (!rc)
		entry_fini(&e);
	return rc;
}

static int object_error(const uint8_t *value, size_t value_len, struct catalog_damage *d)
{
	struct object_record r;
	int rc = objects_key_decode(d->key, d->key_len, &d->object_id);

	if (!rc)
		rc = object_record_decode(value, value_len, &r);
	if (rc)
		return rc;
	bool is_it = r.object_id == d->object_id;
	object_record_fini(&r);
	return is_it ? 0 : -EIO;
}

static int control_error(const uint8_t *value, size_t value_len, struct catalog_damage *d)
{
	uint64_t ignored;

	d->name = d->key;
	d->name_len = d->key_len;
	return control_record_decode(value, value_len, &ignored);
}

static int look_at(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
		   size_t value_len)
{
	static int (*const errors[CATALOG_N_TABLES])(const uint8_t *value, size_t value_len,
						     struct catalog_damage *d) = {
		name_error, object_error, control_error};
	struct damage_scan *s = arg;
	struct catalog_damage d = {.table = tables[s->table], .key = key, .key_len = key_len};

	d.error = errors[s->table](value, value_len, &d);
	if (d.error == -ENOMEM)
		return d.error;
	return d.error ? s->fn(s->arg, &d) : 0;
}

int catalog_scan_damaged(struct catalog *c, catalog_damage_fn fn, void *arg)
{
	int rc = 0;

	for (int t = 0; !rc && t < CATALOG_N_TABLES; t++) {
		struct damage_scan s = {(enum catalog_table)t, fn, arg};
		rc = catalog_scan_raw(c, s.table, look_at, &s);
	}
	return rc;
}

void catalog_batch_del_damaged(struct catalog_batch *b, const struct catalog_damage *d)
{
	for (int t = 0; t < CATALOG_N_TABLES; t++)
		if (!strcmp(tables[t], d->table))
			catalog_batch_del_raw(b, (enum catalog_table)t, d->key, d->key_len);
}

void catalog_batch_set_control(struct catalog_batch *b, const char *key, uint64_t value)
{
	catalog_batch_put_control(b, key, value);
}

int catalog_repair(const char *path, char *copy_out)
{
	return rocks_repair(path, copy_out);
}
