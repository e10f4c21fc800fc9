/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor: a few threads that run asynchronous submissions, in the order in which they came. They are
 * started with the first. Thread safety: all functions.
 */
#ifndef MCFS_EXECUTOR_H
#define MCFS_EXECUTOR_H

struct batch;
struct executor;
struct fs;

struct executor *executor_create(void);
/*
 * Takes b over; its completion is posted to its session. 0, or -EAGAIN: no thread can be had, b stays the
 * caller's.
 */
int executor_submit(struct executor *x, struct batch *b);
/* Interrupts what is queued or running, joins. */
void executor_destroy(struct executor *x);

#endif
