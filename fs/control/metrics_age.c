/* SPDX-License-Identifier: Apache-2.0 */
/* Ages are whole seconds, rounded down: those below 2^k are at most 2^k, which is what `le` says. */
#include "control/metrics.h"

#include <inttypes.h>

#include "control/prom.h"
#include "object/residency_stats.h"

#define FAMILY "mooncakefs_eviction_age_seconds"

static void print_tier(FILE *f, const char *tier, const struct age_histogram *h)
{
	uint64_t n = 0;

	for (unsigned k = 0; k < AGE_BUCKETS - 1; k++) {
		n += h->n[k];
		fprintf(f, FAMILY "_bucket{tier=\"%s\",le=\"%" PRIu64 "\"} %" PRIu64 "\n", tier,
			UINT64_C(1) << k, n);
	}
	/* The sum and not h->count, so that the two agree whatever. */
	n += h->n[AGE_BUCKETS - 1];
	fprintf(f, FAMILY "_bucket{tier=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", tier, n);
	fprintf(f, FAMILY "_sum{tier=\"%s\"} %" PRIu64 "\n", tier, h->sum_s);
	fprintf(f, FAMILY "_count{tier=\"%s\"} %" PRIu64 "\n", tier, n);
}

void metrics_eviction_ages(FILE *f, const char *tier_a, const struct age_histogram *a,
			   const char *tier_b, const struct age_histogram *b)
{
	prom_family(f, FAMILY, PROM_HISTOGRAM,
		    "time between the last use of an object and its eviction from a tier");
	print_tier(f, tier_a, a);
	print_tier(f, tier_b, b);
}
