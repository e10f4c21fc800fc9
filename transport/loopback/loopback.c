/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loopback: connections inside one process. A registry of who listens where; a connection is two pipes.
 * The registry's lock is taken before a pipe's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "base/cleanup.h"
#include "deadline.h"
#include "loopback/pipe.h"
#include "mcfs/transport.h"

#define BACKLOG 64
#define FIRST_PORT 49152
#define COPY_BYTES (64u << 10)

/* Both ends of a connection. */
struct pair {
	atomic_uint n_ends;
	struct pipe pipes[2]; /* pipes[k] is written by side k */
};

struct loop_conn {
	struct transport_conn base;
	struct pair *pair;
	int side;
	char peer_name[TRANSPORT_ADDRESS_BYTES];
};

struct loop_listener {
	struct transport_listener base;
	struct loop_listener *next;
	char host[HOST_BYTES];
	uint16_t port;
	bool is_stopped;
	uint32_t n_pending;
	struct loop_conn *pending[BACKLOG]; /* oldest first */
	pthread_cond_t changed;
};

static struct {
	pthread_mutex_t lock; /* guards the rest, and the listeners */
	struct loop_listener *listeners;
	uint16_t last_port;
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int loop_create(const struct transport_conf *conf, struct transport **out)
{
	struct transport *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = &transport_loopback;
	*out = t;
	return 0;
}

static void loop_destroy(struct transport *t)
{
	free(t);
}

/* ---- connections ---- */

static void pair_put(struct pair *p)
{
	if (atomic_fetch_sub(&p->n_ends, 1) > 1)
		return;
	pipe_fini(&p->pipes[0]);
	pipe_fini(&p->pipes[1]);
	free(p);
}

static struct pair *pair_create(void)
{
	struct pair *p = calloc(1, sizeof(*p));

	if (!p || pipe_init(&p->pipes[0]))
		goto err_free;
	if (pipe_init(&p->pipes[1]))
		goto err_pipe;
	p->n_ends = 2;
	return p;
err_pipe:
	pipe_fini(&p->pipes[0]);
err_free:
	free(p);
	return NULL;
}

static int conn_create_both(struct loop_conn *out[2], const char *address)
{
	struct pair *p = pair_create();
	struct loop_conn *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));

	if (!p || !a || !b) {
		if (p) {
			p->n_ends = 1;
			pair_put(p);
		}
		free(a);
		free(b);
		return -ENOMEM;
	}
	*a = (struct loop_conn){ .base.ops = &transport_loopback, .pair = p, .side = 0 };
	*b = (struct loop_conn){ .base.ops = &transport_loopback, .pair = p, .side = 1 };
	strncpy(a->peer_name, address, sizeof(a->peer_name) - 1);
	strcpy(b->peer_name, "loopback");
	out[0] = a;
	out[1] = b;
	return 0;
}

static void end_both(struct loop_conn *c, bool is_shut)
{
	pipe_end(&c->pair->pipes[c->side], PIPE_WRITER, is_shut);
	pipe_end(&c->pair->pipes[!c->side], PIPE_READER, is_shut);
}

static const char *loop_peer_name(struct transport_conn *c)
{
	return ((struct loop_conn *)c)->peer_name;
}

static int loop_send(struct transport_conn *base, struct iovec *iov, int n, int64_t deadline_ns)
{
	struct loop_conn *c = (struct loop_conn *)base;
	int rc = 0;

	for (int k = 0; k < n && !rc; k++)
		rc = pipe_write(&c->pair->pipes[c->side], iov[k].iov_base, iov[k].iov_len, deadline_ns);
	return rc;
}

