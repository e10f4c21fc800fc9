/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_set: the frame ids that a scan of a tier found, and which of them something names.
 *
 *   collecting --frame_set_sort--> sorted
 *
 * Eight bytes and a bit per frame. Looking ids up in about the order of their making, as records come,
 * costs a step from the last one found; in any order a binary search.
 * Thread safety: none; one thread uses a set.
 */
#ifndef MCFS_FRAME_SET_H
#define MCFS_FRAME_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct frame_set {
	uint64_t *ids;	 /* ascending once sorted */
	uint64_t *taken; /* a bit per id; NULL while collecting */
	size_t n, cap;
	size_t next;	 /* behind the id that was found last */
};

/* Its arg is the set: a tier_scan_fn. 0 or -ENOMEM. */
int frame_set_add(void *set, uint64_t id);
/* 0 or -ENOMEM. Ids that were added twice count once. */
int frame_set_sort(struct frame_set *s);
/* Whether the sorted set has the id (0: never); marks it as taken. */
bool frame_set_take(struct frame_set *s, uint64_t id);
/* Leaves in the set what was not taken, at [0, n). It cannot be asked any more. */
void frame_set_keep_untaken(struct frame_set *s);
void frame_set_fini(struct frame_set *s);

#endif
