/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe: bytes from one writer to one reader, through memory of a fixed size.
 *
 * Each end is open, shut (its own calls are cancelled) or closed; both are final. What was written before the
 * writer's end is still read. Deadlines as in mcfs/transport.h. Thread safe.
 */
#ifndef TRANSPORT_LOOPBACK_PIPE_H
#define TRANSPORT_LOOPBACK_PIPE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPE_BYTES (256u << 10)

enum pipe_end { PIPE_WRITER, PIPE_READER };

struct pipe {
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	uint64_t n_written, n_read; /* ever; the difference is in data, at n_read modulo its size */
	bool is_over[2];	    /* per end */
	bool is_shut[2];
	uint8_t *data;
};

/* -ENOMEM. */
int pipe_init(struct pipe *p);
void pipe_fini(struct pipe *p);

/* All of it. -ECONNRESET: the reader is gone; -ECANCELED: this end was shut; -ETIMEDOUT. */
int pipe_write(struct pipe *p, const void *buf, size_t len, int64_t deadline_ns);
/* Exactly len. -ECONNRESET: the writer is gone and there is not as much. */
int pipe_read(struct pipe *p, void *buf, size_t len, int64_t deadline_ns);
/* is_shut: calls at this end return -ECANCELED. */
void pipe_end(struct pipe *p, enum pipe_end end, bool is_shut);

#endif
