/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define SETTLE_US 50000

void job_path(const struct bench_env *env, enum side side, const char *name,
	      char path_out[JOB_PATH_MAX])
{
	snprintf(path_out, JOB_PATH_MAX, "%s/%s", env->dir[side], name);
}

int job_files_create(const struct bench_env *env, const char *name, uint64_t bytes, uint64_t seed)
{
	char path[JOB_PATH_MAX];

	for (int side = 0; side < N_SIDES; side++) {
		job_path(env, side, name, path);
		int rc = bench_file_create(path, bytes, seed, side == SIDE_RAW);
		if (rc)
			return rc;
	}
	return 0;
}

void job_settle(void)
{
	usleep(SETTLE_US);
}

int job_run_pair(const struct job_spec *job, const struct bench_env *env, pair_batch_fn batch,
		 void *arg, size_t bytes_per_op, struct row *row)
{
	struct pair_plan plan = {
		.batch = batch,
		.arg = arg,
		.budget_s = job->budget_s,
		.daemon_pid = env->daemon_pid,
	};
	struct pair_result result;
	int rc = pair_run(&plan, &result);

	if (rc)
		return rc;
	row->ratio = result.ratio;
	row->ours_p50_us = result.ours_p50_ns / 1e3;
	row->raw_p50_us = result.raw_p50_ns / 1e3;
	if (bytes_per_op)
		row->cpu_s_per_gb = (result.client_s + result.daemon_s) /
				    ((double)result.n_ours * (double)bytes_per_op / GB);
	return 0;
}
