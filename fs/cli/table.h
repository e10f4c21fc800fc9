/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: rows of text cells, printed in aligned columns.
 *
 * Columns are as wide as their widest cell and two blanks apart. When a limit is given and a row
 * would pass it, the cells of the column marked as elastic are cut in their middle ("/mnt/a...f00").
 * Control characters in cells are printed as '?', so that a file name cannot drive the terminal.
 * Thread safety: one table is used by one thread.
 */
#ifndef MCFS_CLI_TABLE_H
#define MCFS_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_MAX_COLUMNS 8

struct table_column {
	const char *title; /* NULL in the first column: the table has no header */
	bool is_right;	   /* right-aligned, for numbers */
	bool is_elastic;   /* may be cut; at most one */
};

struct table;

/* columns is borrowed for the table's life, 1 to TABLE_MAX_COLUMNS of them. NULL: out of memory. */
struct table *table_create(const struct table_column *columns, size_t n_columns);
void table_destroy(struct table *t);

/* Cells are copied; NULL is shown as "-". Returns 0 or -ENOMEM. */
int table_add(struct table *t, const char *const *cells);

/* limit: columns of the terminal, 0 for none. */
void table_print(const struct table *t, FILE *out, size_t limit);

/* What to give as limit for a stream: the width of its terminal, 0 when it is none. */
size_t table_limit(FILE *out);

#define table_row(t, ...) table_add(t, (const char *const[]){__VA_ARGS__})

#endif
