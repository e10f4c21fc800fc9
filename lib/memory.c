/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: buffer files. Each has a random name for as long as it takes to open it and none after, so that
 * it goes with its last mapping and registration, however the program ends.
 */
#include "lib.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* A new file without name; its descriptor, or a negative errno. */
static int buffer_file(const char *mount, size_t bytes)
{
	char path[PATH_MAX];
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return lib_fail(-errno, "getrandom");
	int n = snprintf(path, sizeof(path), "%s/.mooncake/buffers/%016llx%016llx", mount,
			 (unsigned long long)random[0], (unsigned long long)random[1]);
	if (n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		return lib_fail(-EOPNOTSUPP,
				"%s: shared memory needs passthrough (see status.json)", mount);
	if (fd < 0)
		return lib_fail(lib_errno(errno), "%s: cannot create it", path);
	int rc = ftruncate(fd, (off_t)bytes) ? lib_errno(errno) : 0;
	if (rc)
		lib_fail(rc, "%s: a buffer of %zu bytes", path, bytes);
	unlink(path);
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

static int buffer_register(struct mcfs_session *s, int fd, uint32_t *number_out)
{
	struct mcfs_handle handle = {0};

	int rc = lib_ioctl(fd, MCFS_IOC_HANDLE, &handle);
	if (rc)
		return lib_fail(rc, "%s: MCFS_IOC_HANDLE of a buffer", s->mount);
	struct mcfs_register reg = {.handle = handle.handle};
	rc = lib_ioctl(s->fd, MCFS_IOC_REGISTER, &reg);
	if (rc)
		return lib_fail(rc, "%s: MCFS_IOC_REGISTER of %llu bytes", s->mount,
				(unsigned long long)handle.size);
	*number_out = reg.buffer;
	return 0;
}

static int buffer_unregister(struct mcfs_session *s, uint32_t number)
{
	struct mcfs_unregister un = {.buffer = number};

	return lib_ioctl(s->fd, MCFS_IOC_UNREGISTER, &un);
}

int lib_memory_create(struct mcfs_session *s, size_t bytes, struct lib_memory *out)
{
	struct lib_memory m;

	if (!bytes || bytes > SSIZE_MAX - LIB_PAGE)
		return -EINVAL;
	m.bytes = (bytes + LIB_PAGE - 1) & ~(size_t)(LIB_PAGE - 1);
	int fd = buffer_file(s->mount, m.bytes);
	if (fd < 0)
		return fd;
	m.memory = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int rc = m.memory == MAP_FAILED ?
			 lib_fail(-errno, "mmap of a buffer of %zu bytes", m.bytes) :
			 0;
	if (!rc) {
		rc = buffer_register(s, fd, &m.number);
		if (rc)
			munmap(m.memory, m.bytes);
	}
	close(fd);
	if (!rc)
		*out = m;
	return rc;
}

int lib_memory_destroy(struct mcfs_session *s, struct lib_memory *m)
{
	/* Without a session, or without its daemon, nobody else uses it. */
	if (s->fd >= 0 && buffer_unregister(s, m->number) == -EBUSY)
		return -EBUSY;
	munmap(m->memory, m->bytes);
	return 0;
}

/* All of the old mapping into the new file. */
static int copy_into(int fd, const struct lib_memory *m)
{
	for (size_t done = 0; done < m->bytes;) {
		ssize_t n = pwrite(fd, m->memory + done, m->bytes - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? lib_errno(errno) : -EIO;
		done += (size_t)n;
	}
	return 0;
}

int lib_memory_revive(struct mcfs_session *s, struct lib_memory *m)
{
	uint32_t number = 0;
	int fd = buffer_file(s->mount, m->bytes);

	if (fd < 0)
		return fd;
	int rc = copy_into(fd, m);
	if (!rc)
		rc = buffer_register(s, fd, &number);
	if (!rc && mmap(m->memory, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			0) == MAP_FAILED) {
		rc = -errno;
		buffer_unregister(s, number);
	}
	close(fd);
	if (rc)
		return lib_fail(rc, "%s: cannot set up a buffer of %zu bytes again", s->mount,
				m->bytes);
	m->number = number;
	return 0;
}

/* ---- buffers of the program ---- */

/* Index of the first buffer that ends above p. s->lock is held. */
static size_t buffer_index_locked(const struct mcfs_session *s, const void *p)
{
	size_t low = 0, high = s->n_buffers;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct lib_memory *m = &s->buffers[middle]->m;
		if ((uintptr_t)m->memory + m->bytes <= (uintptr_t)p)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct mcfs_buffer *lib_buffer_find_locked(struct mcfs_session *s, const void *p, uint64_t bytes)
{
	size_t i = buffer_index_locked(s, p);

	if (i == s->n_buffers)
		return NULL;
	struct mcfs_buffer *b = s->buffers[i];
	uintptr_t at = (uintptr_t)p, start = (uintptr_t)b->m.memory;
	return at >= start && bytes <= b->m.bytes - (at - start) ? b : NULL;
}

static int buffer_list_locked(struct mcfs_session *s, struct mcfs_buffer *b)
{
	if (s->n_buffers == s->buffers_capacity) {
		size_t capacity = s->buffers_capacity ? 2 * s->buffers_capacity : 8;
		void *grown = realloc(s->buffers, capacity * sizeof(*s->buffers));
		if (!grown)
			return -ENOMEM;
		s->buffers = grown;
		s->buffers_capacity = capacity;
	}
	size_t i = buffer_index_locked(s, b->m.memory);
	memmove(s->buffers + i + 1, s->buffers + i, (s->n_buffers - i) * sizeof(*s->buffers));
	s->buffers[i] = b;
	s->n_buffers++;
	return 0;
}

/* With life held for reading. */
static int buffer_create(struct mcfs_session *s, size_t bytes, struct mcfs_buffer *b)
{
	int rc = lib_memory_create(s, bytes, &b->m);

	if (rc)
		return rc;
	b->s = s;
	pthread_mutex_lock(&s->lock);
	rc = buffer_list_locked(s, b);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		lib_memory_destroy(s, &b->m);
	return rc;
}

LIB_PUBLIC int mcfs_buffer_alloc(struct mcfs_session *s, size_t bytes,
				 struct mcfs_buffer **buffer_out)
{
	struct mcfs_buffer *b = calloc(1, sizeof(*b));
	uint64_t generation;
	bool tried = false;
	int rc;

	lib_forget_error();
	if (!b)
		return -ENOMEM;
	do {
		pthread_rwlock_rdlock(&s->life);
		generation = s->generation;
		rc = buffer_create(s, bytes, b);
		pthread_rwlock_unlock(&s->life);
	} while (rc == -ENOTCONN && lib_session_recover(s, generation, &tried));
	if (rc)
		free(b);
	else
		*buffer_out = b;
	return rc;
}

LIB_PUBLIC int mcfs_buffer_free(struct mcfs_buffer *b)
{
	if (!b)
		return 0;
	struct mcfs_session *s = b->s;
	pthread_rwlock_rdlock(&s->life);
	pthread_mutex_lock(&s->lock);
	size_t i = buffer_index_locked(s, b->m.memory);
	memmove(s->buffers + i, s->buffers + i + 1, (--s->n_buffers - i) * sizeof(*s->buffers));
	pthread_mutex_unlock(&s->lock);
	int rc = lib_memory_destroy(s, &b->m);
	if (rc) {
		pthread_mutex_lock(&s->lock);
		/* There is room: it has just been there. */
		buffer_list_locked(s, b);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_rwlock_unlock(&s->life);
	if (rc)
		return lib_fail(rc, "a buffer of %zu bytes is in use", b->m.bytes);
	free(b);
	return 0;
}

LIB_PUBLIC void *mcfs_buffer_memory(const struct mcfs_buffer *b)
{
	return b->m.memory;
}

LIB_PUBLIC size_t mcfs_buffer_bytes(const struct mcfs_buffer *b)
{
	return b->m.bytes;
}
