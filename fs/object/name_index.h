/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_index: from (directory, name) to the live object, in memory, for batches that ask for thousands
 * of names. The catalog stays the truth; this follows the object table under fs->lock.
 *
 * A name is known by 128 bits of a hash that is seeded anew at each start. Two names with one hash
 * would be taken for each other: with n objects the odds are n^2 / 2^129, and nobody can look for such
 * a pair without the seed.
 */
#ifndef MCFS_NAME_INDEX_H
#define MCFS_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct fs;
struct object;
struct name_index;

struct name_key {
	uint64_t high, low;
};

/* NULL: the system has no random bytes (logged). */
struct name_index *name_index_create(void);
void name_index_destroy(struct name_index *x);

struct name_key name_key_of(const struct fs *fs, uint64_t dir_ino, const char *name, size_t len);

/* ---- fs->lock held ---- */

/* The object's name from now on; an older object of that name gives way. */
void name_index_put_locked(struct fs *fs, struct object *o, struct name_key key);
/* Its name is gone (or it never had one). */
void name_index_remove_locked(struct fs *fs, struct object *o);
/* The object of that name put last, NULL: none. */
struct object *name_index_find_locked(struct fs *fs, struct name_key key);

#endif
