/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rocks: reads and writes through the C API of RocksDB (7.8 and later), which only the files rocks*.c
 * know. How it opens is in rocks_open.c.
 *
 * States: open, read-write or read-only. A read-only one takes no lock and may stand beside a live
 * daemon; it shows what was written by then.
 *
 * Invariants: a write is in the WAL, hence in the page cache, before it returns, so it survives
 * this process; only a synced one survives the machine. RocksDB replays the WAL up to the first
 * damaged record, and no column family further than another.
 *
 * Locks: none of our own; what changes after rocks_open is atomic.
 *
 * How it fails: RocksDB reports a text; rocks_text_errno makes an errno of it, rocks_fail and
 * write_result log it. A full disk fails writes with -ENOSPC and leaves reads alone; RocksDB takes
 * writes again by itself some seconds after space came back.
 */
#include "rocks.h"

#include <errno.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/counters.h"
#include "base/log.h"
#include "rocks_error.h"
#include "rocks_folder.h"
#include "rocks_parts.h"

#define ERROR_LOG_MS 10000
/* Deletions in a table after which it is flushed, full or not: see deletions_count. */
#define FLUSH_AFTER_DELETIONS 65536u

struct rocks_batch {
	struct rocks *r;
	rocksdb_writebatch_t *wb;
	unsigned n_deletions[CATALOG_N_TABLES];
};

const char *const rocks_table_names[CATALOG_N_TABLES] = {"names", "objects", "control"};

/* ---- errors ---- */

/* For messages: what an operator can do about damaged files. The folder above path is the state's. */
static const char *repair_hint(const char *path, int rc, char hint[ROCKS_HINT_BYTES])
{
	const char *slash = strrchr(path, '/');

	*hint = '\0';
	if (rc == -EBUSY)
		return " (it is open in another process or a second time in this one)";
	if (rc == -EIO)
		snprintf(hint, ROCKS_HINT_BYTES, "; 'mooncakectl fsck --repair %.*s' checks and repairs it",
			 slash && slash != path ? (int)(slash - path) : 1,
			 slash ? path : ".");
	return hint;
}

int rocks_complain(const char *path, int rc, const char *operation, const char *text)
{
	char hint[ROCKS_HINT_BYTES], copy[ROCKS_TEXT_BYTES];

	counter_inc(catalog_errors);
	/* A table file that is missing is looked for by the ending that it had long ago, last. */
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *ldb = copy; (ldb = strstr(ldb, ".ldb"));)
		memcpy(ldb, ".sst", 4);
	log_error("catalog %s: %s: %s%s", path, operation, copy, repair_hint(path, rc, hint));
	return rc;
}

