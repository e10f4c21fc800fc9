/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dram: frames in a private tmpfs, or, for tests without the right to mount, in a plain directory.
 *
 *   nothing mounted --create--> ours, new --destroy(free)--> nothing mounted
 *   ours, left by a daemon that ended or died --create--> ours, frames found by scan
 *
 * Ours is a tmpfs with the source DRAM_SOURCE; what else may be mounted there is covered, not used.
 * The mount is unbindable, so that a container that binds a directory above it neither sees frames nor
 * keeps their memory when we unmount.
 *
 * The tmpfs is a little larger than the budget: open frames are sized ahead by up to a huge page each,
 * and a frame is charged only when its caller says so. The budget is what the tier enforces.
 *
 * Source: tmpfs(5), Documentation/filesystems/tmpfs.rst, mount_namespaces(7).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/frame_dir.h"
#include "tier/mem_room.h"

#define DRAM_SOURCE "mooncakefs-dram"
#define DRAM_MOUNT_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME)

/* Room beyond the budget, for growth ahead of writes. */
#define DRAM_SLACK_PART 64
#define DRAM_SLACK_BYTES (UINT64_C(8) << 20)

struct dram_tier {
	struct frame_dir dir;
	bool is_mounted; /* else a plain directory */
};

/* ---- the mount ---- */

/* Whether path is the root of a mount of ours. A negative errno only if path is not there. */
static int is_our_mount(const char *path)
{
	autofree char *line = NULL;
	size_t size = 0;
	struct statx stx;
	int is_ours = 0;

	if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &stx))
		return -errno;
	if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return 0;
	FILE *file = fopen("/proc/self/mountinfo", "re");
	while (file && !is_ours && getline(&line, &size, file) > 0) {
		char fstype[32], source[64];
		const char *tail = strstr(line, " - ");
		if (strtoull(line, NULL, 10) == stx.stx_mnt_id && tail &&
		    sscanf(tail, " - %31s %63s", fstype, source) == 2)
			is_ours = !strcmp(fstype, "tmpfs") && !strcmp(source, DRAM_SOURCE);
	}
	if (file)
		fclose(file);
	return is_ours;
}

static uint64_t tmpfs_size(uint64_t budget_bytes)
{
	return budget_bytes + budget_bytes / DRAM_SLACK_PART + DRAM_SLACK_BYTES;
}

static bool has_numa_nodes(void)
{
	char online[64] = "";
	FILE *file = fopen("/sys/devices/system/node/online", "re");

	if (file) {
		if (!fgets(online, sizeof(online), file))
			online[0] = '\0';
		fclose(file);
	}
	return strpbrk(online, "-,") != NULL;
}

/* Mounts with the best options this kernel takes, and says which it refused. */
static int mount_tmpfs(const char *path, uint64_t budget_bytes)
{
	static const char *const tries[] = {
		",huge=within_size,noswap,mpol=interleave",
		",huge=within_size,noswap",
		",huge=within_size",
		",noswap",
		"",
	};
	const size_t n_tries = sizeof(tries) / sizeof(*tries), first = has_numa_nodes() ? 0 : 1;
	char options[160];

	for (size_t i = first; i < n_tries; i++) {
		snprintf(options, sizeof(options), "mode=0700,nr_inodes=0,size=%llu%s",
			 (unsigned long long)tmpfs_size(budget_bytes), tries[i]);
		if (!mount(DRAM_SOURCE, path, "tmpfs", DRAM_MOUNT_FLAGS, options)) {
			if (i > first)
				log_warn(
					"dram: the kernel refuses tmpfs options \"%s\", using \"%s\"",
					tries[first] + 1, tries[i] + !!*tries[i]);
			if (mount(NULL, path, NULL, MS_UNBINDABLE, NULL))
				log_warn("dram: make %s unbindable: %m", path);
			return 0;
		}
		if (errno != EINVAL)
			break;
	}
	return -errno;
}

/* size= refuses to go below what the frames take; they then leave by eviction. */
static void resize_tmpfs(const char *path, uint64_t budget_bytes)
{
	char options[64];

	snprintf(options, sizeof(options), "size=%llu",
		 (unsigned long long)tmpfs_size(budget_bytes));
	if (mount(NULL, path, NULL, MS_REMOUNT | DRAM_MOUNT_FLAGS, options))
		log_warn("dram: remount %s with %s: %m", path, options);
}

/* ---- the budget ---- */

