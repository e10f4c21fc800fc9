/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_lru: least recently used, leaf first within a request.
 *
 * One list from cold to hot. A run is the touches of one caller that follow each other; it enters at
 * the hot end, and each further node of it enters just below (colder than) the one before:
 *
 *   cold ... | c b a | ...      after one caller touched a, b, c
 *
 * Invariant: the nodes of a run are neighbours in the list, its latest (the anchor) the coldest.
 *
 * A run ends, and the caller's next touch starts another at the hot end, when
 *  - more than 2 ms passed since its last touch, or RUN_MAX_NS since its first: one thread that reads
 *    unrelated objects without a pause would else be one run for ever, and its newest the coldest;
 *  - the node is in the run already (a second request for the same prefix);
 *  - it has a sixteenth of all nodes: what a run holds is never pushed out before what is much older;
 *  - none of its nodes is left (removed, or touched by others since);
 *  - its slot is needed: the policy knows RUN_SLOTS callers at a time, the longest silent goes first.
 * Touches of other callers in between do not end it. A node belongs to the run that touched it last.
 * Caller 0 is nobody: each such touch is a run of its own, plain LRU.
 *
 * node.seq is the run's number, its low bits the run's slot; 0: no run.
 */
#include "tier/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define RUN_GAP_NS INT64_C(2000000)
#define RUN_MAX_NS INT64_C(500000000)
#define RUN_SHARE 16 /* one run may be this part of all nodes */
#define RUN_SLOT_BITS 10
#define RUN_SLOTS (1U << RUN_SLOT_BITS)
#define RUN_WAYS 4U /* slots a caller may be in */

struct run {
	uint64_t caller;	    /* 0: the slot is unused */
	uint64_t seq;		    /* of its nodes */
	struct policy_node *anchor; /* NULL: no node left */
	int64_t first_ns, last_ns;
	uint64_t n;                 /* nodes that entered it */
};

struct policy_lru {
	struct policy policy;
	struct policy_node ends; /* a ring: next is the coldest, prev the hottest */
	uint64_t n_runs;
	uint64_t n_nodes;
	struct run runs[RUN_SLOTS];
};

static void link_before(struct policy_node *n, struct policy_node *where)
{
	n->next = where;
	n->prev = where->prev;
	n->prev->next = n;
	where->prev = n;
}

/* Takes n out of the list and out of its run. */
static void detach(struct policy_lru *lru, struct policy_node *n)
{
	struct run *run = &lru->runs[n->seq & (RUN_SLOTS - 1)];

	if (run->anchor == n)
		run->anchor = n->next->seq == n->seq ? n->next : NULL;
	n->prev->next = n->next;
	n->next->prev = n->prev;
}

/* The caller's run, or the slot of the one that has to give way to it. */
static struct run *find_slot(struct policy_lru *lru, uint64_t caller)
{
	uint32_t base = (uint32_t)((caller * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - RUN_SLOT_BITS));
	struct run *oldest = &lru->runs[base];

	for (uint32_t i = 0; i < RUN_WAYS; i++) {
		struct run *run = &lru->runs[(base + i) & (RUN_SLOTS - 1)];
		if (run->caller == caller)
			return run;
		if (run->last_ns < oldest->last_ns || (run->caller == 0 && oldest->caller != 0))
			oldest = run;
	}
	return oldest;
}

static bool run_goes_on(const struct policy_lru *lru, const struct run *run,
			const struct policy_node *n, uint64_t caller, int64_t now_ns)
{
	return run->caller == caller && run->anchor && n->seq != run->seq &&
	       run->n < lru->n_nodes / RUN_SHARE &&
	       now_ns - run->last_ns <= RUN_GAP_NS && now_ns - run->first_ns <= RUN_MAX_NS;
}

/* n is in no list; its seq tells the run that had it, or 0. */
static void place(struct policy_lru *lru, struct policy_node *n, uint64_t caller, int64_t now_ns)
{
	if (caller == 0) {
		n->seq = 0;
		link_before(n, &lru->ends);
		return;
	}
	struct run *run = find_slot(lru, caller);
	if (run_goes_on(lru, run, n, caller, now_ns)) {
		link_before(n, run->anchor);
	} else {
		*run = (struct run){.caller = caller,
				    .first_ns = now_ns,
				    .seq = ++lru->n_runs << RUN_SLOT_BITS |
					   (uint64_t)(run - lru->runs)};
		link_before(n, &lru->ends);
	}
	n->seq = run->seq;
	run->anchor = n;
	run->n++;
	run->last_ns = now_ns;
}

static void lru_insert(struct policy *p, struct policy_node *n, uint64_t caller, int64_t now_ns)
{
	struct policy_lru *lru = (struct policy_lru *)p;

	n->seq = 0;
	lru->n_nodes++;
	place(lru, n, caller, now_ns);
}

static void lru_touch(struct policy *p, struct policy_node *n, uint64_t caller, int64_t now_ns)
{
	struct policy_lru *lru = (struct policy_lru *)p;

	detach(lru, n);
	place(lru, n, caller, now_ns);
}

static void lru_insert_cold(struct policy *p, struct policy_node *n)
{
	struct policy_lru *lru = (struct policy_lru *)p;

	n->seq = 0;
	lru->n_nodes++;
	link_before(n, lru->ends.next);
}

static void lru_remove(struct policy *p, struct policy_node *n)
{
	struct policy_lru *lru = (struct policy_lru *)p;

	detach(lru, n);
	lru->n_nodes--;
	*n = (struct policy_node){.seq = 0};
}

static struct policy_node *lru_victim(struct policy *p, struct policy_node *after)
{
	struct policy_lru *lru = (struct policy_lru *)p;
	struct policy_node *n = after ? after->next : lru->ends.next;

	return n == &lru->ends ? NULL : n;
}

static void lru_destroy(struct policy *p)
{
	free(p);
}

static const struct policy_ops lru_ops = {
	.name = "lru",
	.insert = lru_insert,
	.touch = lru_touch,
	.insert_cold = lru_insert_cold,
	.remove = lru_remove,
	.victim = lru_victim,
	.destroy = lru_destroy,
};

struct policy *policy_lru_create(void)
{
	struct policy_lru *lru = calloc(1, sizeof(*lru));

	if (!lru)
		return NULL;
	lru->policy.ops = &lru_ops;
	lru->ends.next = lru->ends.prev = &lru->ends;
	return &lru->policy;
}
