/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: .mooncake/status.json. docs/operations.md describes its members; new ones may come, those
 * that are there keep name, unit and meaning.
 */
#include "control/status.h"

#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/counters.h"
#include "base/utf8.h"
#include "control/control.h"
#include "control/snapshot.h"
#include "fs.h"
#include "object/scrub.h"
#include "options.h"

json_t *status_u64(uint64_t v)
{
	return json_integer((json_int_t)(v <= INT64_MAX ? v : INT64_MAX));
}

/* Paths may hold any byte, JSON may not. */
static json_t *text(const char *any_bytes)
{
	char clean[PATH_MAX];

	return json_string(utf8_clean(any_bytes, clean, sizeof(clean)));
}

/* Frames in the daemon's memory, and those that peers can read there. */
static void add_maps(json_t *tier, const struct tier_map_stats *m)
{
	struct rlimit lock = { 0 };

	getrlimit(RLIMIT_MEMLOCK, &lock);
	json_object_set_new(tier, "mapped", json_pack("{s:i, s:o, s:i}", "frames", (int)m->n_mapped,
						      "bytes", status_u64(m->mapped_bytes), "max_idle",
						      (int)m->max_idle));
	json_object_set_new(tier, "registered",
			    json_pack("{s:i, s:o, s:o, s:o, s:o}", "frames", (int)m->n_registered, "bytes",
				      status_u64(m->registered_bytes), "registrations",
				      status_u64(m->n_registrations), "failures", status_u64(m->n_failures),
				      "memlock_bytes",
				      lock.rlim_cur == RLIM_INFINITY ? json_null() : status_u64(lock.rlim_cur)));
}

static json_t *tier_object(const struct snapshot *s, int k)
{
	const struct tier_stats *t = &s->tiers[k];

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i}",
			 "name", s->tier_names[k], "path", text(s->tier_paths[k]),
			 "budget_bytes", status_u64(t->budget_bytes),
			 "used_bytes", status_u64(t->used_bytes),
			 "free_list_bytes", status_u64(t->free_list_bytes),
			 "zombie_bytes", status_u64(t->zombie_bytes),
			 "objects", status_u64(t->n_sealed), "open_frames", status_u64(t->n_open),
			 "frames_recycled", status_u64(t->n_recycled),
			 "frames_created", status_u64(t->n_created),
			 "high_watermark_bytes", status_u64(t->high_watermark_bytes),
			 "low_watermark_bytes", status_u64(t->low_watermark_bytes),
			 "disks", (int)t->n_disks, "failed_disks", (int)t->n_failed_disks);
}

static json_t *tiers_array(const struct snapshot *s)
{
	json_t *tiers = json_array();

	for (int k = 0; k < N_TIERS; k++)
		json_array_append_new(tiers, tier_object(s, k));
	add_maps(json_array_get(tiers, 0), &s->maps);
	return tiers;
}

static json_t *catalog_object(const struct catalog_stats *c)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}",
			 "entries_estimate", status_u64(c->n_entries_estimate),
			 "objects_estimate", status_u64(c->n_objects_estimate),
			 "disk_bytes", status_u64(c->disk_bytes),
			 "memtable_bytes", status_u64(c->memtable_bytes),
			 "cache_bytes", status_u64(c->cache_bytes));
}

static json_t *process_object(const struct process_stats *p)
{
	return json_pack("{s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "cpu_s", p->cpu_s,
			 "start_time_s", p->start_time_s, "rss_bytes", status_u64(p->rss_bytes),
			 "virtual_bytes", status_u64(p->virtual_bytes),
			 "threads", status_u64(p->n_threads), "open_fds", status_u64(p->n_fds),
			 "max_fds", status_u64(p->max_fds));
}

static json_t *counters_object(void)
{
	json_t *o = json_object();

	for (int k = 0; k < N_COUNTERS; k++)
		json_object_set_new(o, counter_name(k), status_u64(counter_get(k)));
	return o;
}

static json_t *scrub_object(struct fs *fs)
{
	struct scrub_status s;

	scrub_get_status(fs->scrub, &s);
	return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "state", scrub_state_name(s.state),
			 "started_s", (json_int_t)s.started_s, "elapsed_ms", status_u64(s.elapsed_ms),
			 "rate_bytes", status_u64(s.rate_bytes), "frames", status_u64(s.n_frames),
			 "checked", status_u64(s.n_checked), "checked_bytes", status_u64(s.bytes_checked),
			 "bad", status_u64(s.n_bad), "without_checksum", status_u64(s.n_without_checksum));
}

char *status_json(struct fs *fs, size_t *len_out)
{
	struct snapshot s;

	snapshot_take(fs, &s);
	json_t *root = json_pack(
		"{s:s, s:i, s:o, s:o, s:o, s:f, s:{s:b, s:s}, s:o, s:o, s:o,"
		" s:{s:o, s:o, s:o}, s:{s:o}, s:{s:o}, s:o, s:o, s:o, s:o}",
		"version", MCFS_VERSION, "pid", (int)getpid(), "node", text(fs->opt->node),
		"mountpoint", text(fs->opt->mountpoint), "state_dir", text(fs->opt->state_dir),
		"uptime_s", s.uptime_s,
		"passthrough", "live", fs->passthrough, "reason", fs->passthrough_reason,
		"tiers", tiers_array(&s),
		"disks", status_disks(&s), "residency", status_residency(&s.residency),
		"objects", "count", status_u64(s.n_objects), "max", status_u64(s.max_objects),
		"adopted", status_u64(s.n_adopted),
		"drafts", "open", status_u64(s.n_drafts), "inodes", "count", status_u64(s.n_inodes),
		"catalog", catalog_object(&s.catalog), "process", process_object(&s.process),
		"latency", status_latency(), "counters", counters_object());
	if (root) {
		json_object_set_new(root, "scrub", scrub_object(fs));
		json_object_set_new(root, "cluster", status_cluster(fs));
	}
	char *json = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	*len_out = json ? strlen(json) : 0;
	return json;
}
