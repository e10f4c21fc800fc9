/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: .mooncake/metrics, and what metrics=HOST:PORT serves. docs/operations.md lists the names.
 * Its cost does not depend on the number of objects: every figure is kept as it changes.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/counters.h"
#include "control/control.h"
#include "control/metrics.h"
#include "control/prom.h"
#include "control/snapshot.h"
#include "fs.h"
#include "options.h"

/* Of a struct that `values` points to: the uint64_t at offset. */
#define VALUE_AT(values, offset) (*(const uint64_t *)((const char *)(values) + (offset)))

struct figure {
	const char *name;
	enum prom_type type;
	const char *help;
	size_t offset;
};

#define TIER(member) offsetof(struct tier_stats, member)

static const struct figure tier_figures[] = {
	{ "mooncakefs_tier_budget_bytes", PROM_GAUGE, "limit of a tier", TIER(budget_bytes) },
	{ "mooncakefs_tier_used_bytes", PROM_GAUGE, "bytes charged to a tier", TIER(used_bytes) },
	{ "mooncakefs_tier_high_watermark_bytes", PROM_GAUGE,
	  "used bytes above which room is made ahead of need", TIER(high_watermark_bytes) },
	{ "mooncakefs_tier_low_watermark_bytes", PROM_GAUGE, "used bytes down to which room is made",
	  TIER(low_watermark_bytes) },
	{ "mooncakefs_tier_free_list_bytes", PROM_GAUGE, "of used: frames ready for reuse",
	  TIER(free_list_bytes) },
	{ "mooncakefs_tier_zombie_bytes", PROM_GAUGE,
	  "of used: dropped frames that a client still has open or mapped", TIER(zombie_bytes) },
	{ "mooncakefs_tier_objects", PROM_GAUGE, "sealed frames on a tier", TIER(n_sealed) },
	{ "mooncakefs_tier_open_frames", PROM_GAUGE, "frames being written", TIER(n_open) },
	{ "mooncakefs_tier_free_list_frames", PROM_GAUGE, "frames ready for reuse",
	  TIER(n_free_list) },
	{ "mooncakefs_tier_zombie_frames", PROM_GAUGE,
	  "dropped frames that a client still has open or mapped", TIER(n_zombies) },
	{ "mooncakefs_tier_frames_recycled_total", PROM_COUNTER,
	  "frames taken from the free list", TIER(n_recycled) },
	{ "mooncakefs_tier_frames_created_total", PROM_COUNTER, "frames made anew",
	  TIER(n_created) },
};

#define SNAP(member) offsetof(struct snapshot, member)

static const struct figure node_figures[] = {
	{ "mooncakefs_objects", PROM_GAUGE, "objects this node holds", SNAP(n_objects) },
	{ "mooncakefs_objects_max", PROM_GAUGE, "bound on objects (max_objects)",
	  SNAP(max_objects) },
	{ "mooncakefs_objects_adopted", PROM_GAUGE, "objects found again at start",
	  SNAP(n_adopted) },
	{ "mooncakefs_writeback_queue_objects", PROM_GAUGE,
	  "objects that wait to be copied to the ssd", SNAP(residency.queue_objects) },
	{ "mooncakefs_writeback_queue_bytes", PROM_GAUGE,
	  "bytes of objects that wait to be copied to the ssd", SNAP(residency.queue_bytes) },
	{ "mooncakefs_promotion_queue_objects", PROM_GAUGE,
	  "objects that wait to be copied to dram", SNAP(residency.promote_objects) },
	{ "mooncakefs_reserve_objects", PROM_GAUGE,
	  "objects whose dram frames can be given up at once", SNAP(residency.reserve_objects) },
	{ "mooncakefs_reserve_bytes", PROM_GAUGE,
	  "bytes of dram frames that can be given up at once", SNAP(residency.reserve_bytes) },
	{ "mooncakefs_drafts_open", PROM_GAUGE, "files being written", SNAP(n_drafts) },
	{ "mooncakefs_inodes", PROM_GAUGE, "inodes the kernel or a handle holds",
	  SNAP(n_inodes) },
	{ "mooncakefs_passthrough_live", PROM_GAUGE, "1: reads are served by the kernel",
	  SNAP(is_passthrough) },
	{ "mooncakefs_catalog_entries", PROM_GAUGE, "names in the catalog, an estimate",
	  SNAP(catalog.n_entries_estimate) },
	{ "mooncakefs_catalog_objects", PROM_GAUGE, "objects in the catalog, an estimate",
	  SNAP(catalog.n_objects_estimate) },
	{ "mooncakefs_catalog_disk_bytes", PROM_GAUGE, "size of the catalog on disk",
	  SNAP(catalog.disk_bytes) },
	{ "mooncakefs_catalog_memtable_bytes", PROM_GAUGE, "catalog data not yet in table files",
	  SNAP(catalog.memtable_bytes) },
	{ "mooncakefs_catalog_cache_bytes", PROM_GAUGE, "catalog blocks cached in memory",
	  SNAP(catalog.cache_bytes) },
};

