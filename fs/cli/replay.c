/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include "base/cleanup.h"
#include "cli/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FAULTS_TOLD 5
#define REFRESH_MS 100

struct replay {
	const struct trace *trace;
	struct replay_result *result;
	struct progress *progress;
	struct crew *crew;
	struct block_client *clients; /* one per thread */
	unsigned n_clients;
	atomic_uint n_faults;
	/* The request at hand, each max_chain long. order: chain positions in the order of visits. */
	const uint64_t *chain;
	size_t *order;
	size_t *sorted;
	unsigned char *outcomes; /* enum block_outcome, by chain position */
};

static atomic_bool is_stopping; /* one replay per process */

static void on_signal(int signal_number)
{
	atomic_store(&is_stopping, true);
}

static void catch_signals(struct sigaction before[2])
{
	/* SA_RESETHAND: a second one ends a replay that hangs in a dead mount. */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_RESETHAND};

	atomic_store(&is_stopping, false);
	sigaction(SIGINT, &action, &before[0]);
	sigaction(SIGTERM, &action, &before[1]);
}

static void tell_fault(struct replay *r, const struct block_fault *fault)
{
	unsigned number = atomic_fetch_add(&r->n_faults, 1);

	if (number > MAX_FAULTS_TOLD)
		return;
	if (number == MAX_FAULTS_TOLD)
		progress_message(r->progress, "further errors are counted, not shown");
	else if (fault->error)
		progress_message(r->progress, "block %s: %s: %s", fault->name, fault->call,
				 strerror(fault->error));
	else if (!strcmp(fault->call, "read"))
		progress_message(r->progress, "block %s: corrupt: it ends after %zu bytes",
				 fault->name, fault->offset);
	else
		progress_message(r->progress, "block %s: corrupt: wrong byte at offset %zu",
				 fault->name, fault->offset);
}

/* A crew's work: one block of the request. */
static void visit_item(void *arg, unsigned worker, size_t item)
{
	struct replay *r = arg;
	size_t position = r->order[item];
	struct block_fault fault;

	if (atomic_load_explicit(&is_stopping, memory_order_relaxed))
		return;
	enum block_outcome outcome = block_visit(&r->clients[worker], r->chain[position], &fault);
	r->outcomes[position] = (unsigned char)outcome;
	if (outcome == BLOCK_HIT || outcome == BLOCK_MISS)
		return;
	tell_fault(r, &fault);
	if (fault.error == ENOTCONN && !atomic_exchange(&is_stopping, true))
		progress_message(r->progress, "the mount is gone: the replay ends here");
}

static int compare_ids(const void *a, const void *b, void *arg)
{
	const uint64_t *chain = arg;
	size_t left = *(const size_t *)a, right = *(const size_t *)b;

	if (chain[left] != chain[right])
		return chain[left] < chain[right] ? -1 : 1;
	return left < right ? -1 : left > right;
}

/*
 * Fills order: the first occurrences of all ids in chain order, then the repeats in chain order.
 * Returns the number of the former.
 */
static size_t plan_request(struct replay *r, size_t n)
{
	size_t n_first = 0;

	memset(r->outcomes, BLOCK_SKIPPED, n);
	for (size_t i = 0; i < n; i++)
		r->sorted[i] = i;
	qsort_r(r->sorted, n, sizeof(*r->sorted), compare_ids, (void *)r->chain);
	/* An outcome serves as mark of a repeat until the plan is made. */
	for (size_t i = 1; i < n; i++)
		if (r->chain[r->sorted[i]] == r->chain[r->sorted[i - 1]])
			r->outcomes[r->sorted[i]] = N_BLOCK_OUTCOMES;
	for (size_t i = 0; i < n; i++)
		if (r->outcomes[i] == BLOCK_SKIPPED)
			r->order[n_first++] = i;
	for (size_t i = 0, next = n_first; i < n && next < n; i++)
		if (r->outcomes[i] == N_BLOCK_OUTCOMES)
			r->order[next++] = i;
	memset(r->outcomes, BLOCK_SKIPPED, n);
	return n_first;
}

static void run_batch(struct replay *r, size_t first, size_t end)
{
	crew_begin(r->crew, first, end);
	while (!crew_wait(r->crew, REFRESH_MS))
		progress_update(r->progress, r->result->n_references,
				r->result->n_outcomes[BLOCK_HIT]);
}

static void count_request(struct replay *r, size_t n)
{
	struct replay_result *result = r->result;
	bool is_prefix = true;

	for (size_t i = 0; i < n; i++) {
		result->n_outcomes[r->outcomes[i]]++;
		result->n_references += r->outcomes[i] != BLOCK_SKIPPED;
		is_prefix = is_prefix && r->outcomes[i] == BLOCK_HIT;
		result->n_prefix_hits += is_prefix;
	}
}

static void run_request(struct replay *r, const struct trace_request *request)
{
	size_t n = request->n_ids;

	r->chain = r->trace->ids + request->first_id;
	size_t n_first = n ? plan_request(r, n) : 0;
	if (n_first)
		run_batch(r, 0, n_first);
	for (size_t i = n_first; i < n; i++)
		run_batch(r, i, i + 1);
	count_request(r, n);
}

static double seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static void run_requests(struct replay *r)
{
	struct sigaction before[2];
	struct timespec start;

	catch_signals(before);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (size_t i = 0; i < r->trace->n_requests; i++) {
		run_request(r, &r->trace->requests[i]);
		if (atomic_load(&is_stopping)) {
			r->result->was_interrupted = true;
			break;
		}
		r->result->n_requests++;
		progress_update(r->progress, r->result->n_references,
				r->result->n_outcomes[BLOCK_HIT]);
	}
	r->result->seconds = seconds_since(&start);
	sigaction(SIGINT, &before[0], NULL);
	sigaction(SIGTERM, &before[1], NULL);
}

static int clients_create(struct replay *r, const struct replay_options *options)
{
	r->clients = calloc(options->n_threads, sizeof(*r->clients));
	if (!r->clients)
		return -ENOMEM;
	for (; r->n_clients < options->n_threads; r->n_clients++) {
		int rc =
			block_client_init(&r->clients[r->n_clients], &options->store, r->n_clients);
		if (rc)
			return rc;
	}
	return 0;
}

static void clients_destroy(struct replay *r)
{
	for (unsigned i = 0; i < r->n_clients; i++)
		block_client_fini(&r->clients[i]);
	free(r->clients);
}

int replay_run(const struct trace *trace, const struct replay_options *options,
	       struct replay_result *out)
{
	struct replay r = {.trace = trace, .result = out};
	size_t chain = trace->max_chain ? trace->max_chain : 1;
	autofree size_t *order = r.order = calloc(chain, sizeof(*order));
	autofree size_t *sorted = r.sorted = calloc(chain, sizeof(*sorted));
	autofree unsigned char *outcomes = r.outcomes = calloc(chain, 1);
	int rc = order && sorted && outcomes ? clients_create(&r, options) : -ENOMEM;

	if (!rc)
		rc = crew_start(options->n_threads, visit_item, &r, &r.crew);
	if (!rc) {
		r.progress = progress_create(options->progress, trace->n_ids);
		run_requests(&r);
		crew_stop(r.crew);
		progress_destroy(r.progress);
		for (unsigned i = 0; i < r.n_clients; i++)
			block_stats_merge(&out->stats, &r.clients[i].stats);
	}
	clients_destroy(&r);
	return rc;
}
