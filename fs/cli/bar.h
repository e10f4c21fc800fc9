/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bar: how far a long command is, on stderr, when that is a terminal.
 *
 * One line that is redrawn ten times a second and wiped at the end. Thread safety: one thread.
 */
#ifndef MCFS_CLI_BAR_H
#define MCFS_CLI_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct bar {
	bool is_shown; /* stderr is a terminal, and somebody wants it */
	bool is_drawn;
	double drawn_s;
};

void bar_init(struct bar *b, bool is_wanted);
/* label: what is being done; total 0: not known. */
void bar_update(struct bar *b, const char *label, uint64_t done, uint64_t total);
void bar_wipe(struct bar *b);

#endif
