/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay: a trace of requests run against a directory of block files.
 *
 * Requests run strictly one after another. The blocks of one request are spread over the threads and
 * handed out in chain order; an id that occurs again in one chain waits for the others, so the number
 * of hits does not depend on the number of threads. A prefix hit is a hit before which every block of
 * its chain was one.
 * Thread safety: one replay per process (it owns SIGINT and SIGTERM while it runs).
 */
#ifndef MCFS_CLI_REPLAY_H
#define MCFS_CLI_REPLAY_H

#include "cli/block.h"
#include "cli/progress.h"
#include "cli/trace.h"

#include <stdbool.h>

struct replay_options {
	struct block_store store;
	unsigned n_threads; /* at least 1 */
	enum progress_mode progress;
};

struct replay_result {
	uint64_t n_requests;		       /* finished */
	uint64_t n_outcomes[N_BLOCK_OUTCOMES]; /* by enum block_outcome */
	uint64_t n_references;		       /* all outcomes but skipped ones */
	uint64_t n_prefix_hits;
	double seconds;
	bool was_interrupted; /* by a signal, or because the mount went away */
	struct block_stats stats;
};

/*
 * Runs the trace. What fails block by block is told (the first few) and counted in the result.
 * SIGINT or SIGTERM ends it early, a second one ends the process. Returns 0 with the result in
 * *out, which is all zero before; -ENOMEM; -EAGAIN (no threads).
 */
int replay_run(const struct trace *trace, const struct replay_options *options,
	       struct replay_result *out);

#endif
