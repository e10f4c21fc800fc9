/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/histogram.h"

#include <stddef.h>

#define SUB_COUNT (UINT64_C(1) << HISTOGRAM_SUB_BITS)

/*
 * A value with its highest bit at 7 + k falls in row k + 1, whose buckets are 2^k wide; row 0 holds
 * the values below 128 themselves.
 */
static size_t bucket_of(uint64_t value)
{
	if (value < SUB_COUNT)
		return (size_t)value;
	unsigned shift = 63U - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
	return ((size_t)(shift + 1) << HISTOGRAM_SUB_BITS) + (size_t)((value >> shift) - SUB_COUNT);
}

static uint64_t bucket_middle(size_t bucket)
{
	if (bucket < SUB_COUNT)
		return bucket;
	unsigned shift = (unsigned)(bucket >> HISTOGRAM_SUB_BITS) - 1;
	uint64_t low = (SUB_COUNT + (bucket & (SUB_COUNT - 1))) << shift;
	return low + ((UINT64_C(1) << shift) >> 1);
}

void histogram_add(struct histogram *h, uint64_t value)
{
	if (!h->n || value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
	h->n++;
	h->sum += value;
	h->buckets[bucket_of(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	if (!from->n)
		return;
	if (!into->n || from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->n += from->n;
	into->sum += from->sum;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t histogram_quantile(const struct histogram *h, double share)
{
	if (!h->n)
		return 0;
	if (!(share > 0))
		return h->min;
	if (share >= 1)
		return h->max;
	double exact_rank = share * (double)h->n;
	uint64_t rank = (uint64_t)exact_rank;
	if ((double)rank < exact_rank || !rank)
		rank++;
	uint64_t seen = 0;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen < rank)
			continue;
		uint64_t value = bucket_middle(i);
		return value < h->min ? h->min : value > h->max ? h->max : value;
	}
	return h->max;
}
