/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_cm: the thread that takes what rdma_cm has to say. An event is copied and acknowledged before anything is done
 * about it, since rdma_destroy_id waits for the acknowledgement. It names its link by a number that is never used
 * again: of one that is gone meanwhile nothing is found.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "rdma/rdma.h"
#include "thread.h"

/* ---- links ---- */

int rdma_link_create(struct rdma *t, struct rdma_conn *c, bool is_served, struct rdma_link **out)
{
	struct rdma_link *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->t = t;
	k->conn = c;
	k->is_served = is_served;
	k->event = -1;
	k->wake_fd = is_served ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!is_served && k->wake_fd < 0) {
		int rc = rdma_last_errno();
		free(k);
		return rc;
	}
	pthread_mutex_lock(&t->lock);
	k->number = ++t->last_number;
	k->next = t->links;
	t->links = k;
	pthread_mutex_unlock(&t->lock);
	if (is_served)
		t->stats.n_served_links++;
	else
		t->stats.n_pull_links++;
	*out = k;
	return 0;
}

static void forget_link(struct rdma_link *k)
{
	pthread_mutex_lock(&k->t->lock);
	for (struct rdma_link **at = &k->t->links; *at; at = &(*at)->next)
		if (*at == k) {
			*at = k->next;
			break;
		}
	pthread_mutex_unlock(&k->t->lock);
}

/* To the error state, in which nothing new begins and what is under way completes. */
static void stop_queue_pair(struct rdma_link *k)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (k->n_posted != k->n_done && !ibv_modify_qp(k->id->qp, &attr, IBV_QP_STATE))
		rdma_drain(k);
}

void rdma_link_destroy(struct rdma_link *k)
{
	struct rdma *t = k->t;

	forget_link(k);
	if (k->id && k->id->qp) {
		stop_queue_pair(k);
		/* Fails where it never was connected, or is not any more. */
		(void)rdma_disconnect(k->id);
		rdma_destroy_qp(k->id);
	}
	if (k->n_events)
		ibv_ack_cq_events(k->cq, k->n_events);
	if (k->cq && ibv_destroy_cq(k->cq))
		log_error("rdma: cannot destroy a completion queue: %m");
	if (k->channel && ibv_destroy_comp_channel(k->channel))
		log_error("rdma: cannot destroy a completion channel: %m");
	if (k->id && rdma_destroy_id(k->id))
		log_error("rdma: cannot destroy a connection's id: %m");
	if (k->wake_fd >= 0)
		close(k->wake_fd);
	if (k->is_served)
		t->stats.n_served_links--;
	else
		t->stats.n_pull_links--;
	free(k);
}

struct rdma_link *rdma_take_served_locked(struct rdma_conn *c)
{
	struct rdma_link *k = c->served;

	c->served = NULL;
	return k;
}

static struct rdma_link *find_link_locked(struct rdma *t, uint64_t number)
{
	struct rdma_link *k = t->links;

	while (k && k->number != number)
		k = k->next;
	return k;
}

/* ---- handlers: one per event ---- */

/* Of a link that asks: its owner waits for it. */
static void wake(struct rdma_link *k)
{
	uint64_t one = 1;

	if (write(k->wake_fd, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN)
		log_error("rdma: cannot wake a reader: %m");
}

static void on_progress(struct rdma *t, const struct rdma_note *n)
{
	pthread_mutex_lock(&t->lock);
	struct rdma_link *k = find_link_locked(t, n->number);
	if (k && !k->is_served) {
		k->event = (int)n->event;
		if (n->event == RDMA_CM_EVENT_ESTABLISHED &&
		    (rdma_rep_decode(n->data, n->len, &k->peer_device)))
			k->ended_rc = -EPROTO;
		wake(k);
	}
	pthread_mutex_unlock(&t->lock);
}

static void on_end(struct rdma *t, const struct rdma_note *n)
{
	struct rdma_link *served = NULL;

	pthread_mutex_lock(&t->lock);
	struct rdma_link *k = find_link_locked(t, n->number);
	if (k && !k->is_served) {
		if (!k->ended_rc)
			k->ended_rc = rdma_errno_of_event(n);
		wake(k);
	} else if (k && k->conn && k->conn->served == k) {
		served = rdma_take_served_locked(k->conn);
	}
	pthread_mutex_unlock(&t->lock);
	if (served)
		rdma_link_destroy(served);
}

void rdma_end_links(struct rdma *t, const struct rdma_device *d, int rc)
{
	struct rdma_link *served;

	do {
		served = NULL;
		pthread_mutex_lock(&t->lock);
		for (struct rdma_link *k = t->links; k && !served; k = k->next) {
			if (k->dev != d)
				continue;
			if (k->is_served && k->conn && k->conn->served == k) {
				served = rdma_take_served_locked(k->conn);
			} else if (!k->is_served) {
				if (!k->ended_rc)
					k->ended_rc = rc;
				wake(k);
			}
		}
		pthread_mutex_unlock(&t->lock);
		if (served)
			rdma_link_destroy(served);
	} while (served);
}

/* The device goes away once nothing uses it any more. Every id on it gets this, gone or not meanwhile. */
static void on_removal(struct rdma *t, const struct rdma_note *n)
{
	struct rdma_device *d = rdma_device_find(t, n->verbs);

	if (d && !atomic_exchange(&d->is_gone, true))
		log_warn("rdma: a device was removed, its connections end");
	if (!rdma_on_listener_removal(t, n))
		on_end(t, n);
}

static void on_nothing(struct rdma *t, const struct rdma_note *n) {}

static void (*const handlers[])(struct rdma *t, const struct rdma_note *n) = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = on_progress,
	[RDMA_CM_EVENT_ADDR_ERROR] = on_end,
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = on_progress,
	[RDMA_CM_EVENT_ROUTE_ERROR] = on_end,
	[RDMA_CM_EVENT_CONNECT_REQUEST] = rdma_on_connect_request,
	[RDMA_CM_EVENT_CONNECT_RESPONSE] =
		on_nothing, /* librdmacm answers it, where there is a queue pair */
	[RDMA_CM_EVENT_CONNECT_ERROR] = on_end,
	[RDMA_CM_EVENT_UNREACHABLE] = on_end,
	[RDMA_CM_EVENT_REJECTED] = on_end,
	[RDMA_CM_EVENT_ESTABLISHED] = on_progress,
	[RDMA_CM_EVENT_DISCONNECTED] = on_end,
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = on_removal,
	[RDMA_CM_EVENT_MULTICAST_JOIN] = on_nothing,
	[RDMA_CM_EVENT_MULTICAST_ERROR] = on_nothing,
	[RDMA_CM_EVENT_ADDR_CHANGE] =
		on_nothing, /* of a bond: packets find their way, or run out of retries */
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = on_nothing,
};

