/* SPDX-License-Identifier: Apache-2.0 */
/* flock_table: see ops/lock.c, which implements it next to the operation. */
#ifndef MCFS_FLOCK_TABLE_H
#define MCFS_FLOCK_TABLE_H

struct flock_table;

struct flock_table *flock_table_create(void);
/* The kernel is gone; waiters were answered by it. */
void flock_table_destroy(struct flock_table *t);

#endif
