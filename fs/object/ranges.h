/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranges: a set of byte ranges, sorted, disjoint and never touching each other.
 * Sequential writes keep it at one range. Thread safety: none.
 */
#ifndef MCFS_RANGES_H
#define MCFS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t start, end; /* [start, end) */
};

struct ranges {
	struct range *v;
	size_t n, cap;
	uint64_t total; /* bytes covered */
};

void ranges_fini(struct ranges *r);
/* Adds [start, end); empty ranges are ignored. */
void ranges_add(struct ranges *r, uint64_t start, uint64_t end);
/* Forgets everything at and after size. */
void ranges_cut(struct ranges *r, uint64_t size);
/* Bytes of [start, end) that are not covered. */
uint64_t ranges_missing(const struct ranges *r, uint64_t start, uint64_t end);
/*
 * The next piece of [start, end): *piece_end gets where it ends; returns whether it is covered.
 * start < end.
 */
bool ranges_next(const struct ranges *r, uint64_t start, uint64_t end, uint64_t *piece_end);

#endif
