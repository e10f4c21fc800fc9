/* SPDX-License-Identifier: Apache-2.0 */
#include "rocks_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"

int rocks_folder_prepare(const char *path, bool read_only, bool *exists_out)
{
	char current[4096];
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
	if (!*exists_out && (errno != ENOENT || read_only)) {
		int rc = -errno;
		log_error("catalog %s: stat %s: %m", path, current);
		return rc;
	}
	return 0;
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
