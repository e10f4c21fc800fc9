/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: one thing a user does, done on our mount and on a raw tmpfs alike.
 * A runner prepares its files, verifies the bytes once, runs the rounds and
 * fills in the row's numbers.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "pair.h"
#include "report.h"

/* The object that all pread jobs walk: too large for any cache to hold. */
#define READ_OBJECT_BYTES (256 * MIB)
#define READ_OBJECT_SEED 1
/* Where reads go, in turn: a pool like a serving engine's, not one buffer that stays in the cache. */
#define READ_POOL_BYTES (64 * MIB)
#define MAX_JOB_THREADS 2
#define JOB_PATH_MAX 4096

struct bench_env {
	char dir[N_SIDES][JOB_PATH_MAX - 64]; /* ours to fill and to empty */
	int read_fd[N_SIDES];		      /* the read object, open */
	pid_t daemon_pid;		      /* 0: no daemon to charge */
	const char *disk_dir;		      /* of the mount's only disk; NULL: not known */
};

struct job_spec {
	const char *name;
	const char *against;
	double bar_passthrough; /* 0: printed only */
	double bar_direct_io;
	enum bar_kind bar_kind;
	int (*run)(const struct job_spec *job, struct bench_env *env, struct row *row);
	size_t io_bytes;
	unsigned n_threads;
	unsigned n_ops; /* per thread and batch */
	double budget_s;
};

/* job_read.c */
int job_pread(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_memcpy(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_daemon_cpu(const struct job_spec *job, struct bench_env *env, struct row *row);

/* job_wake.c */
int job_wake(const struct job_spec *job, struct bench_env *env, struct row *row);

/* job_map.c */
int job_map_sum(const struct job_spec *job, struct bench_env *env, struct row *row);
/* The cold process of that job: opens, maps and sums; returns its exit status. */
int map_sum_main(const char *path, const char *expected_hex);

/* job_write.c */
int job_write(const struct job_spec *job, struct bench_env *env, struct row *row);

/* job_name.c */
int job_open_read(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_stat_hit(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_stat_miss(const struct job_spec *job, struct bench_env *env, struct row *row);

/* ---- what runners share ---- */

/* Path of `name` in the side's folder. */
void job_path(const struct bench_env *env, enum side side, const char *name,
	      char path_out[JOB_PATH_MAX]);

/* One file of the same content on each side, on the raw side with its size set first. */
int job_files_create(const struct bench_env *env, const char *name, uint64_t bytes, uint64_t seed);

/* Waits until closes that were answered are also released: an object is then no draft any more. */
void job_settle(void);

/* Runs the rounds and fills the row in. bytes_per_op 0: CPU per byte means nothing. */
int job_run_pair(const struct job_spec *job, const struct bench_env *env, pair_batch_fn batch,
		 void *arg, size_t bytes_per_op, struct row *row);

#endif
