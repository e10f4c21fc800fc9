/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the fast path: batches of a session. */
#ifndef BENCH_JOB_FAST_H
#define BENCH_JOB_FAST_H

#include <stdlib.h>

#include "job.h"

int job_fast_read(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_strided(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_one(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_write(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_lookup_hit(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_lookup_miss(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_fast_together(const struct job_spec *job, struct bench_env *env, struct row *row);

#endif
