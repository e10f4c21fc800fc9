/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/counters.h"
#include "control/control.h"
#include "control/snapshot.h"
#include "fs.h"
#include "options.h"

static json_t *u64(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *tier_object(const struct snapshot *s, int k)
{
	const struct tier_stats *t = &s->tiers[k];

	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "name", s->tier_names[k], "path", s->tier_paths[k],
			 "budget_bytes", u64(t->budget_bytes), "used_bytes", u64(t->used_bytes),
			 "free_list_bytes", u64(t->free_list_bytes),
			 "zombie_bytes", u64(t->zombie_bytes), "objects", u64(t->n_sealed),
			 "open_frames", u64(t->n_open), "frames_recycled", u64(t->n_recycled),
			 "frames_created", u64(t->n_created));
}

static json_t *counters_object(void)
{
	json_t *o = json_object();

	for (int k = 0; k < N_COUNTERS; k++)
		json_object_set_new(o, counter_name(k), u64(counter_get(k)));
	return o;
}

char *status_json(struct fs *fs, size_t *len_out)
{
	struct snapshot s;

	snapshot_take(fs, &s);
	json_t *root = json_pack(
		"{s:s, s:i, s:s, s:s, s:s, s:f, s:{s:b, s:s}, s:[o, o], s:{s:o, s:o, s:o}, s:{s:o},"
		" s:{s:o}, s:{s:o, s:o}, s:o}",
		"version", MCFS_VERSION, "pid", (int)getpid(), "node", fs->opt->node,
		"mountpoint", fs->opt->mountpoint, "state_dir", fs->opt->state_dir,
		"uptime_s", s.uptime_s,
		"passthrough", "live", fs->passthrough, "reason", fs->passthrough_reason,
		"tiers", tier_object(&s, 0), tier_object(&s, 1),
		"objects", "count", u64(s.n_objects), "max", u64(s.max_objects), "adopted", u64(fs->n_adopted),
		"drafts", "open", u64(s.n_drafts), "inodes", "count", u64(s.n_inodes),
		"catalog", "entries_estimate", u64(s.catalog.n_entries_estimate),
		"disk_bytes", u64(s.catalog.disk_bytes), "counters", counters_object());
	char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	*len_out = text ? strlen(text) : 0;
	return text;
}
