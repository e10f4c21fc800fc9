/* SPDX-License-Identifier: Apache-2.0 */
#include "rocks_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "base/log.h"
#include "rocks_parts.h"

#define MAX_COPIES 1000
#define COPY_BYTES (1u << 20)

static bool is_data_file(const char *name)
{
	const char *dot = strrchr(name, '.');

	return !strncmp(name, "MANIFEST-", strlen("MANIFEST-")) ||
	       (dot && (!strcmp(dot, ".sst") || !strcmp(dot, ".log")));
}

/* A file that only a database has, into name. */
static bool find_data_file(const char *path, char name[NAME_MAX + 1])
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	bool is_found = false;

	while (dir && !is_found && (d = readdir(dir)))
		if (is_data_file(d->d_name)) {
			snprintf(name, NAME_MAX + 1, "%s", d->d_name);
			is_found = true;
		}
	if (dir)
		closedir(dir);
	return is_found;
}

int rocks_folder_prepare(const char *path, bool read_only, bool *exists_out)
{
	char current[PATH_MAX], name[NAME_MAX + 1], text[NAME_MAX + 64];
	struct stat st;

	if (!read_only && mkdir(path, 0700) < 0 && errno != EEXIST) {
		int rc = -errno;
		log_error("catalog %s: mkdir: %m", path);
		return rc;
	}
	if (snprintf(current, sizeof(current), "%s/CURRENT", path) >= (int)sizeof(current)) {
		log_error("catalog %s: its path is too long", path);
		return -ENAMETOOLONG;
	}
	*exists_out = !stat(current, &st);
	if (*exists_out)
		return 0;
	int rc = -errno;
	if (rc == -ENOENT && find_data_file(path, name)) {
		snprintf(text, sizeof(text), "CURRENT is missing beside %s", name);
		return rocks_complain(path, -EIO, "open", text);
	}
	if (rc == -ENOENT && !read_only)
		return 0;
	errno = -rc;
	log_error("catalog %s: stat %s: %m", path, current);
	return rc;
}

uint64_t rocks_folder_bytes(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	struct stat st;
	uint64_t bytes = 0;

	if (!dir)
		return 0;
	while ((d = readdir(dir)))
		if (!fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
	closedir(dir);
	return bytes;
}

/* RocksDB begins a new info log at each open and writes warnings alone to ours. */
void rocks_folder_tell_dropped(const char *path)
{
	char name[PATH_MAX], line[1024];

	snprintf(name, sizeof(name), "%s/LOG", path);
	FILE *f = fopen(name, "r");
	while (f && fgets(line, sizeof(line), f)) {
		const char *what = strstr(line, "dropping ");
		if (!what || !strstr(line, ".log"))
			continue;
		line[strcspn(line, "\n")] = '\0';
		counter_inc(catalog_errors);
		log_warn("catalog %s: the end of its log is damaged and left out, names written last may "
			 "be missing: %s",
			 path, what);
	}
	if (f)
		fclose(f);
}

/* ---- a copy ---- */

static int copy_bytes(int from, int to)
{
	autofree char *buf = malloc(COPY_BYTES);
	ssize_t n = buf ? 1 : -1;

	while (n > 0) {
		n = read(from, buf, COPY_BYTES);
		for (ssize_t done = 0; done < n;) {
			ssize_t m = write(to, buf + done, (size_t)(n - done));
			if (m < 0)
				return -errno;
			done += m;
		}
	}
	if (n < 0 || fsync(to))
		return -errno;
	return 0;
}

static int copy_file(int from_dir, int to_dir, const char *name)
{
	struct stat st;

	if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	autoclose int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return -errno;
	autoclose int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return to < 0 ? -errno : copy_bytes(from, to);
}

static void remove_copy(int dir_fd, const char *copy)
{
	DIR *dir = fdopendir(dup(dir_fd));
	const struct dirent *d;

	if (!dir)
		return;
	rewinddir(dir);
	while ((d = readdir(dir)))
		unlinkat(dir_fd, d->d_name, 0);
	closedir(dir);
	rmdir(copy);
}

static int copy_all(const char *path, int to_dir)
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		log_error("catalog %s: read the folder: %m", path);
		return rc;
	}
	while (!rc && (d = readdir(dir))) {
		rc = copy_file(dirfd(dir), to_dir, d->d_name);
		if (rc)
			log_error("catalog %s: copy of %s: %s", path, d->d_name, strerror(-rc));
	}
	closedir(dir);
	if (!rc && fsync(to_dir)) {
		rc = -errno;
		log_error("catalog %s: fsync of its copy: %m", path);
	}
	return rc;
}

int rocks_folder_copy(const char *path, char *copy_out)
{
	int n = 1, rc = -EEXIST;

	while (rc == -EEXIST && n < MAX_COPIES) {
		if (snprintf(copy_out, PATH_MAX, "%s.before-repair.%d", path, n++) >= PATH_MAX)
			return -ENAMETOOLONG;
		rc = mkdir(copy_out, 0700) ? -errno : 0;
	}
	if (rc) {
		log_error("catalog %s: mkdir %s: %s", path, copy_out, strerror(-rc));
		return rc;
	}
	autoclose int to_dir = open(copy_out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to_dir < 0)
		return -errno;
	rc = copy_all(path, to_dir);
	if (rc)
		remove_copy(to_dir, copy_out);
	return rc;
}
