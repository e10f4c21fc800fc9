/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler: reads status.json in a thread of its own, so that a daemon that does not answer holds up
 * neither keys nor signals.
 *
 *   idle --ask--> reading --(answer or error)--> done --take--> idle
 *
 * Thread safety: one thread owns a sampler.
 */
#ifndef MCFS_CLI_SAMPLER_H
#define MCFS_CLI_SAMPLER_H

#include <jansson.h>
#include <stdbool.h>

struct sampler;

/* mount is borrowed. 0 or -errno. The thread inherits the caller's signal mask. */
int sampler_start(const char *mount, struct sampler **out);
/*
 * Does not wait for an answer that is outstanding: false, nothing is freed, and the thread is left to
 * the end of the process, which must not wait for it either (_exit).
 */
bool sampler_stop(struct sampler *s);

/* Starts a reading. False: the one before is not taken yet. */
bool sampler_ask(struct sampler *s);
/* Readable when a reading is done. */
int sampler_fd(const struct sampler *s);
/*
 * The reading that is done: 0 and a new reference in *status_out, or the -errno of the read; -EAGAIN
 * when there is none.
 */
int sampler_take(struct sampler *s, json_t **status_out);

#endif
