/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node, one mount: what users do with objects in DRAM, against the same on
 * a raw tmpfs. Rows are printed as they come and kept as JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/bench_main.h"

#define READ_OBJECT_NAME "read.bin"
#define RAW "raw tmpfs"

/* All bars: name, against, bar with passthrough, bar with direct_io, its kind. */
static const struct job_spec jobs[] = {
	{"pread_1m_1t", RAW, 0.90, 0.55, BAR_RATIO_MIN, job_pread, MIB, 1, 16, 1.5},
	{"pread_1m_2t", RAW, 0.90, 0.55, BAR_RATIO_MIN, job_pread, MIB, 2, 64, 1.5},
	{"pread_64m_1t", RAW, 0.90, 0.55, BAR_RATIO_MIN, job_pread, 64 * MIB, 1, 1, 1.5},
	{"pread_64m_2t", RAW, 0.90, 0.55, BAR_RATIO_MIN, job_pread, 64 * MIB, 2, 1, 1.5},
	{"pread_64k", RAW, 0.80, 0.30, BAR_RATIO_MIN, job_pread, 64 * KIB, 1, 256, 1.5},
	{"mmap_sum_1g_cold", RAW, 0.90, 0, BAR_RATIO_MIN, job_map_sum, GIB, 1, 1, 4.0},
	{"write_2m_new", RAW, 0.50, 0.50, BAR_RATIO_MIN, job_write, 2 * MIB, 1, 8, 3.0},
	{"open_read64k_close", RAW, 0.30, 0.22, BAR_RATIO_MIN, job_open_read, 64 * KIB, 1, 64, 1.5},
	{"stat_hit", RAW, 0.80, 0.80, BAR_RATIO_MIN, job_stat_hit, 64 * KIB, 1, 32, 1.5},
	{"stat_miss", RAW, 0.07, 0.07, BAR_RATIO_MIN, job_stat_miss, 0, 1, 4, 1.5},
	{"daemon_cpu_read", "-", 0.01, 0, BAR_CPU_PER_GB_MAX, job_daemon_cpu, MIB, 1, 16, 1.0},
	{"pipe_round_trip", "-", 0, 0, BAR_RATIO_MIN, job_wake, 1, 1, 1, 0.0},
	{"pread_1m_memcpy", "memcpy", 0, 0, BAR_RATIO_MIN, job_memcpy, MIB, 1, 16, 1.5},
};

static int set_up(struct bench_env *env)
{
	char path[JOB_PATH_MAX];

	env->read_fd[SIDE_OURS] = env->read_fd[SIDE_RAW] = -1;
	int rc = job_files_create(env, READ_OBJECT_NAME, READ_OBJECT_BYTES, READ_OBJECT_SEED);
	if (rc)
		return rc;
	job_settle();
	for (int side = 0; side < N_SIDES; side++) {
		job_path(env, side, READ_OBJECT_NAME, path);
		env->read_fd[side] = open(path, O_RDONLY | O_CLOEXEC);
		if (env->read_fd[side] < 0)
			return bench_fail(-errno, "open %s", path);
	}
	return 0;
}

static void tear_down(struct bench_env *env)
{
	char path[JOB_PATH_MAX];

	for (int side = 0; side < N_SIDES; side++) {
		if (env->read_fd[side] > 0)
			close(env->read_fd[side]);
		if (!env->dir[side][0])
			continue;
		job_path(env, side, READ_OBJECT_NAME, path);
		unlink(path);
	}
}

int main(int argc, char **argv)
{
	static const struct bench_group group = {
		.name = "bench_single",
		.jobs = jobs,
		.n_jobs = ARRAY_LEN(jobs),
		.set_up = set_up,
		.tear_down = tear_down,
	};

	/* What job_map.c starts: not for users. */
	if (argc == 4 && !strcmp(argv[1], "--map-sum"))
		return map_sum_main(argv[2], argv[3]);
	return bench_main(argc, argv, &group);
}
