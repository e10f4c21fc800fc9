/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_disk: files on a disk without the page cache: what O_DIRECT gives a program that keeps the disk
 * busy, in pieces of 1 MiB through io_uring, several at a time. It is the other side of the ssd jobs, and
 * the same as fio --direct=1 --ioengine=io_uring --bs=1M --iodepth=N over a file that it laid out.
 *
 * All sizes and offsets are multiples of 4 KiB, buffers page-aligned. Errors are negative errno, logged.
 */
#ifndef BENCH_RAW_DISK_H
#define BENCH_RAW_DISK_H

#include <liburing.h>
#include <stdint.h>

#include "bench_util.h"

#define RAW_PIECE_BYTES MIB

struct raw_ring {
	struct io_uring uring;
	uint32_t depth; /* 0: not open */
};

int raw_ring_open(struct raw_ring *r, uint32_t depth);
void raw_ring_close(struct raw_ring *r);

/* Blocks are allocated, the size is set, nothing is written. flags of open(2). The descriptor, or an error. */
int raw_file_create(const char *path, uint64_t bytes, int flags);
/* The same, filled with the pattern of that seed past the page cache. */
int raw_file_fill(const char *path, uint64_t bytes, uint64_t seed);

/* Reads [off, off + bytes) to buffer, or writes it from there, and waits for all of it. */
int raw_ring_read(struct raw_ring *r, int fd, char *buffer, uint64_t bytes, uint64_t off);
/* Every piece is written from the same first MiB of the buffer. */
int raw_ring_write(struct raw_ring *r, int fd, char *buffer, uint64_t bytes);

#endif
