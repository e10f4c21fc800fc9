/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_repair: what a check of a catalog needs beyond reading it. No daemon has the catalog open.
 *
 * Thread safety: none; one thread checks. Errors as in mcfs/catalog.h.
 */
#ifndef MCFS_CATALOG_REPAIR_H
#define MCFS_CATALOG_REPAIR_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/catalog.h"

/* A record of no use; the key's bytes last until fn returns. */
struct catalog_damage {
	const char *table;  /* "names", "objects", "control" */
	int error;	    /* -EIO: damaged; -EPROTO: of a newer version, and whole */
	uint64_t parent;    /* names, when the key itself makes sense */
	uint64_t object_id; /* objects, likewise */
	const char *name;   /* names, control: not terminated; NULL */
	size_t name_len;
	const void *key;
	size_t key_len;
};
/* Calls fn for every record that cannot be decoded, until it returns non-zero, which is returned. */
typedef int (*catalog_damage_fn)(void *arg, const struct catalog_damage *d);
int catalog_scan_damaged(struct catalog *c, catalog_damage_fn fn, void *arg);
void catalog_batch_del_damaged(struct catalog_batch *b, const struct catalog_damage *d);

/* A control value as part of a batch. */
void catalog_batch_set_control(struct catalog_batch *b, const char *key, uint64_t value);

/*
 * Rebuilds the database under path from the files that are left, after a copy of it was made beside it:
 * copy_out, PATH_MAX bytes. What no file has is missing then, and what a lost file had deleted may be back.
 */
int catalog_repair(const char *path, char *copy_out);

#endif
