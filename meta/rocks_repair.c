/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rocks_repair: makes a database that RocksDB opens again out of the files that are left.
 *
 * RocksDB reads every table file and log it finds, leaves out what it cannot read, and writes a new
 * MANIFEST. Tables are known by their files, so those without one come to be anew, empty. What is left out
 * may also be a deletion: names and objects of old can come back, and it is fsck's work to find them.
 */
#include <errno.h>

#include "base/log.h"
#include "rocks_folder.h"
#include "rocks_parts.h"

int rocks_repair(const char *path, char *copy_out)
{
	int rc = rocks_folder_copy(path, copy_out);
	char *text = NULL;

	if (rc)
		return rc;
	rocksdb_options_t *o = rocks_options_create(false);
	rocksdb_repair_db(o, path, &text);
	rocksdb_options_destroy(o);
	if (text)
		return rocks_fail(path, "repair", text);
	log_info("catalog %s: repaired; what it was is in %s", path, copy_out);
	return 0;
}
