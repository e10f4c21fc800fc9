/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor: a few threads, started when there is work for them. They run asynchronous submissions in the
 * order in which they came, and help with the large ones of others while nothing waits.
 * Thread safety: all functions.
 */
#ifndef MCFS_EXECUTOR_H
#define MCFS_EXECUTOR_H

#include <stdint.h>

struct batch;
struct executor;

/* A place in the queue. */
struct job {
	struct job *next;
	void (*run)(void *arg);
	void *arg;
};

struct executor *executor_create(void);
/*
 * Takes b over; its completion is posted to its session. 0, or -EAGAIN: no thread can be had, b stays the
 * caller's.
 */
int executor_submit(struct executor *x, struct batch *b);
typedef void (*executor_part_fn)(void *arg, uint32_t k);
/*
 * Calls part(arg, k) once for each k below n, in any order, on this thread and at most max_helpers idle
 * ones; returns when all calls have returned. Waits for no thread that is busy with something else.
 */
void executor_share(struct executor *x, executor_part_fn part, void *arg, uint32_t n,
		    unsigned int max_helpers);
/* Interrupts what is queued or running, joins. */
void executor_destroy(struct executor *x);

#endif
