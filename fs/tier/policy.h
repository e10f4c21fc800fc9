/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: in which order objects leave a tier.
 *
 * Nodes are embedded in the objects they order. The policy only orders; whether a victim may really
 * go (pinned, open, kept) is its caller's knowledge, so victims are offered one after another.
 *
 * Thread safety: none; the caller's lock guards a policy and all its nodes. No function allocates,
 * blocks or fails.
 */
#ifndef MCFS_POLICY_H
#define MCFS_POLICY_H

#include <stdint.h>

struct policy_node {
	struct policy_node *prev, *next; /* both NULL: not in a policy */
	uint64_t seq;                    /* of its last touch */
};

struct policy;

struct policy_ops {
	const char *name;
	/* A node enters as just used. caller identifies who used it (a thread id; 0: nobody). */
	void (*insert)(struct policy *p, struct policy_node *n, uint64_t caller, int64_t now_ns);
	void (*touch)(struct policy *p, struct policy_node *n, uint64_t caller, int64_t now_ns);
	/* A node enters as the next to go (adopted at start, age unknown). */
	void (*insert_cold)(struct policy *p, struct policy_node *n);
	void (*remove)(struct policy *p, struct policy_node *n);
	/* The node that should go first (after NULL), or the one after a refused one. NULL: no more. */
	struct policy_node *(*victim)(struct policy *p, struct policy_node *after);
	void (*destroy)(struct policy *p);
};

struct policy {
	const struct policy_ops *ops;
};

/*
 * Least recently used, leaf first within a request: touches of one caller that follow each other
 * within 2 ms, none of an object touched before in that run, are one request's prefix chain; a later
 * (deeper) block of it is then older than an earlier one, so that a chain is evicted from its leaf
 * and what stays is a usable prefix. A run is at most a sixteenth of all nodes.
 */
struct policy *policy_lru_create(void);

#endif
