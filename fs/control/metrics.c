/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text exposition format, version 0.0.4. */
#include <inttypes.h>
#include <stdio.h>

#include "base/counters.h"
#include "control/control.h"
#include "control/snapshot.h"
#include "fs.h"

static void gauge(FILE *f, const char *name, const char *help, uint64_t value)
{
	fprintf(f, "# HELP mooncakefs_%s %s\n# TYPE mooncakefs_%s gauge\nmooncakefs_%s %" PRIu64 "\n",
		name, help, name, name, value);
}

struct tier_gauge {
	const char *name, *help;
	size_t offset;
};

static const struct tier_gauge tier_gauges[] = {
	{ "tier_budget_bytes", "limit of a tier", offsetof(struct tier_stats, budget_bytes) },
	{ "tier_used_bytes", "bytes charged to a tier", offsetof(struct tier_stats, used_bytes) },
	{ "tier_free_list_bytes", "of used: frames ready for reuse",
	  offsetof(struct tier_stats, free_list_bytes) },
	{ "tier_zombie_bytes", "of used: dropped frames that a client still maps",
	  offsetof(struct tier_stats, zombie_bytes) },
	{ "tier_objects", "sealed frames on a tier", offsetof(struct tier_stats, n_sealed) },
	{ "tier_open_frames", "frames being written", offsetof(struct tier_stats, n_open) },
};

static void print_tiers(FILE *f, const struct snapshot *s)
{
	for (size_t g = 0; g < sizeof(tier_gauges) / sizeof(*tier_gauges); g++) {
		const struct tier_gauge *t = &tier_gauges[g];
		fprintf(f, "# HELP mooncakefs_%s %s\n# TYPE mooncakefs_%s gauge\n", t->name, t->help,
			t->name);
		for (int k = 0; k < N_TIERS; k++)
			fprintf(f, "mooncakefs_%s{tier=\"%s\"} %" PRIu64 "\n", t->name, s->tier_names[k],
				*(const uint64_t *)((const char *)&s->tiers[k] + t->offset));
	}
}

char *metrics_text(struct fs *fs, size_t *len_out)
{
	struct snapshot s;
	char *text = NULL;

	*len_out = 0;
	snapshot_take(fs, &s);
	FILE *f = open_memstream(&text, len_out);
	if (!f)
		return NULL;
	gauge(f, "objects", "objects this node holds", s.n_objects);
	gauge(f, "objects_max", "bound on objects (max_objects)", s.max_objects);
	gauge(f, "drafts_open", "files being written", s.n_drafts);
	gauge(f, "inodes", "inodes the kernel or a handle holds", s.n_inodes);
	gauge(f, "passthrough_live", "1: reads are served by the kernel", fs->passthrough);
	gauge(f, "catalog_disk_bytes", "size of the catalog on disk", s.catalog.disk_bytes);
	print_tiers(f, &s);
	for (int k = 0; k < N_COUNTERS; k++)
		fprintf(f, "# HELP mooncakefs_%s_total %s\n# TYPE mooncakefs_%s_total counter\n"
			   "mooncakefs_%s_total %" PRIu64 "\n",
			counter_name(k), counter_help(k), counter_name(k), counter_name(k),
			counter_get(k));
	fclose(f);
	return text;
}
