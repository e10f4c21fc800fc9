/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asking side of bytes that the transport reads out of the holder's memory: no thread of the holder takes part.
 *
 * It needs a grant with a key and with checksums for all of the range, since nothing else tells of wrong bytes; and time:
 * a grant is a duration, which the asker counts from its question and the holder from its answer, so what was read
 * before the asker's end of it was there. Reading does not renew it, so from half of its time on one byte is asked for
 * by READ first.
 *
 * What fails here is asked for by READ at once, over the same connection. A breaker per peer keeps that from costing
 * again: while it is open nothing is pulled.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/log.h"
#include "deadline.h"
#include "peer_impl.h"

bool peer_can_pull(struct peer *p)
{
	guard_lock(&p->lock);

	if (p->is_cut || !p->e->conf.transport->pull)
		return false;
	return p->pulls.state == BREAKER_CLOSED || clock_now_ns() >= p->pulls.until_ns;
}

/* ---- the breaker ---- */

static enum breaker_verdict may_pull(struct peer *p)
{
	guard_lock(&p->lock);

	return breaker_ask(&p->pulls, clock_now_ns());
}

static void pulled(struct peer *p, size_t len, bool is_probe)
{
	guard_lock(&p->lock);

	breaker_succeed(&p->pulls, is_probe);
	p->pull_reason[0] = '\0';
	p->pulled_bytes += len;
}

static void pull_failed(struct peer *p, int rc)
{
	guard_lock(&p->lock);

	bool was_closed = p->pulls.state == BREAKER_CLOSED;
	p->n_pull_failures++;
	breaker_fail(&p->pulls, clock_now_ns());
	snprintf(p->pull_reason, sizeof(p->pull_reason), "%s", strerror(-rc));
	if (was_closed)
		log_info("peer %s at %s: its memory cannot be read, bytes come by READ: %s", p->name, p->address,
			 p->pull_reason);
}

static void pull_abandoned(struct peer *p, bool is_probe)
{
	guard_lock(&p->lock);

	if (is_probe)
		breaker_abandon(&p->pulls, clock_now_ns());
}

/* ---- the grant ---- */

static bool is_covered(const struct reading *r)
{
	uint64_t begin = r->off + r->at, end = r->off + r->len;

	return r->mr && r->g->key_len && r->g->n_crc && begin % PEER_CHUNK_BYTES == 0 &&
	       (end % PEER_CHUNK_BYTES == 0 || end == r->g->size);
}

static int64_t until(const struct peer_grant *g)
{
	return __atomic_load_n(&g->until_ns, __ATOMIC_RELAXED);
}

/* One byte by READ, which the holder takes for a sign that the grant is in use. */
static int renew(struct reading *r, struct transport_conn *conn)
{
	uint8_t byte;
	struct reading one = { .a = r->a, .g = r->g, .len = 1, .dst = &byte, .deadline_ns = r->deadline_ns };

	if (until(r->g) - clock_now_ns() > r->g->ttl_ms * NS_PER_MS / 2)
		return 0;
	atomic_fetch_add(&r->a.p->queued_bytes, 1);
	int rc = reading_exchange(&one, conn);
	atomic_fetch_sub(&r->a.p->queued_bytes, one.len - one.at);
	r->a.outcome = rc ? one.a.outcome : r->a.outcome;
	r->is_local = one.is_local;
	return rc;
}

/* ---- bytes ---- */

/* All of them are there; they count as far as they are right. */
static int check_all(struct reading *r)
{
	while (r->at < r->len) {
		uint64_t off = r->off + r->at;
		size_t left = r->len - r->at, n = left < PEER_CHUNK_BYTES ? left : PEER_CHUNK_BYTES;
		if (crc32c(0, r->dst + r->at, n) != r->g->crc[off / PEER_CHUNK_BYTES])
			return reading_bad_chunk(r, off, n);
		r->at += n;
		atomic_fetch_sub(&r->a.p->queued_bytes, n);
		int rc = reading_tell(r, r->at);
		if (rc)
			return rc;
	}
	return 0;
}

/* Half of the time at most: READ may have to do it. */
static int64_t pull_deadline(const struct reading *r)
{
	int64_t now = clock_now_ns(), half = r->deadline_ns > now ? now + (r->deadline_ns - now) / 2 : now;

	return deadline_earlier(deadline_earlier(until(r->g), half), deadline_in_ms(PULL_MS));
}

int reading_pull(struct reading *r, struct transport_conn *conn)
{
	struct peer *p = r->a.p;

	if (!is_covered(r))
		return 0;
	int rc = renew(r, conn);
	if (rc)
		return rc;
	enum breaker_verdict verdict = may_pull(p);
	if (verdict == BREAKER_REFUSE)
		return 0;
	size_t len = r->len - r->at;
	rc = conn->ops->pull(conn, r->g->key, r->g->key_len, r->off + r->at, r->mr, r->dst + r->at, len,
			     pull_deadline(r));
	if (!rc && clock_now_ns() >= until(r->g))
		rc = -ESTALE;
	if (rc == -ECANCELED) {
		pull_abandoned(p, verdict == BREAKER_PROBE);
		return rc;
	}
	if (rc) {
		pull_failed(p, rc);
		return 0;
	}
	pulled(p, len, verdict == BREAKER_PROBE);
	r->a.outcome = OUTCOME_GOOD;
	return check_all(r);
}
