/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rocks_open: how RocksDB is set up, opened and closed.
 *
 * Memory is bounded: the block cache, WRITE_BUFFERS_BYTES of writes not yet in files, and filters and
 * indexes of about 2.3 bytes per record, which stay outside the cache. The log is replayed at start up to
 * the first damage; what is behind that is dropped, and said.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rocks_error.h"
#include "rocks_folder.h"
#include "rocks_parts.h"

#define MIB (UINT64_C(1) << 20)
#define CACHE_BYTES_DEFAULT (32 * MIB)
#define WRITE_BUFFERS_BYTES (64 * MIB)

/* ---- options ---- */

rocksdb_options_t *rocks_options_create(bool read_only)
{
	rocksdb_options_t *o = rocksdb_options_create();

	rocksdb_options_set_create_if_missing(o, !read_only);
	rocksdb_options_set_create_missing_column_families(o, !read_only);
	rocksdb_options_set_max_background_jobs(o, 2);
	rocksdb_options_set_max_open_files(o, 512);
	/* Of all tables together: what waits in memory to be written to a file. */
	rocksdb_options_set_db_write_buffer_size(o, WRITE_BUFFERS_BYTES);
	/* Bounds the replay at start, also when control, written once in a day, holds on to the oldest
	 * log. */
	rocksdb_options_set_max_total_wal_size(o, 96 * MIB);
	/* Sends dirty pages to the disk as they come, so that a synced write finds few left. */
	rocksdb_options_set_wal_bytes_per_sync(o, MIB);
	rocksdb_options_set_bytes_per_sync(o, MIB);
	rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
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

/* The folder is there: a file of it that is not is damage, not absence. */
static int open_fail(const char *path, const char *operation, char *text)
{
	int rc = rocks_text_errno(text);

	rocks_complain(path, rc == -ENOENT ? -EIO : rc, operation, text);
	rocksdb_free(text);
	return rc == -ENOENT ? -EIO : rc;
}

/*
 * RocksDB opens all families or none, so those that a later version may have added are opened too;
 * the format number then decides. names_out points into rocks_table_names and *list_out.
 */
static int families_list(const char *path, bool exists, const rocksdb_options_t *o,
			 char ***list_out, size_t *n_list_out, const char **names_out, int *n_out)
{
	char *text = NULL;
	int n = 0;

	if (exists)
		*list_out = rocksdb_list_column_families(o, path, n_list_out, &text);
	if (text)
		return open_fail(path, "list of column families", text);
	for (; n < CATALOG_N_TABLES; n++)
		names_out[n] = rocks_table_names[n];
	if (!exists)
		names_out[n++] = "default";
	for (size_t i = 0; i < *n_list_out && n < FAMILIES_MAX; i++) {
		bool ours = false;
		for (int t = 0; t < CATALOG_N_TABLES; t++)
			ours = ours || !strcmp((*list_out)[i], rocks_table_names[t]);
		if (!ours)
			names_out[n++] = (*list_out)[i];
	}
	*n_out = n;
	return 0;
}

static int db_open(struct rocks *r, const struct catalog_conf *conf, bool *is_new_out)
{
	const char *names[FAMILIES_MAX];
	const rocksdb_options_t *options[FAMILIES_MAX];
	char **list = NULL, *text = NULL;
	size_t n_list = 0;
	bool exists;
	int rc = rocks_folder_prepare(conf->path, conf->read_only, &exists);

	if (rc)
		return rc;
	rocksdb_options_t *small = rocks_options_create(conf->read_only);
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
		rc = open_fail(conf->path, "open", text);
	}
out:
	if (list)
		rocksdb_list_column_families_destroy(list, n_list);
	rocksdb_options_destroy(big);
	rocksdb_options_destroy(small);
	*is_new_out = !exists;
	return rc;
}

/*
 * A repair finds the tables by the files they have. A new one has none, only its log, so each gets a
 * file with the deletion of a key that no table has.
 */
static void seed_tables(struct rocks *r)
{
	for (int t = 0; t < CATALOG_N_TABLES; t++) {
		struct rocks_batch *b = rocks_batch_create(r);
		if (!b)
			return;
		rocks_batch_del(b, t, "", 0);
		if (!rocks_batch_write(b, false))
			rocks_table_flush(r, t, true);
		rocks_batch_destroy(b);
	}
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
	bool is_new = false;
	int rc = db_open(r, conf, &is_new);
	if (rc) {
		rocks_close(r);
		return rc;
	}
	if (is_new)
		seed_tables(r);
	else
		rocks_folder_tell_dropped(r->path);
	*out = r;
	return 0;
}

void rocks_close(struct rocks *r)
{
	if (r->db) {
		/* A table file opens at once, where a log would have to be replayed. */
		for (int t = 0; !r->read_only && t < CATALOG_N_TABLES; t++)
			rocks_table_flush(r, t, true);
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
