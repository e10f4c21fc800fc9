/* SPDX-License-Identifier: Apache-2.0 */
#include "fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "control/control.h"
#include "handle.h"
#include "inode_table.h"
#include "notifier.h"
#include "object/adopt.h"
#include "object/draft.h"
#include "object/flock_table.h"
#include "object/object.h"
#include "object/space.h"
#include "object/version.h"
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
	struct timespec ts = { .tv_sec = deadline_ns / 1000000000,
			       .tv_nsec = deadline_ns % 1000000000 };

	return pthread_cond_timedwait(&fs->changed, &fs->lock, &ts) != ETIMEDOUT;
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
	pthread_condattr_t attr;

	pthread_mutex_init(&fs->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fs->changed, &attr);
	pthread_condattr_destroy(&attr);
	for (int k = 0; k < NAME_STRIPES; k++)
		pthread_mutex_init(&fs->name_stripes[k], NULL);
}

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
	rc = fs_make_dirs(o->ssd_dir);
	if (rc) {
		log_error("ssd directory %s: %s", o->ssd_dir, strerror(-rc));
		return rc;
	}
	return ssd_tier_create(&(struct ssd_conf){ .path = o->ssd_dir, .budget_bytes = o->ssd_bytes },
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
	fs->drafts = draft_table_create();
	fs->flocks = flock_table_create();
	fs->policy = policy_lru_create();
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
		space_fit_budget(fs);
	return rc;
}

void fs_destroy(struct fs *fs, bool frees_dram)
{
	notifier_stop(fs->notifier);
	handle_abandon_all(fs);
	if (fs->ssd)
		tier_call(fs->ssd, destroy, false);
	if (fs->dram)
		tier_call(fs->dram, destroy, frees_dram);
	version_clock_destroy(fs->clock);
	if (fs->catalog)
		catalog_close(fs->catalog);
	if (fs->policy)
		fs->policy->ops->destroy(fs->policy);
	flock_table_destroy(fs->flocks);
	draft_table_destroy(fs->drafts);
	object_table_destroy(fs->objects);
	inode_table_destroy(fs->inodes);
	for (int k = 0; k < NAME_STRIPES; k++)
		pthread_mutex_destroy(&fs->name_stripes[k]);
	pthread_cond_destroy(&fs->changed);
	pthread_mutex_destroy(&fs->lock);
}
