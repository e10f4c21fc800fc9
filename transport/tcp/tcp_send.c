/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "deadline.h"
#include "tcp/tcp.h"

#define COPY_BYTES (256u << 10)

/* After a send that failed with errno: 0 try again. */
static int after_failure(struct tcp_conn *c, int64_t deadline_ns)
{
	int rc = -errno;

	if (rc == -EAGAIN)
		rc = tcp_wait(c->fd, POLLOUT, deadline_ns);
	else if (rc == -EINTR)
		rc = deadline_poll_ms(deadline_ns) ? 0 : -ETIMEDOUT;
	else if (rc == -EPIPE || rc == -ETIMEDOUT)
		rc = -ECONNRESET;
	return c->is_shut ? -ECANCELED : rc;
}

static int send_all(struct tcp_conn *c, struct iovec *iov, int n, int flags, int64_t deadline_ns)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };

	for (;;) {
		while (m.msg_iovlen && !m.msg_iov->iov_len) {
			m.msg_iov++;
			m.msg_iovlen--;
		}
		if (!m.msg_iovlen)
			return 0;
		if (c->is_shut)
			return -ECANCELED;
		ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
		if (sent < 0) {
			int rc = after_failure(c, deadline_ns);
			if (rc)
				return rc;
			continue;
		}
		for (size_t left = (size_t)sent; left; m.msg_iov++, m.msg_iovlen--) {
			size_t part = left < m.msg_iov->iov_len ? left : m.msg_iov->iov_len;
			m.msg_iov->iov_base = (uint8_t *)m.msg_iov->iov_base + part;
			m.msg_iov->iov_len -= part;
			left -= part;
			if (m.msg_iov->iov_len)
				break;
		}
	}
}

int tcp_send(struct transport_conn *base, struct iovec *iov, int n, int64_t deadline_ns)
{
	return send_all((struct tcp_conn *)base, iov, n, 0, deadline_ns);
}

/* ---- files ---- */

/* Where sendfile(2) does not know the file. */
static int copy_file(struct tcp_conn *c, int fd, uint64_t off, size_t len, int64_t deadline_ns)
{
	autofree uint8_t *buf = malloc(COPY_BYTES);

	if (!buf)
		return -ENOMEM;
	while (len) {
		ssize_t n = pread(fd, buf, len < COPY_BYTES ? len : COPY_BYTES, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		struct iovec v = { buf, (size_t)n };
		int rc = send_all(c, &v, 1, 0, deadline_ns);
		if (rc)
			return rc;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int send_pages(struct tcp_conn *c, int fd, uint64_t off, size_t len, int64_t deadline_ns)
{
	off_t at = (off_t)off;

	while (len) {
		if (c->is_shut)
			return -ECANCELED;
		ssize_t n = sendfile(c->fd, fd, &at, len);
		if (!n)
			return -EIO;
		if (n > 0) {
			len -= (size_t)n;
			continue;
		}
		if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
			return copy_file(c, fd, (uint64_t)at, len, deadline_ns);
		int rc = after_failure(c, deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

/* sendfile(2) has no MSG_NOSIGNAL: the signal stays pending while it is blocked, and is taken away. */
static int send_pages_without_signal(struct tcp_conn *c, int fd, uint64_t off, size_t len, int64_t deadline_ns)
{
	static const struct timespec no_time;
	sigset_t pipe_only, before, pending;

	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
	int rc = send_pages(c, fd, off, len, deadline_ns);
	if (rc == -ECONNRESET && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe_only, NULL, &no_time);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int tcp_send_file(struct transport_conn *base, const void *head, size_t head_len, int fd, uint64_t off, size_t len,
		  int64_t deadline_ns)
{
	struct tcp_conn *c = (struct tcp_conn *)base;
	struct iovec v = { (void *)head, head_len };
	int rc = send_all(c, &v, 1, len ? MSG_MORE : 0, deadline_ns);

	return rc || !len ? rc : send_pages_without_signal(c, fd, off, len, deadline_ns);
}
