/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fsck.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

/* ---- helpers ---- */

void fsck_found(struct fsck *f, enum fsck_finding what, const char *fmt, ...)
{
	struct fsck_tally *t = &f->tallies[what];
	char line[1024];
	va_list args;

	t->n++;
	if (!t->examples)
		t->examples = json_array();
	if (json_array_size(t->examples) >= FSCK_EXAMPLES)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	json_array_append_new(t->examples, text_json(line));
}

uint64_t fsck_n_left(const struct fsck *f)
{
	uint64_t n = 0;

	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		n += f->tallies[k].n - f->tallies[k].n_repaired;
	return n;
}

int fsck_grow(void **v, size_t n, size_t *cap, size_t item_bytes)
{
	if (n < *cap)
		return 0;
	size_t new_cap = *cap ? *cap * 2 : 4096;
	void *p = reallocarray(*v, new_cap, item_bytes);
	if (!p) {
		cli_error("out of memory");
		return -ENOMEM;
	}
	*v = p;
	*cap = new_cap;
	return 0;
}

struct fsck_object *fsck_object(const struct fsck *f, uint64_t id)
{
	size_t low = 0, high = f->n_objects;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (f->objects[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < f->n_objects && f->objects[low].id == id ? &f->objects[low] : NULL;
}

struct fsck_dir *fsck_dir(const struct fsck *f, uint64_t ino)
{
	size_t low = 0, high = f->n_dirs;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (f->dirs[mid].ino < ino)
			low = mid + 1;
		else
			high = mid;
	}
	return low < f->n_dirs && f->dirs[low].ino == ino ? &f->dirs[low] : NULL;
}

/* ---- the state directory ---- */

static int lock_state(struct fsck *f)
{
	autofree char *path = NULL;
	char pid[32] = "";

	if (asprintf(&path, "%s/lock", f->state_dir) < 0)
		return -ENOMEM;
	f->lock_fd = open(path, (f->repairs ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (f->lock_fd < 0) {
		int rc = -errno;
		cli_error("%s: %s: %s", f->state_dir,
			  rc == -ENOENT ? "no state directory of mooncakefs: lock" : "lock",
			  strerror(-rc));
		return rc;
	}
	if (!flock(f->lock_fd, LOCK_EX | LOCK_NB))
		return 0;
	ssize_t n = pread(f->lock_fd, pid, sizeof(pid) - 1, 0);
	if (n > 0)
		pid[strcspn(pid, "\n")] = '\0';
	cli_error("%s: a mooncakefs is running on it (pid %s): stop it first, or use 'mooncakectl "
		  "scrub'",
		  f->state_dir, *pid ? pid : "unknown");
	return -EBUSY;
}

/* The daemon's message when it is started meanwhile names who has the lock. */
static void sign_lock(const struct fsck *f)
{
	char pid[32];
	int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (f->repairs && (ftruncate(f->lock_fd, 0) || pwrite(f->lock_fd, pid, (size_t)len, 0) != len))
		cli_error("%s/lock: %m", f->state_dir);
}

/* ---- the catalog ---- */

static void close_catalog(struct fsck *f)
{
	if (f->catalog)
		catalog_close(f->catalog);
	f->catalog = NULL;
}

static int open_catalog(struct fsck *f)
{
	struct catalog_conf conf = {.path = f->catalog_path,
				    .is_quiet = true,
				    .repairs = f->repairs,
				    .read_only = !f->repairs};

	return catalog_open(&conf, &f->catalog);
}

static void forget_tables(struct fsck *f)
{
	f->n_objects = f->n_dirs = 0;
	f->n_names = f->n_files = f->n_symlinks = f->n_promises = f->object_bytes = 0;
	f->checked_bytes = 0;
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		if (k != FSCK_DATABASE && k != FSCK_DISK_ABSENT) {
			json_decref(f->tallies[k].examples);
			f->tallies[k] = (struct fsck_tally){.n = 0};
		}
}

static int check_all(struct fsck *f)
{
	forget_tables(f);
	fsck_tier_fini(&f->dram);
	fsck_tier_fini(&f->ssd);
	int rc = fsck_frames_load(f);
	if (!rc)
		rc = fsck_check_objects(f);
	if (!rc && f->checks_data)
		rc = fsck_check_data(f);
	if (!rc)
		rc = fsck_check_names(f);
	return rc;
}

static int repair_database(struct fsck *f)
{
	close_catalog(f);
	bar_update(&f->bar, "database", 0, 0);
	int rc = catalog_repair(f->catalog_path, f->copy_path);
	if (!rc)
		rc = open_catalog(f);
	if (!rc)
		f->tallies[FSCK_DATABASE].n_repaired = f->tallies[FSCK_DATABASE].n;
	return rc;
}

/* Opens and reads everything, if need be after the database was made readable. */
static int check_catalog(struct fsck *f)
{
	int rc = open_catalog(f);

	if (!rc)
		rc = check_all(f);
	if (rc != -EIO)
		return rc;
	fsck_found(f, FSCK_DATABASE, "%s", f->catalog_path);
	if (!f->repairs)
		return 0;
	rc = repair_database(f);
	return rc ? rc : check_all(f);
}

int fsck_run(struct fsck *f)
{
	snprintf(f->catalog_path, sizeof(f->catalog_path), "%s/catalog", f->state_dir);
	int rc = lock_state(f);
	if (rc)
		return rc;
	sign_lock(f);
	rc = check_catalog(f);
	f->is_complete = !rc && f->tallies[FSCK_DATABASE].n == f->tallies[FSCK_DATABASE].n_repaired;
	if (!rc && f->is_complete && f->repairs)
		rc = fsck_repair(f);
	bar_wipe(&f->bar);
	close_catalog(f);
	return rc;
}

void fsck_fini(struct fsck *f)
{
	close_catalog(f);
	fsck_tier_fini(&f->dram);
	fsck_tier_fini(&f->ssd);
	free(f->objects);
	free(f->dirs);
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		json_decref(f->tallies[k].examples);
	if (f->lock_fd >= 0)
		close(f->lock_fd);
}
