/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the fast path for benchmarks, straight on the ABI: a session, one registered buffer whose
 * first part holds descriptors and names, and the handle of one directory.
 */
#ifndef BENCH_FAST_CLIENT_H
#define BENCH_FAST_CLIENT_H

#include "job.h"
#include "mooncakefs.h"

#define FAST_NAME_BYTES 32

struct fast_client {
	int session_fd, buffer_fd, dir_fd;
	uint32_t buffer;        /* its number */
	uint64_t directory;     /* handle of dir_fd */
	char *memory;
	size_t bytes;           /* of the buffer */
	size_t data;            /* offset of what is not descriptors */
	struct mcfs_item *items; /* max_items of them */
	char *names;            /* max_items * FAST_NAME_BYTES */
	uint32_t max_items;
};

/* dir: in the mount; data_bytes of room for objects' bytes. 0 or a negative errno, logged. */
int fast_open(struct fast_client *c, const char *dir, uint32_t max_items, size_t data_bytes);
void fast_close(struct fast_client *c);
/* Fills in item k: the object "name" of the directory, at data offset off. */
void fast_item(struct fast_client *c, uint32_t k, const char *name, size_t off, size_t segment_bytes,
	       uint32_t segment_count, size_t stride);
/* Submits items [0, n); anything but n successes is an error. */
int fast_submit(struct fast_client *c, uint32_t op, uint32_t n);
/* The same with flags of enum mcfs_submit_flags, without MCFS_ASYNC. */
int fast_submit_flags(struct fast_client *c, uint32_t op, uint32_t n, uint32_t flags);
/* Looks up n names that stand one after another, NUL-terminated, in c->names; *n_ready_out of them are there. */
int fast_lookup(struct fast_client *c, uint32_t n, uint32_t names_bytes, uint32_t *n_ready_out);

#endif
