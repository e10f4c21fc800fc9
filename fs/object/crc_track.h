/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc_track: CRC32C per CATALOG_CRC_CHUNK of a file while it is written.
 *
 * A chunk's checksum follows sequential writes with the bytes still in the cache; any other pattern
 * marks the chunk, and crc_track_finish reads it again. Thread safety: none.
 */
#ifndef MCFS_CRC_TRACK_H
#define MCFS_CRC_TRACK_H

#include <stddef.h>
#include <stdint.h>

struct crc_chunk {
	uint32_t crc;
	uint32_t len; /* bytes [0, len) of the chunk are in crc; CRC_CHUNK_UNKNOWN: read it again */
};

#define CRC_CHUNK_UNKNOWN UINT32_MAX

struct crc_track {
	struct crc_chunk *chunks;
	size_t n, cap;
};

void crc_track_fini(struct crc_track *t);
void crc_track_write(struct crc_track *t, const void *buf, size_t len, uint64_t off);
/* The bytes at and after size changed or are gone. */
void crc_track_cut(struct crc_track *t, uint64_t size);
/* Checksums of [off, off + len) are no longer known. */
void crc_track_forget(struct crc_track *t, uint64_t off, uint64_t len);
/* Takes checksums that are known already (of a base object). */
void crc_track_load(struct crc_track *t, const uint32_t *crc, size_t n, uint64_t size);

typedef int (*crc_read_fn)(void *arg, void *buf, size_t len, uint64_t off);
/*
 * Completes all chunks of a file of size bytes and returns them in a malloc'd array of
 * ceil(size / CATALOG_CRC_CHUNK) (NULL for an empty file). read fetches what must be read again.
 */
int crc_track_finish(struct crc_track *t, uint64_t size, crc_read_fn read, void *arg,
		     uint32_t **crc_out, uint32_t *n_out);

#endif
