/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram: counts of 64-bit values in logarithmic buckets, for latencies.
 *
 * Values below 128 have a bucket each; every power of two above is split in 128 equal buckets, so a
 * bucket is less than 0.8 % of its value wide and its middle less than 0.4 % off. n, sum, min and max
 * are exact. 58 KiB each; adding is a few instructions and never allocates.
 * Thread safety: one histogram is used by one thread; merge when the threads have ended.
 */
#ifndef MCFS_CLI_HISTOGRAM_H
#define MCFS_CLI_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

/* All zero is an empty histogram. */
struct histogram {
	uint64_t n, sum; /* sum wraps beyond 2^64 - 1: in nanoseconds after 584 years */
	uint64_t min, max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/*
 * The smallest value that at least a share of all values does not exceed: share 0.5 is the median,
 * 1 the maximum (exact). Within 0.4 %. share outside [0, 1] is taken as the nearer end; 0 when empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double share);

#endif
