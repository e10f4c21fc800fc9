/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/block.h"

#include "base/cleanup.h"
#include "base/pread_full.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY_BYTES (CONTENT_NAME_BYTES + 32)

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

int block_client_init(struct block_client *c, const struct block_store *store, unsigned number)
{
	*c = (struct block_client){.store = store, .number = number};
	if (posix_memalign((void **)&c->buf, 4096, store->block_bytes))
		return -ENOMEM;
	memset(c->buf, 0, store->block_bytes); /* no page fault within the measured time */
	return 0;
}

void block_client_fini(struct block_client *c)
{
	free(c->buf);
	c->buf = NULL;
}

static enum block_outcome fail(struct block_fault *fault, enum block_outcome outcome,
			       const char *call, int error, size_t offset)
{
	fault->call = call;
	fault->error = error;
	fault->offset = offset;
	return outcome;
}

/* Takes fd over. began_ns: before its open; opened_ns: after. */
static enum block_outcome visit_present(struct block_client *c, uint64_t id, int fd,
					uint64_t began_ns, uint64_t opened_ns,
					struct block_fault *fault)
{
	size_t len = c->store->block_bytes;
	ssize_t n = pread_full(fd, c->buf, len, 0);
	uint64_t read_ns = now_ns();

	close(fd);
	uint64_t closed_ns = now_ns();
	if (n < 0)
		return fail(fault, BLOCK_READ_FAILED, "read", (int)-n, 0);
	histogram_add(&c->stats.ops[BLOCK_OP_OPEN], opened_ns - began_ns);
	histogram_add(&c->stats.ops[BLOCK_OP_READ], read_ns - opened_ns);
	c->stats.bytes_read += (uint64_t)n;
	c->stats.read_ns += closed_ns - began_ns;
	if ((size_t)n < len)
		return fail(fault, BLOCK_CORRUPT, "read", 0, (size_t)n);
	size_t wrong = content_check(id, c->buf, len);
	if (wrong < len)
		return fail(fault, BLOCK_CORRUPT, "verify", 0, wrong);
	return BLOCK_HIT;
}

/* Returns 0 or a negative errno. */
static int write_whole(int fd, const unsigned char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static enum block_outcome visit_absent(struct block_client *c, uint64_t id,
				       struct block_fault *fault)
{
	const struct block_store *store = c->store;
	const char *name = fault->name;
	char temporary[TEMPORARY_BYTES];
	int flags = O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC;

	if (store->publish == BLOCK_PUBLISH_RENAME) {
		snprintf(temporary, sizeof(temporary), "%s.tmp.%d.%u", fault->name, (int)getpid(),
			 c->number);
		name = temporary;
		flags = O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC;
	}
	content_fill(id, c->buf, store->block_bytes);

	uint64_t began_ns = now_ns();
	int fd = openat(store->dir_fd, name, flags, 0644);
	if (fd < 0)
		return fail(fault, BLOCK_WRITE_FAILED, "create", errno, 0);
	int rc = write_whole(fd, c->buf, store->block_bytes);
	if (rc) {
		unlinkat(store->dir_fd, name, 0);
		close(fd);
		return fail(fault, BLOCK_WRITE_FAILED, "write", -rc, 0);
	}
	/* The publish may fail, and close says so. Linux closes the fd whatever it answers. */
	if (close(fd)) {
		int error = errno;
		unlinkat(store->dir_fd, name, 0);
		return fail(fault, BLOCK_WRITE_FAILED, "close", error, 0);
	}
	if (name == temporary && renameat(store->dir_fd, name, store->dir_fd, fault->name)) {
		int error = errno;
		unlinkat(store->dir_fd, name, 0);
		return fail(fault, BLOCK_WRITE_FAILED, "rename", error, 0);
	}
	uint64_t took_ns = now_ns() - began_ns;
	histogram_add(&c->stats.ops[BLOCK_OP_WRITE], took_ns);
	c->stats.bytes_written += store->block_bytes;
	c->stats.write_ns += took_ns;
	return BLOCK_MISS;
}

enum block_outcome block_visit(struct block_client *c, uint64_t id, struct block_fault *fault_out)
{
	content_name(id, fault_out->name);
	uint64_t began_ns = now_ns();
	int fd = openat(c->store->dir_fd, fault_out->name, O_RDONLY | O_CLOEXEC);
	int error = errno;
	uint64_t opened_ns = now_ns();

	if (fd >= 0)
		return visit_present(c, id, fd, began_ns, opened_ns, fault_out);
	if (error != ENOENT)
		return fail(fault_out, BLOCK_READ_FAILED, "open", error, 0);
	histogram_add(&c->stats.ops[BLOCK_OP_MISS], opened_ns - began_ns);
	return visit_absent(c, id, fault_out);
}

void block_stats_merge(struct block_stats *into, const struct block_stats *from)
{
	for (int i = 0; i < N_BLOCK_OPS; i++)
		histogram_merge(&into->ops[i], &from->ops[i]);
	into->bytes_read += from->bytes_read;
	into->bytes_written += from->bytes_written;
	into->read_ns += from->read_ns;
	into->write_ns += from->write_ns;
}

static int directory_make(int at_fd, const char *name, int *fd_out)
{
	if (mkdirat(at_fd, name, 0755) && errno != EEXIST)
		return -errno;
	int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*fd_out = fd;
	return 0;
}

int block_store_open(const char *mount, const char *dir, int *fd_out)
{
	autoclose int mount_fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autoclose int kv_fd = -1;

	if (mount_fd < 0)
		return -errno;
	int rc = directory_make(mount_fd, "kv", &kv_fd);
	return rc ? rc : directory_make(kv_fd, dir, fd_out);
}

/* Block files, and temporaries that a killed replay left. */
static bool is_block_name(const char *name)
{
	size_t n = strspn(name, "0123456789abcdef");

	return n == CONTENT_NAME_BYTES - 1 && (!name[n] || !strncmp(name + n, ".tmp.", 5));
}

int block_store_clear(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && (errno = 0, entry = readdir(dir))) {
		if (is_block_name(entry->d_name) && unlinkat(dir_fd, entry->d_name, 0) &&
		    errno != ENOENT)
			rc = -errno;
	}
	if (!rc && errno && !entry)
		rc = -errno;
	closedir(dir);
	return rc;
}
