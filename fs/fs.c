/* SPDX-License-Identifier: Apache-2.0 */
#include "fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "control/control.h"
#include "fastpath/buffer.h"
#include "fastpath/executor.h"
#include "fastpath/session.h"
#include "handle.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/adopt.h"
#include "object/draft.h"
#include "object/flock_table.h"
#include "object/object.h"
#include "object/residency.h"
#include "object/scrub.h"
#include "object/space.h"
#include "object/sweep.h"
#include "object/verify.h"
#include "object/version.h"
#include "object/writeback.h"
#include "options.h"

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

int64_t now_mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

int64_t now_real_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}

bool fs_wait_changed(struct fs *fs, int64_t deadline_ns)
{
	return clock_cond_wait(&fs->changed, &fs->lock, deadline_ns) != -ETIMEDOUT;
}

int fs_make_dirs(const char *path)
{
	autofree char *copy = xstrdup(path);

	for (char *p = copy + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			if (mkdir(copy, 0755) && errno != EEXIST)
				return -errno;
			*p = '/';
		}
	return mkdir(copy, 0700) && errno != EEXIST ? -errno : 0;
}

static void init_locks(struct fs *fs)
{

	pthread_mutex_init(&fs->lock, NULL);
	clock_cond_init(&fs->changed);
	for (int k = 0; k < NAME_STRIPES; k++)
		pthread_mutex_init(&fs->name_stripes[k], NULL);
}

_Static_assert(OPTIONS_MAX_SSDS == SSD_MAX_DIRS, "as many directories as the tier takes");

static int open_tiers(struct fs *fs)
{
	const struct options *o = fs->opt;
	autofree char *path = NULL;
	char why[256];

	if (asprintf(&path, "%s/dram", o->state_dir) < 0)
		return -ENOMEM;
	int rc = dram_budget_check(path, o->dram_bytes, why, sizeof(why));
	if (rc) {
		log_error("option dram=%llu: %s", (unsigned long long)o->dram_bytes, why);
		return rc;
	}
	rc = dram_tier_create(&(struct dram_conf){ .path = path, .budget_bytes = o->dram_bytes,
						  .allow_plain_dir = o->plain_dram },
			      &fs->dram);
	if (rc)
		return rc;
	struct ssd_dir dirs[OPTIONS_MAX_SSDS];
	for (uint32_t k = 0; k < o->n_ssds; k++)
		dirs[k] = (struct ssd_dir){ .path = o->ssds[k].dir, .budget_bytes = o->ssds[k].bytes };
	return ssd_tier_create(&(struct ssd_conf){ .dirs = dirs, .n_dirs = o->n_ssds,
						   .state_dir = o->state_dir },
			       &fs->ssd);
}

int fs_create(struct fs *fs, const struct options *opt)
{
	autofree char *path = NULL;

	*fs = (struct fs){ .opt = opt };
	init_locks(fs);
	fs->start_ns = now_mono_ns();
	fs->inodes = inode_table_create();
	fs->objects = object_table_create();
	fs->names = name_index_create();
	fs->drafts = draft_table_create();
	fs->flocks = flock_table_create();
	fs->residency = residency_create(opt);
	fs->verifier = verifier_create();
	fs->scrub = scrub_create(fs);
	if (!fs->names)
		return -EIO;
	if (asprintf(&path, "%s/catalog", fs->opt->state_dir) < 0)
		return -ENOMEM;
	int rc = catalog_open(&(struct catalog_conf){ .path = path }, &fs->catalog);
	if (!rc)
		rc = open_tiers(fs);
	if (!rc)
		rc = version_clock_create(fs->catalog, &fs->clock);
	if (!rc)
		rc = adopt_all(fs);
	if (rc)
		log_error("cannot start on state directory %s: %s", fs->opt->state_dir, strerror(-rc));
	else
		control_init(fs);
	if (!rc)
		rc = notifier_start(fs, &fs->notifier);
	if (!rc)
		fs->executor = executor_create();
	if (!rc)
		space_fit_budget(fs);
	if (!rc)
		rc = writeback_start(fs);
	return rc;
}

void fs_stop_work(struct fs *fs)
{
	session_end_all(fs);
	executor_destroy(fs->executor);
	fs->executor = NULL;
	notifier_stop(fs->notifier);
	fs->notifier = NULL;
}

void fs_quiesce(struct fs *fs)
{
	scrub_destroy(fs->scrub);
	fs->scrub = NULL;
	sweep_stop(fs);
	writeback_stop(fs);
	fs_stop_work(fs);
	handle_abandon_all(fs);
}

void fs_destroy(struct fs *fs, bool frees_dram)
{
	fs_quiesce(fs);
	buffers_destroy(fs);
	if (fs->ssd)
		tier_call(fs->ssd, destroy, false);
	if (fs->dram)
		tier_call(fs->dram, destroy, frees_dram);
	version_clock_destroy(fs->clock);
	if (fs->catalog)
		catalog_close(fs->catalog);
	residency_destroy(fs->residency);
	verifier_destroy(fs->verifier);
	flock_table_destroy(fs->flocks);
	draft_table_destroy(fs->drafts);
	object_table_destroy(fs->objects);
	name_index_destroy(fs->names);
	inode_table_destroy(fs->inodes);
	for (int k = 0; k < NAME_STRIPES; k++)
		pthread_mutex_destroy(&fs->name_stripes[k]);
	pthread_cond_destroy(&fs->changed);
	pthread_mutex_destroy(&fs->lock);
}
