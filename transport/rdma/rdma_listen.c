/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rdma/rdma.h"

#define BACKLOG 512

struct rdma_listener {
	struct transport_listener base;
	struct rdma *t;
	struct transport_listener *tcp;
	/* Under t->lock: */
	struct rdma_listener *next;
	struct rdma_cm_id *id; /* NULL: no device has the address, or it was removed */
	uint64_t number;
	uint16_t port;
};

/* ---- listening ---- */

/* Binds to the address with that port, 0: any. */
static int bind_id(struct rdma_cm_id *id, const struct rdma_end *at, uint16_t port)
{
	struct sockaddr_storage sa = at->sa;
	int on = 1;

	if (sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&sa)->sin_port = htons(port);
	/* As sockets of listeners do: who starts again finds his port free. */
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) ||
	    rdma_bind_addr(id, (struct sockaddr *)&sa))
		return rdma_last_errno();
	return 0;
}

/* The number is the TCP port's, if it may be: any other will do where any was asked for, because keys tell it. */
static int open_id(struct rdma_listener *l, const char *bound, bool any_port)
{
	struct rdma_cm_id *id;
	struct rdma_end at;
	int rc = rdma_end_parse(bound, &at);

	if (rc)
		return rc;
	if (rdma_create_id(l->t->channel, &id, (void *)(uintptr_t)l->number, RDMA_PS_TCP))
		return rdma_last_errno();
	rc = bind_id(id, &at, at.port);
	if (rc == -EADDRINUSE && any_port)
		rc = bind_id(id, &at, 0);
	if (!rc && rdma_listen(id, BACKLOG))
		rc = rdma_last_errno();
	if (rc) {
		rdma_destroy_id(id);
		return rc;
	}
	l->id = id;
	l->port = ntohs(rdma_get_src_port(id));
	return 0;
}

static void enlist(struct rdma_listener *l)
{
	pthread_mutex_lock(&l->t->lock);
	l->next = l->t->listeners;
	l->t->listeners = l;
	pthread_mutex_unlock(&l->t->lock);
}

int rdma_listen_at(struct transport *base, const char *address, struct transport_listener **out,
		   char bound_out[TRANSPORT_ADDRESS_BYTES])
{
	struct rdma *t = (struct rdma *)base;
	struct rdma_listener *l = calloc(1, sizeof(*l));
	char bound[TRANSPORT_ADDRESS_BYTES];
	size_t len = strlen(address);

	if (!l)
		return -ENOMEM;
	l->base.ops = &transport_rdma;
	l->t = t;
	int rc = transport_tcp.listen(t->tcp, address, &l->tcp, bound);
	if (rc) {
		free(l);
		return rc;
	}
	pthread_mutex_lock(&t->lock);
	l->number = ++t->last_number;
	pthread_mutex_unlock(&t->lock);
	if (rdma_address_is_served(t, bound))
		rc = open_id(l, bound, len > 2 && !strcmp(address + len - 2, ":0"));
	else
		rc = -ENODEV;
	if (rc == -ENODEV || rc == -EADDRNOTAVAIL) {
		log_warn("rdma: no device serves %s: peers read from this node by TCP alone",
			 bound);
		rc = 0;
	}
	if (rc) {
		log_error("rdma: cannot listen at %s: %s", bound, strerror(-rc));
		transport_tcp.close_listener(l->tcp);
		free(l);
		return rc;
	}
	enlist(l);
	memcpy(bound_out, bound, sizeof(bound));
	*out = &l->base;
	return 0;
}

int rdma_accept_conn(struct transport_listener *base, int64_t deadline_ns,
		     struct transport_conn **out)
{
	struct rdma_listener *l = (struct rdma_listener *)base;
	struct transport_conn *tcp;
	int rc = transport_tcp.accept(l->tcp, deadline_ns, &tcp);

	return rc ? rc : rdma_conn_create(l->t, tcp, out);
}

void rdma_stop_listening(struct transport_listener *base)
{
	transport_tcp.stop_listening(((struct rdma_listener *)base)->tcp);
}