/* ---- the thread ---- */

/* false: there is none. */
static bool take_event(struct rdma *t, struct rdma_note *n)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(t->channel, &e)) {
		if (errno != EAGAIN && errno != EINTR)
			log_error("rdma: cannot take an event: %m");
		return false;
	}
	const struct rdma_conn_param *p = &e->param.conn;
	*n = (struct rdma_note){
		.event = e->event,
		.status = e->status,
		.number = (uintptr_t)e->id->context,
		.verbs = e->id->verbs,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
	};
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		n->new_id = e->id;
	if (p->private_data) {
		n->len = p->private_data_len < sizeof(n->data) ? p->private_data_len :
								 (uint8_t)sizeof(n->data);
		memcpy(n->data, p->private_data, n->len);
	}
	log_debug("rdma: %s, status %d", rdma_event_str(e->event), e->status);
	rdma_ack_cm_event(e);
	return true;
}

static void *take_events(void *arg)
{
	struct rdma *t = arg;
	struct pollfd fds[2 + RDMA_DEVICES_MAX] = {{.fd = t->channel->fd, .events = POLLIN},
						   {.fd = t->stop_fd, .events = POLLIN}};
	struct rdma_note n;

	for (uint32_t k = 0; k < t->n_devices; k++)
		fds[2 + k] = (struct pollfd){.fd = t->devices[k].verbs->async_fd, .events = POLLIN};
	while (poll(fds, 2 + t->n_devices, -1) >= 0 || errno == EINTR) {
		if (fds[1].revents)
			return NULL;
		for (uint32_t k = 0; k < t->n_devices; k++) {
			if (fds[2 + k].revents & POLLIN)
				rdma_async_take(t, &t->devices[k]);
			else if (fds[2 + k].revents)
				fds[2 + k].fd = -1; /* it was removed */
		}
		while (take_event(t, &n))
			if ((size_t)n.event < sizeof(handlers) / sizeof(*handlers))
				handlers[n.event](t, &n);
	}
	log_error("rdma: cannot wait for events: %m");
	return NULL;
}

int rdma_cm_start(struct rdma *t)
{
	int rc;

	t->channel = rdma_create_event_channel();
	if (!t->channel) {
		log_error("rdma: cannot open /dev/infiniband/rdma_cm: %m");
		return errno == ENOENT || errno == ENXIO ? -ENODEV : rdma_last_errno();
	}
	int flags = fcntl(t->channel->fd, F_GETFL);
	t->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (flags < 0 || fcntl(t->channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(t->channel->fd, F_SETFD, FD_CLOEXEC) || t->stop_fd < 0)
		rc = rdma_last_errno();
	else
		rc = thread_start(&t->cm_thread, take_events, t);
	if (rc) {
		if (t->stop_fd >= 0)
			close(t->stop_fd);
		rdma_destroy_event_channel(t->channel);
	}
	return rc;
}

void rdma_cm_stop(struct rdma *t)
{
	uint64_t one = 1;

	if (write(t->stop_fd, &one, sizeof(one)) != sizeof(one))
		log_error("rdma: cannot stop the thread of rdma_cm: %m");
	pthread_join(t->cm_thread, NULL);
	close(t->stop_fd);
	rdma_destroy_event_channel(t->channel);
}