#define N(array) (sizeof(array) / sizeof(*(array)))

static void print_about(FILE *f, const struct fs *fs)
{
	char labels[PROM_LABELS_BYTES] = "";

	prom_label(labels, "version", MCFS_VERSION);
	prom_family(f, "mooncakefs_build_info", PROM_GAUGE, "always 1; the program's version");
	prom_sample(f, "mooncakefs_build_info", labels, 1);
	*labels = '\0';
	prom_label(labels, "node", fs->opt->node);
	prom_label(labels, "mountpoint", fs->opt->mountpoint);
	prom_family(f, "mooncakefs_mount_info", PROM_GAUGE, "always 1; who answers");
	prom_sample(f, "mooncakefs_mount_info", labels, 1);
}

static void print_tiers(FILE *f, const struct snapshot *s)
{
	for (size_t g = 0; g < N(tier_figures); g++) {
		const struct figure *t = &tier_figures[g];
		prom_family(f, t->name, t->type, t->help);
		for (int k = 0; k < N_TIERS; k++) {
			char labels[PROM_LABELS_BYTES] = "";
			prom_label(labels, "tier", s->tier_names[k]);
			prom_sample(f, t->name, labels, VALUE_AT(&s->tiers[k], t->offset));
		}
	}
}

static void print_maps(FILE *f, const struct tier_map_stats *m)
{
	prom_single(f, "mooncakefs_mapped_frames", PROM_GAUGE, "DRAM frames in the daemon's memory", m->n_mapped);
	prom_single(f, "mooncakefs_mapped_bytes", PROM_GAUGE, "bytes of them", m->mapped_bytes);
	prom_single(f, "mooncakefs_registered_frames", PROM_GAUGE, "of these: peers can read them by RDMA",
		    m->n_registered);
	prom_single(f, "mooncakefs_registered_bytes", PROM_GAUGE, "bytes of them", m->registered_bytes);
	prom_single(f, "mooncakefs_registrations_total", PROM_COUNTER, "frames that were registered for RDMA",
		    m->n_registrations);
	prom_single(f, "mooncakefs_registration_failures_total", PROM_COUNTER,
		    "frames that could not be registered, so that their bytes went by TCP", m->n_failures);
}

static const char *const disk_counts[] = { "mooncakefs_tier_disks", "mooncakefs_tier_failed_disks" };

static void print_disk_counts(FILE *f, const struct snapshot *s)
{
	for (size_t g = 0; g < N(disk_counts); g++) {
		prom_family(f, disk_counts[g], PROM_GAUGE,
			    g ? "directories of a tier that failed; their frames are lost" :
				"directories of a tier, failed ones too");
		for (int k = 0; k < N_TIERS; k++) {
			char labels[PROM_LABELS_BYTES] = "";
			prom_label(labels, "tier", s->tier_names[k]);
			prom_sample(f, disk_counts[g], labels,
				    g ? s->tiers[k].n_failed_disks : s->tiers[k].n_disks);
		}
	}
}

#define DISK(member) offsetof(struct ssd_disk_stats, member)

