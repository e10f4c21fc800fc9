/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"
#include "rdma/rdma.h"
#include "tcp/tcp.h"

#define SPIN_START_NS 20000

/* ---- waiting for events ---- */

int rdma_link_check(struct rdma_link *k)
{
	return k->conn->is_shut ? -ECANCELED : k->ended_rc;
}

int rdma_link_sleep(struct rdma_link *k, int fd, int64_t deadline_ns)
{
	/* The stream tells soonest that a process is gone. */
	struct pollfd fds[] = {
		{.fd = k->wake_fd, .events = POLLIN},
		{.fd = ((struct tcp_conn *)k->conn->tcp)->fd, .events = POLLRDHUP},
		{.fd = fd, .events = POLLIN},
	};
	int ms = deadline_poll_ms(deadline_ns);
	uint64_t n_wakes;

	int n = poll(fds, 3, ms);
	if (n < 0)
		return errno == EINTR ? 0 : rdma_last_errno();
	if (!n)
		return -ETIMEDOUT;
	if (fds[0].revents && read(k->wake_fd, &n_wakes, sizeof(n_wakes)) < 0 && errno != EAGAIN)
		return rdma_last_errno();
	if (fds[1].revents)
		return k->conn->is_shut ? -ECANCELED : -ECONNRESET;
	return 0;
}

/* Until rdma_cm has said that. */
static int await(struct rdma_link *k, enum rdma_cm_event_type wanted, int64_t deadline_ns)
{
	for (;;) {
		int rc = rdma_link_check(k);
		if (rc)
			return rc;
		pthread_mutex_lock(&k->t->lock);
		bool is_here = k->event == (int)wanted;
		pthread_mutex_unlock(&k->t->lock);
		if (is_here)
			return 0;
		rc = rdma_link_sleep(k, -1, deadline_ns);
		if (rc == -ECONNRESET) {
			/* What rdma_cm says of it is more exact, if it does. */
			int ended = rdma_link_check(k);
			return ended ? ended : rc;
		}
		if (rc)
			return rc;
	}
}

/* For calls of rdma_cm that take their own time limit. */
static int limit_ms(int64_t deadline_ns)
{
	int ms = deadline_poll_ms(deadline_ns);

	return ms ? ms : 1;
}

/* ---- the steps of a connection ---- */

