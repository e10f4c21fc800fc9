/* SPDX-License-Identifier: Apache-2.0 */
/* The half of fake_rdma that stands for libibverbs. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fakes/fake_rdma.h"

/* The header's macros stand before the functions of these names. */
#undef ibv_query_port
#undef ibv_reg_mr

#define RING 256
#define MAX_HELD 64

struct fake_channel {
	struct ibv_comp_channel channel;
	struct fake_cq *cq;
};

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc ring[RING];
	uint32_t n_in, n_out;
	bool is_armed;
	unsigned int n_told, n_acked;
};

struct fake_read {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_qp *next;
	bool is_connected;
	int n_held;
	struct fake_read held[MAX_HELD];
};

struct fake_mr {
	struct ibv_mr mr;
	int access;
	struct fake_mr *next;
};

struct fake_rdma fake_rdma;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_mr *mrs;
static struct fake_qp *qps;
static uint32_t last_key = 0x1000;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int req_notify_cq(struct ibv_cq *cq, int solicited_only);

static struct ibv_device fake_device = {.name = "fake0"};
struct ibv_context fake_context = {
	.device = &fake_device,
	.ops = {.post_send = post_send, .poll_cq = poll_cq, .req_notify_cq = req_notify_cq},
};

/* ---- what the device says of itself ---- */

static atomic_int said[IBV_EVENT_WQ_FATAL + 1], n_unacknowledged;

