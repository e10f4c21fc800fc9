/* SPDX-License-Identifier: Apache-2.0 */
/* status: the parts of status.json that have a file of their own. New references, NULL: no memory. */
#ifndef MCFS_STATUS_H
#define MCFS_STATUS_H

#include <jansson.h>
#include <stdint.h>

struct fs;
struct residency_stats;
struct snapshot;

/* JSON integers are signed: what is larger reads as 2^63 - 1. */
json_t *status_u64(uint64_t v);

/* status_latency.c: {"OP": {"count", "sum_ns", "p50_ns", "p99_ns", "buckets": [[end_ns, n], ...]}}. */
json_t *status_latency(void);

/* status_disks.c: [{"path", "state": "ok" or "failed", "reason", ...}], in the order given. */
json_t *status_disks(const struct snapshot *s);

/* status_residency.c: what waits to move between the tiers, and how old what left them was. */
json_t *status_residency(const struct residency_stats *r);

/* status_cluster.c: this node among the others; null when it is alone. */
json_t *status_cluster(struct fs *fs);

#endif
