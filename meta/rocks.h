/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rocks: the catalog's three tables of bytes on RocksDB. rocks.c is the one file that includes it.
 *
 * Thread safety: everything but a batch and an iterator, which belong to one thread each.
 * Errors: negative errno, logged here with the path and RocksDB's own words; -EBUSY held by another
 * process, -ENOSPC, -EACCES, -EROFS, ... as the system said, -EIO damaged or anything else.
 */
#ifndef MCFS_ROCKS_H
#define MCFS_ROCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog_internal.h"

struct rocks;

/* Creates the folder (0700) and the tables where absent, unless conf says read_only. Blocks. */
int rocks_open(const struct catalog_conf *conf, struct rocks **out);
/* Writes out what is in memory, as far as that works. */
void rocks_close(struct rocks *r);

/* Bytes that RocksDB holds, valid until rocks_value_release. */
struct rocks_value {
	const uint8_t *bytes;
	size_t len;
	void *pin;
};

/* 0, -ENOENT, or an error; v is written on 0 only. A hit may read from disk, a miss hardly ever. */
int rocks_get(struct rocks *r, enum catalog_table t, const void *key, size_t key_len,
	      struct rocks_value *v);
void rocks_value_release(struct rocks_value *v);

/* Walks keys in order, as of its init. */
struct rocks_iter {
	struct rocks *r;
	void *it, *options;
	const uint8_t *key, *value; /* NULL key: at the end */
	size_t key_len, value_len;
};

/* From start up to and without end; NULL end: to the table's end, read ahead and not cached. The
 * bytes of end must stay until fini. */
void rocks_iter_init(struct rocks_iter *i, struct rocks *r, enum catalog_table t, const void *start,
		     size_t start_len, const void *end, size_t end_len);
void rocks_iter_next(struct rocks_iter *i);
/* Returns rc, or the reason why the walk ended early. */
int rocks_iter_fini(struct rocks_iter *i, int rc);

/* All or nothing. Memory that RocksDB cannot get ends the process, as everywhere in it. */
struct rocks_batch;
struct rocks_batch *rocks_batch_create(struct rocks *r);
void rocks_batch_put(struct rocks_batch *b, enum catalog_table t, const void *key, size_t key_len,
		     const void *value, size_t value_len);
void rocks_batch_del(struct rocks_batch *b, enum catalog_table t, const void *key, size_t key_len);
/* The batch stays its owner's. sync: what it holds and all before it is on disk on 0. */
int rocks_batch_write(struct rocks_batch *b, bool sync);
void rocks_batch_destroy(struct rocks_batch *b);

int rocks_sync(struct rocks *r);

/* Estimates; bytes on disk are those of the folder's files, log included. */
uint64_t rocks_count(struct rocks *r, enum catalog_table t);
uint64_t rocks_disk_bytes(struct rocks *r);
uint64_t rocks_memtable_bytes(struct rocks *r);
uint64_t rocks_cache_bytes(struct rocks *r); /* blocks, filters and indexes */

/* Nobody has it open. What it was is kept in a folder beside it: copy_out, PATH_MAX bytes. */
int rocks_repair(const char *path, char *copy_out);

#endif
