/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency_stats: what moves between the tiers, and how old what leaves them is; for .mooncake/.
 * Thread safety: residency_stats_get takes fs->lock, which must not be held.
 */
#ifndef MCFS_RESIDENCY_STATS_H
#define MCFS_RESIDENCY_STATS_H

#include <stdint.h>

struct fs;

/*
 * Seconds between the last use of an object and its eviction. n[0] counts ages below one second,
 * n[k] those from 2^(k-1) to below 2^k; the last bucket everything older.
 */
#define AGE_BUCKETS 24
struct age_histogram {
	uint64_t n[AGE_BUCKETS];
	uint64_t count, sum_s;
};

struct residency_stats {
	uint64_t queue_objects, queue_bytes;     /* waiting to be copied to the ssd, or being copied */
	uint64_t promote_objects;                /* the same, to dram */
	uint64_t reserve_objects, reserve_bytes; /* dram frames that can be given up at once */
	struct age_histogram dram_age, ssd_age;  /* of what was evicted, per tier, since start */
};

void residency_stats_get(struct fs *fs, struct residency_stats *out);

#endif
