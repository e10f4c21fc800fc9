/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd_set.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "raw_disk.h"

#define PIN_DIR "pinned"
#define PIN_LARGE_BYTES (16 * MIB)
#define PIN_SMALL_BYTES (64 * KIB)
#define PINNED_MAX 4096

void ssd_set_name(uint32_t k, char out[32])
{
	snprintf(out, 32, "ssd-%05u", k);
}

static void path_of(const struct ssd_set *s, enum side side, uint32_t k, char path[JOB_PATH_MAX])
{
	char name[32];

	ssd_set_name(k, name);
	job_path(s->env, side, name, path);
}

static void pinned_path(const struct ssd_set *s, uint32_t k, char path[JOB_PATH_MAX])
{
	char name[48];

	snprintf(name, sizeof(name), PIN_DIR "/%05u", k);
	job_path(s->env, SIDE_OURS, name, path);
}

/* ---- DRAM full of what stays there ---- */

/* 0, or -ENOSPC, which is what it is for and not logged. */
static int pin_one(struct ssd_set *s, const char *buffer, size_t bytes)
{
	char path[JOB_PATH_MAX];
	int rc = 0;

	pinned_path(s, s->n_pinned, path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == ENOSPC ? -ENOSPC : bench_fail(-errno, "create %s", path);
	s->n_pinned++;
	ssize_t n = write(fd, buffer, bytes);
	if (n != (ssize_t)bytes)
		rc = n < 0 && errno != ENOSPC ? bench_fail(-errno, "write %s", path) : -ENOSPC;
	/* A half-written one is none. */
	if (rc)
		unlink(path);
	if (close(fd) && !rc)
		rc = errno == ENOSPC ? -ENOSPC : bench_fail(-errno, "close %s", path);
	return rc;
}

static int pin_until_full(struct ssd_set *s)
{
	static const size_t sizes[] = {PIN_LARGE_BYTES, MIB, PIN_SMALL_BYTES};
	char path[JOB_PATH_MAX];
	char *buffer = bench_buffer_create(PIN_LARGE_BYTES);
	int rc = buffer ? 0 : bench_fail(-ENOMEM, "buffer");

	job_path(s->env, SIDE_OURS, PIN_DIR, path);
	if (!rc && (mkdir(path, 0700) ||
		    setxattr(path, "user.mooncake.class", "pinned", strlen("pinned"), 0)))
		rc = bench_fail(-errno, "make %s a directory of class pinned", path);
	for (size_t k = 0; !rc && k < ARRAY_LEN(sizes); k++) {
		while (!rc && s->n_pinned < PINNED_MAX)
			rc = pin_one(s, buffer, sizes[k]);
		rc = rc == -ENOSPC ? 0 : rc;
	}
	bench_buffer_destroy(buffer, PIN_LARGE_BYTES);
	return rc;
}

/* ---- the set ---- */

int ssd_set_check(const struct ssd_set *s)
{
	char path[JOB_PATH_MAX], tier[16] = "";

	for (uint32_t k = 0; k < s->n_objects; k++) {
		path_of(s, SIDE_OURS, k, path);
		ssize_t n = getxattr(path, "user.mooncake.tier", tier, sizeof(tier) - 1);
		if (n < 0)
			return bench_fail(-errno, "tier of %s", path);
		tier[n] = '\0';
		if (strcmp(tier, "ssd"))
			return bench_fail(-EBADMSG, "%s is on %s, not on the ssd alone", path,
					  tier);
	}
	return 0;
}

int ssd_set_create(struct ssd_set *s, const struct bench_env *env, size_t object_bytes,
		   uint32_t n_objects)
{
	char path[JOB_PATH_MAX];
	int rc = 0;

	*s = (struct ssd_set){.env = env, .object_bytes = object_bytes, .n_objects = n_objects};
	memset(s->fd, -1, sizeof(s->fd));
	memset(s->frame_fd, -1, sizeof(s->frame_fd));
	for (uint32_t k = 0; !rc && k < n_objects; k++) {
		path_of(s, SIDE_OURS, k, path);
		rc = bench_file_create(path, object_bytes, SSD_SET_SEED + k, 0);
		path_of(s, SIDE_RAW, k, path);
		if (!rc)
			rc = raw_file_fill(path, object_bytes, SSD_SET_SEED + k);
	}
	if (!rc)
		rc = pin_until_full(s);
	job_settle();
	return rc ? rc : ssd_set_check(s);
}

int ssd_set_open(struct ssd_set *s, int flags)
{
	char path[JOB_PATH_MAX];

	for (int side = 0; side < N_SIDES; side++)
		for (uint32_t k = 0; k < s->n_objects; k++) {
			path_of(s, side, k, path);
			s->fd[side][k] = open(path, O_RDONLY | O_CLOEXEC | flags);
			if (s->fd[side][k] < 0)
				return bench_fail(-errno, "open %s", path);
		}
	return 0;
}

/* ---- frames ---- */

static struct ssd_set *walked; /* nftw has no argument for it */

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type != FTW_F || (size_t)st->st_size != walked->object_bytes ||
	    walked->n_frames == SSD_SET_MAX)
		return 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		walked->frame_fd[walked->n_frames++] = fd;
	return fd < 0 && errno != ENOENT ? bench_fail(-errno, "open %s", path) : 0;
}

int ssd_set_find_frames(struct ssd_set *s)
{
	walked = s;
	int rc = nftw(s->env->disk_dir, visit, 16, FTW_PHYS | FTW_MOUNT);

	if (rc < 0 || s->n_frames < s->n_objects)
		return bench_fail(rc < -1 ? rc : -ENOENT,
				  "%u of %u frames of %zu bytes found below %s", s->n_frames,
				  s->n_objects, s->object_bytes, s->env->disk_dir);
	return 0;
}

void ssd_set_destroy(struct ssd_set *s)
{
	char path[JOB_PATH_MAX];

	for (uint32_t k = 0; k < s->n_frames; k++)
		close(s->frame_fd[k]);
	for (int side = 0; side < N_SIDES; side++)
		for (uint32_t k = 0; k < s->n_objects; k++) {
			if (s->fd[side][k] >= 0)
				close(s->fd[side][k]);
			path_of(s, side, k, path);
			unlink(path);
		}
	for (uint32_t k = 0; k < s->n_pinned; k++) {
		pinned_path(s, k, path);
		unlink(path);
	}
	job_path(s->env, SIDE_OURS, PIN_DIR, path);
	rmdir(path);
}
