/* SPDX-License-Identifier: Apache-2.0 */
/* dir: directories by path, each opened once per session and kept open. */
#include "lib.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRS_UNUSED_MAX 64

static int dir_open(const char *path, int *fd_out, uint64_t *handle_out)
{
	struct mcfs_handle handle = {0};
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return lib_fail(lib_errno(errno), "%s", path);
	int rc = lib_ioctl(fd, MCFS_IOC_HANDLE, &handle);
	if (rc) {
		close(fd);
		if (rc == -ENOTTY)
			rc = -EXDEV;
		return lib_fail(rc, "%s: not a directory of this mount", path);
	}
	*fd_out = fd;
	*handle_out = handle.handle;
	return 0;
}

/* False: the path leads to another directory by now, or to none. */
static bool dir_is_current(const struct mcfs_dir *d)
{
	struct stat here, there;

	return !stat(d->path, &there) && !fstat(d->fd, &here) && here.st_ino == there.st_ino &&
	       here.st_dev == there.st_dev;
}

/* s->dirs_lock is held; life, too. */
static int dir_renew_locked(struct mcfs_dir *d)
{
	int fd = -1;

	if (d->generation == d->s->generation)
		return 0;
	int rc = dir_open(d->path, &fd, &d->handle);
	if (rc)
		return rc;
	if (d->fd >= 0)
		close(d->fd);
	d->fd = fd;
	d->generation = d->s->generation;
	return 0;
}

int lib_dir_handle(struct mcfs_dir *d, uint64_t *handle_out)
{
	pthread_mutex_lock(&d->s->dirs_lock);
	int rc = dir_renew_locked(d);
	*handle_out = rc ? 0 : d->handle;
	pthread_mutex_unlock(&d->s->dirs_lock);
	return rc;
}

static void dir_destroy(struct mcfs_dir *d)
{
	if (d->fd >= 0)
		close(d->fd);
	free(d->path);
	free(d);
}

/* Absolute, without slashes at its end. To be freed; NULL: no memory. */
static char *full_path(const struct mcfs_session *s, const char *path)
{
	bool is_absolute = *path == '/';
	char *full;

	if (asprintf(&full, "%s%s%s", is_absolute ? "" : s->mount, is_absolute ? "" : "/", path) <
	    0)
		return NULL;
	for (size_t len = strlen(full); len > 1 && full[len - 1] == '/'; len--)
		full[len - 1] = '\0';
	return full;
}

/* Closes directories that nobody uses beyond the number that is kept. */
static void dirs_trim_locked(struct mcfs_session *s)
{
	unsigned n_unused = 0;

	for (struct mcfs_dir **at = &s->dirs; *at;) {
		struct mcfs_dir *d = *at;
		if (d->n_refs || ++n_unused <= DIRS_UNUSED_MAX) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		dir_destroy(d);
	}
}

/* The known directory of that path, moved to the front of the list; a new one, not opened; or NULL. */
static struct mcfs_dir *dir_get_locked(struct mcfs_session *s, char *path)
{
	struct mcfs_dir **at = &s->dirs, *d;

	while ((d = *at) && strcmp(d->path, path))
		at = &d->next;
	if (d) {
		*at = d->next;
		free(path);
	} else {
		d = calloc(1, sizeof(*d));
		if (!d) {
			free(path);
			return NULL;
		}
		*d = (struct mcfs_dir){.s = s, .path = path, .fd = -1};
	}
	d->next = s->dirs;
	s->dirs = d;
	return d;
}

static int dir_take(struct mcfs_session *s, const char *path, struct mcfs_dir **dir_out)
{
	char *full = full_path(s, path);

	if (!full)
		return -ENOMEM;
	pthread_mutex_lock(&s->dirs_lock);
	struct mcfs_dir *d = dir_get_locked(s, full);
	if (d && d->generation == s->generation && !dir_is_current(d))
		d->generation = 0;
	int rc = d ? dir_renew_locked(d) : -ENOMEM;
	if (!rc) {
		d->n_refs++;
		*dir_out = d;
	} else if (d && !d->n_refs) { /* it is the first of the list */
		s->dirs = d->next;
		dir_destroy(d);
	}
	pthread_mutex_unlock(&s->dirs_lock);
	return rc;
}

LIB_PUBLIC int mcfs_dir_open(struct mcfs_session *s, const char *path, struct mcfs_dir **dir_out)
{
	uint64_t generation;
	bool tried = false;
	int rc;

	lib_forget_error();
	do {
		pthread_rwlock_rdlock(&s->life);
		generation = s->generation;
		rc = dir_take(s, path, dir_out);
		pthread_rwlock_unlock(&s->life);
	} while (rc == -ENOTCONN && lib_session_recover(s, generation, &tried));
	return rc;
}

LIB_PUBLIC void mcfs_dir_close(struct mcfs_dir *d)
{
	if (!d)
		return;
	struct mcfs_session *s = d->s;
	pthread_mutex_lock(&s->dirs_lock);
	d->n_refs--;
	dirs_trim_locked(s);
	pthread_mutex_unlock(&s->dirs_lock);
}

void lib_dirs_destroy(struct mcfs_session *s)
{
	while (s->dirs) {
		struct mcfs_dir *d = s->dirs;
		s->dirs = d->next;
		dir_destroy(d);
	}
}

LIB_PUBLIC int mcfs_file_handle(int fd, uint64_t *handle_out)
{
	struct mcfs_handle handle = {0};
	int rc = lib_ioctl(fd, MCFS_IOC_HANDLE, &handle);

	if (!rc)
		*handle_out = handle.handle;
	return rc;
}
