/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block: one reference to a KV block, served from a directory of block files as an engine would.
 *
 *   open(2) succeeds: read whole, close, check every byte           -> HIT or CORRUPT
 *   open(2) says ENOENT: create, write, close (and rename)          -> MISS or WRITE_FAILED
 *   any other error of open, and any of pread                       -> READ_FAILED
 *
 * A file that could not be written whole is unlinked before its close, so that no part of it is ever
 * published. Times cover the system calls alone: bytes are made before and checked after.
 * Thread safety: a client is used by one thread; a store is read-only and shared.
 */
#ifndef MCFS_CLI_BLOCK_H
#define MCFS_CLI_BLOCK_H

#include "cli/content.h"
#include "cli/histogram.h"

#include <stddef.h>
#include <stdint.h>

enum block_publish {
	BLOCK_PUBLISH_DIRECT, /* create under the final name; the close publishes */
	BLOCK_PUBLISH_RENAME, /* create as NAME.tmp.PID.THREAD, close, rename */
};

struct block_store {
	int dir_fd;	    /* the directory of the block files */
	size_t block_bytes; /* at least 32 */
	enum block_publish publish;
};

enum block_outcome {
	BLOCK_SKIPPED, /* not visited */
	BLOCK_HIT,
	BLOCK_MISS,
	BLOCK_CORRUPT,
	BLOCK_READ_FAILED,
	BLOCK_WRITE_FAILED,
	N_BLOCK_OUTCOMES
};

enum block_op {
	BLOCK_OP_OPEN,	/* open of a block that is there */
	BLOCK_OP_MISS,	/* open of one that is not */
	BLOCK_OP_READ,	/* all preads of one block */
	BLOCK_OP_WRITE, /* open, write, close (and rename) of one block */
	N_BLOCK_OPS
};

struct block_stats {
	struct histogram ops[N_BLOCK_OPS]; /* ns, successful ones alone */
	uint64_t bytes_read, bytes_written;
	uint64_t read_ns, write_ns; /* spent for those bytes; for reads: open, preads and close */
};

/* What went wrong with a block. */
struct block_fault {
	char name[CONTENT_NAME_BYTES];
	const char *call; /* "open", "read", "create", "write", "close", "rename", "verify" */
	int error;	  /* errno; 0: the bytes are wrong or too few */
	size_t offset;	  /* for wrong bytes: the first one; for too few: how many there were */
};

/* One thread's working memory. */
struct block_client {
	const struct block_store *store;
	unsigned number;
	unsigned char *buf; /* block_bytes, page-aligned */
	struct block_stats stats;
};

/* store outlives the client. Returns 0 or -ENOMEM. */
int block_client_init(struct block_client *c, const struct block_store *store, unsigned number);
void block_client_fini(struct block_client *c);

/* fault_out is written for CORRUPT, READ_FAILED and WRITE_FAILED only. */
enum block_outcome block_visit(struct block_client *c, uint64_t id, struct block_fault *fault_out);

void block_stats_merge(struct block_stats *into, const struct block_stats *from);

/*
 * MOUNT/kv/DIR, created as needed, as a directory fd in fd_out. Returns 0 or the negative errno of
 * the call that failed.
 */
int block_store_open(const char *mount, const char *dir, int *fd_out);

/* Unlinks every block file in the directory. Returns 0 or a negative errno. */
int block_store_clear(int dir_fd);

#endif
