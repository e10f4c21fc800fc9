/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_read: one pull as a series of READs.
 *
 * They are posted in chains, one doorbell each, at most `window` at a time; every group-th and the last of a chain
 * tells of its completion. Completions of a queue pair come in order, so one stands for those before it: its wr_id
 * has the number of READs posted up to it. The caller of pull is the one owner of the completion queue.
 *
 * Waiting: poll for spin_ns, which grows while that pays and shrinks when it does not; then ask for a notification,
 * poll once more, and sleep.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "deadline.h"
#include "rdma/rdma.h"

#define SPIN_MAX_NS 50000
#define SPIN_MIN_NS 2000
#define DRAIN_MS 200
/* In the upper half of a wr_id: that it is one of ours. */
#define TAG_READ 0x52454144u

/* What is left to do. */
struct reading {
	uint64_t from; /* address at the holder */
	uint8_t *to;
	size_t left;
	uint32_t rkey, lkey;
};

/* ---- posting ---- */

static void set_read(struct rdma_link *k, uint32_t i, struct reading *r)
{
	uint32_t len = r->left < k->read_bytes ? (uint32_t)r->left : k->read_bytes;
	uint32_t number = k->n_posted + i + 1;

	k->sges[i] = (struct ibv_sge){.addr = (uintptr_t)r->to, .length = len, .lkey = r->lkey};
	k->wrs[i] = (struct ibv_send_wr){
		.wr_id = (uint64_t)TAG_READ << 32 | number,
		.next = &k->wrs[i + 1],
		.sg_list = &k->sges[i],
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = number % k->group ? 0 : IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = r->from, .rkey = r->rkey},
	};
	r->from += len;
	r->to += len;
	r->left -= len;
}

/* As many as the window has room for. */
static int post(struct rdma_link *k, struct reading *r)
{
	uint32_t room = k->window - (k->n_posted - k->n_done), n = 0;
	struct ibv_send_wr *bad = NULL;

	/* A few at a time would ring a doorbell for each. */
	if (!r->left || (room < k->group && room < k->window))
		return 0;
	while (n < room && r->left)
		set_read(k, n++, r);
	k->wrs[n - 1].next = NULL;
	k->wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	int rc = ibv_post_send(k->id->qp, k->wrs, &bad);
	if (rc) {
		/* Those before the bad one are on their way. */
		k->n_posted += bad ? (uint32_t)(bad - k->wrs) : 0;
		log_error("rdma: cannot post %u READs: %s", n, strerror(rc));
		return rc > 0 ? -rc : -EIO;
	}
	k->n_posted += n;
	k->t->stats.n_reads += n;
	return 0;
}

/* ---- completions ---- */

/* Those that are there: how many, or the errno of the first that failed. */
static int reap(struct rdma_link *k)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(k->cq, 16, wc), rc = 0;

	if (n < 0) {
		log_error("rdma: cannot poll a completion queue");
		return -EIO;
	}
	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id >> 32 != TAG_READ) {
			log_error("rdma: a completion of nobody's, 0x%llx",
				  (unsigned long long)wc[i].wr_id);
			return -EIO;
		}
		k->n_done = (uint32_t)wc[i].wr_id;
		if (!wc[i].status || rc)
			continue;
		rc = rdma_errno_of_wc(wc[i].status);
		if (wc[i].status != IBV_WC_WR_FLUSH_ERR)
			log_warn("rdma: READ on qp 0x%x failed: %s, vendor 0x%x", k->id->qp->qp_num,
				 ibv_wc_status_str(wc[i].status), wc[i].vendor_err);
	}
	return rc ? rc : n;
}

static int take_notification(struct rdma_link *k)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(k->channel, &cq, &context))
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	k->n_events++;
	k->is_armed = false;
	return 0;
}

/* Sleeps, since polling has not helped. */
static int sleep_for_completion(struct rdma_link *k, int64_t deadline_ns)
{
	if (!k->is_armed) {
		int rc = ibv_req_notify_cq(k->cq, 0);
		if (rc) {
			log_error("rdma: cannot arm a completion queue: %s", strerror(rc));
			return rc > 0 ? -rc : -EIO;
		}
		k->is_armed = true;
		return 0; /* what came before is polled for once more */
	}
	k->t->stats.n_sleeps++;
	int rc = rdma_link_sleep(k, k->channel->fd, deadline_ns);
	return rc ? rc : take_notification(k);
}

