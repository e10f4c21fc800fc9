/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: the requests of a KV-cache trace, one JSON object per line:
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 *
 * hash_ids is required; the others default to 0 and unknown members are ignored. Blank lines are
 * skipped, lines may end in CR LF. (Format: the open traces of Mooncake, FAST'25.)
 * Thread safety: a loaded trace is read-only.
 */
#ifndef MCFS_CLI_TRACE_H
#define MCFS_CLI_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct trace_request {
	uint64_t timestamp_ms;
	uint64_t input_length, output_length; /* tokens */
	size_t first_id, n_ids;		      /* its chain: ids[first_id .. first_id + n_ids) */
};

struct trace {
	struct trace_request *requests;
	size_t n_requests;
	uint64_t *ids; /* the chains of all requests, one after another */
	size_t n_ids;
	size_t max_chain; /* longest chain */
};

struct trace_error {
	size_t line; /* 1 for the first */
	char reason[200];
};

/*
 * Reads at most limit requests (0: all) up to the end of the file. An empty file is an empty trace.
 * Returns 0; -EINVAL: a bad line, told in error_out; -ENOMEM; the errno of a failed read. On failure
 * error_out names the line reached and nothing needs to be freed.
 */
int trace_load(FILE *file, size_t limit, struct trace *out, struct trace_error *error_out);
void trace_free(struct trace *t);

#endif
