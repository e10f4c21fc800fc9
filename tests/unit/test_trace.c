/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

static struct trace trace;
static struct trace_error error;

static int load_bytes(const char *text, size_t len, size_t limit)
{
	/* fmemopen refuses an empty buffer on some systems. */
	FILE *file = len ? fmemopen((void *)text, len, "r") : fopen("/dev/null", "r");

	cr_assert(file);
	int rc = trace_load(file, limit, &trace, &error);
	fclose(file);
	return rc;
}

static int load(const char *text)
{
	return load_bytes(text, strlen(text), 0);
}

static void assert_bad(const char *line, const char *reason)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"hash_ids\":[1]}\n%s\n{\"hash_ids\":[2]}\n", line);
	trace = (struct trace){.n_requests = 77};
	cr_assert_eq(load(text), -EINVAL, "%s", line);
	cr_assert_eq(error.line, 2, "%s", line);
	cr_assert(strstr(error.reason, reason), "%s: reason is '%s'", line, error.reason);
	cr_assert_eq(trace.n_requests, 77, "an output was written on failure");
}

/* ---- success ---- */

Test(trace, reads_requests_in_order)
{
	cr_assert_eq(load("{\"timestamp\": 5, \"input_length\": 600, \"output_length\": 7, "
			  "\"hash_ids\": [0, 1]}\n"
			  "{\"timestamp\": 9, \"input_length\": 1, \"output_length\": 2, "
			  "\"hash_ids\": [0, 2, 9223372036854775807]}\n"),
		     0);

	cr_assert_eq(trace.n_requests, 2);
	cr_assert_eq(trace.n_ids, 5);
	cr_assert_eq(trace.max_chain, 3);
	cr_assert_eq(trace.requests[0].timestamp_ms, 5);
	cr_assert_eq(trace.requests[0].input_length, 600);
	cr_assert_eq(trace.requests[0].output_length, 7);
	cr_assert_eq(trace.requests[1].first_id, 2);
	cr_assert_eq(trace.requests[1].n_ids, 3);
	cr_assert_eq(trace.ids[4], UINT64_C(9223372036854775807));
	trace_free(&trace);
}

Test(trace, an_empty_file_is_an_empty_trace)
{
	cr_assert_eq(load(""), 0);
	cr_assert_eq(trace.n_requests, 0);
	cr_assert_eq(trace.n_ids, 0);
	trace_free(&trace);
}

Test(trace, takes_crlf_blank_lines_and_a_missing_last_newline)
{
	cr_assert_eq(load("\r\n{\"hash_ids\":[1]}\r\n  \t\r\n\n{\"hash_ids\":[2]}"), 0);
	cr_assert_eq(trace.n_requests, 2);
	cr_assert_eq(trace.ids[1], 2);
	trace_free(&trace);
}

Test(trace, other_members_are_optional_and_unknown_ones_ignored)
{
	cr_assert_eq(load("{\"hash_ids\":[], \"model\": \"x\", \"timestamp\": 1.75}\n"), 0);
	cr_assert_eq(trace.n_requests, 1);
	cr_assert_eq(trace.requests[0].n_ids, 0);
	cr_assert_eq(trace.requests[0].timestamp_ms, 1);
	cr_assert_eq(trace.requests[0].input_length, 0);
	trace_free(&trace);
}

Test(trace, stops_at_the_limit_before_a_bad_line)
{
	static const char text[] = "{\"hash_ids\":[1]}\n{\"hash_ids\":[2]}\nrubbish\n";

	cr_assert_eq(load_bytes(text, strlen(text), 2), 0);
	cr_assert_eq(trace.n_requests, 2);
	trace_free(&trace);
}

Test(trace, reads_a_chain_of_a_million_blocks)
{
	enum {
		N = 1000000
	};
	size_t capacity = (size_t)N * 9 + 64, len;
	char *text = malloc(capacity);

	cr_assert(text);
	len = (size_t)sprintf(text, "{\"hash_ids\":[0");
	for (unsigned i = 1; i < N; i++)
		len += (size_t)sprintf(text + len, ",%u", i);
	len += (size_t)sprintf(text + len, "]}\n");
	cr_assert_eq(load_bytes(text, len, 0), 0);

	cr_assert_eq(trace.n_ids, N);
	cr_assert_eq(trace.max_chain, N);
	cr_assert_eq(trace.ids[N - 1], N - 1);
	trace_free(&trace);
	free(text);
}

Test(trace, reads_many_requests)
{
	enum {
		N = 20000
	};
	char *text = malloc((size_t)N * 40);
	size_t len = 0;

	cr_assert(text);
	for (unsigned i = 0; i < N; i++)
		len += (size_t)sprintf(text + len, "{\"hash_ids\":[0,%u]}\n", i);
	cr_assert_eq(load_bytes(text, len, 0), 0);

	cr_assert_eq(trace.n_requests, N);
	cr_assert_eq(trace.n_ids, 2 * N);
	cr_assert_eq(trace.ids[trace.requests[N - 1].first_id + 1], N - 1);
	trace_free(&trace);
	free(text);
}

/* ---- failure ---- */

Test(trace, names_the_line_and_the_reason)
{
	assert_bad("rubbish", "not valid JSON");
	assert_bad("{\"hash_ids\":[1", "not valid JSON");
	assert_bad("{\"hash_ids\":[1]} trailing", "not valid JSON");
	assert_bad("{\"hash_ids\":[1],\"hash_ids\":[2]}", "not valid JSON");
	assert_bad("[1]", "not a JSON object");
	assert_bad("{\"timestamp\":1}", "hash_ids is missing");
	assert_bad("{\"hash_ids\":7}", "hash_ids is not an array");
	assert_bad("{\"hash_ids\":[0,-1]}", "hash_ids[1]");
	assert_bad("{\"hash_ids\":[0,1,1.5]}", "hash_ids[2]");
	assert_bad("{\"hash_ids\":[\"7\"]}", "hash_ids[0]");
	assert_bad("{\"hash_ids\":[null]}", "hash_ids[0]");
	assert_bad("{\"hash_ids\":[99999999999999999999]}", "not valid JSON");
	assert_bad("{\"timestamp\":\"now\",\"hash_ids\":[]}", "timestamp is not a number");
	assert_bad("{\"input_length\":-1,\"hash_ids\":[]}", "input_length is out of range");
	assert_bad("{\"output_length\":1e300,\"hash_ids\":[]}", "output_length is out of range");
}

Test(trace, refuses_a_nul_byte)
{
	static const char text[] = "{\"hash_ids\":[1]}\0\n";

	cr_assert_eq(load_bytes(text, sizeof(text) - 1, 0), -EINVAL);
	cr_assert_eq(error.line, 1);
}

Test(trace, reports_a_file_that_cannot_be_read)
{
	FILE *file = fopen("/", "r");

	cr_assert(file);
	cr_assert_eq(trace_load(file, 0, &trace, &error), -EISDIR);
	cr_assert_eq(error.line, 0);
	fclose(file);
}
