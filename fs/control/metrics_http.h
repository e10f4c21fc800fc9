/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_http: the Prometheus text over HTTP, at http://HOST:PORT/metrics (metrics=HOST:PORT).
 *
 * One thread serves all connections. There are at most 16; each carries one request and is cut after
 * ten seconds, however it dawdles, so that nobody can keep others out for long. Nothing can be changed
 * through it, and nobody is asked who he is.
 */
#ifndef MCFS_METRICS_HTTP_H
#define MCFS_METRICS_HTTP_H

struct fs;
struct metrics_http;

/*
 * Listens at address. fs must stay until metrics_http_stop. Errors, logged: -EINVAL no such host,
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES and others of socket, bind and listen; -ENOMEM.
 */
int metrics_http_start(struct fs *fs, const char *address, struct metrics_http **out);
/* Cuts all connections and waits for the thread, at most for one answer being made. NULL is fine. */
void metrics_http_stop(struct metrics_http *h);

#endif
