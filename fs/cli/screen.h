/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen: a whole terminal to draw on, by the control sequences that every terminal of today knows
 * (ECMA-48 and xterm's alternate screen).
 *
 *   closed --open--> open (alternate screen, no cursor, keys unbuffered and without echo) --close--> closed
 *
 * Lines are placed by cursor addressing, never by line feeds, so that nothing scrolls. What was on the
 * terminal before is back after close. Thread safety: none is needed.
 */
#ifndef MCFS_CLI_SCREEN_H
#define MCFS_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct screen {
	bool is_open;
	bool has_keys; /* standard input is a terminal: keys arrive there one by one */
	struct termios saved;
};

/* Takes the terminal of standard output. 0 or -errno (then nothing is changed). */
int screen_open(struct screen *s);
/* Gives it back; nothing when it is closed. */
void screen_close(struct screen *s);
/* Columns and rows of the terminal of standard output; 80 by 24 where it does not know. */
void screen_size(size_t *columns_out, size_t *rows_out);
/*
 * Shows text, lines that end in '\n', from the top; lines beyond the last row are left out, the rest
 * of the screen is cleared. The first n_bold lines are bold. Lines must fit. 0 or -errno.
 */
int screen_draw(const char *text, size_t n_bold);

#endif
