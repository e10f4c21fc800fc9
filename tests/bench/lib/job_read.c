/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of one large object that is open already: pread by one or two threads,
 * a memcpy from mapped memory as the physical limit, the daemon's CPU time.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "job.h"

/* A phase long enough for CPU time that is charged late to vanish in it. */
#define DAEMON_CPU_MIN_BYTES (4 * GIB)

/* One thread's part of a batch. */
struct lane {
	struct reader *reader;
	enum side side;
	char *pool; /* READ_POOL_BYTES */
	uint64_t off[N_SIDES]; /* where the walk goes on */
	struct samples latency;
	uint64_t batch_ns;
	int rc;
};

struct reader {
	int fd[N_SIDES];
	const char *mapping; /* of the raw file: when set, the raw side copies from it */
	size_t io_bytes;
	unsigned n_threads;
	unsigned n_ops;
	struct lane lanes[MAX_JOB_THREADS];
	/* Threads of a batch start together: 1 go, -1 give up. */
	atomic_int start;
	atomic_uint n_ready;
};

static int read_once(const struct reader *rd, enum side side, char *buffer, uint64_t off)
{
	if (side == SIDE_OURS || !rd->mapping)
		return bench_read_fully(rd->fd[side], buffer, rd->io_bytes, off);
	memcpy(buffer, rd->mapping + off, rd->io_bytes);
	/* The copy must happen although nobody looks at it. */
	__asm__ volatile("" : : "r"(buffer) : "memory");
	return 0;
}

static int lane_read(struct lane *lane)
{
	struct reader *rd = lane->reader;
	uint64_t *off = &lane->off[lane->side];
	uint64_t begin_ns = bench_now_ns(), last_ns = begin_ns;

	for (unsigned i = 0; i < rd->n_ops; i++) {
		int rc = read_once(rd, lane->side, lane->pool + *off % READ_POOL_BYTES, *off);
		if (rc)
			return bench_fail(rc, "read %zu bytes at %llu", rd->io_bytes,
					  (unsigned long long)*off);
		uint64_t t_ns = bench_now_ns();
		samples_add(&lane->latency, (double)(t_ns - last_ns));
		last_ns = t_ns;
		*off = (*off + rd->io_bytes) % READ_OBJECT_BYTES;
	}
	lane->batch_ns = last_ns - begin_ns;
	return 0;
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct reader *rd = lane->reader;
	int start;

	atomic_fetch_add(&rd->n_ready, 1);
	while (!(start = atomic_load(&rd->start)))
		sched_yield();
	if (start > 0)
		lane->rc = lane_read(lane);
	return NULL;
}

/* Every lane but the first has a thread of its own; the first is the caller's. */
static int run_lanes(struct reader *rd)
{
	pthread_t threads[MAX_JOB_THREADS];
	unsigned n = 0;
	int err = 0;

	atomic_store(&rd->start, 0);
	atomic_store(&rd->n_ready, 0);
	while (!err && n + 1 < rd->n_threads) {
		err = pthread_create(&threads[n], NULL, lane_main, &rd->lanes[n + 1]);
		n += !err;
	}
	while (!err && atomic_load(&rd->n_ready) < n)
		sched_yield();
	atomic_store(&rd->start, err ? -1 : 1);
	if (!err)
		rd->lanes[0].rc = lane_read(&rd->lanes[0]);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return err ? bench_fail(-err, "start a thread") : 0;
}

static int read_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct reader *rd = arg;

	for (unsigned i = 0; i < rd->n_threads; i++) {
		samples_clear(&rd->lanes[i].latency);
		rd->lanes[i].side = side;
	}
	int rc = run_lanes(rd);
	*batch_ns_out = 0;
	for (unsigned i = 0; i < rd->n_threads; i++) {
		const struct lane *lane = &rd->lanes[i];

		if (!rc)
			rc = lane->rc;
		samples_append(latency, &lane->latency);
		if (lane->batch_ns > *batch_ns_out)
			*batch_ns_out = lane->batch_ns;
	}
	return rc;
}

