/* SPDX-License-Identifier: Apache-2.0 */
#include "control/status.h"

#include "object/residency_stats.h"

/* Buckets that are not empty as [end_s, n]: ages below end_s; null for the oldest. */
static json_t *ages_object(const struct age_histogram *h)
{
	json_t *buckets = json_array();

	for (unsigned k = 0; k < AGE_BUCKETS; k++) {
		if (!h->n[k])
			continue;
		json_t *end_s = k < AGE_BUCKETS - 1 ? status_u64(UINT64_C(1) << k) : json_null();
		json_array_append_new(buckets, json_pack("[o, o]", end_s, status_u64(h->n[k])));
	}
	return json_pack("{s:o, s:o, s:o}", "count", status_u64(h->count),
			 "sum_s", status_u64(h->sum_s), "buckets", buckets);
}

json_t *status_residency(const struct residency_stats *r)
{
	return json_pack("{s:{s:o, s:o}, s:{s:o}, s:{s:o, s:o}, s:{s:o, s:o}}",
			 "writeback_queue", "objects", status_u64(r->queue_objects),
			 "bytes", status_u64(r->queue_bytes),
			 "promotion_queue", "objects", status_u64(r->promote_objects),
			 "reserve", "objects", status_u64(r->reserve_objects),
			 "bytes", status_u64(r->reserve_bytes),
			 "eviction_age", "dram", ages_object(&r->dram_age),
			 "ssd", ages_object(&r->ssd_age));
}
