/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_main.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JOBS 32

struct options {
	const char *root[N_SIDES];
	const char *mode;
	const char *json;
	const char *disk;
	const char *job; /* only this one */
	pid_t daemon_pid;
	int no_head;
};

static void usage(FILE *file, const struct bench_group *g)
{
	fprintf(file, "usage: %s --ours DIR --raw DIR --mode passthrough|direct_io\n", g->name);
	fputs("                    [--pid PID] [--disk DIR] [--json FILE] [--job NAME] [--no-head]\n"
	      "  --ours DIR   a mooncakefs mount\n"
	      "  --raw DIR    a tmpfs with the mount options of its dram tier; of bench_ssd a directory of\n"
	      "               the disk's file system\n"
	      "  --mode NAME  how the mount serves reads, chooses the bars\n"
	      "  --pid PID    the daemon, whose CPU time is charged; 0: there is none\n"
	      "  --disk DIR   the only ssd= of the mount\n"
	      "  --json FILE  write the rows there too\n"
	      "  --job NAME   run one job\njobs:",
	      file);
	for (size_t i = 0; i < g->n_jobs; i++)
		fprintf(file, " %s", g->jobs[i].name);
	fputs("\n", file);
}

/* Returns 0, or -EINVAL. */
static int check_options(const struct bench_group *g, const struct options *opt)
{
	if (!opt->root[SIDE_OURS] || !opt->root[SIDE_RAW] || !opt->mode)
		return -EINVAL;
	if (strcmp(opt->mode, "passthrough") && strcmp(opt->mode, "direct_io"))
		return -EINVAL;
	if (opt->daemon_pid < 0)
		return -EINVAL;
	for (size_t i = 0; opt->job && i < g->n_jobs; i++)
		if (!strcmp(opt->job, g->jobs[i].name))
			return 0;
	return opt->job ? -EINVAL : 0;
}

static int parse_options(int argc, char **argv, const struct bench_group *g, struct options *opt)
{
	static const struct option longs[] = {
		{"ours", required_argument, NULL, 'o'}, {"raw", required_argument, NULL, 'r'},
		{"mode", required_argument, NULL, 'm'}, {"pid", required_argument, NULL, 'p'},
		{"json", required_argument, NULL, 'j'}, {"job", required_argument, NULL, 'J'},
		{"no-head", no_argument, NULL, 'n'},	{"disk", required_argument, NULL, 'd'},
		{NULL, 0, NULL, 0},
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
		case 'd':
			opt->disk = optarg;
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
	return optind == argc ? check_options(g, opt) : -EINVAL;
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

static void remove_dirs(struct bench_env *env)
{
	for (int side = 0; side < N_SIDES; side++)
		if (env->dir[side][0])
			rmdir(env->dir[side]);
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
static int run_jobs(const struct bench_group *g, struct bench_env *env, const struct options *opt)
{
	struct row rows[MAX_JOBS];
	size_t n_rows = 0;
	int failed = 0;

	if (!opt->no_head)
		report_print_head();
	for (size_t i = 0; i < g->n_jobs; i++) {
		if (opt->job && strcmp(opt->job, g->jobs[i].name))
			continue;
		if (run_job(&g->jobs[i], env, opt->mode, &rows[n_rows]))
			failed = 1;
		else
			n_rows++;
	}
	if (opt->json && report_write_json(opt->json, rows, n_rows))
		failed = 1;
	return failed;
}

int bench_main(int argc, char **argv, const struct bench_group *g)
{
	static struct bench_env env;
	struct options opt = {0};

	if (g->n_jobs > MAX_JOBS || parse_options(argc, argv, g, &opt)) {
		usage(stderr, g);
		return 2;
	}
	env.daemon_pid = opt.daemon_pid;
	env.disk_dir = opt.disk;
	int failed = make_dirs(&env, &opt) != 0;
	if (!failed && g->set_up)
		failed = g->set_up(&env) != 0;
	if (!failed)
		failed = run_jobs(g, &env, &opt);
	if (g->tear_down)
		g->tear_down(&env);
	remove_dirs(&env);
	return failed;
}
