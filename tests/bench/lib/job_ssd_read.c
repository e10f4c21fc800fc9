/* SPDX-License-Identifier: Apache-2.0 */
/* Objects on the ssd alone, read past the page cache, into an empty one, and in batches. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fast_client.h"
#include "job_ssd.h"
#include "raw_disk.h"
#include "ssd_set.h"

#define DIRECT_SET_BYTES (256 * MIB)
#define COLD_SET_BYTES (256 * MIB)
#define BATCH_SET_BYTES (256 * MIB)
#define CACHED_READ_BYTES MIB

struct reader {
	struct ssd_set set;
	struct fast_client client;
	struct raw_ring ring;
	int raw_fd; /* batch: one file with the content of all objects */
	char *buffer;
	size_t buffer_bytes;
	uint32_t n_ops;
	uint32_t next[N_SIDES];
};

static int reader_open(struct reader *r, const struct job_spec *job, size_t buffer_bytes)
{
	r->raw_fd = -1;
	r->n_ops = job->n_ops;
	r->buffer_bytes = buffer_bytes;
	r->buffer = bench_buffer_create(buffer_bytes);
	return r->buffer ? 0 : bench_fail(-ENOMEM, "buffer of %zu bytes", buffer_bytes);
}

static void reader_close(struct reader *r)
{
	bench_buffer_destroy(r->buffer, r->buffer_bytes);
	ssd_set_destroy(&r->set);
}

/* What was measured were reads of the ssd, from the first to the last. */
static int run_pair_on_ssd(struct reader *r, const struct job_spec *job, struct bench_env *env,
			   pair_batch_fn batch, size_t bytes_per_op, struct row *row)
{
	int rc = job_run_pair(job, env, batch, r, bytes_per_op, row);

	return rc ? rc : ssd_set_check(&r->set);
}

/* ---- whole objects by O_DIRECT ---- */

static int direct_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct reader *r = arg;
	int rc = 0;

	*batch_ns_out = 0;
	for (uint32_t k = 0; !rc && k < r->n_ops; k++) {
		uint32_t object = r->next[side]++ % r->set.n_objects;
		uint64_t begin_ns = bench_now_ns();
		rc = bench_read_fully(r->set.fd[side][object], r->buffer, r->set.object_bytes, 0);
		uint64_t ns = bench_now_ns() - begin_ns;
		samples_add(latency, (double)ns);
		*batch_ns_out += ns;
		if (rc)
			bench_fail(rc, "O_DIRECT read of %zu bytes", r->set.object_bytes);
	}
	return rc;
}

static int verify_files(struct reader *r)
{
	int rc = 0;

	for (int side = 0; side < N_SIDES; side++)
		for (uint32_t k = 0; !rc && k < r->set.n_objects; k++) {
			rc = bench_read_fully(r->set.fd[side][k], r->buffer, r->set.object_bytes,
					      0);
			if (!rc)
				rc = pattern_check(r->buffer, r->set.object_bytes, 0,
						   SSD_SET_SEED + k,
						   side == SIDE_OURS ? "object" : "raw file");
		}
	return rc;
}

int job_ssd_direct(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	static struct reader r;
	int rc = reader_open(&r, job, job->io_bytes);

	if (!rc)
		rc = ssd_set_create(&r.set, env, job->io_bytes,
				    (uint32_t)(DIRECT_SET_BYTES / job->io_bytes));
	if (!rc)
		rc = ssd_set_open(&r.set, O_DIRECT);
	if (!rc)
		rc = verify_files(&r);
	if (!rc)
		rc = run_pair_on_ssd(&r, job, env, direct_batch, job->io_bytes, row);
	reader_close(&r);
	return rc;
}

/* ---- buffered, with nothing of it in the page cache ---- */

/*
 * Clean pages that nobody maps go at once. What a passthrough read fills is the cache of the frame's
 * inode: the mount's own inode has none.
 */
static int drop_once(int fd, size_t bytes, size_t *n_left_out)
{
	unsigned char resident[COLD_SET_BYTES / 4096];
	size_t n_left = 0, page = (size_t)sysconf(_SC_PAGESIZE);
	int rc = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	void *p = rc ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return bench_fail(rc ? -rc : -errno, "drop a file from the page cache");
	rc = mincore(p, bytes, resident) ? -errno : 0;
	munmap(p, bytes);
	for (size_t k = 0; !rc && k < bytes / page; k++)
		n_left += resident[k] & 1;
	*n_left_out = n_left;
	return rc ? bench_fail(rc, "mincore") : 0;
}

/* A page on some CPU's list of what was just used stays until that list is given up. */
static int drop_cache(int fd, size_t bytes)
{
	size_t n_left = 1;

	for (int k = 0; n_left && k < 50; k++) {
		int rc = drop_once(fd, bytes, &n_left);
		if (rc)
			return rc;
		if (n_left)
			usleep(10000);
	}
	return n_left ? bench_fail(-EBUSY, "%zu pages stay in the page cache", n_left) : 0;
}

