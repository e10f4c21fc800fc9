/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_key: under what key and field of the server a name is kept.
 *
 * The names of one directory lie in 256 hashes by the top 8 bits of their 63-bit cookie, so a walk of the buckets
 * in order is a walk in the order of cookies. What is in braces decides where a cluster of servers keeps a key.
 *
 * Fields: a name of 32 to 64 lower-case hex digits, evenly many, is '/' and its bytes; any other is itself, which
 * cannot begin with '/'. So every name has one field and every field at most one name.
 * Decoders withstand any bytes. Thread safe, no state.
 */
#ifndef MCFS_DIRECTORY_KEY_H
#define MCFS_DIRECTORY_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/directory.h"

#define DIRECTORY_BUCKETS 256u
#define DIRECTORY_PREFIX_MAX 63u
#define DIRECTORY_FIELD_MAX ((size_t)DIRECTORY_NAME_MAX)
#define DIRECTORY_KEY_BYTES 112u /* of any key, with its NUL */

struct directory_hash {
	uint64_t high, low;
};

/* -EINVAL: not 1 to 63 bytes of [A-Za-z0-9._-]. */
int directory_prefix_check(const char *prefix);

struct directory_hash directory_path_hash(const char *path);
unsigned directory_bucket_of(uint64_t cookie);

/* Return the key's length. */
size_t directory_bucket_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, struct directory_hash h,
			    unsigned bucket);
/* Makes the key of one bucket, len bytes, that of another of the same directory. */
void directory_bucket_key_move(char *key, size_t len, unsigned bucket);
size_t directory_slots_key(char key[DIRECTORY_KEY_BYTES], const char *prefix);
size_t directory_lease_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot);
size_t directory_box_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot);
size_t directory_ack_key(char key[DIRECTORY_KEY_BYTES], const char *prefix, unsigned slot, uint64_t letter);
size_t directory_events_key(char key[DIRECTORY_KEY_BYTES], const char *prefix);

/* -EINVAL: no name or one with a '/'; -ENAMETOOLONG. */
int directory_field_encode(const char *name, uint8_t field[DIRECTORY_FIELD_MAX], size_t *len_out);
/* -EIO: the field of no name. */
int directory_field_decode(const void *field, size_t len, char name_out[DIRECTORY_NAME_MAX + 1]);

#endif