/* From the address of the TCP connection, so that both take the same network. */
static int resolve(struct rdma_link *k, uint16_t port, int64_t deadline_ns)
{
	struct sockaddr_storage from = k->conn->self.sa, to = k->conn->peer.sa;
	struct rdma_cm_id *id;

	if (from.ss_family == AF_INET6) {
		((struct sockaddr_in6 *)&from)->sin6_port = 0;
		((struct sockaddr_in6 *)&to)->sin6_port = htons(port);
	} else {
		((struct sockaddr_in *)&from)->sin_port = 0;
		((struct sockaddr_in *)&to)->sin_port = htons(port);
	}
	if (rdma_create_id(k->t->channel, &id, (void *)(uintptr_t)k->number, RDMA_PS_TCP))
		return rdma_last_errno();
	k->id = id;
	if (rdma_resolve_addr(k->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
			      limit_ms(deadline_ns)))
		return rdma_last_errno();
	int rc = await(k, RDMA_CM_EVENT_ADDR_RESOLVED, deadline_ns);
	if (rc)
		return rc;
	if (rdma_resolve_route(k->id, limit_ms(deadline_ns)))
		return rdma_last_errno();
	return await(k, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline_ns);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int set_limits(struct rdma_link *k)
{
	struct ibv_port_attr port;
	int rc = ibv_query_port(k->id->verbs, k->id->port_num, &port);

	if (rc)
		return rc > 0 ? -rc : -EIO;
	uint32_t depth = k->dev->attr.max_qp_init_rd_atom > 0 ?
				 (uint32_t)k->dev->attr.max_qp_init_rd_atom :
				 1;
	k->read_bytes = least(RDMA_READ_BYTES, port.max_msg_sz);
	/* Twice what the device has under way, so that it need not wait for us. */
	k->window = least(2 * least(depth, RDMA_WINDOW_MAX), RDMA_WINDOW_MAX);
	k->window = least(k->window, (uint32_t)k->dev->attr.max_qp_wr - 1);
	k->group = k->window > 4 ? k->window / 4 : 1;
	k->spin_ns = SPIN_START_NS;
	return 0;
}

static int make_queue_pair(struct rdma_link *k)
{
	struct ibv_qp_init_attr attr = {
		/* One more for the marker of the end (rdma_drain). */
		.cap = {.max_send_wr = k->window + 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	errno = 0;
	k->channel = ibv_create_comp_channel(k->dev->verbs);
	if (!k->channel)
		return rdma_failed(k->dev, "cannot make a completion channel", "open files", 0);
	int flags = fcntl(k->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(k->channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(k->channel->fd, F_SETFD, FD_CLOEXEC))
		return rdma_last_errno();
	/* Room for all that may be posted: when a queue pair fails, each of them completes. */
	k->cq = ibv_create_cq(k->dev->verbs, (int)k->window + 2, NULL, k->channel, 0);
	if (!k->cq)
		return rdma_failed(k->dev, "cannot make a completion queue", "max_cq",
				   (uint64_t)k->dev->attr.max_cq);
	attr.send_cq = attr.recv_cq = k->cq;
	if (rdma_create_qp(k->id, k->dev->pd, &attr))
		return rdma_failed(k->dev, "cannot make a queue pair", "max_qp",
				   (uint64_t)k->dev->attr.max_qp);
	return 0;
}

static int request(struct rdma_link *k, int64_t deadline_ns)
{
	int depth = k->dev->attr.max_qp_init_rd_atom;
	struct rdma_req r = {.asker_port = k->conn->self.port, .holder_port = k->conn->peer.port};
	uint8_t data[RDMA_REQ_BYTES];
	struct rdma_conn_param p = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = 0,
		.initiator_depth = (uint8_t)(depth < UINT8_MAX ? depth : UINT8_MAX),
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	memcpy(r.token, k->token, sizeof(r.token));
	rdma_req_encode(&r, data);
	if (rdma_connect(k->id, &p))
		return rdma_last_errno();
	return await(k, RDMA_CM_EVENT_ESTABLISHED, deadline_ns);
}

static int link_connect(struct rdma_link *k, uint16_t port, int64_t deadline_ns)
{
	int rc = resolve(k, port, deadline_ns);

	if (rc)
		return rc;
	k->dev = rdma_device_find(k->t, k->id->verbs);
	if (!k->dev || k->dev->is_gone)
		return -ENODEV;
	rc = set_limits(k);
	if (!rc)
		rc = make_queue_pair(k);
	return rc ? rc : request(k, deadline_ns);
}

/* ---- the asker's link of a connection ---- */

void rdma_link_drop(struct rdma_conn *c)
{
	pthread_mutex_lock(&c->t->lock);
	struct rdma_link *k = c->pull;
	c->pull = NULL;
	pthread_mutex_unlock(&c->t->lock);
	if (k)
		rdma_link_destroy(k);
}

int rdma_link_get(struct rdma_conn *c, const struct rdma_key *key, int64_t deadline_ns,
		  struct rdma_link **out)
{
	struct rdma *t = c->t;
	struct rdma_link *k = c->pull;

	if (k && !rdma_link_check(k) && !memcmp(k->token, key->token, sizeof(k->token))) {
		*out = k;
		return 0;
	}
	rdma_link_drop(c);
	if (c->is_shut)
		return -ECANCELED;
	if (!c->peer.port)
		return -ENOTCONN;
	int rc = rdma_link_create(t, c, false, &k);
	if (rc)
		return rc;
	memcpy(k->token, key->token, sizeof(k->token));
	pthread_mutex_lock(&t->lock);
	c->pull = k; /* from here on shutdown wakes it */
	pthread_mutex_unlock(&t->lock);
	rc = link_connect(k, key->port, deadline_ns);
	if (rc) {
		t->stats.n_connect_failures++;
		log_info("rdma: cannot connect to %s, port %u: %s", transport_tcp.peer_name(c->tcp),
			 key->port, strerror(-rc));
		rdma_link_drop(c);
		return rc;
	}
	t->stats.n_connects++;
	*out = k;
	return 0;
}