static const struct figure disk_figures[] = {
	{ "mooncakefs_disk_budget_bytes", PROM_GAUGE, "limit of an ssd directory, 0: failed",
	  DISK(budget_bytes) },
	{ "mooncakefs_disk_wanted_bytes", PROM_GAUGE,
	  "limit it was given; above the budget when its file system had no more room",
	  DISK(wanted_bytes) },
	{ "mooncakefs_disk_used_bytes", PROM_GAUGE, "bytes charged to an ssd directory",
	  DISK(used_bytes) },
	{ "mooncakefs_disk_objects", PROM_GAUGE, "sealed frames in an ssd directory", DISK(n_sealed) },
	{ "mooncakefs_disk_errors_total", PROM_COUNTER, "I/O errors of an ssd directory",
	  DISK(n_errors) },
};

static void print_disks(FILE *f, const struct snapshot *s)
{
	for (size_t g = 0; g < N(disk_figures); g++) {
		const struct figure *d = &disk_figures[g];
		prom_family(f, d->name, d->type, d->help);
		for (uint32_t k = 0; k < s->n_disks; k++) {
			char labels[PROM_LABELS_BYTES] = "";
			prom_label(labels, "path", s->disks[k].path);
			prom_sample(f, d->name, labels, VALUE_AT(&s->disks[k], d->offset));
		}
	}
	prom_family(f, "mooncakefs_disk_failed", PROM_GAUGE, "1: the ssd directory is not used any more");
	for (uint32_t k = 0; k < s->n_disks; k++) {
		char labels[PROM_LABELS_BYTES] = "";
		prom_label(labels, "path", s->disks[k].path);
		prom_sample(f, "mooncakefs_disk_failed", labels, s->disks[k].is_failed);
	}
}

static void print_counters(FILE *f)
{
	char name[128];

	for (int k = 0; k < N_COUNTERS; k++) {
		snprintf(name, sizeof(name), "mooncakefs_%s_total", counter_name(k));
		prom_single(f, name, PROM_COUNTER, counter_help(k), counter_get(k));
	}
}

/* The names that every Prometheus client gives these. */
static void print_process(FILE *f, const struct process_stats *p)
{
	prom_family(f, "process_cpu_seconds_total", PROM_COUNTER, "user and system CPU time");
	prom_sample_real(f, "process_cpu_seconds_total", "", p->cpu_s);
	prom_family(f, "process_start_time_seconds", PROM_GAUGE, "start of the daemon, Unix time");
	prom_sample_real(f, "process_start_time_seconds", "", p->start_time_s);
	prom_single(f, "process_resident_memory_bytes", PROM_GAUGE, "memory of the daemon itself",
		    p->rss_bytes);
	prom_single(f, "process_virtual_memory_bytes", PROM_GAUGE, "address space of the daemon",
		    p->virtual_bytes);
	prom_single(f, "process_open_fds", PROM_GAUGE, "open file descriptors", p->n_fds);
	prom_single(f, "process_max_fds", PROM_GAUGE, "limit of open file descriptors", p->max_fds);
	prom_single(f, "process_threads", PROM_GAUGE, "threads of the daemon", p->n_threads);
}

char *metrics_text(struct fs *fs, size_t *len_out)
{
	struct snapshot s;
	char *text = NULL;
	size_t len = 0;

	*len_out = 0;
	snapshot_take(fs, &s);
	FILE *f = open_memstream(&text, &len);
	if (!f)
		return NULL;
	print_about(f, fs);
	for (size_t g = 0; g < N(node_figures); g++)
		prom_single(f, node_figures[g].name, node_figures[g].type, node_figures[g].help,
			    VALUE_AT(&s, node_figures[g].offset));
	print_tiers(f, &s);
	print_maps(f, &s.maps);
	print_disk_counts(f, &s);
	print_disks(f, &s);
	metrics_eviction_ages(f, s.tier_names[0], &s.residency.dram_age, s.tier_names[1],
			      &s.residency.ssd_age);
	print_counters(f);
	metrics_cluster(f, fs);
	metrics_latency(f);
	print_process(f, &s.process);
	bool is_whole = !ferror(f);
	if (fclose(f) || !is_whole) {
		free(text);
		return NULL;
	}
	*len_out = len;
	return text;
}
