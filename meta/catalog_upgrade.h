/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_upgrade: brings a catalog of an older format to the present one, step by step.
 *
 * A step leads from format n to n + 1 in slices; each slice is one batch, which also holds how far the
 * step is. Before its first slice the format is already n + 1, so an older program refuses a catalog that
 * is half upgraded, and control says from where: whoever opens it next goes on where it ended. A step must
 * therefore bear to see records that it has changed before.
 *
 * Thread safety: none; catalog_open runs it before anybody else has the catalog.
 */
#ifndef MCFS_CATALOG_UPGRADE_H
#define MCFS_CATALOG_UPGRADE_H

#include <stddef.h>
#include <stdint.h>

struct catalog;
struct catalog_batch;

struct catalog_step {
	uint64_t from;	  /* the format it starts from */
	const char *what; /* for the log */
	/*
	 * Puts into b what becomes of the records behind *cursor (0: from the first), a few thousand
	 * of them, and moves *cursor. Returns 1 to be called again, 0 at the end, or a negative errno.
	 */
	int (*slice)(struct catalog *c, struct catalog_batch *b, uint64_t *cursor);
};

/* In the order of from, without gaps. */
extern const struct catalog_step catalog_steps[];
extern const size_t catalog_n_steps;

/*
 * Finishes a step that was interrupted, then takes those that lead to format to. 0; -EPROTO there is no
 * step from the format it has (logged); or the errno of reading and writing.
 */
int catalog_upgrade(struct catalog *c, const struct catalog_step *steps, size_t n_steps, uint64_t to);

#endif