static int loop_send_file(struct transport_conn *base, const void *head, size_t head_len, int fd, uint64_t off,
			  size_t len, int64_t deadline_ns)
{
	struct loop_conn *c = (struct loop_conn *)base;
	struct pipe *p = &c->pair->pipes[c->side];
	autofree uint8_t *buf = malloc(COPY_BYTES);
	int rc = buf ? pipe_write(p, head, head_len, deadline_ns) : -ENOMEM;

	while (len && !rc) {
		ssize_t n = pread(fd, buf, len < COPY_BYTES ? len : COPY_BYTES, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		rc = pipe_write(p, buf, (size_t)n, deadline_ns);
		off += (size_t)n;
		len -= (size_t)n;
	}
	return rc;
}

static int loop_recv(struct transport_conn *base, void *buf, size_t len, int64_t deadline_ns)
{
	struct loop_conn *c = (struct loop_conn *)base;

	return pipe_read(&c->pair->pipes[!c->side], buf, len, deadline_ns);
}

static void loop_shutdown(struct transport_conn *base)
{
	end_both((struct loop_conn *)base, true);
}

static void loop_close(struct transport_conn *base)
{
	struct loop_conn *c = (struct loop_conn *)base;

	end_both(c, false);
	pair_put(c->pair);
	free(c);
}

/* ---- who listens where ---- */

static struct loop_listener *find_exact_locked(const char *host, uint16_t port)
{
	for (struct loop_listener *l = registry.listeners; l; l = l->next)
		if (l->port == port && !strcmp(l->host, host))
			return l;
	return NULL;
}

static struct loop_listener *find_locked(const char *host, uint16_t port)
{
	struct loop_listener *exact = find_exact_locked(host, port);

	for (struct loop_listener *l = registry.listeners; l && !exact; l = l->next)
		if (l->port == port && address_host_is_any(l->host))
			exact = l;
	return exact && !exact->is_stopped ? exact : NULL;
}

/* 0: there is none. */
static uint16_t free_port_locked(const char *host)
{
	for (int n = FIRST_PORT; n <= UINT16_MAX; n++) {
		if (registry.last_port < FIRST_PORT || registry.last_port == UINT16_MAX)
			registry.last_port = FIRST_PORT - 1;
		if (!find_exact_locked(host, ++registry.last_port))
			return registry.last_port;
	}
	return 0;
}

static int loop_listen(struct transport *t, const char *address, struct transport_listener **out,
		       char bound_out[TRANSPORT_ADDRESS_BYTES])
{
	struct loop_listener *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	int rc = address_split(address, l->host, &l->port);
	if (rc) {
		free(l);
		return rc;
	}
	l->base.ops = &transport_loopback;
	clock_cond_init(&l->changed);
	pthread_mutex_lock(&registry.lock);
	if (!l->port)
		l->port = free_port_locked(l->host);
	rc = !l->port || find_exact_locked(l->host, l->port) ? -EADDRINUSE :
							       address_join(l->host, l->port, bound_out);
	if (!rc) {
		l->next = registry.listeners;
		registry.listeners = l;
		*out = &l->base;
	}
	pthread_mutex_unlock(&registry.lock);
	if (rc) {
		pthread_cond_destroy(&l->changed);
		free(l);
	}
	return rc;
}

static int loop_accept(struct transport_listener *base, int64_t deadline_ns, struct transport_conn **out)
{
	struct loop_listener *l = (struct loop_listener *)base;
	guard_lock(&registry.lock);

	while (!l->is_stopped && !l->n_pending) {
		int rc = clock_cond_wait(&l->changed, &registry.lock, deadline_ns);
		if (rc && !l->n_pending)
			return rc;
	}
	if (l->is_stopped)
		return -ECANCELED;
	*out = &l->pending[0]->base;
	memmove(l->pending, l->pending + 1, --l->n_pending * sizeof(*l->pending));
	pthread_cond_broadcast(&l->changed);
	return 0;
}

static void loop_stop_listening(struct transport_listener *base)
{
	struct loop_listener *l = (struct loop_listener *)base;
	guard_lock(&registry.lock);

	l->is_stopped = true;
	pthread_cond_broadcast(&l->changed);
}

static void loop_close_listener(struct transport_listener *base)
{
	struct loop_listener *l = (struct loop_listener *)base;

	pthread_mutex_lock(&registry.lock);
	for (struct loop_listener **at = &registry.listeners; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	pthread_mutex_unlock(&registry.lock);
	for (uint32_t k = 0; k < l->n_pending; k++)
		loop_close(&l->pending[k]->base);
	pthread_cond_destroy(&l->changed);
	free(l);
}

/* A full backlog is waited for in turns, since the listener may be closed meanwhile. */
static int loop_connect(struct transport *t, const char *address, int64_t deadline_ns, struct transport_conn **out)
{
	struct loop_conn *both[2];
	char host[HOST_BYTES];
	uint16_t port;
	int rc = address_split(address, host, &port);

	if (rc)
		return rc;
	rc = conn_create_both(both, address);
	if (rc)
		return rc;
	for (;;) {
		pthread_mutex_lock(&registry.lock);
		struct loop_listener *l = find_locked(host, port);
		bool has_room = l && l->n_pending < BACKLOG;
		if (has_room) {
			l->pending[l->n_pending++] = both[1];
			pthread_cond_broadcast(&l->changed);
		}
		pthread_mutex_unlock(&registry.lock);
		if (has_room)
			break;
		rc = !l ? -ECONNREFUSED : clock_now_ns() >= deadline_ns ? -ETIMEDOUT : 0;
		if (rc) {
			loop_close(&both[0]->base);
			loop_close(&both[1]->base);
			return rc;
		}
		usleep(1000);
	}
	*out = &both[0]->base;
	return 0;
}

const struct transport_ops transport_loopback = {
	.name = "loopback",
	.create = loop_create,
	.destroy = loop_destroy,
	.listen = loop_listen,
	.accept = loop_accept,
	.stop_listening = loop_stop_listening,
	.close_listener = loop_close_listener,
	.connect = loop_connect,
	.peer_name = loop_peer_name,
	.send = loop_send,
	.send_file = loop_send_file,
	.recv = loop_recv,
	.shutdown = loop_shutdown,
	.close = loop_close,
};
