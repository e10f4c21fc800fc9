/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis: one connection to a Valkey or Redis server, commands in pipelines and scripts by their digest. redis.c is
 * the one file that includes hiredis.
 *
 * Deadlines: CLOCK_MONOTONIC in nanoseconds, kept whatever the server does; but for redis_connect's, which a name
 * server may make longer. A call that waits ends early, with -ECANCELED, when the stop_fd becomes readable.
 * Errors: negative errno. -ENETDOWN refused, closed, unreachable or not serving; -ETIMEDOUT; -EACCES it refuses
 * the password or what we may do; -ENOSPC it is out of memory or cannot save; -EIO its answer makes no sense;
 * -ENOMEM. redis_text has the reason in words and never a password. Nothing is logged here. Thread safety: none; a
 * connection belongs to one thread at a time.
 */
#ifndef MCFS_REDIS_H
#define MCFS_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "redis_url.h"

struct redis;

/* stop_fd: -1 for none. NULL: no memory. */
struct redis *redis_create(int stop_fd);
void redis_destroy(struct redis *r);
void redis_set_stop_fd(struct redis *r, int stop_fd);

/* host: NULL for that of the address. An older connection is dropped first. */
int redis_connect(struct redis *r, const struct redis_address *a, const char *host, int64_t deadline_ns);
void redis_disconnect(struct redis *r);
bool redis_is_connected(const struct redis *r);
/* Connected by both ends, as far as is known here, and no answer is owed. */
bool redis_is_idle(const struct redis *r);
/* The server's address in digits; -ENETDOWN: not connected. */
int redis_peer_host(const struct redis *r, char *host, size_t host_bytes);
const char *redis_text(const struct redis *r);

enum redis_kind {
	REDIS_NIL,
	REDIS_BYTES,
	REDIS_INTEGER,
	REDIS_ARRAY,
	REDIS_FAILURE
};

/* Valid until the next redis_next on its connection. */
struct redis_reply {
	enum redis_kind kind;
	int rc;		      /* REDIS_FAILURE: what it means */
	const uint8_t *bytes; /* REDIS_BYTES, REDIS_FAILURE: the words, NUL-terminated */
	size_t len;
	int64_t integer;
	size_t n; /* REDIS_ARRAY */
	const void *inner;
};

/* i below n. */
struct redis_reply redis_reply_at(const struct redis_reply *array, size_t i);

/* Queues a command in memory. -ENOMEM, -ENETDOWN: not connected. lens: NULL when all are texts. */
int redis_append(struct redis *r, size_t argc, const char *const *argv, const size_t *lens);
/*
 * Sends what is queued and waits for the next reply. 0: there is one, REDIS_FAILURE included. An error means that
 * the connection is gone, with every reply that was owed.
 */
int redis_next(struct redis *r, int64_t deadline_ns, struct redis_reply *reply_out);
/* One command; a REDIS_FAILURE is returned as its rc, the connection staying. */
int redis_run(struct redis *r, size_t argc, const char *const *argv, const size_t *lens, int64_t deadline_ns,
	      struct redis_reply *reply_out);

#define REDIS_SCRIPTS_MAX 8u
#define REDIS_CALL_ARGS_MAX 4u

/* A run of script number `script` of those at `texts`, a list that is the same for the life of a connection. */
struct redis_call {
	unsigned script;
	const char *key;
	size_t key_len, n_args;
	const char *args[REDIS_CALL_ARGS_MAX];
	size_t lens[REDIS_CALL_ARGS_MAX];
};

typedef void (*redis_reply_fn)(void *arg, size_t i, const struct redis_reply *reply);
/*
 * Runs n scripts in one pipeline and hands each reply to fn once, in order but for those that the server had
 * forgotten: these are loaded and run again. On an error the replies that came have been handed on.
 */
int redis_run_scripts(struct redis *r, const char *const *texts, const struct redis_call *calls, size_t n,
		      int64_t deadline_ns, redis_reply_fn fn, void *arg);

#endif
