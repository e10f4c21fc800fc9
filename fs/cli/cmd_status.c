/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl status, metrics: what the daemon says about itself. */
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>

#define BAR_CELLS 20

/* Members that an older or newer daemon does not send are shown as "-". */
static char *number_cell(const json_t *object, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(object, key, &n) ? text_count(n, buf) : strcpy(buf, "-");
}

static char *size_cell(const json_t *object, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(object, key, &n) ? format_size(n, buf, TEXT_BYTES) : strcpy(buf, "-");
}

static const char *text_or_dash(const json_t *object, const char *key)
{
	const char *text = status_text(object, key);

	return text ? text : "-";
}

static void print_heading(const json_t *status, const char *mount)
{
	char pid[TEXT_BYTES], up[TEXT_BYTES] = "-";
	uint64_t n;

	if (status_number(status, "uptime_s", &n))
		text_duration((double)n, up);
	if (status_number(status, "pid", &n))
		snprintf(pid, sizeof(pid), "%llu", (unsigned long long)n);
	else
		strcpy(pid, "-");
	printf("mooncakefs %s on %s, node %s, pid %s, up %s\n", text_or_dash(status, "version"),
	       status_text(status, "mountpoint") ? status_text(status, "mountpoint") : mount,
	       text_or_dash(status, "node"), pid, up);
}

/* Not of a daemon older than these. */
static void print_more_facts(struct table *t, const json_t *status)
{
	const json_t *queue =
		json_object_get(json_object_get(status, "residency"), "writeback_queue");
	const json_t *process = json_object_get(status, "process");
	char text[256], a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES];

	if (queue) {
		snprintf(text, sizeof(text), "%s objects wait, %s", number_cell(queue, "objects", a),
			 size_cell(queue, "bytes", b));
		table_row(t, "write-back", text);
	}
	if (process) {
		snprintf(text, sizeof(text), "%s of memory, %s threads, %s descriptors",
			 size_cell(process, "rss_bytes", a), number_cell(process, "threads", b),
			 number_cell(process, "open_fds", c));
		table_row(t, "process", text);
	}
}

