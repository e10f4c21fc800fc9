/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_value: what the directory says of one name, as bytes at the server.
 *
 *   0   8  version, big-endian
 *   8   1  kind (enum directory_kind; never NONE)
 *   9   1  n_holders
 *  FILE, DIRECTORY, SYMLINK: object in 8 bytes; size, mode, uid, gid as varints; mtime_ns in 8 bytes; a symlink's
 *  target; 2 bytes for each holder's slot
 *  TOMBSTONE: n_holders 0; 4 bytes, when it was made, in seconds since 1970
 *
 * The scripts of directory_script.c read the first ten bytes, object, size and the holders. Holders are last, so that one comes
 * and goes without the rest being understood.
 *
 * Invariants: mode's type is that of the kind; version and object are not 0; all but
 * tombstones have a holder; slots are below DIRECTORY_SLOTS. What decodes encodes to the same bytes.
 * Decoders withstand any bytes: -EIO, -ENOMEM; outputs are written on success only. Thread safe, no state.
 */
#ifndef MCFS_DIRECTORY_VALUE_H
#define MCFS_DIRECTORY_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/directory.h"

#define DIRECTORY_VERSION_BYTES 8u
#define DIRECTORY_HEAD_BYTES 10u
#define DIRECTORY_SLOT_BYTES 2u
#define DIRECTORY_VALUE_MAX (DIRECTORY_HEAD_BYTES + 8u + 10u + 3u * 5u + 8u + DIRECTORY_TARGET_MAX + \
			     DIRECTORY_HOLDERS_MAX * DIRECTORY_SLOT_BYTES)

/* buf: DIRECTORY_VALUE_MAX bytes. -EINVAL: v breaks the rules. */
int directory_value_encode(const struct directory_value *v, uint8_t *buf, size_t *len_out);
int directory_value_decode(const void *buf, size_t len, struct directory_value *value_out);

#endif
