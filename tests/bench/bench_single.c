/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node, one mount: what users do with objects in DRAM, against the same on
 * a raw tmpfs. Rows are printed as they come and kept as JSON.
 *
 * Time never fails a run: a missed bar is a NO in the table and exit status 0.
 * Status 1 is a job that could not run or saw wrong bytes, 2 wrong usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/job.h"

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

struct options {
	const char *root[N_SIDES];
	const char *mode;
	const char *json;
	const char *job; /* only this one */
	pid_t daemon_pid;
	int no_head;
};

static void usage(FILE *file)
{
	fputs("usage: bench_single --ours DIR --raw DIR --mode passthrough|direct_io\n"
	      "                    [--pid PID] [--json FILE] [--job NAME] [--no-head]\n"
	      "  --ours DIR   a mooncakefs mount\n"
	      "  --raw DIR    a tmpfs with the mount options of its dram tier\n"
	      "  --mode NAME  how the mount serves reads, chooses the bars\n"
	      "  --pid PID    the daemon, whose CPU time is charged; 0: there is none\n"
	      "  --json FILE  write the rows there too\n"
	      "  --job NAME   run one job\njobs:",
	      file);
	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		fprintf(file, " %s", jobs[i].name);
	fputs("\n", file);
}

/* Returns 0, or -EINVAL. */
static int check_options(const struct options *opt)
{
	if (!opt->root[SIDE_OURS] || !opt->root[SIDE_RAW] || !opt->mode)
		return -EINVAL;
	if (strcmp(opt->mode, "passthrough") && strcmp(opt->mode, "direct_io"))
		return -EINVAL;
	if (opt->daemon_pid < 0)
		return -EINVAL;
	for (size_t i = 0; opt->job && i < ARRAY_LEN(jobs); i++)
		if (!strcmp(opt->job, jobs[i].name))
			return 0;
	return opt->job ? -EINVAL : 0;
}

static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{"ours", required_argument, NULL, 'o'}, {"raw", required_argument, NULL, 'r'},
		{"mode", required_argument, NULL, 'm'}, {"pid", required_argument, NULL, 'p'},
		{"json", required_argument, NULL, 'j'}, {"job", required_argument, NULL, 'J'},
		{"no-head", no_argument, NULL, 'n'},	{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			opt->root[SIDE_OURS] = optarg;
			break;
		case 'r':
			opt->root[SIDE_RAW] = optarg;
			break;
		case 'm':
			opt->mode = optarg;
			break;
		case 'p':
			opt->daemon_pid = (pid_t)atoi(optarg);
			break;
		case 'j':
			opt->json = optarg;
			break;
		case 'J':
			opt->job = optarg;
			break;
		case 'n':
			opt->no_head = 1;
			break;
		default:
			return -EINVAL;
		}
	}
	return optind == argc ? check_options(opt) : -EINVAL;
}

/* A folder of our own on each side, at the same depth, where blocks live. */
static int make_dirs(struct bench_env *env, const struct options *opt)
{
	for (int side = 0; side < N_SIDES; side++) {
		char *dir = env->dir[side];
		int n = snprintf(dir, sizeof(env->dir[side]), "%s/kv", opt->root[side]);

		if (n < 0 || (size_t)n + 32 > sizeof(env->dir[side]))
			return bench_fail(-ENAMETOOLONG, "%s", opt->root[side]);
		if (mkdir(dir, 0755) && errno != EEXIST)
			return bench_fail(-errno, "mkdir %s", dir);
		sprintf(dir + n, "/bench-%d", (int)getpid());
		if (mkdir(dir, 0755))
			return bench_fail(-errno, "mkdir %s", dir);
	}
	return 0;
}

static int env_open(struct bench_env *env, const struct options *opt)
{
	char path[JOB_PATH_MAX];

	env->daemon_pid = opt->daemon_pid;
	env->read_fd[SIDE_OURS] = env->read_fd[SIDE_RAW] = -1;
	int rc = make_dirs(env, opt);
	if (!rc)
		rc = job_files_create(env, READ_OBJECT_NAME, READ_OBJECT_BYTES, READ_OBJECT_SEED);
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

static void env_close(struct bench_env *env)
{
	char path[JOB_PATH_MAX];

	for (int side = 0; side < N_SIDES; side++) {
		if (env->read_fd[side] >= 0)
			close(env->read_fd[side]);
		if (!env->dir[side][0])
			continue;
		job_path(env, side, READ_OBJECT_NAME, path);
		unlink(path);
		rmdir(env->dir[side]);
	}
}

static int run_job(const struct job_spec *job, struct bench_env *env, const char *mode,
		   struct row *row)
{
	double bar = strcmp(mode, "direct_io") ? job->bar_passthrough : job->bar_direct_io;

	*row = (struct row){
		.job = job->name,
		.against = job->against,
		.mode = mode,
		.bar_kind = bar > 0 ? job->bar_kind : BAR_NONE,
		.bar = bar,
		.ratio = NAN,
		.ours_p50_us = NAN,
		.raw_p50_us = NAN,
		.cpu_s_per_gb = NAN,
	};
	int rc = job->run(job, env, row);
	if (rc)
		fprintf(stderr, "bench: job %s failed\n", job->name);
	else
		report_print_row(row);
	return rc;
}

/* A job that fails takes no other with it. Returns 0 when all ran. */
static int run_jobs(struct bench_env *env, const struct options *opt)
{
	struct row rows[ARRAY_LEN(jobs)];
	size_t n_rows = 0;
	int failed = 0;

	if (!opt->no_head)
		report_print_head();
	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		if (opt->job && strcmp(opt->job, jobs[i].name))
			continue;
		if (run_job(&jobs[i], env, opt->mode, &rows[n_rows]))
			failed = 1;
		else
			n_rows++;
	}
	if (opt->json && report_write_json(opt->json, rows, n_rows))
		failed = 1;
	return failed;
}

int main(int argc, char **argv)
{
	static struct bench_env env;
	struct options opt = {0};

	/* What job_map.c starts: not for users. */
	if (argc == 4 && !strcmp(argv[1], "--map-sum"))
		return map_sum_main(argv[2], argv[3]);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return 2;
	}
	int failed = env_open(&env, &opt) != 0;
	if (!failed)
		failed = run_jobs(&env, &opt);
	env_close(&env);
	return failed;
}
