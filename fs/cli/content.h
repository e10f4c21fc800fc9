/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content: the name and the bytes of a replayed block, both derived from the block's id.
 *
 * Nothing needs to be kept to know what a block must hold. Equal ids give equal bytes for one length;
 * different ids or lengths differ from the header on. 64-bit little-endian words:
 *
 *   0  magic "MCFSBLK1"     8  id     16  length of the block in bytes
 *   24...  word i = splitmix64 of (seed(id) + i * gamma); the last word is cut at the block's end
 *
 * (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.)
 * Thread safe.
 */
#ifndef MCFS_CLI_CONTENT_H
#define MCFS_CLI_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_NAME_BYTES 33 /* 32 hex digits and NUL */

/* XXH3-128 of the id, as engines name their KV blocks. */
void content_name(uint64_t id, char name_out[CONTENT_NAME_BYTES]);

/* Fills buf with the whole block of id, len bytes long. buf has any alignment. */
void content_fill(uint64_t id, void *buf, size_t len);

/* Offset of the first byte in buf that is not block id's; len when all are right. */
size_t content_check(uint64_t id, const void *buf, size_t len);

#endif
