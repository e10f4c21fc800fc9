/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text_table: tables as text, for a view that is put together before it is shown.
 * Text is lines that end in '\n'; widths are in characters. Thread safe.
 */
#ifndef MCFS_CLI_TEXT_TABLE_H
#define MCFS_CLI_TEXT_TABLE_H

#include "cli/table.h"

#include <stddef.h>
#include <stdio.h>

#define TEXT_SIDE_GAP 4 /* blanks between two texts side by side */

typedef const char *row_cells[TABLE_MAX_COLUMNS];

/* Characters of UTF-8 text: all bytes but continuations. */
size_t text_characters(const char *text, size_t len);
size_t text_widest_line(const char *text);
size_t text_lines(const char *text);

/* The first n columns, at most limit wide if names can be cut for it (0: no limit). NULL: no memory. */
char *text_table(const struct table_column *columns, size_t n, const row_cells *rows, size_t n_rows,
		 size_t limit);
/* As many of n columns as fit in width, but two at least, whose names may then be cut. */
char *text_table_fitting(const struct table_column *columns, size_t n, const row_cells *rows,
			 size_t n_rows, size_t width);

/* Two texts side by side. */
void text_print_pair(FILE *out, const char *left, const char *right);

#endif
