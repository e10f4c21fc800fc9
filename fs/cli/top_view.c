/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view of mooncakectl top: heading, facts, tiers, operations, counters. Facts flow like words; a
 * table drops columns from its right until it fits.
 */
#include "cli/top.h"

#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/mount.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/text_table.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FACT_GAP "   "
#define MIN_BAR_CELLS 6
#define MAX_BAR_CELLS 40

struct view {
	FILE *out;
	size_t columns;
	size_t used; /* of the line of facts being written */
};

/* ---- text ---- */

/* "0.3", "17", "1,234,567" */
static char *rate_text(double per_s, char buf[TEXT_BYTES])
{
	if (per_s < 9.95)
		snprintf(buf, TEXT_BYTES, "%.1f", per_s);
	else
		text_count((uint64_t)(per_s + 0.5), buf);
	return buf;
}

/* Decimal, as links and disks are measured. */
static char *speed_text(double bytes_per_s, char buf[TEXT_BYTES])
{
	if (bytes_per_s >= 1e8)
		snprintf(buf, TEXT_BYTES, "%.2f GB/s", bytes_per_s / 1e9);
	else
		snprintf(buf, TEXT_BYTES, "%.1f MB/s", bytes_per_s / 1e6);
	return buf;
}

static char *size_text(double bytes, char buf[TEXT_BYTES])
{
	return format_size((uint64_t)(bytes + 0.5), buf, TEXT_BYTES);
}

static char *size_of(const json_t *object, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(object, key, &n) ? format_size(n, buf, TEXT_BYTES) : strcpy(buf, "-");
}

static char *count_of(const json_t *object, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(object, key, &n) ? text_count(n, buf) : strcpy(buf, "-");
}

/* ---- facts ---- */

