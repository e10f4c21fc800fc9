/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_internal: what catalog's parts, its tests and repair tools see beyond mcfs/catalog.h. */
#ifndef MCFS_CATALOG_INTERNAL_H
#define MCFS_CATALOG_INTERNAL_H

#include "mcfs/catalog.h"

/* 1: objects without a time to live. 2: with one. */
#define CATALOG_FORMAT 2
#define CATALOG_FORMAT_FIRST 1
#define CATALOG_FORMAT_KEY "format" /* in control; written when the catalog is created */

/* The column families names, objects, control. */
enum catalog_table {
	CATALOG_NAMES,
	CATALOG_OBJECTS,
	CATALOG_CONTROL,
	CATALOG_N_TABLES
};

/* Puts bytes as they are, whether they make a key and a record or not. */
void catalog_batch_put_raw(struct catalog_batch *b, enum catalog_table t, const void *key,
			   size_t key_len, const void *value, size_t value_len);

void catalog_batch_del_raw(struct catalog_batch *b, enum catalog_table t, const void *key,
			   size_t key_len);

/* Every record of a table as it is, until fn returns non-zero, which is returned. */
typedef int (*catalog_raw_fn)(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
			      size_t value_len);
int catalog_scan_raw(struct catalog *c, enum catalog_table t, catalog_raw_fn fn, void *arg);

#endif
