/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_record: the bytes of the catalog's values.
 *
 * Every record starts with its version (one byte) and ends with the CRC-32C of all bytes before it;
 * both stay there in every version, so that an older reader can tell "newer" from "damaged". All
 * numbers are little endian. A record has one encoding in the newest version of its kind, which is
 * the only one that is written: what decodes from that, encodes to the same bytes.
 *
 * entry, version 1                            object, version 2
 *    0  u8   version                             0  u8   version
 *    1  u8   flags: 1 class is set, 2 pin        1  u8   flags: 1 pin, 2 promise
 *    2  u8   class                               2  u8   class
 *    3  u8   hint bytes H                        3  u8   name bytes N
 *    4  u32  mode                                4  u32  checksums C
 *    8  u32  uid                                 8  u64  object id
 *   12  u32  gid                                16  u64  size, bytes
 *   16  u64  ino                                24  u64  dram frame
 *   24  u64  object id                          32  u64  ssd frame
 *   32  u64  size, bytes                        40  u64  charged bytes
 *   40  i64  atime, ns since 1970               48  u64  parent
 *   48  i64  mtime                              56  u64  ino
 *   56  i64  ctime                              64  u16  promise bytes P
 *   64  i64  btime                              66  u32  ttl, s
 *   72  u32  ttl, s                             70  name                    N
 *   76  u16  target bytes T                         u32  CRC-32C per chunk  4 C
 *   78  hint    H                                   entry record            P
 *       target  T                                   u32  CRC-32C
 *       u32  CRC-32C
 *
 * An object of version 1 has no ttl (its name begins at 66); it decodes with a ttl of 0.
 *
 * control, version 1: u8 version, u64 value, u32 CRC-32C
 *
 * What encode refuses (-EINVAL) decode calls damaged (-EIO); the rules are entry's and
 * object_record's in mcfs/catalog.h: a type in mode, a regular file has an object and nothing else
 * does, a symlink has a target of size bytes, 0 or ceil(size / CATALOG_CRC_CHUNK) checksums.
 *
 * Decoders withstand any bytes. They return 0; -EIO damaged; -EPROTO whole, but of a newer version;
 * -ENOMEM. Outputs are written on success only. Thread safe, no state.
 */
#ifndef MCFS_CATALOG_RECORD_H
#define MCFS_CATALOG_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mcfs/catalog.h"

#define ENTRY_RECORD_VERSION 1
#define OBJECT_RECORD_VERSION 2
#define CONTROL_RECORD_VERSION 1
#define ENTRY_RECORD_MAX (78u + CATALOG_HINT_MAX + CATALOG_SYMLINK_MAX + 4u)
#define CONTROL_RECORD_BYTES 13u

/* Encoders return 0, -EINVAL a record that breaks the rules, -ENOBUFS buf_bytes is too small. */
int entry_record_encode(const struct entry *e, uint8_t *buf, size_t buf_bytes, size_t *len_out);
int entry_record_decode(const void *buf, size_t len, struct entry *entry_out);

/* An upper bound of what object_record_encode writes; cheap. */
size_t object_record_bytes(const struct object_record *r);
int object_record_encode(const struct object_record *r, uint8_t *buf, size_t buf_bytes,
			 size_t *len_out);
int object_record_decode(const void *buf, size_t len, struct object_record *record_out);
/* Whether a record that decodes is of an older version than object_record_encode writes. */
bool object_record_is_old(const void *buf, size_t len);

void control_record_encode(uint64_t value, uint8_t buf[CONTROL_RECORD_BYTES]);
int control_record_decode(const void *buf, size_t len, uint64_t *value_out);

#endif
