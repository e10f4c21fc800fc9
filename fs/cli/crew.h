/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew: threads that stay and work through one batch of numbered items after another.
 *
 *   idle --crew_begin--> busy --all items done--> idle
 *
 * Items of a batch are handed out in order, one at a time, to whichever thread is free; a batch ends
 * when the last item is done (a barrier). The threads block all signals, which so go to the caller.
 * Thread safety: one thread owns a crew.
 */
#ifndef MCFS_CLI_CREW_H
#define MCFS_CLI_CREW_H

#include <stdbool.h>
#include <stddef.h>

struct crew;

/* worker counts from 0 to n_threads - 1: what it indexes needs no lock. */
typedef void (*crew_fn)(void *arg, unsigned worker, size_t item);

/* Returns 0, -ENOMEM or -EAGAIN (no more threads). n_threads is at least 1. */
int crew_start(unsigned n_threads, crew_fn fn, void *arg, struct crew **out);

/* Starts on the items [first, end). The crew must be idle. */
void crew_begin(struct crew *c, size_t first, size_t end);

/* Waits until the crew is idle, at most timeout_ms. False: still busy. */
bool crew_wait(struct crew *c, unsigned timeout_ms);

/* Waits for the batch, then ends the threads. NULL is fine. */
void crew_stop(struct crew *c);

#endif
