/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fsck.h"

#include "base/cleanup.h"
#include "cli/cli.h"
#include "tier/disk_list.h"
#include "tier/frame_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FRAME_DIGITS 16
#define FAN_OUT_LEVELS 2
#define LOCAL_ID_MASK ((UINT64_C(1) << FRAME_NUMBER_SHIFT) - 1)

/* ---- names of files, as fs/tier/frame_name.c makes them: an id without its directory's number ---- */

static bool parse_hex(const char *name, size_t n_digits, uint64_t *out)
{
	uint64_t value = 0;

	if (strlen(name) != n_digits || strspn(name, "0123456789abcdef") != n_digits)
		return false;
	for (size_t i = 0; i < n_digits; i++)
		value = value << 4 | (uint64_t)(name[i] <= '9' ? name[i] - '0' : name[i] - 'a' + 10);
	*out = value;
	return true;
}

static void frame_path(const struct fsck_tier *t, const struct fsck_frame *frame, char *path,
		       size_t len)
{
	unsigned long long id = frame->id & LOCAL_ID_MASK;

	if (t->has_fan_out)
		snprintf(path, len, "%s/%02llx/%02llx/%016llx", t->dirs[frame->dir], id >> 18 & 0xff,
			 id >> 10 & 0xff, id);
	else
		snprintf(path, len, "%s/%016llx", t->dirs[frame->dir], id);
}

int fsck_frame_open(const struct fsck_tier *t, const struct fsck_frame *frame)
{
	char path[PATH_MAX];

	frame_path(t, frame, path, sizeof(path));
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fsck_frame_remove(const struct fsck_tier *t, const struct fsck_frame *frame)
{
	char path[PATH_MAX];

	frame_path(t, frame, path, sizeof(path));
	if (!unlink(path) || errno == ENOENT)
		return 0;
	int rc = -errno;
	cli_error("unlink %s: %s", path, strerror(-rc));
	return rc;
}

/* ---- what is there ---- */

struct walk {
	struct fsck *f;
	struct fsck_tier *t;
	uint32_t dir;
};

static int add_frame(struct walk *w, int dir_fd, const char *name, uint64_t id)
{
	struct fsck_tier *t = w->t;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		st.st_size = -1; /* no frame: it has the size of none */
	int rc = fsck_grow((void **)&t->v, t->n, &t->cap, sizeof(*t->v));
	if (rc)
		return rc;
	id |= (uint64_t)t->numbers[w->dir] << FRAME_NUMBER_SHIFT;
	t->v[t->n++] = (struct fsck_frame){.id = id, .size = (uint64_t)st.st_size, .dir = w->dir};
	t->bytes += st.st_size > 0 ? (uint64_t)st.st_size : 0;
	bar_update(&w->f->bar, "frames", w->f->dram.n + w->f->ssd.n, 0);
	return 0;
}

static int walk_level(struct walk *w, int parent_fd, const char *name, int levels_below)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;
	uint64_t id;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		cli_error("%s: read directory %s: %s", w->t->dirs[w->dir], name, strerror(-rc));
		if (fd >= 0)
			close(fd);
		return rc == -EIO ? -EREMOTEIO : rc; /* not the database's */
	}
	while (!rc && (d = readdir(dir))) {
		if (levels_below == 0) {
			if (parse_hex(d->d_name, FRAME_DIGITS, &id) && id && id <= LOCAL_ID_MASK)
				rc = add_frame(w, fd, d->d_name, id);
		} else if (parse_hex(d->d_name, 2, &id)) {
			rc = walk_level(w, fd, d->d_name, levels_below - 1);
		}
	}
	closedir(dir);
	return rc;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = ((const struct fsck_frame *)a)->id, y = ((const struct fsck_frame *)b)->id;

	return x < y ? -1 : x > y;
}

static int tier_load(struct fsck *f, struct fsck_tier *t)
{
	int rc = 0;

	for (uint32_t k = 0; !rc && k < t->n_dirs; k++) {
		struct walk w = {f, t, k};
		rc = walk_level(&w, AT_FDCWD, t->dirs[k], t->has_fan_out ? FAN_OUT_LEVELS : 0);
	}
	if (!rc && t->n)
		qsort(t->v, t->n, sizeof(*t->v), by_id);
	return rc;
}

struct fsck_frame *fsck_frame(const struct fsck_tier *t, uint64_t id)
{
	struct fsck_frame key = {.id = id};

	return t->n ? bsearch(&key, t->v, t->n, sizeof(*t->v), by_id) : NULL;
}

void fsck_tier_fini(struct fsck_tier *t)
{
	for (size_t k = 0; k < t->n_dirs; k++)
		free(t->dirs[k]);
	free(t->dirs);
	free(t->numbers);
	free(t->v);
	*t = (struct fsck_tier){.name = NULL};
}