__attribute__((constructor)) static void open_async(void)
{
	fake_context.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

void fake_rdma_say(enum ibv_event_type type)
{
	uint64_t one = 1;

	said[type]++;
	if (write(fake_context.async_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	uint64_t one;

	if (read(context->async_fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	for (int type = 0; type <= IBV_EVENT_WQ_FATAL; type++)
		if (said[type]) {
			said[type]--;
			n_unacknowledged++;
			*event = (struct ibv_async_event){.event_type = (enum ibv_event_type)type, .element.port_num = 1};
			return 0;
		}
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	n_unacknowledged--;
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return "an event";
}

bool fake_fails(atomic_int *n)
{
	int v = *n;

	while (v > 0 && !atomic_compare_exchange_weak(n, &v, v - 1))
		;
	if (v != 1)
		return false;
	errno = ENOMEM;
	return true;
}

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fake_rdma: %s\n", what);
	abort();
}

/* ---- devices ---- */

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.max_mr_size = 1ull << 40,
		.max_qp = 64,
		.max_qp_wr = 128,
		.max_cq = 64,
		.max_mr = 1024,
		.max_pd = 16,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 8,
		.phys_port_cnt = 1,
	};
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr *out = (struct ibv_port_attr *)attr;

	out->state = IBV_PORT_ACTIVE;
	out->max_msg_sz = 1u << 31;
	out->link_layer = IBV_LINK_LAYER_ETHERNET;
	return port == 1 ? 0 : EINVAL;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t n,
			     uint32_t flags, size_t size)
{
	static const uint8_t addresses[2][16] = {{[10] = 0xff, 0xff, 127, 0, 0, 1}, {[15] = 1}};

	must(size == sizeof(*entries), "another size of GID entries");
	if (fake_rdma.has_no_gid)
		return 0;
	for (size_t k = 0; k < 2 && k < n; k++) {
		entries[k] = (struct ibv_gid_entry){
			.gid_index = (uint32_t)k, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
		memcpy(entries[k].gid.raw, addresses[k], 16);
	}
	return n < 2 ? (ssize_t)n : 2;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status ? "failed" : "success";
}

/* ---- protection domains and memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = fake_fails(&fake_rdma.fail_alloc_pd) ? NULL : calloc(1, sizeof(*pd));

	if (pd) {
		pd->context = context;
		fake_rdma.n_pds++;
	}
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	pthread_mutex_lock(&fake_lock);
	for (const struct fake_mr *m = mrs; m; m = m->next)
		must(m->mr.pd != pd, "a protection domain is freed that has memory");
	for (const struct fake_qp *q = qps; q; q = q->next)
		must(q->qp.pd != pd, "a protection domain is freed that has queue pairs");
	pthread_mutex_unlock(&fake_lock);
	free(pd);
	fake_rdma.n_pds--;
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct fake_mr *m = fake_fails(&fake_rdma.fail_reg_mr) ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_lock(&fake_lock);
	last_key += 0x100;
	m->mr = (struct ibv_mr){.context = pd->context,
				.pd = pd,
				.addr = addr,
				.length = length,
				.lkey = last_key,
				.rkey = last_key + 1};
	m->access = access;
	m->next = mrs;
	mrs = m;
	pthread_mutex_unlock(&fake_lock);
	fake_rdma.n_mrs++;
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	must(iova == (uintptr_t)addr, "memory with another address for peers");
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_mr **at = &mrs; *at; at = &(*at)->next)
		if (&(*at)->mr == mr) {
			*at = (*at)->next;
			break;
		}
	pthread_mutex_unlock(&fake_lock);
	free(mr);
	fake_rdma.n_mrs--;
	return 0;
}

static bool is_registered(uint32_t key, uint64_t addr, uint64_t len, int access)
{
	for (struct fake_mr *m = mrs; m; m = m->next)
		if ((access == IBV_ACCESS_REMOTE_READ ? m->mr.rkey : m->mr.lkey) == key)
			return (m->access & access) && addr >= (uintptr_t)m->mr.addr &&
			       addr + len <= (uintptr_t)m->mr.addr + m->mr.length;
	return false;
}

/* ---- completion queues ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *c = fake_fails(&fake_rdma.fail_create_channel) ? NULL :
									      calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->channel.context = context;
	c->channel.fd = eventfd(0, EFD_SEMAPHORE);
	fake_rdma.n_channels++;
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	must(!channel->refcnt, "a completion channel is destroyed before its queue");
	close(channel->fd);
	free(channel);
	fake_rdma.n_channels--;
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct fake_cq *c = fake_fails(&fake_rdma.fail_create_cq) ? NULL : calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cq = (struct ibv_cq){
		.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
	if (channel) {
		channel->refcnt++;
		((struct fake_channel *)channel)->cq = c;
	}
	fake_rdma.n_cqs++;
	return &c->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *c = (struct fake_cq *)cq;

	must(c->n_told == c->n_acked,
	     "a completion queue is destroyed with events that nobody acknowledged");
	pthread_mutex_lock(&fake_lock);
	for (const struct fake_qp *q = qps; q; q = q->next)
		must(q->qp.send_cq != cq, "a completion queue is destroyed before its queue pair");
	pthread_mutex_unlock(&fake_lock);
	if (cq->channel)
		cq->channel->refcnt--;
	free(c);
	fake_rdma.n_cqs--;
	return 0;
}

static void complete_locked(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	uint64_t one = 1;

	must(c->n_in - c->n_out < (uint32_t)cq->cqe, "a completion queue overruns");
	c->ring[c->n_in++ % RING] =
		(struct ibv_wc){.wr_id = wr_id, .status = status, .opcode = IBV_WC_RDMA_READ};
	if (c->is_armed && !fake_rdma.loses_notifications) {
		c->is_armed = false;
		must(write(cq->channel->fd, &one, sizeof(one)) == sizeof(one), "eventfd");
	}
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	int got = 0;

	pthread_mutex_lock(&fake_lock);
	while (got < n && c->n_out != c->n_in)
		wc[got++] = c->ring[c->n_out++ % RING];
	pthread_mutex_unlock(&fake_lock);
	return got;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	pthread_mutex_lock(&fake_lock);
	((struct fake_cq *)cq)->is_armed = true;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct fake_cq *c = ((struct fake_channel *)channel)->cq;
	uint64_t n;

	if (read(channel->fd, &n, sizeof(n)) != sizeof(n))
		return -1;
	c->n_told++;
	*cq = &c->cq;
	*cq_context = c->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	((struct fake_cq *)cq)->n_acked += n;
}

/* ---- queue pairs ---- */

struct ibv_qp *fake_qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *q = fake_fails(&fake_rdma.fail_create_qp) ? NULL : calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	must(attr->send_cq && attr->recv_cq && attr->cap.max_send_wr <= MAX_HELD,
	     "what a queue pair needs");
	q->qp = (struct ibv_qp){.context = pd->context,
				.pd = pd,
				.send_cq = attr->send_cq,
				.recv_cq = attr->recv_cq,
				.state = IBV_QPS_INIT,
				.qp_type = attr->qp_type,
				.handle = attr->cap.max_send_wr};
	pthread_mutex_lock(&fake_lock);
	q->qp.qp_num = ++last_key;
	q->next = qps;
	qps = q;
	pthread_mutex_unlock(&fake_lock);
	fake_rdma.n_qps++;
	return &q->qp;
}

void fake_qp_destroy(struct ibv_qp *qp)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp **at = &qps; *at; at = &(*at)->next)
		if (&(*at)->qp == qp) {
			*at = (*at)->next;
			break;
		}
	pthread_mutex_unlock(&fake_lock);
	free(qp);
	fake_rdma.n_qps--;
}

