/* SPDX-License-Identifier: Apache-2.0 */
/* map: an object's bytes in place. Plain open and mmap do it: passthrough maps the store's own pages. */
#include "lib.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int object_open(struct mcfs_dir *dir, const char *path)
{
	uint64_t handle;
	int fd;

	if (!dir) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		return fd < 0 ? lib_fail(lib_errno(errno), "%s", path) : fd;
	}
	pthread_rwlock_rdlock(&dir->s->life);
	fd = lib_dir_handle(dir, &handle);
	if (!fd) {
		pthread_mutex_lock(&dir->s->dirs_lock);
		int dir_fd = dir->fd;
		pthread_mutex_unlock(&dir->s->dirs_lock);
		fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			fd = lib_fail(lib_errno(errno), "%s/%s", dir->path, path);
	}
	pthread_rwlock_unlock(&dir->s->life);
	return fd;
}

LIB_PUBLIC int mcfs_map(struct mcfs_dir *dir, const char *path, unsigned flags,
			struct mcfs_map *map_out)
{
	struct stat st;

	lib_forget_error();
	if (flags & ~(unsigned)MCFS_MAP_POPULATE)
		return lib_fail(-EINVAL, "a mapping with flags 0x%x", flags);
	int fd = object_open(dir, path);
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) ? lib_errno(errno) : S_ISREG(st.st_mode) ? 0 : -EISDIR;
	void *data = NULL;
	if (!rc && st.st_size) {
		data = mmap(NULL, (size_t)st.st_size, PROT_READ,
			    MAP_SHARED | (flags & MCFS_MAP_POPULATE ? MAP_POPULATE : 0), fd, 0);
		if (data == MAP_FAILED)
			rc = lib_errno(errno);
	}
	close(fd);
	if (rc)
		return lib_fail(rc, "%s: cannot map it", path);
	*map_out = (struct mcfs_map){.data = data, .bytes = (size_t)st.st_size};
	return 0;
}

LIB_PUBLIC void mcfs_unmap(struct mcfs_map *m)
{
	if (m->bytes)
		munmap((void *)m->data, m->bytes);
	*m = (struct mcfs_map){0};
}
