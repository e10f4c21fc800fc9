/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: the parts of the Prometheus text that have a file of their own. Thread safe. */
#ifndef MCFS_METRICS_H
#define MCFS_METRICS_H

#include <stdio.h>

struct age_histogram;
struct fs;

/* metrics_latency.c: mooncakefs_request_duration_seconds. */
void metrics_latency(FILE *f);
/* metrics_age.c: mooncakefs_eviction_age_seconds of two tiers. */
void metrics_eviction_ages(FILE *f, const char *tier_a, const struct age_histogram *a,
			   const char *tier_b, const struct age_histogram *b);
/* metrics_cluster.c: the directory and the peers; nothing when this node is alone. */
void metrics_cluster(FILE *f, struct fs *fs);

#endif
