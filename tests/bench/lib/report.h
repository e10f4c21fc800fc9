/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came out: rows, printed as a table and kept as JSON.
 *
 * JSON: an array with one row a line: job, against, mode, ratio, bar, pass,
 * p50_us, cpu_s_per_gb, and where a figure stands by itself its value and unit.
 * What was not measured, or has no bar, is null.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stddef.h>

enum bar_kind {
	BAR_NONE,	    /* printed only */
	BAR_RATIO_MIN,	    /* ratio must reach it */
	BAR_CPU_PER_GB_MAX, /* cpu_s_per_gb must stay below it */
	BAR_VALUE_MAX,	    /* value must not exceed it */
};

/* Numbers are NaN where there is none. */
struct row {
	const char *job;
	const char *against;
	const char *mode;
	enum bar_kind bar_kind;
	double bar;
	double ratio;
	double ours_p50_us;
	double raw_p50_us; /* table only */
	double cpu_s_per_gb;
	double value;
	const char *unit; /* NULL: value means nothing */
};

void report_print_head(void);
void report_print_row(const struct row *row);
/* The same for rows with a value: a table of its own. */
void report_print_value_head(void);
void report_print_value(const struct row *row);

/* Returns 0 or negative errno, logged. */
int report_write_json(const char *path, const struct row *rows, size_t n_rows);

#endif
