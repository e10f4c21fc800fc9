/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis_server: a Valkey or Redis server of the test's own, on a free port of the loopback and with nothing on
 * disk. It ends with the process that started it, however that ends. Thread safety: none.
 */
#ifndef MCFS_TEST_REDIS_SERVER_H
#define MCFS_TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "meta/redis.h"

struct redis_server {
	char top[64];
	char url[64];
	char password[32]; /* "": none */
	uint16_t port;
	pid_t pid; /* 0: not running */
	struct redis *client;
};

/* NULL: there is one; else why not, to skip with. */
const char *redis_server_missing(void);

/* password: NULL for none. Waits until it answers; gives up the test when it does not. */
void redis_server_init(struct redis_server *s, const char *password);
void redis_server_fini(struct redis_server *s);

/* What it had is gone when it is started again, on the same port. */
void redis_server_start(struct redis_server *s);
void redis_server_kill(struct redis_server *s);
void redis_server_freeze(struct redis_server *s); /* SIGSTOP */
void redis_server_thaw(struct redis_server *s);

/* A command of its own: how it went; the reply until the next. Ends with NULL. */
int redis_server_run(struct redis_server *s, struct redis_reply *reply_out, ...) __attribute__((sentinel));
int redis_server_run_bytes(struct redis_server *s, struct redis_reply *reply_out, size_t argc,
			   const char *const *argv, const size_t *lens);
int64_t redis_server_integer(struct redis_server *s, const char *command, const char *key);
/* Of a section of INFO; -1: it has no such field. */
int64_t redis_server_info(struct redis_server *s, const char *section, const char *field);

#endif
