/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl bench: its options, and what was measured as a table or as JSON. */
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/trial.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZE (64 << 10)
#define DEFAULT_ITEMS 64
#define DEFAULT_NAMES 4096
#define LOOKUP_SIZE 16 /* of the objects behind names */
#define MAX_SIZE ((uint64_t)1 << 31)
#define MAX_ITEMS (1 << 20)
#define MAX_SEGMENTS 65536
#define MAX_THREADS 64
#define MAX_SECONDS 3600

const char bench_details[] =
	"Reads, writes and looks up objects of its own in a temporary directory of the mount,\n"
	"a batch per call, each next to a memcpy of the same bytes in the same shape. Columns:\n"
	"time of a call and of an object or name in it, bytes moved per second, CPU seconds of\n"
	"this program + of the daemon per GB, speed as a share of the memcpy's (by medians).\n\n"
	"Options:\n"
	"  --op OP             read, write, lookup or all (default all)\n"
	"  --size SIZE         of an object (default 64K)\n"
	"  --batch N           objects per call (default 64; names per lookup: 4096)\n"
	"  --segments N        pieces an object's memory is cut into (default 1)\n"
	"  --threads N         callers at once, in one session (default 1)\n"
	"  --seconds S         per row (default 2)\n"
	"  --mount DIR         mount point (default: the mount that holds MOUNT, else\n"
	"                      $MOONCAKE_MOUNT, else " CLI_DEFAULT_MOUNT ")\n";

struct bench_command {
	struct common_options common;
	const char *op;
	uint64_t size, n_items, n_segments, n_threads, seconds;
	char mount[PATH_MAX];
};

static const struct {
	const char *name, *op;
} rows[N_TRIAL_OPS] = {
	[TRIAL_READ] = {"read", "read"},
	[TRIAL_WRITE] = {"write", "write"},
	[TRIAL_LOOKUP_PRESENT] = {"lookup, present", "lookup"},
	[TRIAL_LOOKUP_MISSING] = {"lookup, missing", "lookup"},
};

static atomic_bool is_stopping;

static void on_signal(int signal_number)
{
	atomic_store(&is_stopping, true);
}

/* ---- options ---- */

enum {
	OPTION_OP = OPTION_OWN,
	OPTION_SIZE,
	OPTION_BATCH,
	OPTION_SEGMENTS,
	OPTION_THREADS,
	OPTION_SECONDS
};

static int take_number(const struct command *cmd, const char *name, uint64_t max, uint64_t *out)
{
	if (!parse_u64(optarg, 1, max, out))
		return -1;
	return usage_error(cmd, "--%s: '%s' is not a number from 1 to %llu", name, optarg,
			   (unsigned long long)max);
}

/* Returns -1 to go on, else the exit code. */
static int take_option(const struct command *cmd, int option, struct bench_command *b)
{
	switch (option) {
	case OPTION_OP:
		if (strcmp(optarg, "read") && strcmp(optarg, "write") && strcmp(optarg, "lookup") &&
		    strcmp(optarg, "all"))
			return usage_error(cmd, "--op: '%s' is not read, write, lookup or all",
					   optarg);
		b->op = optarg;
		return -1;
	case OPTION_SIZE:
		if (parse_size(optarg, &b->size) || !b->size || b->size > MAX_SIZE)
			return usage_error(cmd, "--size: '%s' is not a size from 1 to 2G", optarg);
		return -1;
	case OPTION_BATCH:
		return take_number(cmd, "batch", MAX_ITEMS, &b->n_items);
	case OPTION_SEGMENTS:
		return take_number(cmd, "segments", MAX_SEGMENTS, &b->n_segments);
	case OPTION_THREADS:
		return take_number(cmd, "threads", MAX_THREADS, &b->n_threads);
	case OPTION_SECONDS:
		return take_number(cmd, "seconds", MAX_SECONDS, &b->seconds);
	default:
		return common_option(cmd, option, &b->common);
	}
}

