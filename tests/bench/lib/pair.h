/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job, two sides, small alternating batches.
 *
 * A machine's speed drifts over seconds and stalls over milliseconds. Batches of
 * some ms, ours and the other side's next to each other, see the same machine:
 * each round gives one ratio of their times, and the median of the rounds is
 * what is reported. Who goes first changes with every round. The first round
 * warms up and counts for nothing.
 */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include "bench_util.h"

enum side {
	SIDE_OURS,
	SIDE_RAW,
	N_SIDES
};

/*
 * Runs one batch: adds the latency of each operation to `latency` (ns) and
 * returns the time of the whole batch, which is the sum where one thread works.
 */
typedef int (*pair_batch_fn)(void *arg, enum side side, struct samples *latency,
			     uint64_t *batch_ns_out);

struct pair_plan {
	pair_batch_fn batch;
	void *arg;
	double budget_s;  /* rounds go on until this is spent ... */
	pid_t daemon_pid; /* 0: there is none to charge */
};

struct pair_result {
	double ratio; /* other side's time over ours: 1 is as fast, 2 twice as fast */
	double ours_p50_ns;
	double raw_p50_ns;
	size_t n_ours;	 /* operations behind the CPU times */
	double client_s; /* this process and its children in our batches */
	double daemon_s; /* the daemon in all counted rounds: it may work after it replied */
	unsigned n_rounds;
};

/* Returns 0, or the first error of a batch. */
int pair_run(const struct pair_plan *plan, struct pair_result *result_out);

#endif
