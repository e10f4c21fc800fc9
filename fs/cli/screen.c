/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define LEAVE "\033[0m\033[?25h\033[?1049l"
#define CLEAR_TO_END_OF_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

static int write_all(const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(STDOUT_FILENO, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

int screen_open(struct screen *s)
{
	s->has_keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &s->saved);
	if (s->has_keys) {
		struct termios raw = s->saved;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw))
			return -errno;
	}
	s->is_open = true;
	int rc = write_all(ENTER, strlen(ENTER));
	if (rc)
		screen_close(s);
	return rc;
}

void screen_close(struct screen *s)
{
	if (!s->is_open)
		return;
	s->is_open = false;
	/* A terminal that is gone needs nothing back. */
	write_all(LEAVE, strlen(LEAVE));
	if (s->has_keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &s->saved);
}

void screen_size(size_t *columns_out, size_t *rows_out)
{
	struct winsize size;

	*columns_out = 80;
	*rows_out = 24;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		return;
	if (size.ws_col)
		*columns_out = size.ws_col;
	if (size.ws_row)
		*rows_out = size.ws_row;
}

int screen_draw(const char *text, size_t n_bold)
{
	autofree char *frame = NULL;
	size_t columns, rows, len = 0;
	FILE *f = open_memstream(&frame, &len);

	if (!f)
		return -ENOMEM;
	screen_size(&columns, &rows);
	for (size_t row = 1; *text && row <= rows; row++) {
		size_t line = strcspn(text, "\n");
		/* Cleared before it is written: a full line leaves the cursor on its last cell. */
		fprintf(f, "\033[%zu;1H" CLEAR_TO_END_OF_LINE "%s%.*s%s", row,
			row <= n_bold ? "\033[1m" : "", (int)line, text,
			row <= n_bold ? "\033[0m" : "");
		text += line + (text[line] == '\n');
		if (!*text && row < rows)
			fprintf(f, "\033[%zu;1H" CLEAR_BELOW, row + 1);
	}
	bool is_whole = !ferror(f);
	if (fclose(f) || !is_whole)
		return -ENOMEM;
	return write_all(frame, len);
}
