/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top.h"

#include "cli/mount.h"

#include <stdlib.h>
#include <string.h>

static double real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static uint64_t number(const json_t *object, const char *key)
{
	uint64_t n = 0;

	return status_number(object, key, &n) ? n : 0;
}

/* A counter that went back belongs to another life of the daemon: what it shows is all new. */
static uint64_t increase(uint64_t before, uint64_t now)
{
	return now >= before ? now - before : now;
}

/* Adds or takes away the buckets that status.json tells, found again by where they end. */
static void add_buckets(struct latency *l, const json_t *op, bool is_before)
{
	const json_t *buckets = json_object_get(op, "buckets");

	for (size_t i = 0; i < json_array_size(buckets); i++) {
		const json_t *pair = json_array_get(buckets, i);
		const json_t *end = json_array_get(pair, 0);
		uint64_t n = (uint64_t)json_integer_value(json_array_get(pair, 1));
		unsigned b = json_is_integer(end) ?
				     latency_bucket_of((uint64_t)json_integer_value(end)) :
				     LATENCY_BUCKETS - 1;
		if (!is_before)
			l->buckets[b] += n;
		else
			l->buckets[b] -= n < l->buckets[b] ? n : l->buckets[b];
	}
}

static void take_op(struct top_round *r, const char *name, const json_t *before, const json_t *now)
{
	struct latency l = {0};

	add_buckets(&l, now, false);
	add_buckets(&l, before, true);
	for (size_t b = 0; b < LATENCY_BUCKETS; b++)
		l.count += l.buckets[b];
	if (!l.count || r->n_ops == TOP_MAX_OPS)
		return;
	l.sum_ns = increase(number(before, "sum_ns"), number(now, "sum_ns"));
	r->requests_per_s += (double)l.count / r->seconds;
	r->ops[r->n_ops++] = (struct top_op){
		.name = name,
		.per_s = (double)l.count / r->seconds,
		.mean_ns = (double)l.sum_ns / (double)l.count,
		.p50_ns = latency_quantile_ns(&l, 0.5),
		.p99_ns = latency_quantile_ns(&l, 0.99),
		.total = number(now, "count"),
	};
}

static int busier_first(const void *a, const void *b)
{
	const struct top_op *left = a, *right = b;

	if (left->per_s == right->per_s)
		return strcmp(left->name, right->name);
	return left->per_s < right->per_s ? 1 : -1;
}

static void take_ops(struct top_round *r, const json_t *before)
{
	const json_t *was = json_object_get(before, "latency");
	json_t *is = json_object_get(r->now, "latency");

	for (void *i = json_object_iter(is); i; i = json_object_iter_next(is, i)) {
		const char *name = json_object_iter_key(i);
		take_op(r, name, json_object_get(was, name), json_object_iter_value(i));
	}
	qsort(r->ops, r->n_ops, sizeof(*r->ops), busier_first);
}

static bool is_bytes(const struct top_counter *c)
{
	return strstr(c->name, "_bytes");
}

static int faster_first(const void *a, const void *b)
{
	const struct top_counter *left = a, *right = b;

	if (is_bytes(left) != is_bytes(right))
		return is_bytes(left) ? 1 : -1;
	if (left->per_s == right->per_s)
		return strcmp(left->name, right->name);
	return left->per_s < right->per_s ? 1 : -1;
}

static void take_counters(struct top_round *r, const json_t *before)
{
	const json_t *was = json_object_get(before, "counters");
	json_t *is = json_object_get(r->now, "counters");

	for (void *i = json_object_iter(is); i; i = json_object_iter_next(is, i)) {
		const char *name = json_object_iter_key(i);
		uint64_t total = number(is, name);
		uint64_t moved = increase(number(was, name), total);
		if (moved && r->n_counters < TOP_MAX_COUNTERS)
			r->counters[r->n_counters++] =
				(struct top_counter){name, (double)moved / r->seconds, total};
	}
	qsort(r->counters, r->n_counters, sizeof(*r->counters), faster_first);
}

void top_round_take(struct top_round *r, const char *mount, const json_t *before, const json_t *now)
{
	*r = (struct top_round){.mount = mount, .now = now};
	if (!before)
		return;
	r->seconds = real(now, "uptime_s") - real(before, "uptime_s");
	r->is_restarted = number(before, "pid") != number(now, "pid") || r->seconds <= 0;
	if (r->is_restarted)
		return;
	r->has_rates = true;
	double cpu_s = real(json_object_get(now, "process"), "cpu_s") -
		       real(json_object_get(before, "process"), "cpu_s");
	r->cpu_share = cpu_s > 0 ? cpu_s / r->seconds : 0;
	take_ops(r, before);
	take_counters(r, before);
}

double top_counter_rate(const struct top_round *r, const char *name)
{
	for (size_t i = 0; i < r->n_counters; i++)
		if (!strcmp(r->counters[i].name, name))
			return r->counters[i].per_s;
	return 0;
}

double top_lookup_hit_share(const struct top_round *r)
{
	double lookups = top_counter_rate(r, "lookups"),
	       misses = top_counter_rate(r, "lookup_misses");

	/* The two are not read at one moment. */
	return lookups <= 0 ? -1 : misses >= lookups ? 0 : 1 - misses / lookups;
}