static int drop_caches(const struct reader *r, enum side side, uint32_t object)
{
	int rc = 0;

	if (side == SIDE_RAW)
		return drop_cache(r->set.fd[SIDE_RAW][object], r->set.object_bytes);
	/* Which frame is whose does not show: all of them go. */
	for (uint32_t k = 0; !rc && k < r->set.n_frames; k++)
		rc = drop_cache(r->set.frame_fd[k], r->set.object_bytes);
	return rc;
}

static int cold_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct reader *r = arg;
	uint32_t object = r->next[side]++ % r->set.n_objects;
	int rc = drop_caches(r, side, object);

	uint64_t begin_ns = bench_now_ns();
	for (uint64_t off = 0; !rc && off < r->set.object_bytes; off += CACHED_READ_BYTES)
		rc = bench_read_fully(r->set.fd[side][object], r->buffer + off, CACHED_READ_BYTES,
				      off);
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc;
}

int job_ssd_cold(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	static struct reader r;
	int rc = reader_open(&r, job, job->io_bytes);

	if (!rc)
		rc = ssd_set_create(&r.set, env, job->io_bytes,
				    (uint32_t)(COLD_SET_BYTES / job->io_bytes));
	if (!rc)
		rc = ssd_set_open(&r.set, 0);
	if (!rc)
		rc = ssd_set_find_frames(&r.set);
	if (!rc)
		rc = verify_files(&r);
	if (!rc)
		rc = run_pair_on_ssd(&r, job, env, cold_batch, job->io_bytes, row);
	reader_close(&r);
	return rc;
}

/* ---- one call for many objects, against a ring of the same depth over one raw file ---- */

static void name_items(struct reader *r, uint32_t first)
{
	char name[32];

	for (uint32_t k = 0; k < r->n_ops; k++) {
		ssd_set_name((first + k) % r->set.n_objects, name);
		fast_item(&r->client, k, name, k * r->set.object_bytes, r->set.object_bytes, 1, 0);
	}
}

static int batch_call(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct reader *r = arg;
	uint32_t first = r->next[side];
	int rc;

	r->next[side] = (first + r->n_ops) % r->set.n_objects;
	if (side == SIDE_OURS)
		name_items(r, first);
	uint64_t begin_ns = bench_now_ns();
	if (side == SIDE_OURS)
		rc = fast_submit(&r->client, MCFS_OP_READ, r->n_ops);
	else
		rc = raw_ring_read(&r->ring, r->raw_fd, r->buffer, r->n_ops * r->set.object_bytes,
				   first * r->set.object_bytes);
	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc;
}

static int verify_batches(struct reader *r)
{
	int rc = 0;

	for (uint32_t first = 0; !rc && first < r->set.n_objects; first += r->n_ops) {
		name_items(r, first);
		rc = fast_submit(&r->client, MCFS_OP_READ, r->n_ops);
		for (uint32_t k = 0; !rc && k < r->n_ops; k++) {
			if (r->client.items[k].tier != MCFS_TIER_SSD)
				return bench_fail(-EBADMSG, "item %u came from tier %u", k,
						  r->client.items[k].tier);
			rc = pattern_check(
				r->client.memory + r->client.data + k * r->set.object_bytes,
				r->set.object_bytes, 0, SSD_SET_SEED + first + k, "item");
		}
	}
	return rc;
}

static int open_raw_file(struct reader *r, const struct bench_env *env, char path[JOB_PATH_MAX])
{
	job_path(env, SIDE_RAW, "batch", path);
	int rc = raw_file_fill(path, BATCH_SET_BYTES, SSD_SET_SEED);

	if (!rc) {
		r->raw_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
		rc = r->raw_fd < 0 ? bench_fail(-errno, "open %s", path) : 0;
	}
	return rc ? rc : raw_ring_open(&r->ring, r->n_ops);
}

int job_ssd_batch(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	static struct reader r;
	char path[JOB_PATH_MAX] = "";
	size_t call_bytes = job->io_bytes * job->n_ops;
	int rc = reader_open(&r, job, call_bytes);

	/* Before DRAM is full: the buffer is memory of the mount. */
	if (!rc)
		rc = fast_open(&r.client, env->dir[SIDE_OURS], job->n_ops, call_bytes);
	if (!rc)
		rc = ssd_set_create(&r.set, env, job->io_bytes,
				    (uint32_t)(BATCH_SET_BYTES / job->io_bytes));
	if (!rc)
		rc = open_raw_file(&r, env, path);
	if (!rc)
		rc = verify_batches(&r);
	if (!rc)
		rc = run_pair_on_ssd(&r, job, env, batch_call, call_bytes, row);
	raw_ring_close(&r.ring);
	if (r.raw_fd >= 0)
		close(r.raw_fd);
	if (path[0])
		unlink(path);
	fast_close(&r.client);
	reader_close(&r);
	return rc;
}
