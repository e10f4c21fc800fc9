/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program on one node of a cluster does with objects of another: each a phase of bench_cluster, told apart by
 * name. cluster/ starts the nodes, runs phases and puts their numbers next to others'.
 *
 * Objects of a directory are numbered; object k has the content of seed k (bench_util.h). A phase prints one number a
 * line, nanoseconds of each operation, and returns 0 or a negative errno, logged. Thread safety: none.
 */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include <stdbool.h>

#include "bench_util.h"

struct remote {
	const char *dir;  /* in a mount; of rtt: an IPv4 address */
	uint32_t first, count;
	uint64_t bytes;   /* of each object */
};

/* Makes them by files of their own. Prints nothing. */
int remote_make(const struct remote *r);
/* Makes others by batches: named by hashes, of 8 bytes that mean nothing. Prints nothing. */
int remote_make_small(const struct remote *r);
/* Takes them away. Prints nothing. */
int remote_remove(const struct remote *r);
/* open, read of all, close: each object. The bytes are compared afterwards. */
int remote_read(const struct remote *r);
/* The same without looking at the bytes: objects that are here already. */
int remote_read_again(const struct remote *r);
/* All of them in one PREFETCH: one number. The bytes are compared afterwards. */
int remote_prefetch(const struct remote *r);
/* All of them in one READ into a session's buffer: one number. The bytes are compared afterwards. */
int remote_batch(const struct remote *r);
/* All of them in one LOOKUP, 20 times; each must be there or at another node. */
int remote_lookup(const struct remote *r);
/* ICMP echoes, `count` of them. */
int remote_rtt(const struct remote *r);

#endif
