/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top: what changed between two readings of status.json, and how it is shown.
 *
 * A figure that the daemon does not tell counts as 0 where it is a rate, and is left out where it is a
 * state. Thread safety: none is needed.
 */
#ifndef MCFS_CLI_TOP_H
#define MCFS_CLI_TOP_H

#include "base/latency.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_MAX_OPS 64
#define TOP_MAX_COUNTERS 256
#define TOP_MIN_COLUMNS 32 /* no view is narrower */

/* The requests of one kind that ended between the two readings. */
struct top_op {
	const char *name; /* borrowed from the later reading */
	double per_s;
	double mean_ns, p50_ns, p99_ns;
	uint64_t total; /* since the daemon's start */
};

struct top_counter {
	const char *name;
	double per_s;
	uint64_t total;
};

struct top_round {
	const char *mount;
	const json_t *now;   /* the later reading, borrowed */
	bool has_rates;	     /* false: it is the first of a daemon, and all that follows is 0 */
	bool is_restarted;   /* the daemon is another one than at the reading before */
	double seconds;	     /* between the readings, by the daemon's own clock */
	double silent_s;     /* the daemon has not answered for this long; 0: it does */
	double cpu_share;    /* CPU seconds of the daemon per second */
	double requests_per_s;
	size_t n_ops;	     /* those with requests, busiest first */
	struct top_op ops[TOP_MAX_OPS];
	size_t n_counters;   /* those that moved, fastest first; bytes after the others */
	struct top_counter counters[TOP_MAX_COUNTERS];
};

/* before: the reading before, or NULL. Both are borrowed for the round's life. */
void top_round_take(struct top_round *r, const char *mount, const json_t *before,
		    const json_t *now);
/* Increase of a counter per second. */
double top_counter_rate(const struct top_round *r, const char *name);
/* Of what LOOKUP asked for, the share that was there; -1 when nothing was asked. */
double top_lookup_hit_share(const struct top_round *r);

/*
 * The view as lines of at most columns characters and at most rows of them (0: any number), to be freed
 * by the caller; NULL: out of memory. columns is at least TOP_MIN_COLUMNS. Columns that do not fit are
 * left out, never cut; only names are cut, in their middle.
 */
char *top_view(const struct top_round *r, size_t columns, size_t rows);

/* One JSON object; a new reference, NULL: out of memory. */
json_t *top_json(const struct top_round *r);

#endif