static void fail_locked(struct fake_qp *q)
{
	q->qp.state = IBV_QPS_ERR;
	for (int k = 0; k < q->n_held; k++)
		complete_locked(q->qp.send_cq, q->held[k].wr.wr_id, IBV_WC_WR_FLUSH_ERR);
	q->n_held = 0;
}

void fake_qp_set_connected_locked(struct ibv_qp *qp, bool is_connected)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	q->is_connected = is_connected;
	if (is_connected)
		q->qp.state = IBV_QPS_RTS;
	else
		fail_locked(q);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	must(mask == IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR,
	     "only the way to the error state is known");
	pthread_mutex_lock(&fake_lock);
	fail_locked((struct fake_qp *)qp);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* One READ; with an error the queue pair is over. */
static void execute_locked(struct fake_qp *q, const struct ibv_send_wr *wr,
			   const struct ibv_sge *sge)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	if (q->qp.state == IBV_QPS_ERR)
		status = IBV_WC_WR_FLUSH_ERR;
	else if (fake_rdma.wc_status && fake_rdma.wc_after-- <= 0)
		status = (enum ibv_wc_status)atomic_exchange(&fake_rdma.wc_status, 0);
	else if (!is_registered(sge->lkey, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE))
		status = IBV_WC_LOC_PROT_ERR;
	else if (!is_registered(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, sge->length,
				IBV_ACCESS_REMOTE_READ))
		status = IBV_WC_REM_ACCESS_ERR;
	else
		memcpy((void *)(uintptr_t)sge->addr, (void *)(uintptr_t)wr->wr.rdma.remote_addr,
		       sge->length);
	if (status)
		q->qp.state = IBV_QPS_ERR;
	if (status || (wr->send_flags & IBV_SEND_SIGNALED))
		complete_locked(q->qp.send_cq, wr->wr_id, status);
}

static void note_most(atomic_int *most, int n)
{
	if (n > *most)
		*most = n;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	int n = 0;

	pthread_mutex_lock(&fake_lock);
	for (; wr; wr = wr->next, n++) {
		must(wr->opcode == IBV_WR_RDMA_READ &&
			     (wr->num_sge == 1 || qp->state == IBV_QPS_ERR),
		     "only READs with one piece are known");
		must(q->is_connected || q->qp.state == IBV_QPS_ERR,
		     "posted before it was connected");
		if (fake_fails(&fake_rdma.fail_post_send) || q->n_held >= (int)qp->handle)
			break;
		fake_rdma.n_signalled += !!(wr->send_flags & IBV_SEND_SIGNALED);
		if (fake_rdma.holds_reads && qp->state != IBV_QPS_ERR)
			q->held[q->n_held++] = (struct fake_read){*wr, *wr->sg_list};
		else
			execute_locked(q, wr, wr->sg_list);
	}
	note_most(&fake_rdma.longest_chain, n);
	note_most(&fake_rdma.most_outstanding, q->n_held);
	pthread_mutex_unlock(&fake_lock);
	fake_rdma.n_doorbells++;
	if (!wr)
		return 0;
	*bad = wr;
	return ENOMEM;
}

int fake_rdma_release_reads(void)
{
	int n = 0;

	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp *q = qps; q; q = q->next) {
		for (int k = 0; k < q->n_held; k++, n++)
			execute_locked(q, &q->held[k].wr, &q->held[k].sge);
		q->n_held = 0;
	}
	pthread_mutex_unlock(&fake_lock);
	return n;
}

int fake_rdma_n_left(void)
{
	return fake_rdma.n_pds + fake_rdma.n_mrs + fake_rdma.n_cqs + fake_rdma.n_channels +
	       fake_rdma.n_qps + fake_rdma.n_ids + fake_rdma.n_event_channels;
}
