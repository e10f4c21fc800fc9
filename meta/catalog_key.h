/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_key: the bytes that sort the catalog.
 *
 * names key, 17 to 271 bytes               objects key, 8 bytes
 *    0  u64 big endian  parent ino            0  u64 big endian  object id
 *    8  u64 big endian  cookie, 3 .. 2^63-1
 *   16  name, 1 to 255 bytes, no NUL
 *
 * Big endian makes memcmp, RocksDB's order, the numeric one. A directory is the range from
 * (parent, 0) up to and without (parent, CATALOG_COOKIE_END): no parent + 1, hence no overflow.
 *
 * Thread safe, no state, nothing allocated.
 */
#ifndef MCFS_CATALOG_KEY_H
#define MCFS_CATALOG_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/catalog.h"

#define NAMES_KEY_PREFIX 16u
#define NAMES_KEY_MAX (NAMES_KEY_PREFIX + CATALOG_NAME_MAX)
#define OBJECTS_KEY_BYTES 8u
#define CATALOG_COOKIE_END (UINT64_C(1) << 63) /* one past the last cookie */

/* The first 16 bytes: the position of a cookie in a directory. */
void names_position_encode(uint8_t key[NAMES_KEY_PREFIX], uint64_t parent, uint64_t cookie);

/* key holds NAMES_KEY_MAX bytes. 0, -EINVAL empty name, -ENAMETOOLONG. */
int names_key_encode(uint8_t *key, size_t *key_len_out, uint64_t parent, const char *name);

/* name_out points into key and is not terminated. 0, or -EIO when these bytes are no names key. */
int names_key_decode(const uint8_t *key, size_t key_len, uint64_t *parent_out, uint64_t *cookie_out,
		     const char **name_out, size_t *name_len_out);

void objects_key_encode(uint8_t key[OBJECTS_KEY_BYTES], uint64_t object_id);
/* 0, or -EIO when these bytes are no objects key. */
int objects_key_decode(const uint8_t *key, size_t key_len, uint64_t *object_id_out);

#endif