int rocks_fail(const char *path, const char *operation, char *text)
{
	int rc = rocks_complain(path, rocks_text_errno(text), operation, text);

	rocksdb_free(text);
	return rc;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

/*
 * Turns what RocksDB said of a write (NULL: good) into a result. On a full disk every write fails,
 * at any rate, so the log gets each new reason, a reminder now and then, and the end of it.
 */
static int write_result(struct rocks *r, const char *operation, char *text)
{
	if (!text) {
		if (atomic_load_explicit(&r->write_error, memory_order_relaxed) &&
		    atomic_exchange(&r->write_error, 0))
			log_warn("catalog %s: takes writes again", r->path);
		return 0;
	}
	int rc = rocks_text_errno(text);
	int64_t now = now_ms(), logged = atomic_load(&r->write_error_logged_ms);
	if (atomic_exchange(&r->write_error, rc) != rc || now - logged >= ERROR_LOG_MS) {
		atomic_store(&r->write_error_logged_ms, now);
		return rocks_fail(r->path, operation, text);
	}
	counter_inc(catalog_errors);
	rocksdb_free(text);
	return rc;
}

/* ---- reads ---- */

/* A block that is damaged fails every read of what is in it: the log gets one of them now and then. */
static int read_result(struct rocks *r, const char *operation, char *text)
{
	int64_t now = now_ms(), logged = atomic_load(&r->read_error_logged_ms);

	if ((!logged || now - logged >= ERROR_LOG_MS) &&
	    atomic_compare_exchange_strong(&r->read_error_logged_ms, &logged, now))
		return rocks_fail(r->path, operation, text);
	int rc = rocks_text_errno(text);
	counter_inc(catalog_errors);
	rocksdb_free(text);
	return rc;
}

int rocks_get(struct rocks *r, enum catalog_table t, const void *key, size_t key_len,
	      struct rocks_value *v)
{
	char *text = NULL;
	rocksdb_pinnableslice_t *pin =
		rocksdb_get_pinned_cf(r->db, r->read_point, r->families[t], key, key_len, &text);

	if (text)
		return read_result(r, rocks_table_names[t], text);
	if (!pin)
		return -ENOENT;
	v->pin = pin;
	v->bytes = (const uint8_t *)rocksdb_pinnableslice_value(pin, &v->len);
	return 0;
}

void rocks_value_release(struct rocks_value *v)
{
	rocksdb_pinnableslice_destroy(v->pin);
}

static void iter_load(struct rocks_iter *i)
{
	i->key = NULL;
	if (!rocksdb_iter_valid(i->it))
		return;
	i->key = (const uint8_t *)rocksdb_iter_key(i->it, &i->key_len);
	i->value = (const uint8_t *)rocksdb_iter_value(i->it, &i->value_len);
}

void rocks_iter_init(struct rocks_iter *i, struct rocks *r, enum catalog_table t, const void *start,
		     size_t start_len, const void *end, size_t end_len)
{
	*i = (struct rocks_iter){.r = r};
	if (end) {
		i->options = rocksdb_readoptions_create();
		rocksdb_readoptions_set_iterate_upper_bound(i->options, end, end_len);
	}
	i->it = rocksdb_create_iterator_cf(r->db, end ? i->options : r->read_scan, r->families[t]);
	rocksdb_iter_seek(i->it, start, start_len);
	iter_load(i);
}

void rocks_iter_next(struct rocks_iter *i)
{
	rocksdb_iter_next(i->it);
	iter_load(i);
}

int rocks_iter_fini(struct rocks_iter *i, int rc)
{
	char *text = NULL;

	rocksdb_iter_get_error(i->it, &text);
	if (text)
		rc = read_result(i->r, "scan", text);
	rocksdb_iter_destroy(i->it);
	if (i->options)
		rocksdb_readoptions_destroy(i->options);
	return rc;
}

/* ---- writes ---- */

void rocks_table_flush(struct rocks *r, enum catalog_table t, bool wait)
{
	rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
	char *text = NULL;

	atomic_store(&r->n_deletions[t], 0);
	rocksdb_flushoptions_set_wait(o, wait);
	rocksdb_flush_cf(r->db, o, r->families[t], &text);
	rocksdb_flushoptions_destroy(o);
	/* Nothing is lost: the WAL still has it. */
	write_result(r, "flush", text);
}

struct rocks_batch *rocks_batch_create(struct rocks *r)
{
	struct rocks_batch *b = malloc(sizeof(*b));

	if (b)
		*b = (struct rocks_batch){.r = r, .wb = rocksdb_writebatch_create()};
	return b;
}

void rocks_batch_put(struct rocks_batch *b, enum catalog_table t, const void *key, size_t key_len,
		     const void *value, size_t value_len)
{
	rocksdb_writebatch_put_cf(b->wb, b->r->families[t], key, key_len, value, value_len);
}

void rocks_batch_del(struct rocks_batch *b, enum catalog_table t, const void *key, size_t key_len)
{
	rocksdb_writebatch_delete_cf(b->wb, b->r->families[t], key, key_len);
	b->n_deletions[t]++;
}

/*
 * Only what is in a file can be compacted away. Without this, rm -r of a big directory would leave
 * hundreds of thousands of tombstones in a memtable that no further write fills, and each look at
 * that directory would step over all of them.
 */
static void deletions_count(struct rocks *r, const struct rocks_batch *b)
{
	for (int t = 0; t < CATALOG_N_TABLES; t++) {
		unsigned n = b->n_deletions[t];
		if (n && atomic_fetch_add(&r->n_deletions[t], n) % FLUSH_AFTER_DELETIONS + n >=
				 FLUSH_AFTER_DELETIONS)
			rocks_table_flush(r, t, false);
	}
}

int rocks_batch_write(struct rocks_batch *b, bool sync)
{
	struct rocks *r = b->r;
	char *text = NULL;

	if (r->read_only)
		return -EROFS;
	if (!rocksdb_writebatch_count(b->wb))
		return sync ? rocks_sync(r) : 0;
	rocksdb_write(r->db, sync ? r->write_sync : r->write_async, b->wb, &text);
	int rc = write_result(r, sync ? "synced write" : "write", text);
	if (!rc)
		deletions_count(r, b);
	return rc;
}

void rocks_batch_destroy(struct rocks_batch *b)
{
	rocksdb_writebatch_destroy(b->wb);
	free(b);
}

int rocks_sync(struct rocks *r)
{
	char *text = NULL;

	if (r->read_only)
		return 0;
	rocksdb_flush_wal(r->db, 1, &text);
	return write_result(r, "sync", text);
}

/* ---- statistics ---- */

static uint64_t property(struct rocks *r, enum catalog_table t, const char *name)
{
	uint64_t value = 0;

	return rocksdb_property_int_cf(r->db, r->families[t], name, &value) ? 0 : value;
}

static uint64_t property_sum(struct rocks *r, const char *name)
{
	return property(r, CATALOG_NAMES, name) + property(r, CATALOG_OBJECTS, name) +
	       property(r, CATALOG_CONTROL, name);
}

uint64_t rocks_count(struct rocks *r, enum catalog_table t)
{
	return property(r, t, "rocksdb.estimate-num-keys");
}

uint64_t rocks_memtable_bytes(struct rocks *r)
{
	return property_sum(r, "rocksdb.size-all-mem-tables");
}

uint64_t rocks_cache_bytes(struct rocks *r)
{
	return rocksdb_cache_get_usage(r->cache) +
	       property_sum(r, "rocksdb.estimate-table-readers-mem");
}

uint64_t rocks_disk_bytes(struct rocks *r)
{
	return rocks_folder_bytes(r->path);
}
