/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deadline.h"
#include "tcp/tcp.h"

/* A connected socket, or -errno. */
static int connect_to(const struct tcp *t, const struct addrinfo *ai, int64_t deadline_ns)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	int rc = tcp_set_buffers(t, fd);
	if (!rc && connect(fd, ai->ai_addr, ai->ai_addrlen)) {
		int err = 0;
		socklen_t len = sizeof(err);
		rc = errno == EINPROGRESS || errno == EINTR ? tcp_wait(fd, POLLOUT, deadline_ns) : -errno;
		if (!rc)
			rc = getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) ? -errno : -err;
	}
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

int tcp_connect(struct transport *base, const char *address, int64_t deadline_ns, struct transport_conn **out)
{
	const struct tcp *t = (const struct tcp *)base;
	char host[HOST_BYTES];
	struct addrinfo *found;
	int n_left = 0, fd = -EHOSTUNREACH;
	uint16_t port;
	int rc = address_split(address, host, &port);

	if (!rc && !port)
		rc = -EINVAL;
	if (!rc)
		rc = tcp_resolve(host, port, deadline_ns, &found);
	if (rc)
		return rc;
	for (const struct addrinfo *ai = found; ai; ai = ai->ai_next)
		n_left++;
	/* One that does not answer leaves the others their share of the time. */
	for (const struct addrinfo *ai = found; ai && fd < 0; ai = ai->ai_next, n_left--) {
		int64_t now = clock_now_ns();
		if (now >= deadline_ns && ai != found)
			break;
		fd = connect_to(t, ai, now + (deadline_ns - now) / n_left);
	}
	freeaddrinfo(found);
	return fd < 0 ? fd : tcp_conn_create(t, fd, out);
}
