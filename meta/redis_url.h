/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis_url: redis://[[USER:]PASSWORD@]HOST[:PORT][/DB] taken apart. USER and PASSWORD may hold %XX; HOST may be
 * an IPv6 address in brackets. A lone part before the @ is the password, as is what follows a first ':'. Thread
 * safe, no state; nothing is looked up.
 */
#ifndef MCFS_REDIS_URL_H
#define MCFS_REDIS_URL_H

#include <stdint.h>

#define REDIS_PORT 6379
#define REDIS_SECRET_MAX 512u /* of user and password, with their NUL */

struct redis_address {
	char host[256];
	uint16_t port;
	uint32_t db;
	char user[REDIS_SECRET_MAX], password[REDIS_SECRET_MAX]; /* "": none */
};

/* -EINVAL: it is no such URL; out is then untouched. */
int redis_url_parse(const char *url, struct redis_address *out);

#endif
