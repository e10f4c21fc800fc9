/* SPDX-License-Identifier: Apache-2.0 */
#include "control/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/host_port.h"
#include "base/log.h"
#include "control/control.h"
#include "fs.h"

#define MAX_CONNECTIONS 16
#define BACKLOG 64
#define MAX_REQUEST_BYTES 8192
#define DEADLINE_NS (10 * INT64_C(1000000000)) /* of a connection, from accept to close */
#define IDLE_MS 60000			       /* poll, when there is no connection */
#define BUSY_MS 1000			       /* poll, when there is one: looks for deadlines */

struct connection {
	int fd; /* -1: the place is free */
	int64_t deadline_ns;
};

struct metrics_http {
	struct fs *fs;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	int listen_fd, stop_fd, epoll_fd;
	struct connection connections[MAX_CONNECTIONS]; /* of the thread alone */
};

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned code, const char *type, char *text,
			      size_t len, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO; /* cuts the connection */
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
	if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	enum MHD_Result rc = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned code, const char *text)
{
	return answer(c, code, "text/plain; charset=utf-8", (char *)text, strlen(text),
		      MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **request)
{
	struct metrics_http *h = arg;
	size_t len;

	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
	if (strcmp(url, "/metrics"))
		return refuse(c, MHD_HTTP_NOT_FOUND, "see /metrics\n");
	/* The first call is for the header lines alone; an answer then would cut off a request body. */
	if (!*request) {
		*request = h;
		return MHD_YES;
	}
	*upload_len = 0;
	char *text = metrics_text(h->fs, &len);
	if (!text)
		return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return answer(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, len,
		      MHD_RESPMEM_MUST_FREE);
}

/* ---- connections ---- */

static void note_connection(void *arg, struct MHD_Connection *c, void **place,
			    enum MHD_ConnectionNotificationCode code)
{
	struct metrics_http *h = arg;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (*place)
			((struct connection *)*place)->fd = -1;
		return;
	}
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	for (int k = 0; info && k < MAX_CONNECTIONS; k++) {
		if (h->connections[k].fd >= 0)
			continue;
		h->connections[k] =
			(struct connection){info->connect_fd, now_mono_ns() + DEADLINE_NS};
		*place = &h->connections[k];
		return;
	}
}

/* Cuts what is over its time; the library then sees the end and closes. Returns how many are open. */
static int enforce_deadlines(struct metrics_http *h)
{
	int64_t now = now_mono_ns();
	int n = 0;

	for (int k = 0; k < MAX_CONNECTIONS; k++) {
		struct connection *c = &h->connections[k];
		if (c->fd < 0)
			continue;
		n++;
		if (now >= c->deadline_ns) {
			shutdown(c->fd, SHUT_RDWR);
			c->deadline_ns = INT64_MAX;
		}
	}
	return n;
}

static void *run(void *arg)
{
	struct metrics_http *h = arg;

	for (int n = 0, n_before = 0;; n_before = n) {
		struct pollfd fds[] = {{.fd = h->stop_fd, .events = POLLIN},
				       {.fd = h->epoll_fd, .events = POLLIN}};
		MHD_UNSIGNED_LONG_LONG asked_ms;
		n = enforce_deadlines(h);
		/* When one closed, the library listens again at its next turn alone. */
		uint64_t wait_ms = n < n_before ? 0 : n ? BUSY_MS : IDLE_MS;
		if (MHD_get_timeout(h->daemon, &asked_ms) == MHD_YES && asked_ms < wait_ms)
			wait_ms = asked_ms;
		if (poll(fds, 2, (int)wait_ms) < 0 && errno != EINTR)
			log_error("metrics: poll failed: %m");
		if (fds[0].revents)
			return NULL;
		MHD_run(h->daemon);
	}
}

/* ---- start ---- */

/* A listening socket, or -errno (logged). */
static int listen_at(const char *address)
{
	char host[HOST_BYTES], port[PORT_BYTES];
	struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	int on = 1;

	if (host_port_split(address, host, port)) {
		log_error("metrics=%s: not a HOST:PORT", address);
		return -EINVAL;
	}
	int rc = getaddrinfo(host, port, &hints, &found);
	if (rc) {
		log_error("metrics=%s: %s", address, gai_strerror(rc));
		return -EINVAL;
	}
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG)) {
		rc = -errno;
		log_error("metrics=%s: cannot listen: %s", address, strerror(-rc));
		if (fd >= 0)
			close(fd);
		fd = rc;
	}
	freeaddrinfo(found);
	return fd;
}

static void log_library(void *arg, const char *fmt, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, args);
	text[strcspn(text, "\n")] = '\0';
	log_debug("metrics: %s", text);
}

static int start_daemon(struct metrics_http *h)
{
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h,
		MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET,
		h->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MAX_REQUEST_BYTES,
		MHD_OPTION_NOTIFY_CONNECTION, note_connection, h, MHD_OPTION_END);
	const union MHD_DaemonInfo *info =
		h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info) {
		log_error("metrics: cannot start the HTTP server");
		return -ENOMEM;
	}
	h->epoll_fd = info->epoll_fd;
	return 0;
}

/* The thread takes no signals: they are for the main thread. */
static int start_thread(struct metrics_http *h)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = -pthread_create(&h->thread, NULL, run, h);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		log_error("metrics: cannot start a thread: %s", strerror(-rc));
	return rc;
}

/* The library closes the socket it was given. */
static void close_all(struct metrics_http *h)
{
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	else if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->stop_fd >= 0)
		close(h->stop_fd);
	free(h);
}

int metrics_http_start(struct fs *fs, const char *address, struct metrics_http **out)
{
	struct metrics_http *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	h->fs = fs;
	for (int k = 0; k < MAX_CONNECTIONS; k++)
		h->connections[k].fd = -1;
	h->stop_fd = eventfd(0, EFD_CLOEXEC);
	h->listen_fd = listen_at(address);
	rc = h->listen_fd < 0 ? h->listen_fd : h->stop_fd < 0 ? -EMFILE : start_daemon(h);
	if (!rc)
		rc = start_thread(h);
	if (rc) {
		close_all(h);
		return rc;
	}
	log_info("metrics at http://%s/metrics", address);
	*out = h;
	return 0;
}

void metrics_http_stop(struct metrics_http *h)
{
	uint64_t one = 1;

	if (!h)
		return;
	if (write(h->stop_fd, &one, sizeof(one)) != sizeof(one))
		log_error("metrics: cannot wake the server: %m");
	pthread_join(h->thread, NULL);
	close_all(h);
}
