/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP 2
#define CUT_MARK "..."
#define CUT_MARK_WIDTH 3
#define ELASTIC_MIN 12 /* an elastic column is never cut below this */

struct table {
	const struct table_column *columns;
	size_t n_columns;
	char **cells; /* n_rows * n_columns, by row */
	size_t n_rows;
	size_t width[TABLE_MAX_COLUMNS];
};

/* Characters of a UTF-8 text: all bytes but continuations. Wide and combining ones count as one. */
static size_t text_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

struct table *table_create(const struct table_column *columns, size_t n_columns)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->columns = columns;
	t->n_columns = n_columns;
	if (columns[0].title)
		for (size_t c = 0; c < n_columns; c++)
			t->width[c] = text_width(columns[c].title);
	return t;
}

void table_destroy(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}

static char *cell_copy(const char *text)
{
	char *copy = strdup(text ? text : "-");

	if (copy)
		for (char *p = copy; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == 0x7f)
				*p = '?';
	return copy;
}

int table_add(struct table *t, const char *const *cells)
{
	size_t base = t->n_rows * t->n_columns;
	char **grown = realloc(t->cells, (base + t->n_columns) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	t->cells = grown;
	for (size_t c = 0; c < t->n_columns; c++) {
		grown[base + c] = cell_copy(cells[c]);
		if (!grown[base + c]) {
			while (c--)
				free(grown[base + c]);
			return -ENOMEM;
		}
	}
	for (size_t c = 0; c < t->n_columns; c++) {
		size_t width = text_width(grown[base + c]);
		if (width > t->width[c])
			t->width[c] = width;
	}
	t->n_rows++;
	return 0;
}

/* The byte after the first n characters. */
static const char *skip_characters(const char *text, size_t n)
{
	while (*text && n--)
		for (text++; ((unsigned char)*text & 0xc0) == 0x80; text++)
			;
	return text;
}

static void print_cut(FILE *out, const char *text, size_t width)
{
	size_t have = text_width(text);

	if (have <= width) {
		fputs(text, out);
		return;
	}
	size_t tail = (width - CUT_MARK_WIDTH) / 2;
	size_t head = width - CUT_MARK_WIDTH - tail;
	fwrite(text, 1, (size_t)(skip_characters(text, head) - text), out);
	fputs(CUT_MARK, out);
	fputs(skip_characters(text, have - tail), out);
}

static void print_blanks(FILE *out, size_t n)
{
	while (n--)
		putc(' ', out);
}

/* Lines end at their last visible character. */
static void print_line(const struct table *t, FILE *out, const char *const *cells,
		       const size_t *width)
{
	size_t owed = 0;

	for (size_t c = 0; c < t->n_columns; c++) {
		size_t have = text_width(cells[c]);
		size_t pad = have < width[c] ? width[c] - have : 0;
		if (!have) {
			owed += width[c] + GAP;
			continue;
		}
		print_blanks(out, owed + (t->columns[c].is_right ? pad : 0));
		print_cut(out, cells[c], width[c]);
		owed = (t->columns[c].is_right ? 0 : pad) + GAP;
	}
	putc('\n', out);
}

static void fit(const struct table *t, size_t limit, size_t *width)
{
	size_t total = GAP * (t->n_columns - 1);

	for (size_t c = 0; c < t->n_columns; c++)
		total += width[c] = t->width[c];
	if (!limit || total <= limit)
		return;
	for (size_t c = 0; c < t->n_columns; c++) {
		if (!t->columns[c].is_elastic || width[c] <= ELASTIC_MIN)
			continue;
		size_t excess = total - limit;
		width[c] = width[c] > excess + ELASTIC_MIN ? width[c] - excess : ELASTIC_MIN;
		return;
	}
}

void table_print(const struct table *t, FILE *out, size_t limit)
{
	size_t width[TABLE_MAX_COLUMNS];

	fit(t, limit, width);
	if (t->columns[0].title) {
		const char *titles[TABLE_MAX_COLUMNS];
		for (size_t c = 0; c < t->n_columns; c++)
			titles[c] = t->columns[c].title;
		print_line(t, out, titles, width);
	}
	for (size_t r = 0; r < t->n_rows; r++)
		print_line(t, out, (const char *const *)t->cells + r * t->n_columns, width);
}

size_t table_limit(FILE *out)
{
	struct winsize size;

	if (!isatty(fileno(out)))
		return 0;
	if (ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col < 20)
		return 80;
	return size.ws_col;
}
