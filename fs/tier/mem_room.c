/* SPDX-License-Identifier: Apache-2.0 */
/* mem_room: see mem_room.h. Reads whole small files; any line that is not understood is skipped. */
#include "tier/mem_room.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

/* Version 1 writes "no limit" as the greatest multiple of a page below 2^63. */
#define CGROUP1_UNLIMITED (UINT64_C(1) << 62)

struct cgroup_version {
	const char *fstype;
	const char *limit, *usage;   /* files */
	const char *dropped, *shmem; /* keys of memory.stat that include all descendants */
};

static const struct cgroup_version cgroup1 = {
	.fstype = "cgroup",
	.limit = "memory.limit_in_bytes",
	.usage = "memory.usage_in_bytes",
	.dropped = "total_inactive_file",
	.shmem = "total_shmem",
};
static const struct cgroup_version cgroup2 = {
	.fstype = "cgroup2",
	.limit = "memory.max",
	.usage = "memory.current",
	.dropped = "inactive_file",
	.shmem = "shmem",
};

static void close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}
#define autofclose __attribute__((cleanup(close_file)))

static FILE *open_below(const char *root, const char *dir, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s%s/%s", root, dir, name);

	return n < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* False when there is no such file, or it says "max". */
static bool read_number(const char *root, const char *dir, const char *name, uint64_t *out)
{
	autofclose FILE *file = open_below(root, dir, name);

	return file && fscanf(file, "%" SCNu64, out) == 1;
}

/* The number after key at the start of a line ("key 123", "Key:   123 kB"); 0 without one. */
static uint64_t read_key(FILE *file, const char *key)
{
	char line[256], name[64];
	uint64_t value;

	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %" SCNu64, name, &value) == 2 && !strcmp(name, key))
			return value;
	return 0;
}

static uint64_t read_stat(const char *root, const char *dir, const char *key)
{
	autofclose FILE *file = open_below(root, dir, "memory.stat");

	return file ? read_key(file, key) : 0;
}

/* mountinfo writes blanks and backslashes as \040. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		unsigned int byte;
		if (s[0] == '\\' && sscanf(s + 1, "%3o", &byte) == 1) {
			*to = (char)byte;
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)) != NULL; p += len)
		if ((p == list || p[-1] == ',') && (p[len] == ',' || p[len] == '\0'))
			return true;
	return false;
}

/*
 * Finds the mount of a cgroup version that has memory files: which part of the hierarchy it shows
 * (shown) and where. Lines: id parent dev root mountpoint options [tags] - fstype source superoptions
 */
static bool find_mount(const char *root, const struct cgroup_version *v, char shown[PATH_MAX],
		       char at[PATH_MAX])
{
	autofclose FILE *file = open_below(root, "/proc/self", "mountinfo");
	autofree char *line = NULL;
	size_t size = 0;

	while (file && getline(&line, &size, file) > 0) {
		char fstype[32], superoptions[256];
		const char *tail = strstr(line, " - ");
		if (!tail || sscanf(tail, " - %31s %*s %255s", fstype, superoptions) != 2 ||
		    strcmp(fstype, v->fstype) != 0)
			continue;
		if (v == &cgroup1 && !has_word(superoptions, "memory"))
			continue;
		if (sscanf(line, "%*s %*s %*s %4095s %4095s", shown, at) != 2)
			continue;
		unescape(shown);
		unescape(at);
		return true;
	}
	return false;
}

/* This process's cgroup of a version, as /proc/self/cgroup has it: "4:memory:/a/b", "0::/a/b". */
static bool find_cgroup(const char *root, const struct cgroup_version *v, char path[PATH_MAX])
{
	autofclose FILE *file = open_below(root, "/proc/self", "cgroup");
	autofree char *line = NULL;
	size_t size = 0;

	while (file && getline(&line, &size, file) > 0) {
		char *controllers = strchr(line, ':');
		char *name = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!name)
			continue;
		*name++ = '\0';
		controllers++;
		name[strcspn(name, "\n")] = '\0';
		if (v == &cgroup1 ? has_word(controllers, "memory") : controllers[0] == '\0') {
			snprintf(path, PATH_MAX, "%s", name);
			return true;
		}
	}
	return false;
}

static uint64_t sub_or_zero(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void look_at_cgroup(const char *root, const char *dir, const struct cgroup_version *v,
			   uint64_t held_bytes, struct mem_room *room)
{
	uint64_t limit, usage = 0;

	if (!read_number(root, dir, v->limit, &limit) || limit >= CGROUP1_UNLIMITED)
		return;
	read_number(root, dir, v->usage, &usage);
	uint64_t shmem = read_stat(root, dir, v->shmem);
	usage = sub_or_zero(usage, read_stat(root, dir, v->dropped));
	usage = sub_or_zero(usage, held_bytes < shmem ? held_bytes : shmem);
	uint64_t bytes = sub_or_zero(limit, usage);
	if (bytes < room->cgroup_bytes) {
		room->cgroup_bytes = bytes;
		room->cgroup_limit_bytes = limit;
		snprintf(room->cgroup, sizeof(room->cgroup), "%.*s", (int)sizeof(room->cgroup) - 1,
			 dir);
	}
}

/* From this process's cgroup up to the top of what the mount shows. */
static void look_at_ancestors(const char *root, const struct cgroup_version *v, uint64_t held_bytes,
			      struct mem_room *room)
{
	char shown[PATH_MAX], at[PATH_MAX], cgroup[PATH_MAX], dir[2 * PATH_MAX];
	const char *below = cgroup;

	if (!find_mount(root, v, shown, at) || !find_cgroup(root, v, cgroup))
		return;
	size_t len = strcmp(shown, "/") != 0 ? strlen(shown) : 0;
	if (!strncmp(cgroup, shown, len) && (cgroup[len] == '/' || cgroup[len] == '\0'))
		below += len;
	else
		below = ""; /* outside of what is shown here: the mount's own top is all there is */
	if (!strcmp(below, "/") || strstr(below, "/.."))
		below = "";
	size_t top = strlen(at);
	snprintf(dir, sizeof(dir), "%s%s", at, below);
	for (;;) {
		look_at_cgroup(root, dir, v, held_bytes, room);
		char *slash = strrchr(dir, '/');
		if (!slash || slash < dir + top)
			return;
		*slash = '\0';
	}
}

int mem_room_read(const char *root, uint64_t held_bytes, struct mem_room *out)
{
	struct mem_room room = {.cgroup_bytes = UINT64_MAX};
	autofclose FILE *file = open_below(root, "/proc", "meminfo");

	if (!file) {
		int err = errno;
		log_error("open %s/proc/meminfo: %m", root);
		return -err;
	}
	room.available_bytes = read_key(file, "MemAvailable:") * 1024 + held_bytes;
	look_at_ancestors(root, &cgroup1, held_bytes, &room);
	look_at_ancestors(root, &cgroup2, held_bytes, &room);
	*out = room;
	return 0;
}
