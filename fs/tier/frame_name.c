/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_name: ids and names of frame files.
 *
 * An id is a 64-bit number: the directory's own number in the top 8 bits, below it what the file is named
 * after, in 16 hex digits (so a directory may get another number). Ids come from a counter that
 * starts at the microseconds since 1970, hence above what an earlier run gave (no run makes a million
 * frames a second), and is raised above what a scan finds. The file system has the last word: a name
 * that is taken after all (the clock was set back) makes the counter leap.
 *
 * With fan-out the bits 18..25 and 10..17 of the id name two levels of directories, made when first
 * needed. 1,024 consecutive frames share one, so a directory stays small and is seldom made anew.
 *
 * Thread safety: all functions; the counter is atomic, the rest is the kernel's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "tier/frame_dir.h"

#define FRAME_NAME_DIGITS 16
#define FRAME_PATH_LEN (FRAME_NAME_DIGITS + 6 + 1) /* "aa/bb/" and NUL */
#define FAN_OUT_LEVELS 2
#define LOCAL_ID_MASK ((UINT64_C(1) << FRAME_NUMBER_SHIFT) - 1)
#define MAX_FRAME_ID (LOCAL_ID_MASK >> 1) /* leaves the counter room: such names are not ours */
#define MAX_ID_LEAPS 24 /* the last one is by 2^24 ids: more than a node can hold frames */

static uint64_t with_number(const struct frame_dir *d, uint64_t local_id)
{
	return (uint64_t)d->conf.number << FRAME_NUMBER_SHIFT | local_id;
}

static char *put_hex(char *p, uint64_t value, int n_digits)
{
	static const char digits[] = "0123456789abcdef";

	for (int shift = 4 * (n_digits - 1); shift >= 0; shift -= 4)
		*p++ = digits[(value >> shift) & 15];
	return p;
}

/* Length of the directory part; 0 without fan-out. */
static size_t frame_path(const struct frame_dir *d, uint64_t id, char path[FRAME_PATH_LEN])
{
	char *p = path;

	id &= LOCAL_ID_MASK;
	if (d->conf.has_fan_out) {
		p = put_hex(p, (id >> 18) & 0xff, 2);
		*p++ = '/';
		p = put_hex(p, (id >> 10) & 0xff, 2);
		*p++ = '/';
	}
	size_t dir_len = (size_t)(p - path);
	p = put_hex(p, id, FRAME_NAME_DIGITS);
	*p = '\0';
	return dir_len;
}

/* Lower case only, as we write them: "0A" is not one of our names. 0 means no frame. */
static bool parse_hex(const char *name, size_t n_digits, uint64_t *out)
{
	uint64_t value = 0;

	if (strlen(name) != n_digits)
		return false;
	for (size_t i = 0; i < n_digits; i++) {
		char c = name[i];
		if (c >= '0' && c <= '9')
			value = value << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*out = value;
	return true;
}

static int sync_dir(struct frame_dir *d, const char *relative)
{
	autoclose int fd = openat(d->fd, relative, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd)) {
		int err = errno;
		log_error("%s: fsync of directory %s/%s: %m", d->conf.name, d->conf.path, relative);
		return -err;
	}
	return 0;
}

/* relative: a directory below the root of d; its parent exists. */
static int make_dir(struct frame_dir *d, const char *relative, const char *parent)
{
	if (mkdirat(d->fd, relative, 0700)) {
		if (errno == EEXIST)
			return 0;
		int err = errno;
		log_error("%s: mkdir %s/%s: %m", d->conf.name, d->conf.path, relative);
		return -err;
	}
	return d->conf.is_durable ? sync_dir(d, parent) : 0;
}

static int make_fan_out(struct frame_dir *d, uint64_t id)
{
	char path[FRAME_PATH_LEN], parent[] = "aa";

	frame_path(d, id, path);
	path[5] = '\0';
	memcpy(parent, path, 2);
	int rc = make_dir(d, parent, ".");
	return rc ? rc : make_dir(d, path, parent);
}

