/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fast_client.h"

#define IO_BYTES (4 * MIB)
#define BATCH 1000
#define LOOKUPS 20
#define SMALL_BYTES 8

static void name_of(uint32_t k, char out[16])
{
	snprintf(out, 16, "%07u", k);
}

static void path_of(const struct remote *r, uint32_t k, char out[JOB_PATH_MAX])
{
	snprintf(out, JOB_PATH_MAX, "%s/%07u", r->dir, k);
}

static void print_ns(uint64_t ns)
{
	printf("%llu\n", (unsigned long long)ns);
}

/* ---- made and taken away ---- */

int remote_make(const struct remote *r)
{
	char path[JOB_PATH_MAX];
	int rc = 0;

	for (uint32_t k = r->first; !rc && k < r->first + r->count; k++) {
		path_of(r, k, path);
		rc = bench_file_create(path, r->bytes, k, 1);
	}
	return rc;
}

/* Names as of hashes, 64 digits, which are 32 bytes in the batch. */
static void name_by_hash(struct fast_client *c, uint32_t at, uint32_t k)
{
	struct mcfs_item *i = &c->items[at];

	pattern_fill(c->memory + i->name, FAST_NAME_BYTES, 0, k);
	i->name_kind = MCFS_NAME_BINARY;
	i->name_bytes = FAST_NAME_BYTES;
}

static int make_batch(struct fast_client *c, uint32_t from, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++) {
		fast_item(c, k, "", 0, SMALL_BYTES, 1, 0);
		name_by_hash(c, k, from + k);
	}
	return fast_submit(c, MCFS_OP_WRITE, n);
}

int remote_make_small(const struct remote *r)
{
	struct fast_client c;
	int rc = fast_open(&c, r->dir, BATCH, 4 * KIB);

	for (uint32_t k = 0; !rc && k < r->count; k += BATCH)
		rc = make_batch(&c, r->first + k, r->count - k < BATCH ? r->count - k : BATCH);
	fast_close(&c);
	return rc;
}

int remote_remove(const struct remote *r)
{
	char path[JOB_PATH_MAX];

	for (uint32_t k = r->first; k < r->first + r->count; k++) {
		path_of(r, k, path);
		if (unlink(path))
			return bench_fail(-errno, "unlink %s", path);
	}
	return 0;
}

/*
 * A hypervisor that takes free memory back makes its first touch cost seconds per GB, whoever touches it: so much is
 * had from it beforehand, and is free again when frames are made of it.
 */
static void warm_memory(const struct remote *r)
{
	size_t bytes = (size_t)(r->bytes * r->count);

	bench_buffer_destroy(bench_buffer_create(bytes), bytes);
}

/* ---- read ---- */

/* Reads object k in parts; must_check: compares each. */
static int read_object(const struct remote *r, uint32_t k, char *buffer, bool must_check)
{
	char path[JOB_PATH_MAX];
	int rc = 0;

	path_of(r, k, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bench_fail(-errno, "open %s", path);
	for (uint64_t off = 0; !rc && off < r->bytes; off += IO_BYTES) {
		size_t len = r->bytes - off < IO_BYTES ? (size_t)(r->bytes - off) : IO_BYTES;
		rc = bench_read_fully(fd, buffer, len, off);
		if (rc)
			bench_fail(rc, "read %s at %llu", path, (unsigned long long)off);
		else if (must_check)
			rc = pattern_check(buffer, len, off, k, path);
	}
	close(fd);
	return rc;
}

static int read_all(const struct remote *r, bool must_print, bool must_check)
{
	char *buffer = bench_buffer_create(IO_BYTES);
	int rc = buffer ? 0 : -ENOMEM;

	for (uint32_t k = r->first; !rc && k < r->first + r->count; k++) {
		uint64_t begin_ns = bench_now_ns();
		rc = read_object(r, k, buffer, must_check);
		if (!rc && must_print)
			print_ns(bench_now_ns() - begin_ns);
	}
	bench_buffer_destroy(buffer, IO_BYTES);
	return rc;
}

int remote_read(const struct remote *r)
{
	warm_memory(r);
	int rc = read_all(r, true, false);

	return rc ? rc : read_all(r, false, true);
}

int remote_read_again(const struct remote *r)
{
	return read_all(r, true, false);
}

int remote_prefetch(const struct remote *r)
{
	struct fast_client c;
	char name[16];
	int rc = fast_open(&c, r->dir, r->count, 4 * KIB);

	for (uint32_t k = 0; !rc && k < r->count; k++) {
		name_of(r->first + k, name);
		fast_item(&c, k, name, 0, 0, 0, 0);
		c.items[k].base = 0; /* it has no memory */
	}
	warm_memory(r);
	uint64_t begin_ns = bench_now_ns();
	if (!rc)
		rc = fast_submit(&c, MCFS_OP_PREFETCH, r->count);
	if (!rc)
		print_ns(bench_now_ns() - begin_ns);
	fast_close(&c);
	return rc ? rc : read_all(r, false, true);
}

int remote_batch(const struct remote *r)
{
	struct fast_client c;
	char name[16];
	int rc = fast_open(&c, r->dir, r->count, (size_t)(r->bytes * r->count));

	for (uint32_t k = 0; !rc && k < r->count; k++) {
		name_of(r->first + k, name);
		fast_item(&c, k, name, (size_t)(r->bytes * k), (size_t)r->bytes, 1, 0);
	}
	uint64_t begin_ns = bench_now_ns();
	if (!rc)
		rc = fast_submit(&c, MCFS_OP_READ, r->count);
	if (!rc)
		print_ns(bench_now_ns() - begin_ns);
	for (uint32_t k = 0; !rc && k < r->count; k++)
		rc = pattern_check(c.memory + c.data + r->bytes * k, (size_t)r->bytes, 0, r->first + k, r->dir);
	fast_close(&c);
	return rc;
}

/* ---- lookup ---- */

static int lookup_once(struct fast_client *c, const struct remote *r, uint32_t names_bytes)
{
	const struct mcfs_state *states = (const void *)c->memory;
	uint32_t n_here;
	uint64_t begin_ns = bench_now_ns();
	int rc = fast_lookup(c, r->count, names_bytes, &n_here);

	if (rc)
		return rc;
	print_ns(bench_now_ns() - begin_ns);
	for (uint32_t k = 0; k < r->count; k++)
		if (states[k].state != MCFS_REMOTE && states[k].state != MCFS_READY)
			return bench_fail(-EBADMSG, "%s: name %u of %u is in state %u", r->dir, k, r->count,
					  states[k].state);
	return 0;
}

int remote_lookup(const struct remote *r)
{
	struct fast_client c;
	uint32_t names_bytes = 0;
	int rc = fast_open(&c, r->dir, r->count, 4 * KIB);

	for (uint32_t k = 0; !rc && k < r->count; k++) {
		name_of(r->first + k, c.names + names_bytes);
		names_bytes += (uint32_t)strlen(c.names + names_bytes) + 1;
	}
	for (uint32_t k = 0; !rc && k < LOOKUPS; k++)
		rc = lookup_once(&c, r, names_bytes);
	fast_close(&c);
	return rc;
}