static int bench_parse(const struct command *cmd, int argc, char **argv, struct bench_command *b)
{
	static const struct option known[] = {
		COMMON_OPTIONS,
		MOUNT_OPTION,
		{"op", required_argument, NULL, OPTION_OP},
		{"size", required_argument, NULL, OPTION_SIZE},
		{"batch", required_argument, NULL, OPTION_BATCH},
		{"segments", required_argument, NULL, OPTION_SEGMENTS},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"seconds", required_argument, NULL, OPTION_SECONDS},
		{0},
	};
	int option, rc;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		if ((rc = take_option(cmd, option, b)) >= 0)
			return rc;
	if ((rc = common_operands(cmd, argc, argv, 0, 1)) >= 0)
		return rc;
	if (b->size % b->n_segments)
		return usage_error(cmd, "--size: %llu bytes cannot be cut into %llu equal segments",
				   (unsigned long long)b->size, (unsigned long long)b->n_segments);
	return mount_find(b->common.mount, argv[optind], b->mount) ? CLI_FAILED : -1;
}

/* ---- what was measured ---- */

static double per_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0; /* GB/s */
}

/* By the medians: a machine that does other things, too, spoils the means first. */
static double of_copy(const struct trial_result *r)
{
	uint64_t call = histogram_quantile(&r->call, .5);

	return call ? (double)histogram_quantile(&r->copy, .5) / (double)call : 0;
}

static json_t *times_json(const struct histogram *h, double divisor)
{
	return json_pack("{s:f, s:f, s:f}", "p50",
			 (double)histogram_quantile(h, .5) / divisor / 1e3, "p99",
			 (double)histogram_quantile(h, .99) / divisor / 1e3, "max",
			 (double)h->max / divisor / 1e3);
}

static json_t *row_json(const char *name, const struct trial_setting *s,
			const struct trial_result *r)
{
	json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "op", name, "size",
				(json_int_t)s->size, "batch", (json_int_t)s->n_items, "calls",
				(json_int_t)r->n_calls, "items", (json_int_t)r->n_items, "call_us",
				times_json(&r->call, 1), "item_us",
				times_json(&r->call, s->n_items));

	if (!r->bytes)
		return row;
	double gb = (double)r->bytes / 1e9;
	json_t *more = json_pack(
		"{s:o, s:f, s:f, s:f, s:f, s:o}", "memcpy_us", times_json(&r->copy, 1), "gb_per_s",
		per_s(r->bytes, r->call_ns), "memcpy_gb_per_s", per_s(r->bytes, r->copy_ns),
		"of_memcpy", of_copy(r), "own_cpu_s_per_gb", (double)r->own_cpu_ns / 1e9 / gb,
		"daemon_cpu_s_per_gb",
		r->has_daemon_cpu ? json_real((double)r->daemon_cpu_ns / 1e9 / gb) : json_null());
	if (more)
		json_object_update(row, more);
	json_decref(more);
	return row;
}

static int row_table(struct table *t, const char *name, const struct trial_setting *s,
		     const struct trial_result *r)
{
	uint64_t p50 = histogram_quantile(&r->call, .5), p99 = histogram_quantile(&r->call, .99);
	char cells[7][TEXT_BYTES];
	double gb = (double)r->bytes / 1e9;
	bool has_bytes = r->bytes;

	text_latency(p50, cells[0]);
	text_latency(p99, cells[1]);
	snprintf(cells[2], TEXT_BYTES, "%.2f us", (double)p50 / s->n_items / 1e3);
	snprintf(cells[3], TEXT_BYTES, "%.2f us", (double)p99 / s->n_items / 1e3);
	if (has_bytes) {
		snprintf(cells[4], TEXT_BYTES, "%.2f", per_s(r->bytes, r->call_ns));
		int n = snprintf(cells[5], TEXT_BYTES, "%.3f", (double)r->own_cpu_ns / 1e9 / gb);
		if (r->has_daemon_cpu)
			snprintf(cells[5] + n, TEXT_BYTES - (size_t)n, "+%.3f",
				 (double)r->daemon_cpu_ns / 1e9 / gb);
		snprintf(cells[6], TEXT_BYTES, "%.0f %%", 100 * of_copy(r));
	}
	return table_row(t, name, cells[0], cells[1], cells[2], cells[3],
			 has_bytes ? cells[4] : NULL, has_bytes ? cells[5] : NULL,
			 has_bytes ? cells[6] : NULL);
}

