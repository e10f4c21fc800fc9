/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_main: a group of benchmarks as a program: options, folders, the table, the JSON.
 *
 * Time never fails a run: a missed bar is a NO in the table and exit status 0. Status 1 is a job that
 * could not run or saw wrong bytes, 2 wrong usage.
 */
#ifndef BENCH_MAIN_H
#define BENCH_MAIN_H

#include "job.h"

struct bench_group {
	const char *name; /* of the program */
	const struct job_spec *jobs;
	size_t n_jobs;
	/* Makes what its jobs share, in env->dir, and takes it away again; either may be NULL. */
	int (*set_up)(struct bench_env *env);
	void (*tear_down)(struct bench_env *env);
};

int bench_main(int argc, char **argv, const struct bench_group *g);

#endif
