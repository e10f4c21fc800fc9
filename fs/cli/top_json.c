/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl top --json: a round as one object. mooncakectl(1) describes it. */
#include "cli/top.h"

#include "cli/text.h"

#include <time.h>

static json_t *ops_object(const struct top_round *r)
{
	json_t *ops = json_object();

	for (size_t i = 0; i < r->n_ops; i++) {
		const struct top_op *op = &r->ops[i];
		json_object_set_new(ops, op->name,
				    json_pack("{s:f, s:f, s:f, s:f}", "per_s", op->per_s, "mean_us",
					      op->mean_ns / 1e3, "p50_us", op->p50_ns / 1e3,
					      "p99_us", op->p99_ns / 1e3));
	}
	return ops;
}

static json_t *counters_object(const struct top_round *r)
{
	json_t *counters = json_object();

	for (size_t i = 0; i < r->n_counters; i++)
		json_object_set_new(counters, r->counters[i].name,
				    json_real(r->counters[i].per_s));
	return counters;
}

/* A copy of a member of status.json; null when the daemon does not tell it. */
static json_t *member(const struct top_round *r, const char *key)
{
	json_t *value = json_object_get(r->now, key);

	return value ? json_copy(value) : json_null();
}

json_t *top_json(const struct top_round *r)
{
	struct timespec now;
	double hit_share = top_lookup_hit_share(r);

	clock_gettime(CLOCK_REALTIME, &now);
	return json_pack("{s:f, s:o, s:o, s:o, s:b, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:o,"
			 " s:o, s:o, s:o, s:o, s:o, s:f}",
			 "time", (double)now.tv_sec + (double)now.tv_nsec / 1e9, "mount",
			 text_json(r->mount),
			 "pid", member(r, "pid"), "uptime_s", member(r, "uptime_s"),
			 "restarted", r->is_restarted, "seconds", r->seconds,
			 "read_gbps", top_counter_rate(r, "read_bytes") / 1e9,
			 "write_gbps", top_counter_rate(r, "write_bytes") / 1e9,
			 "requests_per_s", r->requests_per_s,
			 "lookups_per_s", top_counter_rate(r, "lookups"),
			 "lookup_hit_share", hit_share < 0 ? json_null() : json_real(hit_share),
			 "evictions_per_s", top_counter_rate(r, "evictions"),
			 "evicted_bytes_per_s", top_counter_rate(r, "evicted_bytes"),
			 "cpu_share", r->cpu_share, "objects", member(r, "objects"),
			 "tiers", member(r, "tiers"), "process", member(r, "process"),
			 "ops", ops_object(r), "counters", counters_object(r),
			 "residency", member(r, "residency"),
			 "writeback_bytes_per_s", top_counter_rate(r, "writeback_bytes"));
}