/* ---- the runs ---- */

struct report {
	json_t *rows; /* or NULL: */
	struct table *table;
};

static int bench_row(const struct bench_command *b, enum trial_op op, struct report *report)
{
	bool is_lookup = !strcmp(rows[op].op, "lookup");
	const struct trial_setting s = {
		.mount = b->mount,
		.size = is_lookup ? LOOKUP_SIZE : b->size,
		.n_items = (uint32_t)(b->n_items ? b->n_items :
				      is_lookup	 ? DEFAULT_NAMES :
						   DEFAULT_ITEMS),
		.n_segments = is_lookup ? 1 : (uint32_t)b->n_segments,
		.n_lanes = (unsigned)b->n_threads,
		.seconds = (double)b->seconds,
		.is_stopping = &is_stopping,
	};
	autofree struct trial_result *r = malloc(sizeof(*r));

	if (!r)
		return -ENOMEM;
	int rc = trial_run(op, &s, r);
	if (rc || !r->n_calls)
		return rc;
	if (report->rows)
		return json_array_append_new(report->rows, row_json(rows[op].name, &s, r)) ?
			       -ENOMEM :
			       0;
	return row_table(report->table, rows[op].name, &s, r);
}

static int bench_run(const struct bench_command *b, struct report *report)
{
	int rc = 0;

	for (int op = 0; op < N_TRIAL_OPS && !rc && !atomic_load(&is_stopping); op++)
		if (!strcmp(b->op, "all") || !strcmp(b->op, rows[op].op))
			rc = bench_row(b, (enum trial_op)op, report);
	return rc;
}

static int bench_report(const struct bench_command *b, struct report *report, int exit_code)
{
	char size[TEXT_BYTES];

	if (report->rows)
		return print_json(json_pack("{s:s, s:I, s:I, s:I, s:o}", "mount", b->mount,
					    "segments", (json_int_t)b->n_segments, "threads",
					    (json_int_t)b->n_threads, "seconds",
					    (json_int_t)b->seconds, "rows", report->rows),
				  exit_code);
	printf("%s, objects of %s in %llu segments, %llu thread%s\n", b->mount,
	       format_size(b->size, size, sizeof(size)), (unsigned long long)b->n_segments,
	       (unsigned long long)b->n_threads, b->n_threads == 1 ? "" : "s");
	table_print(report->table, stdout, table_limit(stdout));
	table_destroy(report->table);
	return exit_code;
}

int run_bench(const struct command *cmd, int argc, char **argv)
{
	static const struct table_column columns[] = {
		{.title = "OP"},
		{.title = "CALL P50", .is_right = true},
		{.title = "CALL P99", .is_right = true},
		{.title = "ITEM P50", .is_right = true},
		{.title = "ITEM P99", .is_right = true},
		{.title = "GB/S", .is_right = true},
		{.title = "CPU S/GB", .is_right = true},
		{.title = "OF MEMCPY", .is_right = true},
	};
	struct bench_command b = {
		.op = "all", .size = DEFAULT_SIZE, .n_segments = 1, .n_threads = 1, .seconds = 2};
	struct report report = {0};
	int rc = bench_parse(cmd, argc, argv, &b);

	if (rc >= 0)
		return rc;
	if (b.common.json)
		report.rows = json_array();
	else
		report.table = table_create(columns, sizeof(columns) / sizeof(*columns));
	if (!report.rows && !report.table) {
		cli_error("bench: out of memory");
		return CLI_FAILED;
	}
	/* The temporary directory is removed then, too; a second signal ends the program. */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	rc = bench_run(&b, &report);
	bool was_stopped = atomic_load(&is_stopping);
	return bench_report(&b, &report, rc || was_stopped ? CLI_FAILED : CLI_OK);
}
