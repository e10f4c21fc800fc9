/* SPDX-License-Identifier: Apache-2.0 */
/* crc: CRC-32C (Castagnoli, RFC 3720 section B.4), chainable. Thread safe, never fails. */
#ifndef MCFS_BASE_CRC_H
#define MCFS_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/*
 * crc: 0 for a fresh checksum, else the result over the bytes that come before buf, so that
 * crc32c(crc32c(0, a), b) is the checksum of a followed by b. len in bytes, any alignment; buf may be
 * NULL when len is 0. The checksum of nothing is 0, of "123456789" 0xe3069283.
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

#endif