/* The whole object once, with the reads that will be timed. */
static int verify_reads(const struct reader *rd)
{

	for (int side = 0; side < N_SIDES; side++) {
		const char *name = side == SIDE_OURS ? "read object, ours" : "read object, raw";

		for (uint64_t off = 0; off < READ_OBJECT_BYTES; off += rd->io_bytes) {
			char *buffer = rd->lanes[0].pool + off % READ_POOL_BYTES;
			int rc = read_once(rd, side, buffer, off);
			if (rc)
				return bench_fail(rc, "%s: read at %llu", name,
						  (unsigned long long)off);
			rc = pattern_check(buffer, rd->io_bytes, off, READ_OBJECT_SEED, name);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static int reader_init(struct reader *rd, const struct job_spec *job, const struct bench_env *env)
{
	*rd = (struct reader){
		.fd = {env->read_fd[SIDE_OURS], env->read_fd[SIDE_RAW]},
		.io_bytes = job->io_bytes,
		.n_threads = job->n_threads,
		.n_ops = job->n_ops,
	};
	for (unsigned i = 0; i < rd->n_threads; i++) {
		struct lane *lane = &rd->lanes[i];

		lane->reader = rd;
		lane->off[SIDE_OURS] = lane->off[SIDE_RAW] = i * READ_OBJECT_BYTES / rd->n_threads;
		lane->pool = bench_buffer_create(READ_POOL_BYTES);
		if (!lane->pool)
			return bench_fail(-ENOMEM, "buffer of %llu bytes",
					  (unsigned long long)READ_POOL_BYTES);
	}
	return 0;
}

static void reader_fini(struct reader *rd)
{
	for (unsigned i = 0; i < rd->n_threads; i++) {
		samples_fini(&rd->lanes[i].latency);
		bench_buffer_destroy(rd->lanes[i].pool, READ_POOL_BYTES);
	}
}

int job_pread(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct reader rd;
	int rc = reader_init(&rd, job, env);

	if (!rc)
		rc = verify_reads(&rd);
	if (!rc)
		rc = job_run_pair(job, env, read_batch, &rd, job->io_bytes, row);
	reader_fini(&rd);
	return rc;
}

/*
 * The raw file is mapped and not ours, because without passthrough a mapping of
 * ours is of page cache pages, another memory than pread reads.
 */
int job_memcpy(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct reader rd;
	void *mapping = mmap(NULL, READ_OBJECT_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE,
			     env->read_fd[SIDE_RAW], 0);

	if (mapping == MAP_FAILED)
		return bench_fail(-errno, "mmap the raw file");
	int rc = reader_init(&rd, job, env);
	rd.mapping = mapping;
	if (!rc)
		rc = verify_reads(&rd);
	if (!rc)
		rc = job_run_pair(job, env, read_batch, &rd, job->io_bytes, row);
	reader_fini(&rd);
	munmap(mapping, READ_OBJECT_BYTES);
	return rc;
}

static int daemon_cpu_phase(const struct job_spec *job, struct reader *rd, pid_t pid,
			    struct row *row)
{
	struct samples latency = {0};
	uint64_t before_ns, after_ns, batch_ns;
	uint64_t end_ns = bench_now_ns() + (uint64_t)(job->budget_s * 1e9);
	int rc = bench_process_cpu_ns(pid, &before_ns);

	do {
		if (!rc)
			rc = read_batch(rd, SIDE_OURS, &latency, &batch_ns);
	} while (!rc &&
		 (bench_now_ns() < end_ns || latency.n * rd->io_bytes < DAEMON_CPU_MIN_BYTES));
	if (!rc)
		rc = bench_process_cpu_ns(pid, &after_ns);
	if (!rc) {
		row->ours_p50_us = samples_quantile(&latency, 0.5) / 1e3;
		row->cpu_s_per_gb = (double)(after_ns - before_ns) / 1e9 /
				    ((double)latency.n * (double)rd->io_bytes / GB);
	}
	samples_fini(&latency);
	return rc;
}

int job_daemon_cpu(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct reader rd;

	if (!env->daemon_pid)
		return 0; /* the caller said there is none: the row stays empty */
	int rc = reader_init(&rd, job, env);
	if (!rc)
		rc = verify_reads(&rd);
	if (!rc)
		rc = daemon_cpu_phase(job, &rd, env->daemon_pid, row);
	reader_fini(&rd);
	return rc;
}