/* Until at least one completion came. */
static int wait_for_completion(struct rdma_link *k, int64_t deadline_ns)
{
	int64_t spin_until = clock_now_ns() + k->spin_ns;
	bool is_spinning = true;

	for (;;) {
		int n = reap(k);
		if (n > 0 && is_spinning && k->spin_ns < SPIN_MAX_NS)
			k->spin_ns += k->spin_ns / 4;
		if (n)
			return n < 0 ? n : 0;
		int rc = rdma_link_check(k);
		if (rc)
			return rc;
		int64_t now = clock_now_ns();
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (now < spin_until)
			continue;
		if (is_spinning && k->spin_ns > SPIN_MIN_NS)
			k->spin_ns /= 2;
		is_spinning = false;
		rc = sleep_for_completion(k, deadline_ns);
		if (rc)
			return rc;
	}
}

/* One that is flushed behind all others: READs that did not ask for a completion may be done without one. */
static int post_marker(struct rdma_link *k)
{
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = (uint64_t)TAG_READ << 32 | (uint32_t)(k->n_posted + 1),
			.opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED,
		};
	int rc = ibv_post_send(k->id->qp, &wr, &bad);

	k->n_posted += !rc;
	return rc;
}

void rdma_drain(struct rdma_link *k)
{
	int64_t until = deadline_in_ms(DRAIN_MS);
	int rc = post_marker(k);

	while (!rc && k->n_done != k->n_posted && clock_now_ns() < until) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(k->cq, 1, &wc);
		if (n < 0)
			break;
		if (n)
			k->n_done = (uint32_t)wc.wr_id;
	}
	/* Destroying the queue pair is what ends them for certain. */
	if (rc || k->n_done != k->n_posted)
		log_warn("rdma: not all of the READs on qp 0x%x have completed", k->id->qp->qp_num);
}

/* ---- pull ---- */

static int read_all(struct rdma_link *k, struct reading *r, int64_t deadline_ns)
{
	while (r->left || k->n_done != k->n_posted) {
		int rc = post(k, r);
		if (!rc)
			rc = wait_for_completion(k, deadline_ns);
		/* Where completions are always there nobody has asked yet. */
		if (!rc && r->left)
			rc = clock_now_ns() < deadline_ns ? rdma_link_check(k) : -ETIMEDOUT;
		if (rc)
			return rc;
	}
	return 0;
}

/* Memory of both ends on the devices that the link connects. */
static int set_keys(struct rdma *t, const struct rdma_link *k, const struct rdma_key *key,
		    const struct rdma_mr *mr, struct reading *r)
{
	const struct ibv_mr *here = mr->mrs[k->dev - t->devices];

	if (!here)
		return -ENODEV;
	if (k->peer_device >= key->n_rkeys || !key->rkeys[k->peer_device])
		return -EACCES;
	r->lkey = here->lkey;
	r->rkey = key->rkeys[k->peer_device];
	return 0;
}

static int pull_locked(struct rdma_conn *c, const struct rdma_key *key, const struct rdma_mr *mr,
		       struct reading *r, int64_t deadline_ns)
{
	struct rdma_link *k;
	int rc = rdma_link_get(c, key, deadline_ns, &k);

	if (rc)
		return rc;
	rc = set_keys(c->t, k, key, mr, r);
	if (rc)
		return rc;
	rc = read_all(k, r, deadline_ns);
	if (!rc)
		return 0;
	/* Which of them told first does not matter to the caller. */
	if (rc == -ECONNRESET && c->is_shut)
		rc = -ECANCELED;
	rdma_link_drop(c);
	return rc;
}

int rdma_pull(struct transport_conn *base, const uint8_t *key_bytes, size_t key_len, uint64_t off,
	      struct transport_mr *mr_base, void *dst, size_t len, int64_t deadline_ns)
{
	struct rdma_conn *c = (struct rdma_conn *)base;
	const struct rdma_mr *mr = (const struct rdma_mr *)mr_base;
	uintptr_t begin = (uintptr_t)mr->addr, to = (uintptr_t)dst;
	struct rdma_key key;
	int rc = rdma_key_decode(key_bytes, key_len, &key);

	if (rc)
		return rc;
	if (off > key.len || len > key.len - off)
		return -EINVAL;
	if (to < begin || to - begin > mr->len || len > mr->len - (to - begin))
		return -EINVAL;
	if (c->is_shut)
		return -ECANCELED;
	if (!len)
		return 0;
	if (pthread_mutex_trylock(&c->pulling))
		return -EBUSY;
	struct reading r = {.from = key.addr + off, .to = dst, .left = len};
	rc = pull_locked(c, &key, mr, &r, deadline_ns);
	pthread_mutex_unlock(&c->pulling);
	c->t->stats.n_pulls++;
	if (rc)
		c->t->stats.n_pull_failures++;
	else
		c->t->stats.pull_bytes += len;
	return rc;
}
