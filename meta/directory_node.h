/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_node: what a node says of itself in its lease, and its claim of a slot, as bytes at the server.
 *
 * lease:  0  8  id, big-endian
 *         8  8  incarnation, big-endian
 *        16  1  format, 1
 *        17     name and address, each a varint length and its bytes; load, dram_bytes, dram_used_bytes,
 *               ssd_bytes, ssd_used_bytes, n_objects as varints. What a later version appends is passed over.
 * claim:  0  8  id, big-endian
 *         8  4  when the node last said so, in seconds since 1970 of the server
 *
 * Scripts compare the first 8 and 16 bytes. Decoders withstand any bytes: -EIO. Thread safe, no state.
 */
#ifndef MCFS_DIRECTORY_NODE_H
#define MCFS_DIRECTORY_NODE_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/directory.h"

#define DIRECTORY_NODE_MAX 512u
#define DIRECTORY_CLAIM_BYTES 12u

size_t directory_node_encode(const struct directory_node *n, uint8_t buf[DIRECTORY_NODE_MAX]);
/* slot and lease_ms are 0. */
int directory_node_decode(const void *buf, size_t len, struct directory_node *out);
int directory_claim_decode(const void *buf, size_t len, uint64_t *id_out, uint32_t *seconds_out);

#endif
