/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_read: the bytes of many ssd frames straight from the disk into a client's memory, many requests in
 * flight on one io_uring, past the page cache (O_DIRECT).
 *
 * What is not aligned to pages, what the file system does not take, and everything where the kernel
 * refuses io_uring, is left to the caller's plain reads. A ring belongs to its thread and goes with it.
 */
#ifndef MCFS_SSD_READ_H
#define MCFS_SSD_READ_H

#include <stdint.h>

struct batch;
struct mcfs_item;
struct registration;

struct ssd_read {
	struct mcfs_item *item;
	const struct registration *reg;
	int fd;              /* of the frame, O_RDONLY */
	uint64_t len;        /* bytes to read, from item->file_offset on */

	/* out: bytes from the first that are there; the rest is left, also after an error. */
	uint64_t done;

	/* of ssd_read_all */
	int direct_fd;
	uint64_t next;       /* first byte not asked for yet */
	uint32_t n_in_flight;
	int failed;
};

/* Stops asking for more when batch_stopped says so; returns when nothing is in flight any more. */
void ssd_read_all(struct batch *b, struct ssd_read *reads, uint32_t n);

#endif
