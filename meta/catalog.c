/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog: names and objects as records in the three tables of rocks.
 *
 * States: open, read-write or read-only (a tool beside a live daemon).
 *
 * Invariants: control holds a format this program knows. The id in an object's value is that of its
 * key, since a value under a wrong key would hand out another object's frame.
 *
 * Locks: none; struct catalog does not change after catalog_open.
 *
 * How it fails: rocks logs what RocksDB reports. A damaged or newer record is logged here with its
 * key, fails the lookup of that key, and is left out of scans: one bad record hides one name.
 */
#include "mcfs/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "catalog_internal.h"
#include "catalog_key.h"
#include "catalog_parts.h"
#include "catalog_record.h"
#include "catalog_upgrade.h"

#define CONTROL_KEY_MAX (8u << 10) /* paths are among them */

struct catalog_batch {
	struct catalog *c;
	struct rocks_batch *rb;
	int error; /* the first one; commit returns it */
};

/* ---- open and close ---- */

static bool table_is_empty(struct catalog *c, enum catalog_table t)
{
	struct rocks_iter i;

	rocks_iter_init(&i, c->rocks, t, "", 0, NULL, 0);
	bool empty = !i.key;
	/* What cannot be read is not empty. */
	return !rocks_iter_fini(&i, empty ? 0 : 1);
}

