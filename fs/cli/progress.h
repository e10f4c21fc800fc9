/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: how far a replay is, on stderr.
 *
 * A bar that is redrawn ten times a second on a terminal; else one line at the start and one at every
 * tenth. Messages pass through here so that they do not end up inside the bar.
 * Thread safety: all functions but create and destroy.
 */
#ifndef MCFS_CLI_PROGRESS_H
#define MCFS_CLI_PROGRESS_H

#include <stdint.h>

enum progress_mode {
	PROGRESS_AUTO, /* a bar on a terminal, else lines */
	PROGRESS_ON,   /* a bar in any case */
	PROGRESS_OFF,  /* messages only */
};

struct progress;

/* total: blocks to come. NULL: out of memory; the other functions take NULL and do nothing. */
struct progress *progress_create(enum progress_mode mode, uint64_t total);
void progress_destroy(struct progress *p);

void progress_update(struct progress *p, uint64_t done, uint64_t hits);

/* One line; without PROGRESS_OFF's silence. Takes NULL as well. */
void progress_message(struct progress *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
