/* SPDX-License-Identifier: Apache-2.0 */
/* rocks_parts: what the files rocks*.c share. Nobody else includes it. */
#ifndef MCFS_ROCKS_PARTS_H
#define MCFS_ROCKS_PARTS_H

#include <rocksdb/c.h>
#include <stdatomic.h>

#include "rocks.h"

/* Ours, RocksDB's "default", and room for what a later format may have added. */
#define FAMILIES_MAX 32
#define ROCKS_HINT_BYTES 4200
#define ROCKS_TEXT_BYTES 8192

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
	_Atomic int64_t write_error_logged_ms, read_error_logged_ms;
};

extern const char *const rocks_table_names[CATALOG_N_TABLES];

/* Logs and counts what went wrong, with what can be done about it; returns rc. */
int rocks_complain(const char *path, int rc, const char *operation, const char *text);
/* The same for RocksDB's text, which it frees; returns the errno. */
int rocks_fail(const char *path, const char *operation, char *text);

/* Writes a table's memory to a file; wait: returns when that is done. Failures are logged. */
void rocks_table_flush(struct rocks *r, enum catalog_table t, bool wait);

/* As every open of the catalog has them; the caller destroys them. */
rocksdb_options_t *rocks_options_create(bool read_only);

#endif
