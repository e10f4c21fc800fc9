/* SPDX-License-Identifier: Apache-2.0 */
#include "object/ranges.h"

#include <stdlib.h>
#include <string.h>

void ranges_fini(struct ranges *r)
{
	free(r->v);
	*r = (struct ranges){ 0 };
}

/* Index of the first range that ends at or after off. */
static size_t find(const struct ranges *r, uint64_t off)
{
	size_t lo = 0, hi = r->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (r->v[mid].end < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void ranges_add(struct ranges *r, uint64_t start, uint64_t end)
{
	if (start >= end)
		return;
	size_t first = find(r, start), last = first;
	while (last < r->n && r->v[last].start <= end) {
		if (r->v[last].start < start)
			start = r->v[last].start;
		if (r->v[last].end > end)
			end = r->v[last].end;
		r->total -= r->v[last].end - r->v[last].start;
		last++;
	}
	if (last == first) {
		if (r->n == r->cap) {
			r->cap = r->cap ? r->cap * 2 : 4;
			r->v = realloc(r->v, r->cap * sizeof(*r->v));
			if (!r->v)
				abort();
		}
		memmove(r->v + first + 1, r->v + first, (r->n - first) * sizeof(*r->v));
		r->n++;
	} else {
		memmove(r->v + first + 1, r->v + last, (r->n - last) * sizeof(*r->v));
		r->n -= last - first - 1;
	}
	r->v[first] = (struct range){ start, end };
	r->total += end - start;
}

void ranges_cut(struct ranges *r, uint64_t size)
{
	while (r->n && r->v[r->n - 1].start >= size) {
		r->n--;
		r->total -= r->v[r->n].end - r->v[r->n].start;
	}
	if (r->n && r->v[r->n - 1].end > size) {
		r->total -= r->v[r->n - 1].end - size;
		r->v[r->n - 1].end = size;
	}
}

bool ranges_next(const struct ranges *r, uint64_t start, uint64_t end, uint64_t *piece_end)
{
	size_t k = find(r, start + 1);

	if (k == r->n || r->v[k].start >= end) {
		*piece_end = end;
		return false;
	}
	if (r->v[k].start > start) {
		*piece_end = r->v[k].start;
		return false;
	}
	*piece_end = r->v[k].end < end ? r->v[k].end : end;
	return true;
}

uint64_t ranges_missing(const struct ranges *r, uint64_t start, uint64_t end)
{
	uint64_t missing = 0, piece_end;

	for (; start < end; start = piece_end)
		if (!ranges_next(r, start, end, &piece_end))
			missing += piece_end - start;
	return missing;
}
