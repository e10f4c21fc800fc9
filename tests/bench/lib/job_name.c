/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names cost: open + read + close of small objects that were used before,
 * stat of a name that is there and of one that is not. Each goes round a set of
 * names, as a reader of KV blocks does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job.h"

#define N_NAMES 64
#define OBJECT_SEED 100

struct names {
	char path[N_SIDES][N_NAMES][JOB_PATH_MAX];
	char *buffer;
	size_t io_bytes;
	unsigned n_ops;
	int expect_stat; /* errno */
	unsigned next[N_SIDES];
};

static int open_read_close(const struct names *names, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return bench_fail(-errno, "open %s", path);
	int rc = bench_read_fully(fd, names->buffer, names->io_bytes, 0);
	if (close(fd) && !rc)
		rc = -errno;
	return rc ? bench_fail(rc, "read %s", path) : 0;
}

static int open_read_batch(void *arg, enum side side, struct samples *latency,
			   uint64_t *batch_ns_out)
{
	struct names *names = arg;
	uint64_t begin_ns = bench_now_ns(), last_ns = begin_ns;

	for (unsigned i = 0; i < names->n_ops; i++) {
		int rc = open_read_close(names, names->path[side][names->next[side]++ % N_NAMES]);
		if (rc)
			return rc;
		uint64_t t_ns = bench_now_ns();
		samples_add(latency, (double)(t_ns - last_ns));
		last_ns = t_ns;
	}
	*batch_ns_out = last_ns - begin_ns;
	return 0;
}

static int stat_all(const struct names *names, enum side side)
{
	struct stat st;

	for (int i = 0; i < N_NAMES; i++) {
		const char *path = names->path[side][i];
		int err = stat(path, &st) ? errno : 0;

		if (err != names->expect_stat)
			return bench_fail(err ? -err : -EEXIST, "stat %s, errno %d expected", path,
					  names->expect_stat);
	}
	return 0;
}

/* A stat is shorter than reading the clock is exact: a sample is the mean over all names. */
static int stat_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct names *names = arg;
	uint64_t begin_ns = bench_now_ns(), last_ns = begin_ns;

	for (unsigned i = 0; i < names->n_ops; i++) {
		int rc = stat_all(names, side);
		if (rc)
			return rc;
		uint64_t t_ns = bench_now_ns();
		samples_add(latency, (double)(t_ns - last_ns) / N_NAMES);
		last_ns = t_ns;
	}
	*batch_ns_out = last_ns - begin_ns;
	return 0;
}

static void names_init(struct names *names, const struct job_spec *job, const struct bench_env *env,
		       const char *prefix)
{
	char name[64];

	*names = (struct names){.io_bytes = job->io_bytes, .n_ops = job->n_ops};
	for (int i = 0; i < N_NAMES; i++) {
		snprintf(name, sizeof(name), "%s-%02d", prefix, i);
		for (int side = 0; side < N_SIDES; side++)
			job_path(env, side, name, names->path[side][i]);
	}
}

static int names_create(struct names *names)
{
	for (int side = 0; side < N_SIDES; side++)
		for (unsigned i = 0; i < N_NAMES; i++) {
			int rc = bench_file_create(names->path[side][i], names->io_bytes,
						   OBJECT_SEED + i, side == SIDE_RAW);
			if (rc)
				return rc;
		}
	job_settle();
	return 0;
}

/* Reads every object once and looks at its bytes and its size. */
static int names_verify(struct names *names)
{
	struct stat st;

	for (int side = 0; side < N_SIDES; side++)
		for (unsigned i = 0; i < N_NAMES; i++) {
			const char *path = names->path[side][i];
			int rc = open_read_close(names, path);
			if (!rc)
				rc = pattern_check(names->buffer, names->io_bytes, 0,
						   OBJECT_SEED + i, path);
			if (!rc && (stat(path, &st) || st.st_size != (off_t)names->io_bytes))
				rc = bench_fail(-EBADMSG, "size of %s", path);
			if (rc)
				return rc;
		}
	return 0;
}

static void names_remove(struct names *names)
{
	for (int side = 0; side < N_SIDES; side++)
		for (int i = 0; i < N_NAMES; i++)
			unlink(names->path[side][i]);
}

static int run_on_objects(const struct job_spec *job, struct bench_env *env, pair_batch_fn batch,
			  size_t bytes_per_op, struct row *row)
{
	static struct names names;

	names_init(&names, job, env, "small");
	names.buffer = bench_buffer_create(names.io_bytes);
	if (!names.buffer)
		return bench_fail(-ENOMEM, "buffer of %zu bytes", names.io_bytes);
	int rc = names_create(&names);
	if (!rc)
		rc = names_verify(&names);
	if (!rc)
		rc = job_run_pair(job, env, batch, &names, bytes_per_op, row);
	names_remove(&names);
	bench_buffer_destroy(names.buffer, names.io_bytes);
	return rc;
}

int job_open_read(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_on_objects(job, env, open_read_batch, job->io_bytes, row);
}

int job_stat_hit(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	return run_on_objects(job, env, stat_batch, 0, row);
}

int job_stat_miss(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	static struct names names;

	names_init(&names, job, env, "missing");
	names.expect_stat = ENOENT;
	return job_run_pair(job, env, stat_batch, &names, 0, row);
}
