/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path: batches of a session, against memcpy of the same bytes (its physical limit), against
 * access(2) on a raw tmpfs, and against plain files through the same mount.
 */
#include "lib/bench_main.h"
#include "lib/job_fast.h"

/* All bars: name, against, bar with passthrough, none without, kind; bytes per item, items per call. */
static const struct job_spec jobs[] = {
	{"read_64x64k", "memcpy", 0.85, 0, BAR_RATIO_MIN, job_fast_read, 64 * KIB, 1, 64, 2.0},
	{"read_8x1m", "memcpy", 0.85, 0, BAR_RATIO_MIN, job_fast_read, MIB, 1, 8, 2.0},
	{"read_128x512x64k", "memcpy", 0.85, 0, BAR_RATIO_MIN, job_fast_strided, 32 * MIB, 1, 128, 8.0},
	{"write_64x64k_new", "memcpy", 0.50, 0, BAR_RATIO_MIN, job_fast_write, 64 * KIB, 1, 64, 3.0},
	{"write_16x2m_new", "memcpy", 0.50, 0, BAR_RATIO_MIN, job_fast_write, 2 * MIB, 1, 16, 3.0},
	{"lookup_4096_hit", "access(2)", 0.70, 0, BAR_RATIO_MIN, job_fast_lookup_hit, 0, 1, 4096, 2.0},
	{"lookup_4096_miss", "access(2)", 0.70, 0, BAR_RATIO_MIN, job_fast_lookup_miss, 0, 1, 4096, 2.0},
	{"read_1x64k", "open+pread+close", 2.0, 0, BAR_RATIO_MIN, job_fast_one, 64 * KIB, 1, 1, 2.0},
	{"two_processes", "one process", 1.0, 0, BAR_RATIO_MIN, job_fast_together, 64 * KIB, 1, 64, 3.0},
};

int main(int argc, char **argv)
{
	static const struct bench_group group = {
		.name = "bench_fastpath",
		.jobs = jobs,
		.n_jobs = ARRAY_LEN(jobs),
	};

	return bench_main(argc, argv, &group);
}
