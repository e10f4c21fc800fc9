/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_util.h"

/* Returns 1 passed, 0 missed, -1 no verdict. */
static int verdict(const struct row *row)
{
	if (row->bar_kind == BAR_RATIO_MIN && !isnan(row->ratio))
		return row->ratio >= row->bar;
	if (row->bar_kind == BAR_CPU_PER_GB_MAX && !isnan(row->cpu_s_per_gb))
		return row->cpu_s_per_gb < row->bar;
	if (row->bar_kind == BAR_VALUE_MAX && row->unit)
		return row->value <= row->bar;
	return -1;
}

static const char *number(char *buf, size_t len, const char *format, double value)
{
	if (isnan(value))
		snprintf(buf, len, "-");
	else
		snprintf(buf, len, format, value);
	return buf;
}

void report_print_head(void)
{
	printf("%-18s %-12s %12s %12s %7s %7s %5s %9s\n", "job", "mode", "ours p50", "raw p50",
	       "ratio", "bar", "pass", "cpu s/GB");
}

void report_print_row(const struct row *row)
{
	static const char *const words[] = {"-", "NO", "yes"};
	char ours[32], raw[32], ratio[32], bar[32], cpu[32];

	number(bar, sizeof(bar), row->bar_kind == BAR_CPU_PER_GB_MAX ? "<%.2f" : "%.2f",
	       row->bar_kind == BAR_NONE ? NAN : row->bar);
	printf("%-18s %-12s %12s %12s %7s %7s %5s %9s\n", row->job, row->mode,
	       number(ours, sizeof(ours), "%.1f us", row->ours_p50_us),
	       number(raw, sizeof(raw), "%.1f us", row->raw_p50_us),
	       number(ratio, sizeof(ratio), "%.2f", row->ratio), bar, words[verdict(row) + 1],
	       number(cpu, sizeof(cpu), "%.3f", row->cpu_s_per_gb));
	fflush(stdout);
}

void report_print_value_head(void)
{
	printf("%-22s %-10s %14s %-10s %10s %7s %7s %5s\n", "job", "mode", "value", "unit", "p50", "ratio",
	       "bar", "pass");
}

void report_print_value(const struct row *row)
{
	static const char *const words[] = {"-", "NO", "yes"};
	char value[32], p50[32], ratio[32], bar[32];

	number(bar, sizeof(bar), row->bar_kind == BAR_VALUE_MAX ? "<=%.0f" : "%.2f",
	       row->bar_kind == BAR_NONE ? NAN : row->bar);
	printf("%-22s %-10s %14s %-10s %10s %7s %7s %5s\n", row->job, row->mode,
	       number(value, sizeof(value), row->value < 100 ? "%.2f" : "%.0f", row->value), row->unit,
	       number(p50, sizeof(p50), "%.1f us", row->ours_p50_us),
	       number(ratio, sizeof(ratio), "%.2f", row->ratio), bar, words[verdict(row) + 1]);
	fflush(stdout);
}

static void put_number(FILE *file, const char *key, double value)
{
	if (isnan(value))
		fprintf(file, ", \"%s\": null", key);
	else
		fprintf(file, ", \"%s\": %.6g", key, value);
}

/* Names are ours: none needs escaping. */
static void put_row(FILE *file, const struct row *row)
{
	static const char *const words[] = {"null", "false", "true"};

	fprintf(file, "  {\"job\": \"%s\", \"against\": \"%s\", \"mode\": \"%s\"", row->job,
		row->against, row->mode);
	put_number(file, "ratio", row->ratio);
	put_number(file, "bar", row->bar_kind == BAR_NONE ? NAN : row->bar);
	fprintf(file, ", \"pass\": %s", words[verdict(row) + 1]);
	put_number(file, "p50_us", row->ours_p50_us);
	put_number(file, "cpu_s_per_gb", row->cpu_s_per_gb);
	if (row->unit) {
		put_number(file, "value", row->value);
		fprintf(file, ", \"unit\": \"%s\"", row->unit);
	}
	fputs("}", file);
}

int report_write_json(const char *path, const struct row *rows, size_t n_rows)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return bench_fail(-errno, "create %s", path);
	fputs("[\n", file);
	for (size_t i = 0; i < n_rows; i++) {
		put_row(file, &rows[i]);
		fputs(i + 1 < n_rows ? ",\n" : "\n", file);
	}
	fputs("]\n", file);
	int failed = ferror(file);
	if (fclose(file) || failed)
		return bench_fail(-EIO, "write %s", path);
	return 0;
}