static uint64_t held_bytes(const char *path)
{
	struct statfs st;

	if (is_our_mount(path) != 1 || statfs(path, &st))
		return 0;
	return (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
}

int dram_budget_check(const char *path, uint64_t bytes, char *why, size_t why_len)
{
	struct mem_room room;
	int rc = mem_room_read("", held_bytes(path), &room);

	if (rc) {
		snprintf(why, why_len, "/proc/meminfo: %s", strerror(-rc));
		return -ENOMEM;
	}
	if (bytes > room.available_bytes) {
		snprintf(why, why_len,
			 "%llu bytes are more than the %llu bytes of memory available "
			 "(MemAvailable of /proc/meminfo)",
			 (unsigned long long)bytes, (unsigned long long)room.available_bytes);
		return -ENOMEM;
	}
	if (bytes > room.cgroup_bytes) {
		snprintf(why, why_len,
			 "%llu bytes are more than the %llu bytes left of the limit of %llu bytes "
			 "of cgroup %s",
			 (unsigned long long)bytes, (unsigned long long)room.cgroup_bytes,
			 (unsigned long long)room.cgroup_limit_bytes, room.cgroup);
		return -ENOMEM;
	}
	if (why_len > 0)
		why[0] = '\0';
	return 0;
}

uint64_t dram_budget_default(void)
{
	struct mem_room room;

	if (mem_room_read("", 0, &room))
		return 0;
	uint64_t bytes = room.available_bytes < room.cgroup_bytes ? room.available_bytes :
								    room.cgroup_bytes;
	return bytes / 4 & ~((UINT64_C(1) << 20) - 1);
}

/* ---- the tier ---- */

static int dram_sync(struct tier *t, struct frame *f)
{
	return 0; /* memory is as durable as it gets */
}

static void unmount_tmpfs(const char *path)
{
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW))
		log_error("dram: unmount %s: %m", path);
}

static void dram_destroy(struct tier *t, bool removes_frames)
{
	struct dram_tier *dram = (struct dram_tier *)t;
	autofree char *path = strdup(dram->dir.conf.path);

	/* Unmounting frees frames faster than unlinking them one by one. */
	frame_dir_fini(&dram->dir, removes_frames && !dram->is_mounted);
	if (removes_frames && path) {
		if (dram->is_mounted)
			unmount_tmpfs(path);
		if (rmdir(path) && errno != ENOTEMPTY && errno != EBUSY)
			log_warn("dram: rmdir %s: %m", path);
	}
	free(dram);
}

static const struct tier_ops dram_ops = {
	.name = "dram",
	FRAME_DIR_OPS,
	.map = frame_dir_map,
	.unmap = frame_dir_unmap,
	.set_registrar = frame_dir_set_registrar,
	.get_map_stats = frame_dir_get_map_stats,
	.adopt = frame_dir_adopt,
	.sync = dram_sync,
	.destroy = dram_destroy,
};

/* Leaves a usable directory at conf->path; is_new_out: this call mounted it. */
static int prepare_path(const struct dram_conf *conf, bool *is_mounted_out, bool *is_new_out)
{
	char why[512];
	int rc;

	if (mkdir(conf->path, 0700) && errno != EEXIST) {
		rc = -errno;
		log_error("dram: mkdir %s: %m", conf->path);
		return rc;
	}
	int is_ours = is_our_mount(conf->path);
	if (is_ours < 0) {
		log_error("dram: stat %s: %s", conf->path, strerror(-is_ours));
		return is_ours;
	}
	rc = dram_budget_check(conf->path, conf->budget_bytes, why, sizeof(why));
	if (rc) {
		log_error("dram: budget refused: %s", why);
		return rc;
	}
	*is_mounted_out = true;
	*is_new_out = !is_ours;
	if (is_ours) {
		resize_tmpfs(conf->path, conf->budget_bytes);
		return 0;
	}
	rc = mount_tmpfs(conf->path, conf->budget_bytes);
	if (rc && conf->allow_plain_dir) {
		log_info("dram: mount a tmpfs at %s: %s; using the directory as it is", conf->path,
			 strerror(-rc));
		*is_mounted_out = *is_new_out = false;
		return 0;
	}
	if (rc)
		log_error("dram: mount a tmpfs of %llu bytes at %s: %s",
			  (unsigned long long)conf->budget_bytes, conf->path, strerror(-rc));
	return rc;
}

int dram_tier_create(const struct dram_conf *conf, struct tier **out)
{
	bool is_new = false;
	struct dram_tier *dram = calloc(1, sizeof(*dram));

	if (!dram)
		return -ENOMEM;
	int rc = prepare_path(conf, &dram->is_mounted, &is_new);
	if (rc)
		goto err_dram;
	const struct frame_dir_conf dir_conf = {
		.name = "dram",
		.path = conf->path,
		.budget_bytes = conf->budget_bytes,
		.overhead_bytes = FRAME_KERNEL_BYTES,
		.recycles = true,
		.grows_ahead = true,
	};
	rc = frame_dir_init(&dram->dir, &dram_ops, &dir_conf);
	if (rc)
		goto err_mount;
	*out = &dram->dir.tier;
	return 0;

err_mount:
	if (is_new)
		unmount_tmpfs(conf->path);
err_dram:
	free(dram);
	return rc;
}
