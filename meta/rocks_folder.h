/* SPDX-License-Identifier: Apache-2.0 */
/* rocks_folder: the directory that holds the catalog's files. Thread safe, no state. */
#ifndef MCFS_ROCKS_FOLDER_H
#define MCFS_ROCKS_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Creates path, not its parents, with mode 0700 where absent, unless read_only. *exists_out: there is
 * a database in it. Returns 0 or the negative errno of mkdir or stat, logged; -ENOENT when read_only
 * finds no database; -EIO: there are files of a database without the one that holds them together,
 * which a new database in their place would remove; -ENAMETOOLONG.
 */
int rocks_folder_prepare(const char *path, bool read_only, bool *exists_out);

/* What its files occupy on disk; RocksDB's own numbers leave the log out. 0: unreadable. */
uint64_t rocks_folder_bytes(const char *path);

/* Warns of what RocksDB, which has just opened the folder, says it left out of a damaged log. */
void rocks_folder_tell_dropped(const char *path);

/*
 * Copies the files of path into a new folder path.before-repair.N, synced. copy_out (PATH_MAX bytes)
 * gets its name. Returns 0 or the negative errno of what failed, logged; the half of a copy goes.
 */
int rocks_folder_copy(const char *path, char *copy_out);

#endif
