/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BAR_CELLS 16
#define REDRAW_S 0.1
#define CLEAR_LINE "\r\033[K"

struct progress {
	enum progress_mode mode;
	bool is_bar;
	uint64_t total;
	double start_s;
	pthread_mutex_t output_lock;
	double drawn_s;	    /* output_lock: when the bar was drawn */
	uint64_t told_part; /* output_lock: tenths told in lines */
	bool is_drawn;	    /* output_lock: a bar is on the screen */
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

struct progress *progress_create(enum progress_mode mode, uint64_t total)
{
	struct progress *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->mode = mode;
	p->is_bar = mode == PROGRESS_ON || (mode == PROGRESS_AUTO && isatty(STDERR_FILENO));
	p->total = total;
	p->start_s = now_s();
	pthread_mutex_init(&p->output_lock, NULL);
	return p;
}

void progress_destroy(struct progress *p)
{
	if (!p)
		return;
	if (p->is_drawn)
		fputs(CLEAR_LINE, stderr);
	pthread_mutex_destroy(&p->output_lock);
	free(p);
}

static void draw_bar(const struct progress *p, uint64_t done, uint64_t hits, double elapsed_s)
{
	char cells[BAR_CELLS + 1], rate[TEXT_BYTES], hit[TEXT_BYTES], eta[TEXT_BYTES] = "-",
								      line[160];
	double share = p->total ? (double)done / (double)p->total : 1;
	double per_s = elapsed_s > 0 ? (double)done / elapsed_s : 0;
	size_t limit = table_limit(stderr);

	memset(cells, '.', BAR_CELLS);
	memset(cells, '#', (size_t)(share * BAR_CELLS));
	cells[BAR_CELLS] = '\0';
	if (per_s > 0)
		text_duration((double)(p->total - done) / per_s, eta);
	snprintf(line, sizeof(line), "replay [%s] %3.0f %%  %s blocks/s  hits %s  eta %s", cells,
		 share * 100, text_count((uint64_t)per_s, rate), text_percent(hits, done, hit),
		 eta);
	if (!limit)
		limit = 80;
	fprintf(stderr, CLEAR_LINE "%.*s", (int)(limit - 1), line);
	fflush(stderr);
}

static void print_tenth(const struct progress *p, uint64_t done, uint64_t hits, double elapsed_s)
{
	char a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], hit[TEXT_BYTES];
	double per_s = elapsed_s > 0 ? (double)done / elapsed_s : 0;

	fprintf(stderr, "replay: %3.0f %%  %s of %s blocks, %s blocks/s, hits %s\n",
		100.0 * (double)done / (double)p->total, text_count(done, a),
		text_count(p->total, b), text_count((uint64_t)per_s, c),
		text_percent(hits, done, hit));
}

void progress_update(struct progress *p, uint64_t done, uint64_t hits)
{
	if (!p || p->mode == PROGRESS_OFF || !p->total)
		return;
	double now = now_s();
	guard_lock(&p->output_lock);
	if (p->is_bar) {
		if (p->is_drawn && now - p->drawn_s < REDRAW_S)
			return;
		p->drawn_s = now;
		p->is_drawn = true;
		draw_bar(p, done, hits, now - p->start_s);
		return;
	}
	uint64_t part = done * 10 / p->total;
	if (part > p->told_part) {
		p->told_part = part;
		print_tenth(p, done, hits, now - p->start_s);
	}
}

void progress_message(struct progress *p, const char *fmt, ...)
{
	char line[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (!p) {
		cli_error("%s", line);
		return;
	}
	guard_lock(&p->output_lock);
	if (p->is_drawn)
		fputs(CLEAR_LINE, stderr);
	p->is_drawn = false;
	cli_error("%s", line);
}