/* What a new program makes of an older catalog, and an older one of a new catalog. */
static int format_check(struct catalog *c)
{
	uint64_t format;
	int rc = catalog_control_get(c, CATALOG_FORMAT_KEY, &format);

	if (rc == -ENOENT && table_is_empty(c, CATALOG_NAMES) && table_is_empty(c, CATALOG_OBJECTS))
		return c->read_only ?
			       0 :
			       catalog_control_put(c, CATALOG_FORMAT_KEY, CATALOG_FORMAT, true);
	if (c->repairs && (rc == -ENOENT || rc == -EIO)) {
		/* The oldest: what its upgrade finds done already, it leaves. */
		format = CATALOG_FORMAT_FIRST;
		rc = catalog_control_put(c, CATALOG_FORMAT_KEY, format, true);
	}
	if (rc == -ENOENT) {
		log_error("catalog %s: it has records but no format version: 'mooncakectl fsck "
			  "--repair' on the folder above it writes it anew, or move the folder away "
			  "to start empty",
			  c->path);
		return -EIO;
	}
	if (rc)
		return rc;
	if (format > CATALOG_FORMAT) {
		log_error(
			"catalog %s: it has format %llu, this program knows up to format %d: run the "
			"mooncakefs that wrote it or a later one, or move the folder away to start "
			"empty",
			c->path, (unsigned long long)format, CATALOG_FORMAT);
		return -EPROTO;
	}
	/* Every older format can still be read. */
	return c->read_only ? 0 : catalog_upgrade(c, catalog_steps, catalog_n_steps, CATALOG_FORMAT);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

int catalog_open(const struct catalog_conf *conf, struct catalog **out)
{
	struct catalog *c = calloc(1, sizeof(*c));
	int64_t start_ms = now_ms();
	int rc = -ENOMEM;

	if (!c)
		return rc;
	c->read_only = conf->read_only;
	c->is_quiet = conf->is_quiet;
	c->repairs = conf->repairs;
	c->path = strdup(conf->path);
	if (!c->path)
		goto err_free;
	rc = rocks_open(conf, &c->rocks);
	if (rc)
		goto err_free;
	rc = format_check(c);
	if (rc)
		goto err_close;
	log_info("catalog %s: open%s, about %llu names and %llu objects, %lld ms", c->path,
		 c->read_only ? " read-only" : "",
		 (unsigned long long)rocks_count(c->rocks, CATALOG_NAMES),
		 (unsigned long long)rocks_count(c->rocks, CATALOG_OBJECTS),
		 (long long)(now_ms() - start_ms));
	*out = c;
	return 0;

err_close:
	rocks_close(c->rocks);
err_free:
	free(c->path);
	free(c);
	return rc;
}

void catalog_close(struct catalog *c)
{
	/* Its failure is in the log; there is nobody left to return it to. */
	catalog_sync(c);
	rocks_close(c->rocks);
	free(c->path);
	free(c);
}

/* ---- reads ---- */

void catalog_complain(struct catalog *c, int rc, const char *what, uint64_t id, const void *name,
		      size_t name_len)
{
	char text[CATALOG_NAME_MAX + 1];

	if (name_len > CATALOG_NAME_MAX)
		name_len = CATALOG_NAME_MAX;
	/* A name may hold newlines and escape sequences; a line of the log must not. */
	for (size_t i = 0; i < name_len; i++) {
		unsigned char byte = ((const unsigned char *)name)[i];
		text[i] = (char)(byte < ' ' || byte == 127 ? '?' : byte);
	}
	text[name_len] = '\0';
	counter_inc(catalog_errors);
	if (c->is_quiet)
		return;
	log_error("catalog %s: %s %llu%s%s%s: %s", c->path, what, (unsigned long long)id,
		  name_len ? " '" : "", text, name_len ? "'" : "",
		  rc == -EPROTO ? "the record is of a newer version than this program knows" :
		  rc == -ENOMEM ? "out of memory" :
				  "the record is damaged");
}

int catalog_lookup(struct catalog *c, uint64_t parent, const char *name, struct entry *entry_out)
{
	uint8_t key[NAMES_KEY_MAX];
	size_t key_len;
	struct rocks_value v = { 0 };
	int rc = names_key_encode(key, &key_len, parent, name);

	if (!rc)
		rc = rocks_get(c->rocks, CATALOG_NAMES, key, key_len, &v);
	if (rc)
		return rc == -EIO ? -ENOENT : rc;
	rc = entry_record_decode(v.bytes, v.len, entry_out);
	rocks_value_release(&v);
	if (rc)
		catalog_complain(c, rc, "entry in", parent, name, key_len - NAMES_KEY_PREFIX);
	return rc == -EIO ? -ENOENT : rc;
}

int catalog_exists(struct catalog *c, uint64_t parent, const char *name)
{
	struct entry e;
	int rc = catalog_lookup(c, parent, name, &e);

	if (!rc)
		entry_fini(&e);
	return rc;
}

int catalog_object_decode(struct catalog *c, uint64_t object_id, const uint8_t *value,
			  size_t value_len, struct object_record *out)
{
	struct object_record r;
	int rc = object_record_decode(value, value_len, &r);

	if (!rc && r.object_id != object_id) {
		object_record_fini(&r);
		rc = -EIO;
	}
	if (rc)
		catalog_complain(c, rc, "object", object_id, NULL, 0);
	else
		*out = r;
	return rc;
}

int catalog_object_get(struct catalog *c, uint64_t object_id, struct object_record *out)
{
	uint8_t key[OBJECTS_KEY_BYTES];
	struct rocks_value v = { 0 };

	objects_key_encode(key, object_id);
	int rc = rocks_get(c->rocks, CATALOG_OBJECTS, key, sizeof(key), &v);
	if (rc)
		return rc;
	rc = catalog_object_decode(c, object_id, v.bytes, v.len, out);
	rocks_value_release(&v);
	return rc;
}

int catalog_control_get(struct catalog *c, const char *key, uint64_t *value_out)
{
	struct rocks_value v = { 0 };
	int rc = rocks_get(c->rocks, CATALOG_CONTROL, key, strlen(key), &v);

	if (rc)
		return rc;
	rc = control_record_decode(v.bytes, v.len, value_out);
	rocks_value_release(&v);
	if (rc)
		catalog_complain(c, rc, "control value", 0, key, strlen(key));
	return rc;
}

/* ---- writes ---- */

struct catalog_batch *catalog_batch_create(struct catalog *c)
{
	struct catalog_batch *b = malloc(sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct catalog_batch){.c = c, .rb = rocks_batch_create(c->rocks)};
	if (!b->rb) {
		free(b);
		return NULL;
	}
	return b;
}

void catalog_batch_destroy(struct catalog_batch *b)
{
	if (!b)
		return;
	rocks_batch_destroy(b->rb);
	free(b);
}

/* Returns whether to go on. */
static bool batch_keep_error(struct catalog_batch *b, int rc)
{
	if (rc && !b->error)
		b->error = rc;
	return !rc;
}

void catalog_batch_put_raw(struct catalog_batch *b, enum catalog_table t, const void *key,
			   size_t key_len, const void *value, size_t value_len)
{
	if (b)
		rocks_batch_put(b->rb, t, key, key_len, value, value_len);
}

void catalog_batch_del_raw(struct catalog_batch *b, enum catalog_table t, const void *key,
			   size_t key_len)
{
	if (b)
		rocks_batch_del(b->rb, t, key, key_len);
}

void catalog_batch_put_control(struct catalog_batch *b, const char *key, uint64_t value)
{
	uint8_t record[CONTROL_RECORD_BYTES];
	size_t key_len = strnlen(key, CONTROL_KEY_MAX + 1);

	if (!b || !batch_keep_error(b, key_len && key_len <= CONTROL_KEY_MAX ? 0 : -EINVAL))
		return;
	control_record_encode(value, record);
	rocks_batch_put(b->rb, CATALOG_CONTROL, key, key_len, record, sizeof(record));
}

void catalog_batch_del_control(struct catalog_batch *b, const char *key)
{
	if (b)
		rocks_batch_del(b->rb, CATALOG_CONTROL, key, strlen(key));
}

void catalog_batch_put_entry(struct catalog_batch *b, uint64_t parent, const char *name,
			     const struct entry *e)
{
	uint8_t key[NAMES_KEY_MAX], value[ENTRY_RECORD_MAX];
	size_t key_len, value_len;
	bool is_reserved = strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..");

	if (!b || !batch_keep_error(b, is_reserved ? -EINVAL : 0) ||
	    !batch_keep_error(b, names_key_encode(key, &key_len, parent, name)) ||
	    !batch_keep_error(b, entry_record_encode(e, value, sizeof(value), &value_len)))
		return;
	rocks_batch_put(b->rb, CATALOG_NAMES, key, key_len, value, value_len);
}

void catalog_batch_del_entry(struct catalog_batch *b, uint64_t parent, const char *name)
{
	uint8_t key[NAMES_KEY_MAX];
	size_t key_len;

	if (b && batch_keep_error(b, names_key_encode(key, &key_len, parent, name)))
		rocks_batch_del(b->rb, CATALOG_NAMES, key, key_len);
}

void catalog_batch_put_object(struct catalog_batch *b, const struct object_record *r)
{
	uint8_t key[OBJECTS_KEY_BYTES], small[1024], *value = small;
	autofree uint8_t *big = NULL;
	size_t bytes = object_record_bytes(r), value_len;

	if (!b)
		return;
	if (bytes > sizeof(small)) {
		big = malloc(bytes);
		value = big;
	}
	if (!batch_keep_error(b, value ? 0 : -ENOMEM) ||
	    !batch_keep_error(b, object_record_encode(r, value, bytes, &value_len)))
		return;
	objects_key_encode(key, r->object_id);
	rocks_batch_put(b->rb, CATALOG_OBJECTS, key, sizeof(key), value, value_len);
}

void catalog_batch_del_object(struct catalog_batch *b, uint64_t object_id)
{
	uint8_t key[OBJECTS_KEY_BYTES];

	if (!b)
		return;
	objects_key_encode(key, object_id);
	rocks_batch_del(b->rb, CATALOG_OBJECTS, key, sizeof(key));
}

int catalog_batch_commit(struct catalog_batch *b, bool sync)
{
	if (!b)
		return -ENOMEM;
	int rc = b->error ? b->error : rocks_batch_write(b->rb, sync);
	catalog_batch_destroy(b);
	return rc;
}

int catalog_sync(struct catalog *c)
{
	return rocks_sync(c->rocks);
}

int catalog_control_put(struct catalog *c, const char *key, uint64_t value, bool sync)
{
	struct catalog_batch *b = catalog_batch_create(c);

	catalog_batch_put_control(b, key, value);
	return catalog_batch_commit(b, sync);
}

void catalog_get_stats(struct catalog *c, struct catalog_stats *out)
{
	*out = (struct catalog_stats){
		.n_entries_estimate = rocks_count(c->rocks, CATALOG_NAMES),
		.n_objects_estimate = rocks_count(c->rocks, CATALOG_OBJECTS),
		.disk_bytes = rocks_disk_bytes(c->rocks),
		.memtable_bytes = rocks_memtable_bytes(c->rocks),
		.cache_bytes = rocks_cache_bytes(c->rocks),
	};
}
