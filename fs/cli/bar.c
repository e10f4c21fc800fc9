/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bar.h"

#include "cli/table.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_CELLS 24
#define REDRAW_S 0.1
#define CLEAR_LINE "\r\033[K"

void bar_init(struct bar *b, bool is_wanted)
{
	*b = (struct bar){.is_shown = is_wanted && isatty(STDERR_FILENO)};
}

void bar_update(struct bar *b, const char *label, uint64_t done, uint64_t total)
{
	char cells[BAR_CELLS + 1], n[TEXT_BYTES], line[160];
	struct timespec ts;
	size_t limit;

	if (!b->is_shown)
		return;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	double now_s = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
	if (b->is_drawn && now_s - b->drawn_s < REDRAW_S)
		return;
	b->drawn_s = now_s;
	b->is_drawn = true;
	if (total) {
		double share = done < total ? (double)done / (double)total : 1;
		memset(cells, '.', BAR_CELLS);
		memset(cells, '#', (size_t)(share * BAR_CELLS));
		cells[BAR_CELLS] = '\0';
		snprintf(line, sizeof(line), "%-16s [%s] %3.0f %%  %s", label, cells, share * 100,
			 text_count(done, n));
	} else {
		snprintf(line, sizeof(line), "%-16s %s", label, text_count(done, n));
	}
	limit = table_limit(stderr);
	fprintf(stderr, CLEAR_LINE "%.*s", (int)((limit ? limit : 80) - 1), line);
	fflush(stderr);
}

void bar_wipe(struct bar *b)
{
	if (b->is_drawn)
		fputs(CLEAR_LINE, stderr);
	b->is_drawn = false;
}
