/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of the ssd tier, against raw files on the same file system. env->disk_dir is the directory of the
 * mount's only disk.
 */
#ifndef BENCH_JOB_SSD_H
#define BENCH_JOB_SSD_H

#include "job.h"

/* io_bytes: of an object. n_ops: reads of a batch; ssd_batch: items of a call; ssd_writeback: objects. */
int job_ssd_direct(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_ssd_cold(const struct job_spec *job, struct bench_env *env, struct row *row);
int job_ssd_batch(const struct job_spec *job, struct bench_env *env, struct row *row);
/* From the moment objects are visible in DRAM until all are recorded on the ssd. */
int job_ssd_writeback(const struct job_spec *job, struct bench_env *env, struct row *row);
/* The same from the call that writes them into DRAM on. */
int job_ssd_write_through(const struct job_spec *job, struct bench_env *env, struct row *row);

#endif
