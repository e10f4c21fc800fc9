/* SPDX-License-Identifier: Apache-2.0 */
#include "fast_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The root of the mount that dir is in: .mooncake is there. */
static int open_control(const char *dir, const char *name, int flags)
{
	char path[JOB_PATH_MAX], root[JOB_PATH_MAX];

	snprintf(root, sizeof(root), "%s", dir);
	for (char *slash; (slash = strrchr(root, '/')) && slash != root; *slash = '\0') {
		if (snprintf(path, sizeof(path), "%s/.mooncake/%s", root, name) >= (int)sizeof(path))
			continue;
		int fd = open(path, flags | O_CLOEXEC, 0600);
		if (fd >= 0 || errno != ENOENT)
			return fd;
	}
	return -1;
}

static int handle_of(int fd, uint64_t *out)
{
	struct mcfs_handle h;

	if (ioctl(fd, MCFS_IOC_HANDLE, &h))
		return bench_fail(-errno, "MCFS_IOC_HANDLE");
	*out = h.handle;
	return 0;
}

static int map_buffer(struct fast_client *c)
{
	struct mcfs_register reg = {0};

	if (ftruncate(c->buffer_fd, (off_t)c->bytes))
		return bench_fail(-errno, "size a session buffer to %zu bytes", c->bytes);
	void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->buffer_fd, 0);
	if (p == MAP_FAILED)
		return bench_fail(-errno, "map a session buffer");
	c->memory = p;
	int rc = handle_of(c->buffer_fd, &reg.handle);
	if (!rc && ioctl(c->session_fd, MCFS_IOC_REGISTER, &reg))
		rc = bench_fail(-errno, "MCFS_IOC_REGISTER");
	c->buffer = reg.buffer;
	return rc;
}

int fast_open(struct fast_client *c, const char *dir, uint32_t max_items, size_t data_bytes)
{
	struct mcfs_hello hello = {.abi_version = MCFS_ABI_VERSION};
	char name[64];

	*c = (struct fast_client){.session_fd = -1, .buffer_fd = -1, .dir_fd = -1, .max_items = max_items};
	c->data = max_items * (sizeof(*c->items) + FAST_NAME_BYTES);
	c->data = (c->data + 2 * MIB - 1) & ~(2 * MIB - 1);
	c->bytes = c->data + ((data_bytes + 4095) & ~(size_t)4095);
	c->session_fd = open_control(dir, "session", O_RDWR);
	snprintf(name, sizeof(name), "buffers/bench-%d", (int)getpid());
	c->buffer_fd = open_control(dir, name, O_RDWR | O_CREAT | O_EXCL);
	c->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->session_fd < 0 || c->buffer_fd < 0 || c->dir_fd < 0)
		return bench_fail(-errno, "open a session for %s", dir);
	if (ioctl(c->session_fd, MCFS_IOC_HELLO, &hello))
		return bench_fail(-errno, "MCFS_IOC_HELLO");
	int rc = map_buffer(c);
	if (!rc)
		rc = handle_of(c->dir_fd, &c->directory);
	c->items = (struct mcfs_item *)(void *)c->memory;
	c->names = c->memory + max_items * sizeof(*c->items);
	return rc;
}

void fast_close(struct fast_client *c)
{
	if (c->memory)
		munmap(c->memory, c->bytes);
	if (c->session_fd >= 0)
		close(c->session_fd);
	if (c->buffer_fd >= 0)
		close(c->buffer_fd);
	if (c->dir_fd >= 0)
		close(c->dir_fd);
}

void fast_item(struct fast_client *c, uint32_t k, const char *name, size_t off, size_t segment_bytes,
	       uint32_t segment_count, size_t stride)
{
	char *at = c->names + (size_t)k * FAST_NAME_BYTES;

	c->items[k] = (struct mcfs_item){
		.object = c->directory,
		.name = (uint64_t)(at - c->memory),
		.name_bytes = (uint16_t)snprintf(at, FAST_NAME_BYTES, "%s", name),
		.base = c->data + off,
		.stride = stride,
		.segment_bytes = (uint32_t)segment_bytes,
		.segment_count = segment_count,
	};
}

int fast_submit(struct fast_client *c, uint32_t op, uint32_t n)
{
	return fast_submit_flags(c, op, n, 0);
}

int fast_submit_flags(struct fast_client *c, uint32_t op, uint32_t n, uint32_t flags)
{
	struct mcfs_submit io = {.op = op, .flags = flags, .buffer = c->buffer, .n_items = n};

	for (uint32_t k = 0; k < n; k++)
		c->items[k].mode = op == MCFS_OP_WRITE ? 0644 : 0;
	if (ioctl(c->session_fd, MCFS_IOC_SUBMIT, &io))
		return bench_fail(-errno, "MCFS_IOC_SUBMIT");
	for (uint32_t k = 0; io.n_ok != n && k < n; k++)
		if (c->items[k].status)
			return bench_fail(c->items[k].status, "item %u of %u", k, n);
	return 0;
}

int fast_lookup(struct fast_client *c, uint32_t n, uint32_t names_bytes, uint32_t *n_ready_out)
{
	struct mcfs_submit io = {
		.op = MCFS_OP_LOOKUP,
		.buffer = c->buffer,
		.n_items = n,
		.directory = c->directory,
		.names = (uint64_t)(c->names - c->memory),
		.names_bytes = names_bytes,
	};

	if (ioctl(c->session_fd, MCFS_IOC_SUBMIT, &io))
		return bench_fail(-errno, "MCFS_IOC_SUBMIT");
	*n_ready_out = io.n_ok;
	return 0;
}
