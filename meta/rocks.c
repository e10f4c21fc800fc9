/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rocks: the only file that knows RocksDB (its C API, 7.8 and later).
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
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/counters.h"
#include "base/log.h"
#include "rocks_error.h"
#include "rocks_folder.h"

#define MIB (UINT64_C(1) << 20)
#define CACHE_BYTES_DEFAULT (64 * MIB)
#define WRITE_ERROR_LOG_MS 10000
/* Deletions in a table after which it is flushed, full or not: see deletions_count. */
#define FLUSH_AFTER_DELETIONS 65536u
/* Ours, RocksDB's "default", and room for what a later format may have added. */
#define FAMILIES_MAX 32

struct rocks {
	char *path;
	bool read_only;
	rocksdb_t *db;
	rocksdb_column_family_handle_t
		*families[FAMILIES_MAX]; /* by catalog_table, then the rest */
	int n_families;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read_point, *read_scan;
	rocksdb_writeoptions_t *write_async, *write_sync;
	_Atomic unsigned n_deletions[CATALOG_N_TABLES]; /* in the memtable, about */
	/* Of the writes that failed last: see write_result. */
	_Atomic int write_error; /* 0: writes succeed */
	_Atomic int64_t write_error_logged_ms;
};

struct rocks_batch {
	struct rocks *r;
	rocksdb_writebatch_t *wb;
	unsigned n_deletions[CATALOG_N_TABLES];
};

static const char *const table_names[CATALOG_N_TABLES] = {"names", "objects", "control"};

/* ---- errors ---- */

/* Logs and frees RocksDB's text; returns the errno. */
static int rocks_fail(const char *path, const char *operation, char *text)
{
	int rc = rocks_text_errno(text);

	counter_inc(catalog_errors);
	log_error("catalog %s: %s: %s%s", path, operation, text,
		  rc == -EBUSY ? " (it is open in another process or a second time in this one)" :
				 "");
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
	if (atomic_exchange(&r->write_error, rc) != rc || now - logged >= WRITE_ERROR_LOG_MS) {
		atomic_store(&r->write_error_logged_ms, now);
		return rocks_fail(r->path, operation, text);
	}
	counter_inc(catalog_errors);
	rocksdb_free(text);
	return rc;
}

/* ---- options ---- */

static rocksdb_options_t *db_options_create(bool read_only)
{
	rocksdb_options_t *o = rocksdb_options_create();

	rocksdb_options_set_create_if_missing(o, !read_only);
	rocksdb_options_set_create_missing_column_families(o, !read_only);
	rocksdb_options_set_max_background_jobs(o, 2);
	rocksdb_options_set_max_open_files(o, 512);
	/* Bounds the replay at start, also when control, written once in a day, holds on to the oldest
	 * log. */
	rocksdb_options_set_max_total_wal_size(o, 96 * MIB);
	/* Sends dirty pages to the disk as they come, so that a synced write finds few left. */
	rocksdb_options_set_wal_bytes_per_sync(o, MIB);
	rocksdb_options_set_bytes_per_sync(o, MIB);
	rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
	rocksdb_options_set_skip_stats_update_on_db_open(o, 1);
	/* The end of an iterator must not unlink old files on a request's thread. */
	rocksdb_options_set_avoid_unnecessary_blocking_io(o, 1);
	rocksdb_options_set_max_manifest_file_size(o, 8 * MIB);
	rocksdb_options_set_manifest_preallocation_size(o, 64 << 10);
	rocksdb_options_set_stats_dump_period_sec(o, 0);
	rocksdb_options_set_stats_persist_period_sec(o, 0);
	rocksdb_options_set_info_log_level(o, 2 /* warnings */);
	rocksdb_options_set_max_log_file_size(o, MIB);
	rocksdb_options_set_keep_log_file_num(o, 2);
	/* A read-only open writes an info log too, unless there is no place for it. */
	if (read_only)
		rocksdb_options_set_db_log_dir(o, "/dev/null");
	/* Of the families that are written rarely; big_options_create overrides it. */
	rocksdb_options_set_write_buffer_size(o, MIB);
	rocksdb_options_set_compression(o, rocksdb_no_compression);
	return o;
}

/*
 * Filters and indexes stay in the table readers, outside the block cache: a miss then costs a probe
 * per table file and no cache lookup.
 */