void frame_name_seen(struct frame_dir *d, uint64_t id)
{
	uint64_t next = __atomic_load_n(&d->next_id, __ATOMIC_RELAXED);

	id &= LOCAL_ID_MASK;
	while (next <= id && id <= MAX_FRAME_ID &&
	       !__atomic_compare_exchange_n(&d->next_id, &next, id + 1, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
}

/* Makes a name with make (below) for ids until one is free. */
static int try_ids(struct frame_dir *d, uint64_t *id_out,
		   int (*make)(struct frame_dir *d, const char *path, const void *arg),
		   const void *arg)
{
	char path[FRAME_PATH_LEN];

	for (int leaps = 0; leaps <= MAX_ID_LEAPS;) {
		uint64_t id = __atomic_fetch_add(&d->next_id, 1, __ATOMIC_RELAXED);
		frame_path(d, id, path);
		int rc = make(d, path, arg);
		if (rc == -ENOENT && d->conf.has_fan_out) {
			rc = make_fan_out(d, id);
			if (!rc)
				rc = make(d, path, arg);
		}
		if (rc >= 0) {
			*id_out = with_number(d, id);
			return rc;
		}
		if (rc != -EEXIST)
			return rc;
		frame_name_seen(d, id + (UINT64_C(1) << leaps++));
	}
	log_error("%s: no free frame id in %s", d->conf.name, d->conf.path);
	return -EEXIST;
}

static int make_by_create(struct frame_dir *d, const char *path, const void *arg)
{
	int fd = openat(d->fd, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

int frame_name_create(struct frame_dir *d, uint64_t *id_out)
{
	return try_ids(d, id_out, make_by_create, NULL);
}

static int make_by_rename(struct frame_dir *d, const char *path, const void *arg)
{
	return renameat2(d->fd, arg, d->fd, path, RENAME_NOREPLACE) ? -errno : 0;
}

int frame_name_renew(struct frame_dir *d, uint64_t id, uint64_t *id_out)
{
	char path[FRAME_PATH_LEN];

	frame_path(d, id, path);
	int rc = try_ids(d, id_out, make_by_rename, path);
	if (rc)
		log_error("%s: new id for frame %016llx in %s: %s", d->conf.name,
			  (unsigned long long)id, d->conf.path, strerror(-rc));
	return rc;
}

int frame_name_open(struct frame_dir *d, uint64_t id, int flags)
{
	char path[FRAME_PATH_LEN];

	frame_path(d, id, path);
	int fd = openat(d->fd, path, flags | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int frame_name_unlink(struct frame_dir *d, uint64_t id)
{
	char path[FRAME_PATH_LEN];

	frame_path(d, id, path);
	if (!unlinkat(d->fd, path, 0))
		return 0;
	int err = errno;
	log_error("%s: unlink %s/%s: %m", d->conf.name, d->conf.path, path);
	return -err;
}

int frame_name_sync(struct frame_dir *d, uint64_t id)
{
	char path[FRAME_PATH_LEN];
	size_t dir_len = frame_path(d, id, path);

	if (dir_len == 0)
		return sync_dir(d, ".");
	path[dir_len - 1] = '\0';
	return sync_dir(d, path);
}

int frame_dir_remove_orphan(struct tier *t, uint64_t frame_id)
{
	return frame_name_unlink(frame_dir_of(t), frame_id);
}

/* ---- scan ---- */

/* What to do with the names of a level: frames at the bottom, directories above it. */
struct walk {
	struct frame_dir *d;
	tier_scan_fn fn;
	void *arg;
	bool removes_dirs;
};

static int walk_level(struct walk *w, int parent_fd, const char *name, int levels_below)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (!dir) {
		rc = -errno;
		log_error("%s: read directory %s (%s): %m", w->d->conf.name, w->d->conf.path, name);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc) {
		uint64_t id;
		errno = 0;
		struct dirent *entry = readdir(dir);
		if (!entry) {
			rc = -errno;
			break;
		}
		if (levels_below == 0) {
			if (parse_hex(entry->d_name, FRAME_NAME_DIGITS, &id) && id > 0 &&
			    id <= MAX_FRAME_ID) {
				frame_name_seen(w->d, id);
				rc = w->fn(w->arg, with_number(w->d, id));
			}
		} else if (parse_hex(entry->d_name, 2, &id)) {
			rc = walk_level(w, fd, entry->d_name, levels_below - 1);
			if (!rc && w->removes_dirs && unlinkat(fd, entry->d_name, AT_REMOVEDIR))
				log_debug("%s: rmdir %s: %m", w->d->conf.name, entry->d_name);
		}
	}
	closedir(dir);
	return rc;
}

int frame_dir_scan(struct tier *t, tier_scan_fn fn, void *arg)
{
	struct walk w = {.d = frame_dir_of(t), .fn = fn, .arg = arg};

	return walk_level(&w, w.d->fd, ".", w.d->conf.has_fan_out ? FAN_OUT_LEVELS : 0);
}

static int remove_found(void *arg, uint64_t id)
{
	(void)frame_name_unlink(arg, id); /* logged; the rest may still go */
	return 0;
}

void frame_name_remove_all(struct frame_dir *d)
{
	struct walk w = {.d = d, .fn = remove_found, .arg = d, .removes_dirs = true};

	(void)walk_level(&w, d->fd, ".", d->conf.has_fan_out ? FAN_OUT_LEVELS : 0);
}
