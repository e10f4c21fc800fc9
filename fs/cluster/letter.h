/* SPDX-License-Identifier: Apache-2.0 */
/*
 * letter: invalidations as bytes, for a holder that is reached through the directory alone. Big-endian:
 *
 *   0  1  LETTER_INVALIDATE
 *   1  2  number of records, 1 to PEER_INVALIDATE_MAX
 *   then each record:
 *   0  8  version
 *   8  1  1: removed, 0: not
 *   9  2  length of the directory's path, without its NUL
 *  11  1  length of the name, without its NUL
 *  12     path, NUL, name, NUL
 *
 * Decoding withstands any bytes. Thread safe, no state.
 */
#ifndef MCFS_CLUSTER_LETTER_H
#define MCFS_CLUSTER_LETTER_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/directory.h"
#include "mcfs/peer.h"

#define LETTER_INVALIDATE 1
#define LETTER_BYTES_MAX DIRECTORY_LETTER_MAX

/*
 * As many of the n >= 1 as fit, one at least; returns how many. A dir is at most PEER_PATH_MAX bytes long, a name
 * PEER_NAME_MAX.
 */
size_t letter_encode(const struct peer_invalidation *v, size_t n, uint8_t buf[LETTER_BYTES_MAX], size_t *len_out);
/* The texts of v_out point into bytes. -EPROTO: no letter, or of a later version. */
int letter_decode(const void *bytes, size_t len, struct peer_invalidation v_out[PEER_INVALIDATE_MAX],
		  size_t *n_out);

#endif
