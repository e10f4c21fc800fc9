/* SPDX-License-Identifier: Apache-2.0 */
/* The half of fake_rdma that stands for librdmacm: both ends of a connection are ids of this process. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fakes/fake_rdma.h"

#define FIRST_PORT 20000
#define REJECT_NO_LISTENER 8
#define REJECT_BY_PEER 28

enum state {
	IDLE,
	LISTENING,
	CONNECTING,
	ASKED,
	CONNECTED,
	OVER
};

struct fake_id {
	struct rdma_cm_id id;
	struct fake_id *next, *other;
	enum state state;
	uint16_t port;
	int n_unacked;
};

struct fake_event {
	struct rdma_cm_event event;
	struct fake_id *of; /* who waits for its acknowledgement */
	struct fake_event *next;
	uint8_t data[56];
};

struct fake_event_channel {
	struct rdma_event_channel channel;
	struct fake_event *first;
};

static bool is_removed; /* the device; under fake_lock */
static struct fake_id *ids;
static uint16_t last_port = FIRST_PORT;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

/* ---- devices and channels ---- */

struct ibv_context **rdma_get_devices(int *n)
{
	struct ibv_context **list = fake_rdma.has_no_device ? NULL : calloc(2, sizeof(*list));

	*n = list ? 1 : 0;
	if (list)
		list[0] = &fake_context;
	else
		errno = ENODEV;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fake_event_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->channel.fd = eventfd(0, EFD_SEMAPHORE);
	fake_rdma.n_event_channels++;
	return &c->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
	fake_rdma.n_event_channels--;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return "event";
}

/* ---- events ---- */

static struct fake_event *tell_locked(struct fake_id *to, enum rdma_cm_event_type type, int status)
{
	struct fake_event *e = calloc(1, sizeof(*e)), **at;
	struct fake_event_channel *c = (struct fake_event_channel *)to->id.channel;
	uint64_t one = 1;

	if (!e)
		abort();
	e->event = (struct rdma_cm_event){.id = &to->id, .event = type, .status = status};
	e->of = to;
	for (at = &c->first; *at; at = &(*at)->next)
		;
	*at = e;
	if (write(c->channel.fd, &one, sizeof(one)) != sizeof(one))
		abort();
	return e;
}

/* As the kernel does: padded with zeros. */
static void give_data(struct fake_event *e, const void *data, uint8_t len)
{
	if (len > sizeof(e->data))
		abort();
	memcpy(e->data, data, len);
	e->event.param.conn.private_data = e->data;
	e->event.param.conn.private_data_len = sizeof(e->data);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
	struct fake_event_channel *c = (struct fake_event_channel *)channel;
	uint64_t n;

	if (read(channel->fd, &n, sizeof(n)) != sizeof(n))
		return -1;
	pthread_mutex_lock(&fake_lock);
	struct fake_event *e = c->first;
	if (e) {
		c->first = e->next;
		e->of->n_unacked++;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!e) {
		errno = EAGAIN; /* its id was destroyed */
		return -1;
	}
	*out = &e->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct fake_event *e = (struct fake_event *)event;

	pthread_mutex_lock(&fake_lock);
	e->of->n_unacked--;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&fake_lock);
	free(e);
	return 0;
}

/* ---- ids ---- */

static struct fake_id *new_id_locked(struct rdma_event_channel *channel, void *context)
{
	struct fake_id *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->id = (struct rdma_cm_id){.channel = channel, .context = context, .port_num = 1};
	f->next = ids;
	ids = f;
	fake_rdma.n_ids++;
	return f;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		   enum rdma_port_space ps)
{
	if (fake_fails(&fake_rdma.fail_create_id))
		return -1;
	pthread_mutex_lock(&fake_lock);
	*out = &new_id_locked(channel, context)->id;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* The other end hears that this one is over. */
static void end_locked(struct fake_id *f)
{
	struct fake_id *o = f->other;

	if (o && f->state == CONNECTED && o->state == CONNECTED) {
		tell_locked(o, RDMA_CM_EVENT_DISCONNECTED, 0);
		o->state = OVER;
		if (o->id.qp)
			fake_qp_set_connected_locked(o->id.qp, false);
	} else if (o && f->state == ASKED && o->state == CONNECTING) {
		tell_locked(o, RDMA_CM_EVENT_REJECTED, REJECT_BY_PEER);
		o->state = OVER;
	}
	if (o)
		o->other = NULL;
	f->other = NULL;
	f->state = OVER;
}

static void unlink_locked(struct fake_id *f)
{
	for (struct fake_id **at = &ids; *at; at = &(*at)->next)
		if (*at == f) {
			*at = f->next;
			break;
		}
	fake_rdma.n_ids--;
}

static void drop_events_locked(struct fake_id *f)
{
	struct fake_event_channel *c = (struct fake_event_channel *)f->id.channel;

	for (struct fake_event **at = &c->first; *at;) {
		struct fake_event *e = *at;
		if (e->of != f) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			struct fake_id *asked = (struct fake_id *)e->event.id;
			end_locked(asked);
			unlink_locked(asked);
			free(asked);
		}
		free(e);
	}
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fake_id *f = (struct fake_id *)id;

	pthread_mutex_lock(&fake_lock);
	if (id->qp)
		abort(); /* before its queue pair */
	end_locked(f);
	drop_events_locked(f);
	while (f->n_unacked)
		pthread_cond_wait(&acked, &fake_lock);
	drop_events_locked(f);
	unlink_locked(f);
	pthread_mutex_unlock(&fake_lock);
	free(f);
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	id->qp = fake_qp_create(pd, attr);
	return id->qp ? 0 : -1;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	pthread_mutex_lock(&fake_lock);
	struct ibv_qp *qp = id->qp;
	id->qp = NULL;
	pthread_mutex_unlock(&fake_lock);
	fake_qp_destroy(qp);
}

