/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot: the numbers that status.json and metrics show, taken at one moment. It holds fs->lock and
 * each tier's lock for a copy of figures that are kept as they change, however many objects there are.
 * Paths and names are borrowed from fs. Thread safe.
 */
#ifndef MCFS_SNAPSHOT_H
#define MCFS_SNAPSHOT_H

#include <stdint.h>

#include "control/process.h"
#include "mcfs/catalog.h"
#include "mcfs/tier.h"
#include "object/residency_stats.h"

struct fs;

#define N_TIERS 2

struct snapshot {
	struct tier_stats tiers[N_TIERS];
	struct tier_map_stats maps; /* of the first */
	const char *tier_names[N_TIERS], *tier_paths[N_TIERS];
	char dram_path[4096];
	struct ssd_disk_stats disks[SSD_MAX_DIRS];
	uint32_t n_disks;
	struct residency_stats residency;
	struct catalog_stats catalog;
	struct process_stats process;
	uint64_t n_objects, max_objects, n_adopted, n_inodes, n_drafts;
	uint64_t is_passthrough; /* 0 or 1 */
	double uptime_s;
};

void snapshot_take(struct fs *fs, struct snapshot *s);

#endif
