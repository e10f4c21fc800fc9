/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"
#include "tcp/tcp.h"

#define BACKLOG 512
#define RESOLVE_MS 10000 /* of the address to bind, at the start */

struct tcp_listener {
	struct transport_listener base;
	const struct tcp *t;
	int fd, stop_fd;
};

/* A listening socket at one address. -errno. */
static int listen_at(const struct tcp *t, const struct addrinfo *ai)
{
	int on = 1, off = 0;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	int rc = tcp_set_buffers(t, fd);
	/* [::] takes IPv4 too. */
	if (!rc && ai->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)))
		rc = -errno;
	if (!rc && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		    bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, BACKLOG)))
		rc = -errno;
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static int bind_first(const struct tcp *t, const struct addrinfo *list)
{
	int fd = -EADDRNOTAVAIL;

	for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
		fd = listen_at(t, ai);
	return fd;
}

static int bound_address(int fd, char out[TRANSPORT_ADDRESS_BYTES])
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len))
		return -errno;
	return tcp_format_address(&sa, len, out);
}

int tcp_listen(struct transport *base, const char *address, struct transport_listener **out,
	       char bound_out[TRANSPORT_ADDRESS_BYTES])
{
	const struct tcp *t = (const struct tcp *)base;
	char host[HOST_BYTES], bound[TRANSPORT_ADDRESS_BYTES];
	struct addrinfo *found;
	uint16_t port;
	int rc = address_split(address, host, &port);

	if (!rc)
		rc = tcp_resolve(host, port, deadline_in_ms(RESOLVE_MS), &found);
	if (rc)
		return rc;
	struct tcp_listener *l = calloc(1, sizeof(*l));
	int fd = bind_first(t, found);
	freeaddrinfo(found);
	rc = fd < 0 ? fd : l ? bound_address(fd, bound) : -ENOMEM;
	if (rc)
		goto err_close;
	l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->stop_fd < 0) {
		rc = -errno;
		goto err_close;
	}
	l->base.ops = &transport_tcp;
	l->t = t;
	l->fd = fd;
	memcpy(bound_out, bound, sizeof(bound));
	*out = &l->base;
	return 0;
err_close:
	if (fd >= 0)
		close(fd);
	free(l);
	return rc;
}

/* The connection went away between poll and accept, or never quite came: see accept(2). */
static bool is_of_the_connection(int err)
{
	return err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO || err == ENETDOWN ||
	       err == ENOPROTOOPT || err == EHOSTDOWN || err == EHOSTUNREACH || err == ENETUNREACH ||
	       err == ENONET || err == EOPNOTSUPP;
}

int tcp_accept(struct transport_listener *base, int64_t deadline_ns, struct transport_conn **out)
{
	struct tcp_listener *l = (struct tcp_listener *)base;
	struct pollfd fds[] = { { .fd = l->fd, .events = POLLIN }, { .fd = l->stop_fd, .events = POLLIN } };

	for (;;) {
		int ms = deadline_poll_ms(deadline_ns);
		int n = poll(fds, 2, ms);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && fds[1].revents)
			return -ECANCELED;
		if (n > 0) {
			int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
			if (fd >= 0)
				return tcp_conn_create(l->t, fd, out);
			if (!is_of_the_connection(errno))
				return -errno;
		}
		if (!ms)
			return -ETIMEDOUT;
	}
}

void tcp_stop_listening(struct transport_listener *base)
{
	struct tcp_listener *l = (struct tcp_listener *)base;
	uint64_t one = 1;

	if (write(l->stop_fd, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN)
		log_error("tcp: cannot wake the listener: %m");
}

void tcp_close_listener(struct transport_listener *base)
{
	struct tcp_listener *l = (struct tcp_listener *)base;

	close(l->fd);
	close(l->stop_fd);
	free(l);
}
