/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"

#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 3
#define KEEPALIVE_PROBES 3
#define USER_TIMEOUT_MS 20000 /* bytes that nobody acknowledged, or a window that stays shut */
/* A receiver of many bytes is woken per this many, not per segment. */
#define LOWAT_BYTES (256 << 10)

static int tcp_create(const struct transport_conf *conf, struct transport **out)
{
	struct tcp *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->base.ops = &transport_tcp;
	t->buffer_bytes = conf ? conf->buffer_bytes : 0;
	*out = &t->base;
	return 0;
}

static void tcp_destroy(struct transport *t)
{
	free(t);
}

/* ---- sockets ---- */

int tcp_set_buffers(const struct tcp *t, int fd)
{
	int bytes = (int)t->buffer_bytes;

	if (!bytes)
		return 0;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)))
		return -errno;
	return 0;
}

static int set_options(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS },
	};

	for (size_t k = 0; k < sizeof(options) / sizeof(*options); k++)
		if (setsockopt(fd, options[k].level, options[k].name, &options[k].value, sizeof(int)))
			return -errno;
	return 0;
}

int tcp_format_address(const struct sockaddr_storage *sa, socklen_t len, char out[TRANSPORT_ADDRESS_BYTES])
{
	char host[NI_MAXHOST], port[PORT_BYTES];

	if (getnameinfo((const struct sockaddr *)sa, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EINVAL;
	return address_join(host, (uint16_t)strtoul(port, NULL, 10), out);
}

int tcp_conn_create(const struct tcp *t, int fd, struct transport_conn **out)
{
	struct tcp_conn *c = calloc(1, sizeof(*c));
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int rc = c ? set_options(fd) : -ENOMEM;

	if (rc) {
		log_error("tcp: cannot set up a connection: %s", strerror(-rc));
		free(c);
		close(fd);
		return rc;
	}
	c->base.ops = &transport_tcp;
	c->fd = fd;
	c->lowat = 1;
	if (getpeername(fd, (struct sockaddr *)&sa, &len) || tcp_format_address(&sa, len, c->peer_name))
		c->peer_name[0] = '\0';
	*out = &c->base;
	return 0;
}

static const char *tcp_peer_name(struct transport_conn *base)
{
	return ((struct tcp_conn *)base)->peer_name;
}

int tcp_wait(int fd, short events, int64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		int ms = deadline_poll_ms(deadline_ns);
		int n = poll(&p, 1, ms);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (!ms)
			return -ETIMEDOUT;
	}
}

/* ---- receiving ---- */

/* The mark may not stand above what is still to come. */
static int set_lowat(struct tcp_conn *c, size_t left)
{
	int want = left >= LOWAT_BYTES ? LOWAT_BYTES : 1;

	if (want == c->lowat)
		return 0;
	if (setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &want, sizeof(want)))
		return -errno;
	c->lowat = want;
	return 0;
}

static int tcp_recv(struct transport_conn *base, void *buf, size_t len, int64_t deadline_ns)
{
	struct tcp_conn *c = (struct tcp_conn *)base;
	uint8_t *at = buf;

	while (len) {
		if (c->is_shut)
			return -ECANCELED;
		ssize_t n = recv(c->fd, at, len, MSG_DONTWAIT);
		if (n > 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			int rc = set_lowat(c, len);
			if (!rc)
				rc = tcp_wait(c->fd, POLLIN, deadline_ns);
			if (rc)
				return c->is_shut ? -ECANCELED : rc;
			continue;
		}
		if (c->is_shut)
			return -ECANCELED;
		return !n || errno == EPIPE || errno == ETIMEDOUT ? -ECONNRESET : -errno;
	}
	return 0;
}

/* ---- the end ---- */

static void tcp_shutdown(struct transport_conn *base)
{
	struct tcp_conn *c = (struct tcp_conn *)base;

	c->is_shut = true;
	shutdown(c->fd, SHUT_RDWR); /* ENOTCONN: the other end was faster */
}

static void tcp_close(struct transport_conn *base)
{
	struct tcp_conn *c = (struct tcp_conn *)base;

	close(c->fd);
	free(c);
}

const struct transport_ops transport_tcp = {
	.name = "tcp",
	.create = tcp_create,
	.destroy = tcp_destroy,
	.listen = tcp_listen,
	.accept = tcp_accept,
	.stop_listening = tcp_stop_listening,
	.close_listener = tcp_close_listener,
	.connect = tcp_connect,
	.peer_name = tcp_peer_name,
	.send = tcp_send,
	.send_file = tcp_send_file,
	.recv = tcp_recv,
	.shutdown = tcp_shutdown,
	.close = tcp_close,
};
