/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay_report.h"

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdio.h>

static const char *const op_names[] = {"open", "miss", "read", "write"};

/* Bytes over the time that the threads spent for them: with several threads the rate of one. */
static double gb_per_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

static bool dram_used(const char *mount, uint64_t *out)
{
	json_t *status;

	if (!mount_is_live(mount) || mount_status(mount, &status))
		return false;
	bool is_known = status_number(status_tier(status, "dram"), "used_bytes", out);
	json_decref(status);
	return is_known;
}

static json_t *ops_json(const struct block_stats *stats)
{
	json_t *ops = json_object();

	for (int i = 0; ops && i < N_BLOCK_OPS; i++) {
		const struct histogram *h = &stats->ops[i];
		json_object_set_new(ops, op_names[i],
				    json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)h->n,
					      "p50_us", (double)histogram_quantile(h, 0.5) / 1e3,
					      "p99_us", (double)histogram_quantile(h, 0.99) / 1e3,
					      "max_us", (double)h->max / 1e3));
	}
	return ops;
}

static void set_number(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *result_json(const struct replay_setting *s, const struct replay_result *result)
{
	const struct block_stats *stats = &result->stats;
	const uint64_t *n = result->n_outcomes;
	uint64_t dram_bytes;
	json_t *o = json_object();

	if (!o)
		return NULL;
	json_object_set_new(o, "trace", text_json(s->trace));
	json_object_set_new(o, "mount", text_json(s->mount));
	json_object_set_new(o, "dir", text_json(s->dir));
	set_number(o, "block_bytes", s->block_bytes);
	set_number(o, "threads", s->n_threads);
	json_object_set_new(o, "publish", json_string(s->publish));
	set_number(o, "requests", result->n_requests);
	set_number(o, "references", result->n_references);
	set_number(o, "hits", n[BLOCK_HIT]);
	set_number(o, "misses", n[BLOCK_MISS] + n[BLOCK_WRITE_FAILED]);
	json_object_set_new(o, "hit_rate",
			    json_real(result->n_references ?
					      (double)n[BLOCK_HIT] / (double)result->n_references :
					      0));
	set_number(o, "prefix_hits", result->n_prefix_hits);
	set_number(o, "bytes_read", stats->bytes_read);
	set_number(o, "bytes_written", stats->bytes_written);
	json_object_set_new(o, "seconds", json_real(result->seconds));
	json_object_set_new(o, "read_gbps", json_real(gb_per_s(stats->bytes_read, stats->read_ns)));
	json_object_set_new(o, "write_gbps",
			    json_real(gb_per_s(stats->bytes_written, stats->write_ns)));
	set_number(o, "corrupt", n[BLOCK_CORRUPT]);
	set_number(o, "read_failures", n[BLOCK_READ_FAILED]);
	set_number(o, "write_failures", n[BLOCK_WRITE_FAILED]);
	json_object_set_new(o, "interrupted", json_boolean(result->was_interrupted));
	json_object_set_new(o, "ops", ops_json(stats));
	json_object_set_new(o, "dram_used_bytes",
			    dram_used(s->mount, &dram_bytes) ?
				    json_integer((json_int_t)dram_bytes) :
				    json_null());
	return o;
}

static void count_row(struct table *t, const char *name, uint64_t n, const char *note)
{
	char cell[TEXT_BYTES];

	table_row(t, name, text_count(n, cell), note);
}

static void bytes_row(struct table *t, const char *name, uint64_t bytes, uint64_t ns,
		      bool is_shared)
{
	char size[TEXT_BYTES], note[64];

	snprintf(note, sizeof(note), "at %.2f GB/s%s", gb_per_s(bytes, ns),
		 is_shared ? " per thread" : "");
	table_row(t, name, format_size(bytes, size, sizeof(size)), ns ? note : "");
}

static void print_totals(const struct replay_setting *s, const struct replay_result *result)
{
	static const struct table_column columns[] = {{0}, {.is_right = true}, {0}};
	const uint64_t *n = result->n_outcomes;
	char cell[TEXT_BYTES], share[TEXT_BYTES];
	uint64_t dram_bytes;
	struct table *t = table_create(columns, 3);

	if (!t)
		return;
	count_row(t, "requests", result->n_requests, result->was_interrupted ? "interrupted" : "");
	count_row(t, "block references", result->n_references, "");
	count_row(t, "hits", n[BLOCK_HIT], text_percent(n[BLOCK_HIT], result->n_references, share));
	count_row(t, "prefix hits", result->n_prefix_hits,
		  text_percent(result->n_prefix_hits, result->n_references, share));
	count_row(t, "misses", n[BLOCK_MISS] + n[BLOCK_WRITE_FAILED], "");
	bytes_row(t, "read", result->stats.bytes_read, result->stats.read_ns, s->n_threads > 1);
	bytes_row(t, "written", result->stats.bytes_written, result->stats.write_ns,
		  s->n_threads > 1);
	snprintf(cell, sizeof(cell), "%.2f s", result->seconds);
	table_row(t, "wall time", cell, "");
	if (dram_used(s->mount, &dram_bytes))
		table_row(t, "in DRAM", format_size(dram_bytes, cell, sizeof(cell)), "");
	count_row(t, "corrupt blocks", n[BLOCK_CORRUPT], "");
	count_row(t, "read failures", n[BLOCK_READ_FAILED], "");
	count_row(t, "write failures", n[BLOCK_WRITE_FAILED], "");
	table_print(t, stdout, 0);
	table_destroy(t);
}

static void print_ops(const struct block_stats *stats)
{
	static const struct table_column columns[] = {
		{.title = "OPERATION"},
		{.title = "COUNT", .is_right = true},
		{.title = "P50", .is_right = true},
		{.title = "P99", .is_right = true},
		{.title = "MAX", .is_right = true},
	};
	static const char *const labels[] = {"open (hit)", "open (miss)", "read",
					     "create+write+close"};
	struct table *t = table_create(columns, 5);

	if (!t)
		return;
	for (int i = 0; i < N_BLOCK_OPS; i++) {
		const struct histogram *h = &stats->ops[i];
		char n[TEXT_BYTES], p50[TEXT_BYTES], p99[TEXT_BYTES], max[TEXT_BYTES];
		text_count(h->n, n);
		text_latency(histogram_quantile(h, 0.5), p50);
		text_latency(histogram_quantile(h, 0.99), p99);
		text_latency(h->max, max);
		if (h->n)
			table_row(t, labels[i], n, p50, p99, max);
	}
	putchar('\n');
	table_print(t, stdout, 0);
	table_destroy(t);
}

int replay_report(const struct replay_setting *s, const struct replay_result *result, bool as_json)
{
	const uint64_t *n = result->n_outcomes;
	bool is_good = !n[BLOCK_CORRUPT] && !n[BLOCK_READ_FAILED] && !n[BLOCK_WRITE_FAILED] &&
		       !result->was_interrupted;
	int exit_code = is_good ? CLI_OK : CLI_FAILED;

	if (as_json)
		return print_json(result_json(s, result), exit_code);
	print_totals(s, result);
	print_ops(&result->stats);
	return exit_code;
}
