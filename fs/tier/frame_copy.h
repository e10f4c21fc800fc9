/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_copy: all bytes of a frame, from one tier's file to another's, with their checksums.
 *
 * Thread safety: all functions; one destination is written by one call at a time.
 */
#ifndef MCFS_FRAME_COPY_H
#define MCFS_FRAME_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* One checksum per piece: CATALOG_CRC_CHUNK. */
#define FRAME_COPY_PIECE_BYTES (UINT32_C(1) << 20)

enum frame_copy_side {
	FRAME_COPY_NONE,
	FRAME_COPY_SRC,
	FRAME_COPY_DST
};

struct frame_copy_limits {
	/* True: give up. Asked at least once per piece and every 50 ms of a wait; NULL: never. */
	bool (*is_cancelled)(void *arg);
	void *arg;
	uint64_t bytes_per_second; /* of this copy, from its start to its return; 0: no limit */
	/*
	 * May be NULL. Written on failure: whose medium failed (see report_error of struct tier_ops);
	 * FRAME_COPY_NONE: neither's, the source was too short, or the copy was cancelled.
	 */
	enum frame_copy_side *failed_out;
};

/*
 * Copies size bytes from the start of src_fd (a sealed frame) to the start of dst_fd (a frame that was
 * taken; charged by the caller), and leaves the destination exactly size bytes long. The owner of a
 * struct frame sets its size_bytes to size afterwards. Nothing is synced: tier_sync does that.
 *
 * crc: NULL, or room for one CRC-32C per started piece of FRAME_COPY_PIECE_BYTES. limits: may be NULL.
 * Blocks. 0, or an errno, with any part written: -ECANCELED as is_cancelled said; -ENOSPC the medium of
 * the destination is full; -EIO a source shorter than size, or the medium's error; -EFBIG; -ENOMEM.
 */
int frame_copy(int dst_fd, int src_fd, uint64_t size, uint32_t *crc,
	       const struct frame_copy_limits *limits);

#endif
