/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-back: objects become visible in DRAM all at once (a group), and the time runs until the daemon
 * has recorded the last of them on the ssd. The other side writes as many bytes to a fresh file, laid out
 * first, 1 MiB at a time by O_DIRECT, as deep as the daemon's workers together.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fast_client.h"
#include "job_ssd.h"
#include "raw_disk.h"

#define RAW_DEPTH 8
#define POLL_NS 3000000
#define LIMIT_NS UINT64_C(60000000000)

struct writer {
	const struct bench_env *env;
	struct fast_client client;
	struct raw_ring ring;
	char *buffer;
	char metrics[JOB_PATH_MAX];
	uint32_t n_objects;
	size_t object_bytes;
	int has_write; /* the call that writes them into DRAM counts */
};

/* How many bytes the daemon has copied to the ssd since it began. */
static int copied_bytes(const struct writer *w, uint64_t *bytes_out)
{
	static const char key[] = "\nmooncakefs_writeback_bytes_total ";
	static char text[256 * KIB];
	size_t len = 0;
	ssize_t n = 0;

	/* The text is made at the open. */
	int fd = open(w->metrics, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	int err = fd < 0 || n < 0 ? errno : ENOMSG;
	if (fd >= 0)
		close(fd);
	text[len] = '\0';
	const char *at = strstr(text, key);
	if (!at)
		return bench_fail(-err, "no writeback_bytes in %s", w->metrics);
	*bytes_out = strtoull(at + sizeof(key) - 1, NULL, 10);
	return 0;
}

static int find_metrics(struct writer *w)
{
	/* env->dir is MOUNT/kv/bench-PID. */
	const char *dir = w->env->dir[SIDE_OURS], *kv = strstr(dir, "/kv/bench-");

	if (!kv)
		return bench_fail(-EINVAL, "%s", dir);
	snprintf(w->metrics, sizeof(w->metrics), "%.*s/.mooncake/metrics", (int)(kv - dir), dir);
	return 0;
}

static int wait_copied(struct writer *w, uint64_t goal_bytes)
{
	uint64_t end_ns = bench_now_ns() + LIMIT_NS, bytes = 0;

	for (;;) {
		int rc = copied_bytes(w, &bytes);
		if (rc || bytes >= goal_bytes)
			return rc;
		if (bench_now_ns() > end_ns)
			return bench_fail(-ETIMEDOUT, "%llu bytes are not written back",
					  (unsigned long long)(goal_bytes - bytes));
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
	}
}

static void object_name(uint32_t k, char out[32])
{
	snprintf(out, 32, "written-%05u", k);
}

static int unlink_objects(const struct writer *w)
{
	char name[32], path[JOB_PATH_MAX];
	int rc = 0;

	for (uint32_t k = 0; k < w->n_objects; k++) {
		object_name(k, name);
		job_path(w->env, SIDE_OURS, name, path);
		if (unlink(path) && errno != ENOENT)
			rc = bench_fail(-errno, "unlink %s", path);
	}
	return rc;
}

static int write_objects(struct writer *w, uint64_t *ns_out)
{
	char name[32];
	uint64_t before_bytes;
	int rc = copied_bytes(w, &before_bytes);

	/* They all have the same bytes, those of the buffer's data. */
	for (uint32_t k = 0; k < w->n_objects; k++) {
		object_name(k, name);
		fast_item(&w->client, k, name, 0, w->object_bytes, 1, 0);
	}
	uint64_t begin_ns = bench_now_ns();
	if (!rc)
		rc = fast_submit_flags(&w->client, MCFS_OP_WRITE, w->n_objects, MCFS_GROUP);
	if (!w->has_write)
		begin_ns = bench_now_ns();
	if (!rc)
		rc = wait_copied(w, before_bytes + w->n_objects * w->object_bytes);
	*ns_out = bench_now_ns() - begin_ns;
	return rc ? rc : unlink_objects(w);
}

static int write_raw(struct writer *w, uint64_t *ns_out)
{
	char path[JOB_PATH_MAX];

	job_path(w->env, SIDE_RAW, "written", path);
	uint64_t bytes = w->n_objects * w->object_bytes, begin_ns = bench_now_ns();
	int fd = raw_file_create(path, bytes, O_WRONLY | O_DIRECT);
	if (fd < 0)
		return fd;
	int rc = raw_ring_write(&w->ring, fd, w->buffer, bytes);
	close(fd);
	*ns_out = bench_now_ns() - begin_ns;
	unlink(path);
	return rc;
}

static int write_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct writer *w = arg;
	int rc = side == SIDE_OURS ? write_objects(w, batch_ns_out) : write_raw(w, batch_ns_out);

	samples_add(latency, (double)*batch_ns_out);
	job_settle();
	return rc;
}

static int run(const struct job_spec *job, struct bench_env *env, struct row *row, int has_write)
{
	struct writer w = {.env = env,
			   .n_objects = job->n_ops,
			   .object_bytes = job->io_bytes,
			   .has_write = has_write};
	int rc = fast_open(&w.client, env->dir[SIDE_OURS], job->n_ops, job->io_bytes);

	w.buffer = bench_buffer_create(RAW_PIECE_BYTES);
	if (!rc && !w.buffer)
		rc = bench_fail(-ENOMEM, "buffer");
	if (!rc)
		rc = find_metrics(&w);
	if (!rc)
		rc = raw_ring_open(&w.ring, RAW_DEPTH);
	if (!rc) {
		pattern_fill(w.client.memory + w.client.data, w.object_bytes, 0, 1);
		rc = job_run_pair(job, env, write_batch, &w, job->io_bytes * job->n_ops, row);
	}
	raw_ring_close(&w.ring);
	bench_buffer_destroy(w.buffer, RAW_PIECE_BYTES);
	unlink_objects(&w);
	fast_close(&w.client);
	return rc;
}

int job_ssd_writeback(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run(job, env, row, 0);
}

int job_ssd_write_through(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run(job, env, row, 1);
}