void rdma_close_listener(struct transport_listener *base)
{
	struct rdma_listener *l = (struct rdma_listener *)base;

	pthread_mutex_lock(&l->t->lock);
	for (struct rdma_listener **at = &l->t->listeners; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	struct rdma_cm_id *id = l->id;
	pthread_mutex_unlock(&l->t->lock);
	if (id && rdma_destroy_id(id))
		log_error("rdma: cannot close a listener: %m");
	transport_tcp.close_listener(l->tcp);
	free(l);
}

uint16_t rdma_listening_port(struct rdma *t)
{
	uint16_t port = 0;

	pthread_mutex_lock(&t->lock);
	for (const struct rdma_listener *l = t->listeners; l && !port; l = l->next)
		port = l->port;
	pthread_mutex_unlock(&t->lock);
	return port;
}

bool rdma_on_listener_removal(struct rdma *t, const struct rdma_note *n)
{
	struct rdma_cm_id *id = NULL;

	pthread_mutex_lock(&t->lock);
	struct rdma_listener *l = t->listeners;
	while (l && l->number != n->number)
		l = l->next;
	if (l) {
		id = l->id;
		l->id = NULL;
		l->port = 0;
	}
	pthread_mutex_unlock(&t->lock);
	if (id) {
		log_warn("rdma: the device of a listener was removed: peers read by TCP alone");
		rdma_destroy_id(id);
	}
	return l != NULL;
}

/* ---- queue pairs that askers want ---- */

static int check_request(struct rdma *t, const struct rdma_note *n, struct rdma_req *out)
{
	int rc = rdma_req_decode(n->data, n->len, out);

	if (rc)
		return RDMA_REFUSED_VERSION;
	return CRYPTO_memcmp(out->token, t->token, RDMA_TOKEN_BYTES) ? RDMA_REFUSED_TOKEN : 0;
}

/* The connection that a request speaks of: the asker's address is what rdma_cm says, not what the asker does. */
static struct rdma_conn *find_conn_locked(struct rdma *t, const struct rdma_end *asker,
					  const struct rdma_req *r)
{
	struct rdma_conn *c = t->conns;

	while (c &&
	       (c->is_shut || c->peer.port != r->asker_port || c->self.port != r->holder_port ||
		memcmp(c->peer.address, asker->address, sizeof(asker->address)) != 0))
		c = c->next;
	return c;
}

/* One that does not get as far as a link; its id is destroyed by the caller. */
static void refuse(struct rdma *t, struct rdma_cm_id *id, enum rdma_refusal why)
{
	uint8_t data[RDMA_REJ_BYTES];

	rdma_rej_encode(why, data);
	t->stats.n_refused++;
	log_warn("rdma: refused a reader: %s",
		 why == RDMA_REFUSED_VERSION	? "another protocol version" :
		 why == RDMA_REFUSED_TOKEN	? "its key is not of this process" :
		 why == RDMA_REFUSED_CONNECTION ? "it has no connection here" :
						  "no queue pair");
	if (rdma_reject(id, data, sizeof(data)))
		log_debug("rdma: cannot refuse: %m");
}

static int make_queue_pair(struct rdma_link *k)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = k->dev->idle_cq,
		.recv_cq = k->dev->idle_cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	errno = 0;
	if (rdma_create_qp(k->id, k->dev->pd, &attr))
		return rdma_failed(k->dev, "cannot make a queue pair", "max_qp",
				   (uint64_t)k->dev->attr.max_qp);
	return 0;
}

static int answer(struct rdma_link *k, const struct rdma_note *n)
{
	const struct rdma_device *d = k->dev;
	uint8_t data[RDMA_REP_BYTES];
	int most = d->attr.max_qp_rd_atom < UINT8_MAX ? d->attr.max_qp_rd_atom : UINT8_MAX;
	struct rdma_conn_param p = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = n->responder_resources < most ? n->responder_resources :
								       (uint8_t)most,
		.initiator_depth = 0,
		.rnr_retry_count = 7,
	};

	rdma_rep_encode((uint8_t)(d - k->t->devices), data);
	return rdma_accept(k->id, &p) ? rdma_last_errno() : 0;
}

/* Its link is in place before the asker may read, unless the connection ended meanwhile. */
static int serve(struct rdma *t, const struct rdma_note *n, const struct rdma_end *asker,
		 const struct rdma_req *r)
{
	struct rdma_device *d = rdma_device_find(t, n->new_id->verbs);
	struct rdma_link *k, *old = NULL;

	int rc = d && !d->is_gone ? rdma_link_create(t, NULL, true, &k) : -ENODEV;
	if (rc)
		return rc;
	k->dev = d;
	k->id = n->new_id;
	k->id->context = (void *)(uintptr_t)k->number;
	rc = make_queue_pair(k);
	if (!rc)
		rc = answer(k, n);
	if (rc) {
		/* The id is still wanted, to refuse with. */
		if (k->id->qp)
			rdma_destroy_qp(k->id);
		k->id = NULL;
		rdma_link_destroy(k);
		return rc;
	}
	pthread_mutex_lock(&t->lock);
	struct rdma_conn *c = find_conn_locked(t, asker, r);
	if (c) {
		old = rdma_take_served_locked(c);
		c->served = k;
		k->conn = c;
	}
	pthread_mutex_unlock(&t->lock);
	if (old)
		rdma_link_destroy(old);
	if (!c)
		rdma_link_destroy(k);
	return 0;
}

void rdma_on_connect_request(struct rdma *t, const struct rdma_note *n)
{
	struct rdma_cm_id *id = n->new_id;
	struct rdma_end asker;
	struct rdma_req r;
	int why = check_request(t, n, &r);

	/* Until the link has one: the listener's, which none of its other events may be taken for. */
	id->context = NULL;
	rdma_end_of(rdma_get_peer_addr(id), &asker);
	if (!why) {
		pthread_mutex_lock(&t->lock);
		why = find_conn_locked(t, &asker, &r) ? 0 : RDMA_REFUSED_CONNECTION;
		pthread_mutex_unlock(&t->lock);
	}
	if (!why && !serve(t, n, &asker, &r))
		return;
	refuse(t, id, why ? (enum rdma_refusal)why : RDMA_REFUSED_LIMIT);
	rdma_destroy_id(id);
}