static void table_format_apply(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

	rocksdb_block_based_options_set_filter_policy(t,
						      rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_block_based_options_set_whole_key_filtering(t, 1);
	rocksdb_block_based_options_set_block_cache(t, cache);
	rocksdb_block_based_options_set_format_version(t, 5);
	rocksdb_block_based_options_set_data_block_index_type(
		t, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
	rocksdb_options_set_block_based_table_factory(o, t);
	rocksdb_block_based_options_destroy(t);
}

/* For names and objects. */
static rocksdb_options_t *big_options_create(rocksdb_options_t *db_options, rocksdb_cache_t *cache)
{
	rocksdb_options_t *o = rocksdb_options_create_copy(db_options);

	table_format_apply(o, cache);
	rocksdb_options_set_write_buffer_size(o, 32 * MIB);
	rocksdb_options_set_max_write_buffer_number(o, 3);
	/* A filter over the memtable, else every miss walks its skip list. */
	rocksdb_options_set_memtable_whole_key_filtering(o, 1);
	rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, 0.05);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	rocksdb_options_set_target_file_size_base(o, 32 * MIB);
	/* Eviction and rm -r leave runs of tombstones that every scan must step over: a file with a run
	 * of them is compacted at once, not when its level is full. The steady mix of one deletion per
	 * insertion stays below the limit; it costs scans a factor of two and no more. */
	rocksdb_options_add_compact_on_deletion_collector_factory(o, 1024, 700);
	return o;
}

/* ---- open and close ---- */

/*
 * RocksDB opens all families or none, so those that a later version may have added are opened too;
 * the format number then decides. names_out points into table_names and *list_out.
 */
static int families_list(const char *path, bool exists, const rocksdb_options_t *o,
			 char ***list_out, size_t *n_list_out, const char **names_out, int *n_out)
{
	char *text = NULL;
	int n = 0;

	if (exists)
		*list_out = rocksdb_list_column_families(o, path, n_list_out, &text);
	if (text)
		return rocks_fail(path, "list of column families", text);
	for (; n < CATALOG_N_TABLES; n++)
		names_out[n] = table_names[n];
	if (!exists)
		names_out[n++] = "default";
	for (size_t i = 0; i < *n_list_out && n < FAMILIES_MAX; i++) {
		bool ours = false;
		for (int t = 0; t < CATALOG_N_TABLES; t++)
			ours = ours || !strcmp((*list_out)[i], table_names[t]);
		if (!ours)
			names_out[n++] = (*list_out)[i];
	}
	*n_out = n;
	return 0;
}

static int db_open(struct rocks *r, const struct catalog_conf *conf)
{
	const char *names[FAMILIES_MAX];
	const rocksdb_options_t *options[FAMILIES_MAX];
	char **list = NULL, *text = NULL;
	size_t n_list = 0;
	bool exists;
	int rc = rocks_folder_prepare(conf->path, conf->read_only, &exists);

	if (rc)
		return rc;
	rocksdb_options_t *small = db_options_create(conf->read_only);
	rocksdb_options_t *big = big_options_create(small, r->cache);
	rc = families_list(conf->path, exists, small, &list, &n_list, names, &r->n_families);
	if (rc)
		goto out;
	for (int i = 0; i < r->n_families; i++)
		options[i] = i == CATALOG_NAMES || i == CATALOG_OBJECTS ? big : small;
	if (conf->read_only)
		r->db = rocksdb_open_for_read_only_column_families(
			small, conf->path, r->n_families, names, options, r->families, 0, &text);
	else
		r->db = rocksdb_open_column_families(small, conf->path, r->n_families, names,
						     options, r->families, &text);
	if (text) {
		r->db = NULL;
		rc = rocks_fail(conf->path, "open", text);
	}
out:
	if (list)
		rocksdb_list_column_families_destroy(list, n_list);
	rocksdb_options_destroy(big);
	rocksdb_options_destroy(small);
	return rc;
}

int rocks_open(const struct catalog_conf *conf, struct rocks **out)
{
	struct rocks *r = calloc(1, sizeof(*r));
	char *path = strdup(conf->path);

	if (!r || !path) {
		free(path);
		free(r);
		return -ENOMEM;
	}
	r->path = path;
	r->read_only = conf->read_only;
	r->cache = rocksdb_cache_create_lru(conf->cache_bytes ? conf->cache_bytes :
								CACHE_BYTES_DEFAULT);
	r->read_point = rocksdb_readoptions_create();
	r->read_scan = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(r->read_scan, 0);
	rocksdb_readoptions_set_readahead_size(r->read_scan, 2 * MIB);
	r->write_async = rocksdb_writeoptions_create();
	r->write_sync = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(r->write_sync, 1);
	int rc = db_open(r, conf);
	if (rc) {
		rocks_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

static void table_flush(struct rocks *r, enum catalog_table t, bool wait)
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

void rocks_close(struct rocks *r)
{
	if (r->db) {
		/* A table file opens at once, where a log would have to be replayed. */
		for (int t = 0; !r->read_only && t < CATALOG_N_TABLES; t++)
			table_flush(r, t, true);
		for (int i = 0; i < r->n_families; i++)
			rocksdb_column_family_handle_destroy(r->families[i]);
		rocksdb_close(r->db);
	}
	rocksdb_writeoptions_destroy(r->write_sync);
	rocksdb_writeoptions_destroy(r->write_async);
	rocksdb_readoptions_destroy(r->read_scan);
	rocksdb_readoptions_destroy(r->read_point);
	rocksdb_cache_destroy(r->cache);
	free(r->path);
	free(r);
}

/* ---- reads ---- */

int rocks_get(struct rocks *r, enum catalog_table t, const void *key, size_t key_len,
	      struct rocks_value *v)
{
	char *text = NULL;
	rocksdb_pinnableslice_t *pin =
		rocksdb_get_pinned_cf(r->db, r->read_point, r->families[t], key, key_len, &text);

	if (text)
		return rocks_fail(r->path, table_names[t], text);
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

int rocks_exists(struct rocks *r, enum catalog_table t, const void *key, size_t key_len)
{
	struct rocks_value v = { 0 };
	int rc = rocks_get(r, t, key, key_len, &v);

	/* Not rocksdb_key_may_exist: no faster when measured, and it copies the value, of length 0 when
	 * there is none. */
	if (!rc)
		rocks_value_release(&v);
	return rc;
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
		rc = rocks_fail(i->r->path, "scan", text);
	rocksdb_iter_destroy(i->it);
	if (i->options)
		rocksdb_readoptions_destroy(i->options);
	return rc;
}

/* ---- writes ---- */

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
			table_flush(r, t, false);
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