/* ---- where to look ---- */

/* number is that of the disk, which its frames' ids have in their top bits. */
static int tier_add_dir(struct fsck_tier *t, const char *path, uint8_t number)
{
	char **dirs = reallocarray(t->dirs, t->n_dirs + 1, sizeof(*dirs));
	uint8_t *numbers = reallocarray(t->numbers, t->n_dirs + 1, sizeof(*numbers));

	if (dirs)
		t->dirs = dirs;
	if (numbers)
		t->numbers = numbers;
	if (!dirs || !numbers)
		return -ENOMEM;
	numbers[t->n_dirs] = number;
	dirs[t->n_dirs] = strdup(path);
	return dirs[t->n_dirs] ? (int)(t->n_dirs++, 0) : -ENOMEM;
}

/* The directory says itself which disk it is; one that nobody has marked is the only one. */
static int add_marked_dir(struct fsck_tier *t, const char *path)
{
	struct disk_identity found = {.number = 0};
	int rc = disk_marker_read(path, &found);

	if (rc && rc != -ENOENT) {
		cli_error("%s/" DISK_MARKER_NAME ": %s", path, strerror(-rc));
		return rc == -EIO ? -EREMOTEIO : rc; /* not the database's */
	}
	return tier_add_dir(t, path, (uint8_t)found.number);
}

/* A tmpfs of its own: it outlives the daemon, not the machine. */
static bool is_mount_point(const char *path)
{
	char parent[PATH_MAX + 4];
	struct stat own, above;

	snprintf(parent, sizeof(parent), "%s/..", path);
	return !stat(path, &own) && !stat(parent, &above) && own.st_dev != above.st_dev;
}

static int dram_find(struct fsck *f)
{
	char path[PATH_MAX];

	f->dram = (struct fsck_tier){.name = "dram"};
	snprintf(path, sizeof(path), "%s/dram", f->state_dir);
	if (access(path, F_OK))
		return 0;
	f->dram.is_there = is_mount_point(path);
	return tier_add_dir(&f->dram, path, 0);
}

static void tell_absent(struct fsck *f, const struct disk_entry *e, const char *why)
{
	if (!f->disk_is_absent[e->identity.number & 0xff])
		fsck_found(f, FSCK_DISK_ABSENT, "disk %u, %s: %s", e->identity.number, e->path, why);
	f->disk_is_absent[e->identity.number & 0xff] = true;
}

/* A directory that holds another disk, or none, is not the one that the records mean. */
static int add_disk(struct fsck *f, const struct disk_entry *e)
{
	struct disk_identity found;
	int rc = disk_marker_read(e->path, &found);

	if (rc == -ENOENT && e->is_beside_state && !access(e->path, F_OK))
		return tier_add_dir(&f->ssd, e->path, e->identity.number); /* it cannot be missing alone */
	if (rc) {
		tell_absent(f, e, rc == -ENOENT ? "no " DISK_MARKER_NAME : strerror(-rc));
		return 0;
	}
	if (found.number != e->identity.number || strcmp(found.id, e->identity.id)) {
		tell_absent(f, e, "another disk is there");
		return 0;
	}
	return tier_add_dir(&f->ssd, e->path, e->identity.number);
}

static int ssd_find(struct fsck *f)
{
	struct disk_list list = {.v = NULL};
	char path[PATH_MAX];
	int rc = 0;

	f->ssd = (struct fsck_tier){.name = "ssd", .has_fan_out = true, .is_there = true};
	for (size_t k = 0; !rc && k < f->n_ssd_dirs; k++)
		rc = add_marked_dir(&f->ssd, f->ssd_dirs[k]);
	if (rc || f->n_ssd_dirs)
		return rc;
	rc = disk_list_load(f->state_dir, &list);
	if (rc) {
		cli_error("%s/" DISK_LIST_NAME ": %s: name the directories with --ssd", f->state_dir,
			  strerror(-rc));
		return rc == -EIO ? -EREMOTEIO : rc;
	}
	for (uint32_t k = 0; !rc && k < list.n; k++)
		rc = add_disk(f, &list.v[k]);
	snprintf(path, sizeof(path), "%s/ssd", f->state_dir);
	if (!rc && !list.n && !access(path, F_OK))
		rc = add_marked_dir(&f->ssd, path);
	disk_list_fini(&list);
	return rc;
}

int fsck_frames_load(struct fsck *f)
{
	int rc = dram_find(f);

	if (!rc)
		rc = ssd_find(f);
	if (!rc)
		rc = tier_load(f, &f->dram);
	if (!rc)
		rc = tier_load(f, &f->ssd);
	/* Without a tmpfs, in tests, the directory is what its frames say. */
	f->dram.is_there = f->dram.is_there || f->dram.n;
	return rc;
}
