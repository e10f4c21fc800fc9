/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t text_characters(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

size_t text_widest_line(const char *text)
{
	size_t widest = 0;

	while (*text) {
		size_t len = strcspn(text, "\n"), n = text_characters(text, len);
		widest = n > widest ? n : widest;
		text += len + (text[len] == '\n');
	}
	return widest;
}

size_t text_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

char *text_table(const struct table_column *columns, size_t n, const row_cells *rows, size_t n_rows,
		 size_t limit)
{
	char *text = NULL;
	size_t len = 0;
	struct table *t = table_create(columns, n);
	FILE *f = open_memstream(&text, &len);

	if (t && f) {
		for (size_t i = 0; i < n_rows; i++)
			table_add(t, rows[i]);
		table_print(t, f, limit);
	}
	table_destroy(t);
	if (f && fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

char *text_table_fitting(const struct table_column *columns, size_t n, const row_cells *rows,
			 size_t n_rows, size_t width)
{
	for (;; n--) {
		char *text = text_table(columns, n, rows, n_rows, n > 2 ? 0 : width);
		if (!text || n <= 2 || text_widest_line(text) <= width)
			return text;
		free(text);
	}
}

void text_print_pair(FILE *out, const char *left, const char *right)
{
	size_t width = text_widest_line(left) + TEXT_SIDE_GAP;

	while (*left || *right) {
		size_t l = strcspn(left, "\n"), r = strcspn(right, "\n");
		int pad = r ? (int)(width - text_characters(left, l)) : 0;
		fprintf(out, "%.*s%*s%.*s\n", (int)l, left, pad, "", (int)r, right);
		left += l + (left[l] == '\n');
		right += r + (right[r] == '\n');
	}
}
