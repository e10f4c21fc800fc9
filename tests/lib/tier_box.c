/* SPDX-License-Identifier: Apache-2.0 */
/* tier_box: see tier_box.h. Set-up that fails aborts: no test can say anything then. */
#include "lib/tier_box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "tier/frame_dir.h"

#define NOBODY 65534

static void must(bool is_ok, const char *what)
{
	if (!is_ok) {
		fprintf(stderr, "tier_box: %s: %m\n", what);
		abort();
	}
}

static struct tier *make_tier(struct tier_box *box)
{
	const struct dram_conf dram = {.path = box->path,
				       .budget_bytes = box->budget_bytes,
				       .allow_plain_dir = box->kind != TIER_TMPFS};
	const struct ssd_dir dir = {.path = box->path, .budget_bytes = box->budget_bytes};
	const struct ssd_conf ssd = {.dirs = &dir, .n_dirs = 1};
	struct tier *t = NULL;
	int rc = box->kind == TIER_SSD ? ssd_tier_create(&ssd, &t) : dram_tier_create(&dram, &t);

	must(rc == 0, "create");
	if (box->kind == TIER_FAULT) {
		t = fault_tier_create(t);
		must(t != NULL, "create fault tier");
	}
	return t;
}

static bool can_mount(const char *path)
{
	if (mount("probe", path, "tmpfs", 0, "size=1M"))
		return false;
	umount(path);
	return true;
}

/* Without the right to mount a tmpfs the dram tier uses the plain directory. */
static bool needs_no_rights(enum tier_kind kind)
{
	return kind == TIER_PLAIN_DIR || kind == TIER_FAULT;
}

const char *tier_box_open(struct tier_box *box, enum tier_kind kind, uint64_t budget_bytes)
{
	const char *tmp = getenv("TMPDIR");

	*box = (struct tier_box){.kind = kind, .budget_bytes = budget_bytes};
	if (needs_no_rights(kind) && geteuid() == 0) {
		must(seteuid(NOBODY) == 0, "seteuid");
		prctl(PR_SET_DUMPABLE, 1); /* or the leak checker cannot look at us */
	}
	if (!tmp || strlen(tmp) > 32 || access(tmp, W_OK))
		tmp = "/tmp";
	snprintf(box->top, sizeof(box->top), "%s/mcfs-tier-XXXXXX", tmp);
	must(mkdtemp(box->top) != NULL, "mkdtemp");
	snprintf(box->path, sizeof(box->path), "%s/frames", box->top);
	if (kind == TIER_TMPFS && !can_mount(box->top)) {
		rmdir(box->top);
		return "needs the right to mount a tmpfs (root)";
	}
	box->recycles = box->grows_ahead = kind != TIER_SSD;
	box->overhead_bytes = kind != TIER_SSD ? FRAME_KERNEL_BYTES : 0;
	box->t = make_tier(box);
	return NULL;
}

void tier_box_reopen(struct tier_box *box)
{
	tier_call(box->t, destroy, false);
	box->t = make_tier(box);
}

void tier_box_close(struct tier_box *box)
{
	tier_call(box->t, destroy, true);
	must(rmdir(box->top) == 0, "rmdir");
	if (geteuid() != getuid())
		must(seteuid(getuid()) == 0, "seteuid");
	prctl(PR_SET_DUMPABLE, 1);
}

struct tier_stats tier_box_stats(struct tier_box *box)
{
	struct tier_stats stats;

	tier_call(box->t, get_stats, &stats);
	return stats;
}

const char *tier_box_frame_path(struct tier_box *box, uint64_t frame_id)
{
	static char path[160];
	char fan_out[8] = "";

	if (box->kind == TIER_SSD)
		snprintf(fan_out, sizeof(fan_out), "%02x/%02x/",
			 (unsigned int)(frame_id >> 18 & 0xff),
			 (unsigned int)(frame_id >> 10 & 0xff));
	snprintf(path, sizeof(path), "%s/%s%016llx", box->path, fan_out,
		 (unsigned long long)frame_id);
	return path;
}
