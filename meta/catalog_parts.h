/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_parts: what the files of the catalog share. Nobody else includes it. */
#ifndef MCFS_CATALOG_PARTS_H
#define MCFS_CATALOG_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rocks.h"

/* Does not change after catalog_open. */
struct catalog {
	struct rocks *rocks;
	bool read_only, is_quiet, repairs;
	char *path; /* for messages */
};

/* Logs and counts a record that is of no use. name tells it with the id; not terminated, may be NULL. */
void catalog_complain(struct catalog *c, int rc, const char *what, uint64_t id, const void *name,
		      size_t name_len);

/* The record, if it is that of object_id; complains otherwise. */
int catalog_object_decode(struct catalog *c, uint64_t object_id, const uint8_t *value,
			  size_t value_len, struct object_record *out);

#endif
