/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ssd tier, against raw files on the same file system: both sides read and write the same disk, the
 * same number of bytes, in turn.
 */
#include "lib/bench_main.h"
#include "lib/job_ssd.h"

/* All bars: name, against, bar with passthrough, none without, kind; bytes of an object, operations. */
static const struct job_spec jobs[] = {
	{"ssd_direct_4m", "raw O_DIRECT", 0.90, 0, BAR_RATIO_MIN, job_ssd_direct, 4 * MIB, 1, 8,
	 4.0},
	{"ssd_cold_64m", "raw buffered", 0.85, 0, BAR_RATIO_MIN, job_ssd_cold, 64 * MIB, 1, 1, 5.0},
	{"ssd_batch_64x1m", "raw io_uring", 0.90, 0, BAR_RATIO_MIN, job_ssd_batch, MIB, 1, 64, 4.0},
	{"ssd_writeback", "raw io_uring", 0.85, 0, BAR_RATIO_MIN, job_ssd_writeback, 4 * MIB, 1, 64,
	 6.0},
	{"ssd_write_through", "raw io_uring", 0, 0, BAR_NONE, job_ssd_write_through, 4 * MIB, 1, 64,
	 4.0},
};

int main(int argc, char **argv)
{
	static const struct bench_group group = {
		.name = "bench_ssd",
		.jobs = jobs,
		.n_jobs = ARRAY_LEN(jobs),
	};

	return bench_main(argc, argv, &group);
}
