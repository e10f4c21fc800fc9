/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_tier: a fake tier over a real one that is slow, or fails, when a test says so.
 *
 * A call that is made to fail does not reach the inner tier, so nothing has happened, as tier.h
 * promises. Operations without a result (discard, drop, adopt, reclaim) can only be slow.
 *
 * Thread safety: all functions, also while the tier is in use.
 */
#ifndef MCFS_FAULT_TIER_H
#define MCFS_FAULT_TIER_H

#include <mcfs/tier.h>

/* X(name of the operation in tier_ops, and of its FAULT_ constant) */
#define FAULT_TIER_OPS(X)                                                                     \
	X(take)                                                                               \
	X(charge) X(resize) X(write) X(read) X(zero) X(sync) X(seal) X(open) X(scan) \
		X(remove_orphan) X(map) X(discard) X(drop) X(adopt) X(reclaim)

enum fault_op {
#define X(op) FAULT_##op,
	FAULT_TIER_OPS(X)
#undef X
	N_FAULT_OPS
};

/* Owns inner from now on: destroy destroys both. NULL without memory. */
struct tier *fault_tier_create(struct tier *inner);
struct tier *fault_tier_inner(struct tier *t);

/* The nth call of op from now (1: the next) returns -err, later ones succeed. nth 0: none fails. */
void fault_tier_fail(struct tier *t, enum fault_op op, uint64_t nth, int err);
/* Every call of op waits so long before it is passed on. 0: none. */
void fault_tier_delay(struct tier *t, enum fault_op op, uint64_t delay_ns);
/* Calls of op so far, failed ones included. */
uint64_t fault_tier_calls(struct tier *t, enum fault_op op);
const char *fault_op_name(enum fault_op op);

#endif
