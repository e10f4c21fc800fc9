/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trial: batches of one kind on objects of its own, timed next to a memcpy of the same bytes.
 *
 * Lanes share one session and have objects, memory and names of their own. A trial is rounds of: every lane
 * does one call; every lane copies the same bytes in the same shape between plain memory and the shared
 * buffer; what was written is removed. So both meet the same state of the machine. One lane works in the
 * caller's thread, several in threads.
 *
 * An object's bytes lie in n_segments pieces, those of one number side by side for all objects of a batch
 * (layer by page).
 *
 * Faults are told on stderr. Thread safety: none is needed.
 */
#ifndef MCFS_CLI_TRIAL_H
#define MCFS_CLI_TRIAL_H

#include "cli/histogram.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum trial_op {
	TRIAL_READ,
	TRIAL_WRITE, /* new names each time */
	TRIAL_LOOKUP_PRESENT,
	TRIAL_LOOKUP_MISSING,
	N_TRIAL_OPS
};

struct trial_setting {
	const char *mount;
	uint64_t size;	     /* of an object; a multiple of n_segments */
	uint32_t n_items;    /* objects, or names, per call */
	uint32_t n_segments; /* at least 1 */
	unsigned n_lanes;    /* at least 1 */
	double seconds;
	const atomic_bool *is_stopping; /* ends early */
};

struct trial_result {
	uint64_t n_calls, n_items;
	uint64_t bytes; /* moved; 0 for lookups */
	uint64_t
		call_ns; /* in which lanes were in calls, from the first's begin to the last's end */
	uint64_t copy_ns;		    /* the same for the copies */
	uint64_t own_cpu_ns, daemon_cpu_ns; /* of the calls */
	bool has_daemon_cpu;
	struct histogram call, copy; /* ns */
};

/* Returns 0 with *out complete, or a negative errno after telling. What it made is removed in any case. */
int trial_run(enum trial_op op, const struct trial_setting *s, struct trial_result *out);

#endif
