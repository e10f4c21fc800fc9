/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot: the numbers that status.json and metrics show, taken at one moment. */
#ifndef MCFS_SNAPSHOT_H
#define MCFS_SNAPSHOT_H

#include <stdint.h>

#include "mcfs/catalog.h"
#include "mcfs/tier.h"

struct fs;

#define N_TIERS 2

struct snapshot {
	struct tier_stats tiers[N_TIERS];
	const char *tier_names[N_TIERS], *tier_paths[N_TIERS];
	char dram_path[4096];
	struct catalog_stats catalog;
	uint64_t n_objects, max_objects, n_inodes, n_drafts;
	double uptime_s;
};

void snapshot_take(struct fs *fs, struct snapshot *s);

#endif
