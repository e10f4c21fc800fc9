/* SPDX-License-Identifier: Apache-2.0 */
#include "control/snapshot.h"

#include <stdio.h>

#include "fs.h"
#include "inode_table.h"
#include "object/draft.h"
#include "object/object.h"
#include "options.h"

void snapshot_take(struct fs *fs, struct snapshot *s)
{
	*s = (struct snapshot){.max_objects = fs->opt->max_objects,
			       .n_adopted = fs->n_adopted,
			       .is_passthrough = fs->passthrough};
	snprintf(s->dram_path, sizeof(s->dram_path), "%s/dram", fs->opt->state_dir);
	struct tier *tiers[N_TIERS] = {fs->dram, fs->ssd};
	for (int k = 0; k < N_TIERS; k++) {
		tier_call(tiers[k], get_stats, &s->tiers[k]);
		s->tier_names[k] = tiers[k]->ops->name;
	}
	tier_call(fs->dram, get_map_stats, &s->maps);
	s->tier_paths[0] = s->dram_path;
	s->tier_paths[1] = fs->opt->ssds[0].dir;
	while (s->n_disks < SSD_MAX_DIRS &&
	       !ssd_get_disk_stats(fs->ssd, s->n_disks, &s->disks[s->n_disks]))
		s->n_disks++;
	residency_stats_get(fs, &s->residency);
	catalog_get_stats(fs->catalog, &s->catalog);
	process_get_stats(&s->process);
	pthread_mutex_lock(&fs->lock);
	s->n_objects = object_count_locked(fs);
	s->n_inodes = inode_count_locked(fs);
	s->n_drafts = draft_count_locked(fs);
	pthread_mutex_unlock(&fs->lock);
	s->uptime_s = (double)(now_mono_ns() - fs->start_ns) / 1e9;
}
