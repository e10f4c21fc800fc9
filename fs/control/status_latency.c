/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The histograms in full: of every operation that was asked for, the buckets that are not empty as
 * [end_ns, n], n of their own and not summed up; end_ns is null for what took longer than 2^36 ns.
 */
#include "control/status.h"

#include "base/latency.h"

static json_t *buckets_array(const struct latency *l)
{
	json_t *buckets = json_array();

	for (unsigned b = 0; b < LATENCY_BUCKETS; b++) {
		uint64_t end_ns = latency_bucket_end_ns(b);
		if (!l->buckets[b])
			continue;
		json_array_append_new(buckets,
				      json_pack("[o, o]",
						end_ns == UINT64_MAX ? json_null() : status_u64(end_ns),
						status_u64(l->buckets[b])));
	}
	return buckets;
}

json_t *status_latency(void)
{
	json_t *all = json_object();
	struct latency l;

	for (int op = 0; op < N_LATENCY_OPS; op++) {
		latency_read(op, &l);
		if (!l.count)
			continue;
		json_object_set_new(all, latency_name(op),
				    json_pack("{s:o, s:o, s:o, s:o, s:o}",
					      "count", status_u64(l.count),
					      "sum_ns", status_u64(l.sum_ns),
					      "p50_ns", status_u64((uint64_t)latency_quantile_ns(&l, 0.5)),
					      "p99_ns", status_u64((uint64_t)latency_quantile_ns(&l, 0.99)),
					      "buckets", buckets_array(&l)));
	}
	return all;
}
