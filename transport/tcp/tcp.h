/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp: the provider over sockets, in parts: tcp_conn.c moves bytes, tcp_listen.c and tcp_connect.c make connections.
 *
 * Sockets never block: each wait is poll(2) until the deadline. shutdown(2) wakes who waits.
 * A peer whose machine is gone is noticed by keep-alives and TCP_USER_TIMEOUT, one whose process stands still is not:
 * deadlines are for that.
 */
#ifndef TRANSPORT_TCP_TCP_H
#define TRANSPORT_TCP_TCP_H

#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "address.h"
#include "mcfs/transport.h"

struct tcp {
	struct transport base;
	uint32_t buffer_bytes;
};

struct tcp_conn {
	struct transport_conn base;
	int fd;
	int lowat; /* SO_RCVLOWAT; of the receiver */
	atomic_bool is_shut;
	char peer_name[TRANSPORT_ADDRESS_BYTES];
};

/* A connected socket becomes a connection, which closes it; also when this fails. */
int tcp_conn_create(const struct tcp *t, int fd, struct transport_conn **out);
/* Before bind or connect, where buffers still decide about the window. -errno. */
int tcp_set_buffers(const struct tcp *t, int fd);
/* "HOST:PORT" in numbers. */
int tcp_format_address(const struct sockaddr_storage *sa, socklen_t len, char out[TRANSPORT_ADDRESS_BYTES]);

/* Waits until events, an error or the end of the stream. -ETIMEDOUT or -errno. */
int tcp_wait(int fd, short events, int64_t deadline_ns);

int tcp_send(struct transport_conn *base, struct iovec *iov, int n, int64_t deadline_ns);
int tcp_send_file(struct transport_conn *base, const void *head, size_t head_len, int fd, uint64_t off, size_t len,
		  int64_t deadline_ns);

int tcp_listen(struct transport *t, const char *address, struct transport_listener **out,
	       char bound_out[TRANSPORT_ADDRESS_BYTES]);
int tcp_accept(struct transport_listener *l, int64_t deadline_ns, struct transport_conn **out);
void tcp_stop_listening(struct transport_listener *l);
void tcp_close_listener(struct transport_listener *l);

int tcp_connect(struct transport *t, const char *address, int64_t deadline_ns, struct transport_conn **out);

/*
 * Addresses of a host by name or number; freeaddrinfo by the caller. Name servers know no deadline: a thread asks
 * them, and is left behind when the deadline passes. -ENOENT: no such host; -EAGAIN: the name servers failed.
 */
int tcp_resolve(const char *host, uint16_t port, int64_t deadline_ns, struct addrinfo **out);

#endif