/* ---- listening ---- */

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	return 0;
}

static uint16_t port_of(const struct sockaddr *sa)
{
	return ntohs(sa->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)sa)->sin6_port :
						 ((const struct sockaddr_in *)sa)->sin_port);
}

static struct fake_id *listener_locked(uint16_t port)
{
	struct fake_id *f = ids;

	while (f && !(f->state == LISTENING && f->port == port))
		f = f->next;
	return f;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
	struct fake_id *f = (struct fake_id *)id;
	uint16_t port = port_of(sa);
	int rc = 0;

	pthread_mutex_lock(&fake_lock);
	while (!port)
		if (!listener_locked(++last_port))
			port = last_port;
	if (listener_locked(port)) {
		errno = EADDRINUSE;
		rc = -1;
	}
	f->port = port;
	id->verbs = &fake_context;
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	pthread_mutex_lock(&fake_lock);
	((struct fake_id *)id)->state = LISTENING;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(((struct fake_id *)id)->port);
}

/* ---- connecting ---- */

static void copy_address(struct sockaddr_storage *to, const struct sockaddr *from)
{
	memcpy(to, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					     sizeof(struct sockaddr_in));
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	copy_address(&id->route.addr.src_storage, src);
	copy_address(&id->route.addr.dst_storage, dst);
	if (fake_rdma.is_silent)
		return 0;
	pthread_mutex_lock(&fake_lock);
	int status = is_removed ? -ENODEV : fake_rdma.resolve_status;
	id->verbs = &fake_context;
	tell_locked((struct fake_id *)id,
		    status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, status);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	pthread_mutex_lock(&fake_lock);
	tell_locked((struct fake_id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct fake_id *f = (struct fake_id *)id;

	pthread_mutex_lock(&fake_lock);
	f->state = CONNECTING;
	struct fake_id *l = listener_locked(port_of(&id->route.addr.dst_addr));
	if (fake_rdma.reject_status || !l) {
		int status = fake_rdma.reject_status;
		tell_locked(f, RDMA_CM_EVENT_REJECTED, status ? status : REJECT_NO_LISTENER);
		f->state = OVER;
	} else {
		struct fake_id *asked = new_id_locked(l->id.channel, l->id.context);
		asked->state = ASKED;
		asked->id.verbs = &fake_context;
		asked->id.route.addr.dst_storage = id->route.addr.src_storage;
		asked->other = f;
		f->other = asked;
		struct fake_event *e = tell_locked(l, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		e->event.id = &asked->id;
		e->event.listen_id = &l->id;
		give_data(e, p->private_data, p->private_data_len);
		e->event.param.conn.responder_resources = p->initiator_depth;
	}
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct fake_id *f = (struct fake_id *)id;
	int rc = 0;

	if (fake_fails(&fake_rdma.fail_accept))
		return -1;
	pthread_mutex_lock(&fake_lock);
	if (f->other) {
		f->state = f->other->state = CONNECTED;
		fake_qp_set_connected_locked(id->qp, true);
		if (f->other->id.qp)
			fake_qp_set_connected_locked(f->other->id.qp, true);
		give_data(tell_locked(f->other, RDMA_CM_EVENT_ESTABLISHED, 0), p->private_data,
			  p->private_data_len);
		tell_locked(f, RDMA_CM_EVENT_ESTABLISHED, 0);
	} else {
		errno = EINVAL;
		rc = -1;
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct fake_id *f = (struct fake_id *)id;

	pthread_mutex_lock(&fake_lock);
	if (f->other) {
		give_data(tell_locked(f->other, RDMA_CM_EVENT_REJECTED, REJECT_BY_PEER), data, len);
		f->other->state = OVER;
		f->other->other = NULL;
		f->other = NULL;
	}
	f->state = OVER;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct fake_id *f = (struct fake_id *)id;
	int rc = 0;

	pthread_mutex_lock(&fake_lock);
	if (f->state == CONNECTED) {
		end_locked(f);
		if (id->qp)
			fake_qp_set_connected_locked(id->qp, false);
		tell_locked(f, RDMA_CM_EVENT_DISCONNECTED, 0);
	} else {
		errno = EINVAL;
		rc = -1;
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

/* ---- what tests do to it ---- */

void fake_rdma_remove_device(void)
{
	pthread_mutex_lock(&fake_lock);
	is_removed = true;
	for (struct fake_id *f = ids; f; f = f->next)
		if (f->id.verbs)
			tell_locked(f, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	pthread_mutex_unlock(&fake_lock);
}

void fake_rdma_disconnect_all(void)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_id *f = ids; f; f = f->next)
		if (f->state == CONNECTED) {
			end_locked(f);
			if (f->id.qp)
				fake_qp_set_connected_locked(f->id.qp, false);
			tell_locked(f, RDMA_CM_EVENT_DISCONNECTED, 0);
		}
	pthread_mutex_unlock(&fake_lock);
}
