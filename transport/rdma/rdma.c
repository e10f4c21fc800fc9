/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "tcp/tcp.h"

/* ---- the transport ---- */

static int rdma_create(const struct transport_conf *conf, struct transport **out)
{
	struct rdma *t = calloc(1, sizeof(*t));
	int rc = -ENOMEM;

	if (!t)
		return rc;
	t->base.ops = &transport_rdma;
	pthread_mutex_init(&t->lock, NULL);
	if (getrandom(t->token, sizeof(t->token), 0) != sizeof(t->token)) {
		rc = -EIO;
		goto err_free;
	}
	rc = rdma_devices_open(t, conf ? conf->device : NULL);
	if (rc)
		goto err_free;
	rc = rdma_cm_start(t);
	if (rc)
		goto err_devices;
	rc = transport_tcp.create(conf, &t->tcp);
	if (rc)
		goto err_cm;
	*out = &t->base;
	return 0;
err_cm:
	rdma_cm_stop(t);
err_devices:
	rdma_devices_close(t);
err_free:
	pthread_mutex_destroy(&t->lock);
	free(t);
	return rc;
}

static void rdma_destroy(struct transport *base)
{
	struct rdma *t = (struct rdma *)base;

	rdma_cm_stop(t);
	rdma_devices_close(t);
	transport_tcp.destroy(t->tcp);
	pthread_mutex_destroy(&t->lock);
	explicit_bzero(t->token, sizeof(t->token));
	free(t);
}

const struct rdma_stats *rdma_get_stats(const struct transport *t)
{
	return &((const struct rdma *)t)->stats;
}

/* ---- connections: a TCP stream each ---- */

/* Both ends of it. One whose peer is gone already has no addresses, and cannot pull. */
static void note_ends(struct rdma_conn *c)
{
	int fd = ((struct tcp_conn *)c->tcp)->fd;
	struct sockaddr_storage self, peer;
	socklen_t self_len = sizeof(self), peer_len = sizeof(peer);

	if (getsockname(fd, (struct sockaddr *)&self, &self_len) ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_len))
		return;
	rdma_end_of((struct sockaddr *)&self, &c->self);
	rdma_end_of((struct sockaddr *)&peer, &c->peer);
}

int rdma_conn_create(struct rdma *t, struct transport_conn *tcp, struct transport_conn **out)
{
	struct rdma_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		transport_tcp.close(tcp);
		return -ENOMEM;
	}
	c->base.ops = &transport_rdma;
	c->t = t;
	c->tcp = tcp;
	pthread_mutex_init(&c->pulling, NULL);
	note_ends(c);
	pthread_mutex_lock(&t->lock);
	c->next = t->conns;
	t->conns = c;
	pthread_mutex_unlock(&t->lock);
	*out = &c->base;
	return 0;
}

static struct transport_conn *stream(struct transport_conn *c)
{
	return ((struct rdma_conn *)c)->tcp;
}

static int rdma_connect_conn(struct transport *base, const char *address, int64_t deadline_ns,
			     struct transport_conn **out)
{
	struct rdma *t = (struct rdma *)base;
	struct transport_conn *tcp;
	int rc = transport_tcp.connect(t->tcp, address, deadline_ns, &tcp);

	return rc ? rc : rdma_conn_create(t, tcp, out);
}

static const char *rdma_peer_name(struct transport_conn *c)
{
	return transport_tcp.peer_name(stream(c));
}

static int rdma_send_bytes(struct transport_conn *c, struct iovec *iov, int n, int64_t deadline_ns)
{
	return transport_tcp.send(stream(c), iov, n, deadline_ns);
}

static int rdma_send_file(struct transport_conn *c, const void *head, size_t head_len, int fd,
			  uint64_t off, size_t len, int64_t deadline_ns)
{
	return transport_tcp.send_file(stream(c), head, head_len, fd, off, len, deadline_ns);
}

static int rdma_recv_bytes(struct transport_conn *c, void *buf, size_t len, int64_t deadline_ns)
{
	return transport_tcp.recv(stream(c), buf, len, deadline_ns);
}

static void rdma_shutdown_conn(struct transport_conn *base)
{
	struct rdma_conn *c = (struct rdma_conn *)base;
	uint64_t one = 1;

	c->is_shut = true;
	transport_tcp.shutdown(c->tcp);
	pthread_mutex_lock(&c->t->lock);
	struct rdma_link *served = rdma_take_served_locked(c);
	if (c->pull && write(c->pull->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("rdma: cannot wake a reader: %m");
	pthread_mutex_unlock(&c->t->lock);
	if (served)
		rdma_link_destroy(served);
}

static void rdma_close_conn(struct transport_conn *base)
{
	struct rdma_conn *c = (struct rdma_conn *)base;

	pthread_mutex_lock(&c->t->lock);
	for (struct rdma_conn **at = &c->t->conns; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	struct rdma_link *served = rdma_take_served_locked(c);
	pthread_mutex_unlock(&c->t->lock);
	if (served)
		rdma_link_destroy(served);
	rdma_link_drop(c);
	transport_tcp.close(c->tcp);
	pthread_mutex_destroy(&c->pulling);
	free(c);
}

const struct transport_ops transport_rdma = {
	.name = "rdma",
	.is_available = rdma_has_device,
	.create = rdma_create,
	.destroy = rdma_destroy,
	.listen = rdma_listen_at,
	.accept = rdma_accept_conn,
	.stop_listening = rdma_stop_listening,
	.close_listener = rdma_close_listener,
	.connect = rdma_connect_conn,
	.peer_name = rdma_peer_name,
	.send = rdma_send_bytes,
	.send_file = rdma_send_file,
	.recv = rdma_recv_bytes,
	.shutdown = rdma_shutdown_conn,
	.close = rdma_close_conn,
	.register_memory = rdma_register_memory,
	.deregister = rdma_deregister,
	.key_of = rdma_key_of,
	.pull = rdma_pull,
};