static void print_facts(const json_t *status)
{
	static const struct table_column columns[] = {{0}, {.is_elastic = true}};
	const json_t *passthrough = json_object_get(status, "passthrough");
	const json_t *objects = json_object_get(status, "objects");
	const json_t *drafts = json_object_get(status, "drafts");
	const json_t *catalog = json_object_get(status, "catalog");
	const json_t *live = json_object_get(passthrough, "live");
	char text[256], a[TEXT_BYTES], b[TEXT_BYTES];
	struct table *t = table_create(columns, 2);

	if (!t)
		return;
	table_row(t, "state", status_text(status, "state_dir"));
	if (json_is_true(live))
		table_row(t, "passthrough", "live");
	else if (json_is_false(live)) {
		snprintf(text, sizeof(text), "off: %s", text_or_dash(passthrough, "reason"));
		table_row(t, "passthrough", text);
	} else
		table_row(t, "passthrough", NULL);
	snprintf(text, sizeof(text), "%s of at most %s", number_cell(objects, "count", a),
		 number_cell(objects, "max", b));
	table_row(t, "objects", text);
	snprintf(text, sizeof(text), "%s open", number_cell(drafts, "open", a));
	table_row(t, "drafts", text);
	snprintf(text, sizeof(text), "about %s entries, %s on disk",
		 number_cell(catalog, "entries_estimate", a), size_cell(catalog, "disk_bytes", b));
	table_row(t, "catalog", text);
	print_more_facts(t, status);
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

/* "[########............]  40 %"; "-" when either number is unknown. */
static const char *usage_bar(const json_t *tier, char bar[64])
{
	uint64_t used, budget;

	if (!status_number(tier, "used_bytes", &used) ||
	    !status_number(tier, "budget_bytes", &budget) || !budget)
		return NULL;
	double share = (double)used / (double)budget;
	int filled = share >= 1 ? BAR_CELLS : (int)(share * BAR_CELLS + 0.5);
	char cells[BAR_CELLS + 1];
	memset(cells, '.', BAR_CELLS);
	memset(cells, '#', (size_t)filled);
	cells[BAR_CELLS] = '\0';
	snprintf(bar, 64, "[%s] %3.0f %%", cells, share * 100);
	return bar;
}

static void print_tiers(const json_t *status)
{
	static const struct table_column columns[] = {
		{.title = "TIER", .is_elastic = true}, {.title = "USAGE"},
		{.title = "USED", .is_right = true},   {.title = "BUDGET", .is_right = true},
		{.title = "SPARE", .is_right = true},  {.title = "OBJECTS", .is_right = true},
	};
	const json_t *tiers = json_object_get(status, "tiers");
	struct table *t = table_create(columns, 6);

	if (!t)
		return;
	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *tier = json_array_get(tiers, i);
		char bar[64], used[TEXT_BYTES], budget[TEXT_BYTES], spare[TEXT_BYTES];
		char objects[TEXT_BYTES];

		table_row(t, text_or_dash(tier, "name"), usage_bar(tier, bar),
			  size_cell(tier, "used_bytes", used),
			  size_cell(tier, "budget_bytes", budget),
			  size_cell(tier, "free_list_bytes", spare),
			  number_cell(tier, "objects", objects));
	}
	putchar('\n');
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

/* One row per directory of the ssd tier, when there are several or one has failed. */
static void print_disks(const json_t *status)
{
	static const struct table_column columns[] = {
		{.title = "SSD DIRECTORY", .is_elastic = true}, {.title = "STATE"},
		{.title = "USED", .is_right = true},	{.title = "BUDGET", .is_right = true},
		{.title = "OBJECTS", .is_right = true}, {.title = "ERRORS", .is_right = true},
	};
	const json_t *disks = json_object_get(status, "disks");
	const json_t *first = json_array_get(disks, 0);
	const char *state = status_text(first, "state");

	if (!first || (json_array_size(disks) == 1 && state && !strcmp(state, "ok")))
		return;
	struct table *t = table_create(columns, 6);
	if (!t)
		return;
	for (size_t i = 0; i < json_array_size(disks); i++) {
		const json_t *disk = json_array_get(disks, i);
		char used[TEXT_BYTES], budget[TEXT_BYTES], objects[TEXT_BYTES], errors[TEXT_BYTES];
		table_row(t, text_or_dash(disk, "path"), text_or_dash(disk, "state"),
			  size_cell(disk, "used_bytes", used), size_cell(disk, "budget_bytes", budget),
			  number_cell(disk, "objects", objects), number_cell(disk, "errors", errors));
	}
	putchar('\n');
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
	for (size_t i = 0; i < json_array_size(disks); i++) {
		const json_t *disk = json_array_get(disks, i);
		const char *reason = status_text(disk, "reason");
		if (reason && *reason)
			printf("%s: %s\n", text_or_dash(disk, "path"), reason);
	}
}

#define MAX_LATENCY_ROWS 8
#define MAX_OPS 64

struct op_row {
	const char *name;
	const json_t *op;
	uint64_t count;
};

static int busier_first(const void *a, const void *b)
{
	const struct op_row *left = a, *right = b;

	if (left->count == right->count)
		return strcmp(left->name, right->name);
	return left->count < right->count ? 1 : -1;
}

/* The requests that came most often. */
static void print_latency(const json_t *status)
{
	static const struct table_column columns[] = {
		{.title = "REQUEST", .is_elastic = true}, {.title = "COUNT", .is_right = true},
		{.title = "P50", .is_right = true},	  {.title = "P99", .is_right = true},
	};
	json_t *all = json_object_get(status, "latency");
	struct op_row rows[MAX_OPS] = {{0}};
	size_t n = 0;

	for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
		rows[n] = (struct op_row){json_object_iter_key(i), json_object_iter_value(i), 0};
		if (n < MAX_OPS - 1 && status_number(rows[n].op, "count", &rows[n].count))
			n++;
	}
	qsort(rows, n, sizeof(*rows), busier_first);
	struct table *t = n ? table_create(columns, 4) : NULL;
	if (!t)
		return;
	for (size_t i = 0; i < n && i < MAX_LATENCY_ROWS; i++) {
		char count[TEXT_BYTES], a[TEXT_BYTES], b[TEXT_BYTES];
		uint64_t p50, p99;
		table_row(t, rows[i].name, text_count(rows[i].count, count),
			  status_number(rows[i].op, "p50_ns", &p50) ? text_latency(p50, a) : NULL,
			  status_number(rows[i].op, "p99_ns", &p99) ? text_latency(p99, b) : NULL);
	}
	putchar('\n');
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

static void print_counters(const json_t *status)
{
	static const struct table_column columns[] = {{.title = "COUNTER"},
						      {.title = "SINCE START", .is_right = true}};
	static const char *const always[] = {
		"lookups",   "lookup_misses", "opens",	   "opens_passthrough", "opens_direct",
		"publishes", "publish_bytes", "evictions", "evicted_bytes",
	};
	static const char *const when_not_zero[] = {
		"publish_failures", "drafts_poisoned", "pid0_calls",	 "lost",
		"expired",	    "space_waits",     "space_failures", "notify_failures",
		"catalog_errors",   "corrupt",	       "ssd_evictions",	 "evicted_names",
		"writeback_objects", "writeback_failures", "promotions", "spill_waits",
	};
	const json_t *counters = json_object_get(status, "counters");
	char cell[TEXT_BYTES];
	uint64_t n;
	struct table *t = table_create(columns, 2);

	if (!t)
		return;
	for (size_t i = 0; i < sizeof(always) / sizeof(*always); i++)
		table_row(t, always[i],
			  strstr(always[i], "_bytes") ? size_cell(counters, always[i], cell) :
							number_cell(counters, always[i], cell));
	for (size_t i = 0; i < sizeof(when_not_zero) / sizeof(*when_not_zero); i++)
		if (status_number(counters, when_not_zero[i], &n) && n)
			table_row(t, when_not_zero[i], text_count(n, cell));
	putchar('\n');
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

int run_status(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	char mount[PATH_MAX];
	json_t *status;
	int rc = common_parse(cmd, argc, argv, true, 0, 1, &options);

	if (rc >= 0)
		return rc;
	if (mount_find(options.mount, argv[optind], mount) || mount_status(mount, &status))
		return CLI_FAILED;
	if (options.json)
		return print_json(status, CLI_OK);
	print_heading(status, mount);
	print_facts(status);
	print_tiers(status);
	print_disks(status);
	print_latency(status);
	print_counters(status);
	json_decref(status);
	return CLI_OK;
}

/* "name{labels} value [timestamp]" lines to an object; comments and odd lines are left out. */
static json_t *metrics_object(char *text)
{
	json_t *object = json_object();
	char *rest = text, *line;

	while (object && (line = strsep(&rest, "\n"))) {
		if (!*line || *line == '#')
			continue;
		char *brace = strrchr(line, '}');
		char *gap = strchr(brace ? brace : line, ' ');
		if (!gap)
			continue;
		*gap = '\0';
		char *end;
		double value = strtod(gap + 1, &end);
		if (end == gap + 1)
			continue;
		json_object_set_new(object, line,
				    value == (double)(json_int_t)value && value < 9e15 ?
					    json_integer((json_int_t)value) :
					    json_real(value));
	}
	return object;
}

int run_metrics(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	char mount[PATH_MAX];
	autofree char *text = NULL;
	size_t len = 0;
	int rc = common_parse(cmd, argc, argv, true, 0, 1, &options);

	if (rc >= 0)
		return rc;
	if (mount_find(options.mount, argv[optind], mount) ||
	    mount_read(mount, "metrics", &text, &len))
		return CLI_FAILED;
	if (options.json)
		return print_json(metrics_object(text), CLI_OK);
	fwrite(text, 1, len, stdout);
	return CLI_OK;
}
