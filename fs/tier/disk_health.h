/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_health: when errors are the disk's and not a frame's.
 *
 * Some errors say that the whole disk is gone or may not be written (EROFS, ENODEV, ENXIO, ESTALE,
 * ESHUTDOWN). Others (EIO, EUCLEAN, EBADMSG) may be one bad spot: DISK_MAX_ERRORS frames with such an
 * error within DISK_ERRORS_NS fail the disk. One frame counts once, however often it is tried.
 *
 * Thread safety: none; the owner's lock guards it. No function blocks or fails.
 */
#ifndef MCFS_DISK_HEALTH_H
#define MCFS_DISK_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_MAX_ERRORS 8
#define DISK_ERRORS_NS INT64_C(60000000000)

struct disk_health {
	struct disk_error {
		uint64_t frame_id; /* 0: unused */
		int64_t at_ns;
	} recent[DISK_MAX_ERRORS];
	uint64_t n_errors; /* since start */
};

/* err is a negative errno, or 0. */
bool disk_error_is_io(int err);
bool disk_error_is_fatal(int err);
/* Notes an I/O error; frame_id 0: of no frame, each counts. True: the disk is to be taken for failed. */
bool disk_health_note(struct disk_health *h, uint64_t frame_id, int err, int64_t now_ns);

#endif
