/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_report: what a replay measured, on stdout, as tables or as one JSON object.
 *
 * GB/s are bytes over the time that the threads spent in the calls that moved them, added up: with
 * several threads it is the rate of one of them.
 * Thread safety: none is needed.
 */
#ifndef MCFS_CLI_REPLAY_REPORT_H
#define MCFS_CLI_REPLAY_REPORT_H

#include "cli/replay.h"

#include <stdbool.h>
#include <stdint.h>

/* What was replayed how; the strings are borrowed. */
struct replay_setting {
	const char *trace, *mount, *dir, *publish;
	uint64_t block_bytes;
	unsigned n_threads;
};

/*
 * Asks the mount how much DRAM is in use. Returns the exit code of the replay: CLI_FAILED when a
 * block was corrupt, a read or a write failed, or the replay was interrupted.
 */
int replay_report(const struct replay_setting *s, const struct replay_result *result, bool as_json);

#endif
