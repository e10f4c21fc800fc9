/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One histogram per operation that was asked for at least once, with buckets that end at powers of
 * two from 2^10 ns (1 us) to 2^34 ns (17 s): about 30 lines per operation.
 */
#include "control/metrics.h"

#include <inttypes.h>

#include "base/latency.h"
#include "control/prom.h"

#define FAMILY "mooncakefs_request_duration_seconds"
#define FIRST_BITS 10
#define LAST_BITS 34

_Static_assert(FIRST_BITS >= LATENCY_FIRST_BITS && LAST_BITS <= LATENCY_LAST_BITS,
	       "every bound is one of the histogram's own");

static void print_op(FILE *f, const char *op, const struct latency *l)
{
	uint64_t n = 0;
	unsigned bucket = 0;

	for (unsigned bits = FIRST_BITS; bits <= LAST_BITS; bits++) {
		uint64_t end_ns = UINT64_C(1) << bits;
		while (latency_bucket_end_ns(bucket) <= end_ns)
			n += l->buckets[bucket++];
		fprintf(f, FAMILY "_bucket{op=\"%s\",le=\"%.12g\"} %" PRIu64 "\n", op,
			(double)end_ns / 1e9, n);
	}
	fprintf(f, FAMILY "_bucket{op=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", op, l->count);
	fprintf(f, FAMILY "_sum{op=\"%s\"} %" PRIu64 ".%09" PRIu64 "\n", op, l->sum_ns / 1000000000,
		l->sum_ns % 1000000000);
	fprintf(f, FAMILY "_count{op=\"%s\"} %" PRIu64 "\n", op, l->count);
}

void metrics_latency(FILE *f)
{
	struct latency l;

	prom_family(f, FAMILY, PROM_HISTOGRAM,
		    "time the daemon took for requests of the kernel, by operation");
	for (int op = 0; op < N_LATENCY_OPS; op++) {
		latency_read(op, &l);
		if (l.count)
			print_op(f, latency_name(op), &l);
	}
}