static void fact(struct view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Goes to the next line where this one is full. */
static void fact(struct view *v, const char *fmt, ...)
{
	char text[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	size_t n = text_characters(text, strlen(text));
	if (v->used && v->used + strlen(FACT_GAP) + n > v->columns) {
		fputc('\n', v->out);
		v->used = 0;
	}
	v->used +=
		(size_t)fprintf(v->out, "%s%s", v->used ? FACT_GAP : "", text) - strlen(text) + n;
}

static void end_facts(struct view *v)
{
	if (v->used)
		fputc('\n', v->out);
	v->used = 0;
}

static void print_rates(struct view *v, const struct top_round *r)
{
	char a[TEXT_BYTES];
	double hit_share = top_lookup_hit_share(r);

	if (!r->has_rates) {
		fact(v, "%s", r->is_restarted ? "the daemon was restarted" : "measuring ...");
		end_facts(v);
		return;
	}
	fact(v, "read %s", speed_text(top_counter_rate(r, "read_bytes"), a));
	fact(v, "write %s", speed_text(top_counter_rate(r, "write_bytes"), a));
	fact(v, "requests %s/s", rate_text(r->requests_per_s, a));
	fact(v, "lookups %s/s", rate_text(top_counter_rate(r, "lookups"), a));
	if (hit_share >= 0)
		fact(v, "found %.1f %%", hit_share * 100);
	fact(v, "opens %s/s", rate_text(top_counter_rate(r, "opens"), a));
	fact(v, "publishes %s/s", rate_text(top_counter_rate(r, "publishes"), a));
	fact(v, "evictions %s/s", rate_text(top_counter_rate(r, "evictions"), a));
	fact(v, "evicted %s/s", size_text(top_counter_rate(r, "evicted_bytes"), a));
	fact(v, "write-back %s", speed_text(top_counter_rate(r, "writeback_bytes"), a));
	end_facts(v);
}

static void print_state(struct view *v, const struct top_round *r)
{
	const json_t *process = json_object_get(r->now, "process");
	const json_t *queue =
		json_object_get(json_object_get(r->now, "residency"), "writeback_queue");
	char a[TEXT_BYTES];

	fact(v, "objects %s", count_of(json_object_get(r->now, "objects"), "count", a));
	fact(v, "drafts %s", count_of(json_object_get(r->now, "drafts"), "open", a));
	if (queue) {
		fact(v, "write-back queue %s", count_of(queue, "objects", a));
		fact(v, "queued %s", size_of(queue, "bytes", a));
	}
	fact(v, "rss %s", size_of(process, "rss_bytes", a));
	if (r->has_rates)
		fact(v, "cpu %.0f %%", r->cpu_share * 100);
	fact(v, "threads %s", count_of(process, "threads", a));
	fact(v, "fds %s", count_of(process, "open_fds", a));
	end_facts(v);
}

/* The mount first, cut in its middle where it must be, then what else there is room for. */
static void print_heading(struct view *v, const struct top_round *r)
{
	static const struct table_column column = {.is_elastic = true};
	const char *version = status_text(r->now, "version"), *node = status_text(r->now, "node");
	char up[TEXT_BYTES], silent[TEXT_BYTES];
	autofree char *line = NULL;
	size_t len = 0;
	uint64_t n;

	struct table *t = table_create(&column, 1);
	FILE *f = open_memstream(&line, &len);
	if (t && f) {
		table_row(t, r->mount);
		table_print(t, f, v->columns);
	}
	table_destroy(t);
	if (f && !fclose(f) && line) {
		line[strcspn(line, "\n")] = '\0';
		fact(v, "%s", line);
	}
	if (r->silent_s > 0)
		fact(v, "NO ANSWER for %s", text_duration(r->silent_s, silent));
	if (status_number(r->now, "uptime_s", &n))
		fact(v, "up %s", text_duration((double)n, up));
	if (node && text_characters(node, strlen(node)) + 5 <= v->columns)
		fact(v, "node %s", node);
	if (version)
		fact(v, "mooncakefs %s", version);
	end_facts(v);
}

/* ---- tiers ---- */

#define MAX_TIERS 16

struct tier_text {
	char bar[MAX_BAR_CELLS + 16];
	char used[TEXT_BYTES], budget[TEXT_BYTES], objects[TEXT_BYTES], spare[TEXT_BYTES],
		zombie[TEXT_BYTES];
};

/* "[####....]  40 %" */
static void fill_bar(const json_t *tier, size_t cells, char *bar)
{
	uint64_t used = 0, budget = 0;
	char inside[MAX_BAR_CELLS + 1];

	if (!status_number(tier, "used_bytes", &used) ||
	    !status_number(tier, "budget_bytes", &budget) || !budget) {
		strcpy(bar, "-");
		return;
	}
	double share = (double)used / (double)budget;
	size_t filled = share >= 1 ? cells : (size_t)(share * (double)cells + 0.5);
	memset(inside, '.', cells);
	memset(inside, '#', filled);
	inside[cells] = '\0';
	snprintf(bar, sizeof((struct tier_text *)0)->bar, "[%s] %3.0f %%", inside,
		 share > 9.99 ? 999 : share * 100);
}

static size_t fill_tiers(const json_t *tiers, struct tier_text *texts, row_cells *rows)
{
	size_t n = json_array_size(tiers) < MAX_TIERS ? json_array_size(tiers) : MAX_TIERS;

	for (size_t i = 0; i < n; i++) {
		const json_t *tier = json_array_get(tiers, i);
		struct tier_text *t = &texts[i];
		const char *name = status_text(tier, "name");
		fill_bar(tier, MIN_BAR_CELLS, t->bar);
		memcpy(rows[i],
		       (row_cells){name, t->bar, size_of(tier, "used_bytes", t->used),
				   size_of(tier, "budget_bytes", t->budget),
				   count_of(tier, "objects", t->objects),
				   size_of(tier, "free_list_bytes", t->spare),
				   size_of(tier, "zombie_bytes", t->zombie)},
		       sizeof(rows[i]));
	}
	return n;
}

static void print_tiers(struct view *v, const struct top_round *r)
{
	static const struct table_column columns[] = {
		{.title = "TIER", .is_elastic = true},	{.title = "USAGE"},
		{.title = "USED", .is_right = true},	{.title = "BUDGET", .is_right = true},
		{.title = "OBJECTS", .is_right = true}, {.title = "SPARE", .is_right = true},
		{.title = "ZOMBIE", .is_right = true},
	};
	const json_t *tiers = json_object_get(r->now, "tiers");
	struct tier_text texts[MAX_TIERS];
	row_cells rows[MAX_TIERS];
	size_t n_columns = sizeof(columns) / sizeof(*columns);
	size_t n = fill_tiers(tiers, texts, rows);
	size_t width = 0;

	/* The columns that fit beside the shortest bar, then the longest bar that fits beside them. */
	for (; n_columns >= 2; n_columns--) {
		autofree char *text = text_table(columns, n_columns, rows, n, 0);
		if (!text)
			return;
		width = text_widest_line(text);
		if (width <= v->columns || n_columns == 2)
			break;
	}
	size_t cells = MIN_BAR_CELLS + (v->columns > width ? v->columns - width : 0);
	for (size_t i = 0; i < n; i++)
		fill_bar(json_array_get(tiers, i), cells < MAX_BAR_CELLS ? cells : MAX_BAR_CELLS,
			 texts[i].bar);
	autofree char *text = text_table(columns, n_columns, rows, n, v->columns);
	if (text)
		fprintf(v->out, "\n%s", text);
}

/* ---- operations and counters ---- */

static char *ops_text(const struct top_round *r, size_t n, size_t width)
{
	static const struct table_column columns[] = {
		{.title = "REQUEST", .is_elastic = true},
		{.title = "PER S", .is_right = true},
		{.title = "P50", .is_right = true},
		{.title = "P99", .is_right = true},
		{.title = "MEAN", .is_right = true},
		{.title = "SINCE START", .is_right = true},
	};
	static char cells[TOP_MAX_OPS][5][TEXT_BYTES];
	static row_cells rows[TOP_MAX_OPS];

	for (size_t i = 0; i < n; i++) {
		const struct top_op *op = &r->ops[i];
		memcpy(rows[i],
		       (row_cells){op->name, rate_text(op->per_s, cells[i][0]),
				   text_latency((uint64_t)op->p50_ns, cells[i][1]),
				   text_latency((uint64_t)op->p99_ns, cells[i][2]),
				   text_latency((uint64_t)op->mean_ns, cells[i][3]),
				   text_count(op->total, cells[i][4])},
		       sizeof(rows[i]));
	}
	return text_table_fitting(columns, sizeof(columns) / sizeof(*columns),
				  (const row_cells *)rows, n, width);
}

static char *counters_text(const struct top_round *r, size_t n, size_t width)
{
	static const struct table_column columns[] = {
		{.title = "COUNTER", .is_elastic = true},
		{.title = "PER S", .is_right = true},
		{.title = "SINCE START", .is_right = true},
	};
	static char cells[TOP_MAX_COUNTERS][2][TEXT_BYTES];
	static row_cells rows[TOP_MAX_COUNTERS];

	for (size_t i = 0; i < n; i++) {
		const struct top_counter *c = &r->counters[i];
		bool is_bytes = strstr(c->name, "_bytes");
		memcpy(rows[i],
		       (row_cells){c->name,
				   is_bytes ? size_text(c->per_s, cells[i][0]) :
					      rate_text(c->per_s, cells[i][0]),
				   is_bytes ? format_size(c->total, cells[i][1], TEXT_BYTES) :
					      text_count(c->total, cells[i][1])},
		       sizeof(rows[i]));
	}
	return text_table_fitting(columns, sizeof(columns) / sizeof(*columns),
				  (const row_cells *)rows, n, width);
}

/* One above the other. When not all fit, counters get what operations leave, and half at least. */
static void print_stacked(struct view *v, const struct top_round *r, size_t room)
{
	size_t n_ops = r->n_ops, n_counters = r->n_counters;

	if (n_ops + n_counters + 2 > room) {
		size_t left = room > n_counters + 2 ? room - n_counters - 2 : 0;
		size_t most = left > room / 2 ? left : room / 2;
		n_ops = n_ops < most ? n_ops : most;
		left = room > n_ops + 2 ? room - n_ops - 2 : 0;
		n_counters = n_counters < left ? n_counters : left;
	}
	autofree char *ops = n_ops ? ops_text(r, n_ops, v->columns) : NULL;
	autofree char *counters = n_counters ? counters_text(r, n_counters, v->columns) : NULL;
	if (ops)
		fprintf(v->out, "\n%s", ops);
	if (counters)
		fprintf(v->out, "\n%s", counters);
}

/* Side by side where both fit with all their columns. */
static void print_activity(struct view *v, const struct top_round *r, size_t rows_left)
{
	size_t room = rows_left > 2 ? rows_left - 2 : 0; /* a blank line and a header */
	size_t n_ops = r->n_ops < room ? r->n_ops : room;
	size_t n_counters = r->n_counters < room ? r->n_counters : room;
	autofree char *ops = n_ops ? ops_text(r, n_ops, SIZE_MAX) : NULL;
	autofree char *counters = n_counters ? counters_text(r, n_counters, SIZE_MAX) : NULL;

	if (!ops || !counters ||
	    text_widest_line(ops) + TEXT_SIDE_GAP + text_widest_line(counters) > v->columns) {
		print_stacked(v, r, room);
		return;
	}
	fputc('\n', v->out);
	text_print_pair(v->out, ops, counters);
}

char *top_view(const struct top_round *r, size_t columns, size_t rows)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	struct view v = {.out = f, .columns = columns};
	print_heading(&v, r);
	print_rates(&v, r);
	print_state(&v, r);
	print_tiers(&v, r);
	fflush(f);
	size_t used = text ? text_lines(text) : 0;
	print_activity(&v, r, !rows ? SIZE_MAX / 2 : rows > used ? rows - used : 0);
	bool is_whole = !ferror(f);
	if (fclose(f) || !is_whole) {
		free(text);
		return NULL;
	}
	return text;
}
