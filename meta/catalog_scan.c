/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_scan: walks over the catalog's tables, each as of its call, in the order of the keys.
 *
 * How it fails: a record that cannot be decoded is logged, counted and left out; a file that RocksDB
 * cannot read ends the walk with its error.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "catalog_internal.h"
#include "catalog_key.h"
#include "catalog_parts.h"
#include "catalog_record.h"

/* 0 also for a record that has to be left out. */
static int name_offer(struct catalog *c, const struct rocks_iter *i, catalog_readdir_fn fn,
		      void *arg)
{
	char text[CATALOG_NAME_MAX + 1];
	struct entry e;
	const char *name;
	uint64_t parent, cookie;
	size_t name_len;

	if (names_key_decode(i->key, i->key_len, &parent, &cookie, &name, &name_len)) {
		catalog_complain(c, -EIO, "names key", 0, i->key, i->key_len);
		return 0;
	}
	int rc = entry_record_decode(i->value, i->value_len, &e);
	if (rc) {
		catalog_complain(c, rc, "entry in", parent, name, name_len);
		return rc == -ENOMEM ? rc : 0;
	}
	memcpy(text, name, name_len);
	text[name_len] = '\0';
	rc = fn(arg, cookie, text, name_len, &e);
	entry_fini(&e);
	return rc;
}

/* end holds NAMES_KEY_PREFIX bytes and stays until the iterator's fini. */
static void dir_iter_init(struct rocks_iter *i, struct catalog *c, uint64_t parent, uint64_t from,
			  uint8_t *end)
{
	uint8_t start[NAMES_KEY_PREFIX];

	names_position_encode(start, parent, from);
	names_position_encode(end, parent, CATALOG_COOKIE_END);
	rocks_iter_init(i, c->rocks, CATALOG_NAMES, start, sizeof(start), end, NAMES_KEY_PREFIX);
}

int catalog_readdir(struct catalog *c, uint64_t parent, uint64_t after, catalog_readdir_fn fn,
		    void *arg)
{
	uint8_t end[NAMES_KEY_PREFIX];
	struct rocks_iter i;
	int rc = 0;

	if (after >= CATALOG_COOKIE_END - 1)
		return 0;
	/* Starting at a cookie, never inside its run, is what lets a run be resumed as a whole. */
	for (dir_iter_init(&i, c, parent, after + 1, end); !rc && i.key; rocks_iter_next(&i))
		rc = name_offer(c, &i, fn, arg);
	return rocks_iter_fini(&i, rc);
}

int catalog_dir_is_empty(struct catalog *c, uint64_t parent)
{
	uint8_t end[NAMES_KEY_PREFIX];
	struct rocks_iter i;

	dir_iter_init(&i, c, parent, 0, end);
	return rocks_iter_fini(&i, !i.key);
}

int catalog_scan_objects_after(struct catalog *c, uint64_t after, catalog_object_fn fn, void *arg,
			       uint64_t *n_corrupt_out)
{
	uint8_t start[OBJECTS_KEY_BYTES];
	struct rocks_iter i;
	uint64_t n_corrupt = 0;
	int rc = 0;

	if (after == UINT64_MAX)
		return 0;
	objects_key_encode(start, after + 1);
	rocks_iter_init(&i, c->rocks, CATALOG_OBJECTS, start, after ? sizeof(start) : 0, NULL, 0);
	for (; !rc && i.key; rocks_iter_next(&i)) {
		struct object_record r;
		uint64_t object_id;
		int bad = objects_key_decode(i.key, i.key_len, &object_id);
		if (bad)
			catalog_complain(c, bad, "objects key", 0, i.key, i.key_len);
		else
			bad = catalog_object_decode(c, object_id, i.value, i.value_len, &r);
		if (!bad) {
			rc = fn(arg, &r);
			object_record_fini(&r);
		} else if (bad == -ENOMEM) {
			rc = bad;
		} else {
			n_corrupt++;
		}
	}
	if (n_corrupt_out)
		*n_corrupt_out = n_corrupt;
	return rocks_iter_fini(&i, rc);
}

int catalog_scan_objects(struct catalog *c, catalog_object_fn fn, void *arg,
			 uint64_t *n_corrupt_out)
{
	return catalog_scan_objects_after(c, 0, fn, arg, n_corrupt_out);
}

int catalog_scan_names(struct catalog *c, catalog_name_fn fn, void *arg, uint64_t *n_corrupt_out)
{
	char text[CATALOG_NAME_MAX + 1];
	struct rocks_iter i;
	uint64_t n_corrupt = 0;
	int rc = 0;

	rocks_iter_init(&i, c->rocks, CATALOG_NAMES, "", 0, NULL, 0);
	for (; !rc && i.key; rocks_iter_next(&i)) {
		const char *name;
		uint64_t parent, cookie;
		size_t name_len;
		struct entry e;
		int bad = names_key_decode(i.key, i.key_len, &parent, &cookie, &name, &name_len);
		if (bad)
			catalog_complain(c, bad, "names key", 0, i.key, i.key_len);
		else if ((bad = entry_record_decode(i.value, i.value_len, &e)))
			catalog_complain(c, bad, "entry in", parent, name, name_len);
		if (!bad) {
			memcpy(text, name, name_len);
			text[name_len] = '\0';
			rc = fn(arg, parent, text, &e);
			entry_fini(&e);
		} else if (bad == -ENOMEM) {
			rc = bad;
		} else {
			n_corrupt++;
		}
	}
	if (n_corrupt_out)
		*n_corrupt_out = n_corrupt;
	return rocks_iter_fini(&i, rc);
}

int catalog_control_scan(struct catalog *c, const char *prefix, catalog_control_fn fn, void *arg)
{
	size_t prefix_len = strlen(prefix);
	struct rocks_iter i;
	int rc = 0;

	rocks_iter_init(&i, c->rocks, CATALOG_CONTROL, prefix, prefix_len, NULL, 0);
	for (; !rc && i.key && i.key_len >= prefix_len && !memcmp(i.key, prefix, prefix_len); rocks_iter_next(&i)) {
		uint64_t value;
		autofree char *rest = strndup((const char *)i.key + prefix_len, i.key_len - prefix_len);
		int bad = rest ? control_record_decode(i.value, i.value_len, &value) : -ENOMEM;
		if (bad == -ENOMEM)
			rc = bad;
		else if (bad)
			catalog_complain(c, bad, "control value", 0, i.key, i.key_len);
		else
			rc = fn(arg, rest, value);
	}
	return rocks_iter_fini(&i, rc);
}

int catalog_scan_raw(struct catalog *c, enum catalog_table t, catalog_raw_fn fn, void *arg)
{
	struct rocks_iter i;
	int rc = 0;

	rocks_iter_init(&i, c->rocks, t, "", 0, NULL, 0);
	for (; !rc && i.key; rocks_iter_next(&i))
		rc = fn(arg, i.key, i.key_len, i.value, i.value_len);
	return rocks_iter_fini(&i, rc);
}
