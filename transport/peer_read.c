/* SPDX-License-Identifier: Apache-2.0 */
/* The asking side of READ: one lane, one request, chunks in order, each checked before it is told. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/log.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"

static int fail_local(struct reading *r, int rc)
{
	r->is_local = true;
	return rc;
}

/* ---- chunks ---- */

int reading_bad_chunk(struct reading *r, uint64_t off, size_t len)
{
	struct peer *p = r->a.p;
	guard_lock(&p->lock);

	p->n_bad_chunks++;
	log_error("peer %s at %s: wrong checksum in version %#lx, bytes %lu to %lu", p->name, p->address,
		  (unsigned long)r->g->version, (unsigned long)off, (unsigned long)(off + len));
	return fail_local(r, -EBADMSG);
}

int reading_tell(struct reading *r, size_t to)
{
	size_t from = r->told;

	r->told = to;
	int rc = r->on_chunk ? r->on_chunk(r->arg, r->off + from, to - from) : 0;
	return rc ? fail_local(r, rc) : 0;
}

/*
 * A checksum of the grant is for a whole chunk of the object. Where that is asked for as a whole it decides, once
 * its last piece is there; at the edges of the range it is the message's.
 */
static int check(struct reading *r, const struct wire_chunk *c)
{
	uint64_t k = c->off / PEER_CHUNK_BYTES, begin = k * PEER_CHUNK_BYTES, end = begin + PEER_CHUNK_BYTES;

	if (end > r->g->size)
		end = r->g->size;
	bool is_covered = k < r->g->n_crc && begin >= r->off && end <= r->off + r->len;
	bool goes_on = is_covered && c->off > begin;
	r->crc = crc32c(goes_on ? r->crc : 0, r->dst + r->at, c->len);
	r->at += c->len;
	if (is_covered && c->off + c->len < end)
		return 0;
	if (r->crc != (is_covered ? r->g->crc[k] : c->crc))
		return reading_bad_chunk(r, c->off, c->len);
	return reading_tell(r, r->at);
}

static int acknowledge(struct reading *r, struct transport_conn *conn)
{
	uint8_t buf[WIRE_SMALL_BYTES];

	if (r->n_acked == r->n_chunks)
		return 0;
	r->n_acked = r->n_chunks;
	const struct wire_header h = { .type = WIRE_READ_ACK,
				       .length = (uint32_t)wire_u32_encode(r->n_chunks, buf) };

	return message_send(conn, &h, buf, r->deadline_ns);
}

static int take_chunk(struct reading *r, struct transport_conn *conn, uint32_t length)
{
	uint8_t buf[WIRE_CHUNK_BYTES];
	struct wire_chunk c = { .len = 0 };
	int rc = message_recv(conn, buf, sizeof(buf), r->deadline_ns);

	if (!rc)
		rc = wire_chunk_decode(buf, length, &c);
	if (!rc && (c.off != r->off + r->at || c.len > r->len - r->at))
		rc = -EPROTO;
	if (!rc)
		rc = message_recv(conn, r->dst + r->at, c.len, r->deadline_ns);
	if (rc)
		return rc;
	r->n_chunks++;
	atomic_fetch_sub(&r->a.p->queued_bytes, c.len);
	rc = check(r, &c);
	if (!rc && (r->n_chunks % WIRE_ACK_CHUNKS == 0 || r->at == r->len))
		rc = acknowledge(r, conn);
	return rc;
}

/* The holder counts from its answer, which is later. */
static void renew(struct peer_grant *g, int64_t asked_ns)
{
	__atomic_store_n(&g->until_ns, asked_ns + g->ttl_ms * NS_PER_MS, __ATOMIC_RELAXED);
}

int reading_exchange(struct reading *r, struct transport_conn *conn)
{
	const struct wire_read ask = { .grant = r->g->grant,
				       .off = r->off + r->at,
				       .len = (uint32_t)(r->len - r->at),
				       .budget_ms = deadline_budget_ms(r->deadline_ns) };
	uint8_t buf[WIRE_SMALL_BYTES];
	ssize_t len = wire_read_encode(&ask, buf);
	struct wire_header h = { .type = WIRE_READ, .length = (uint32_t)len, .seq = 1 };

	if (len < 0)
		return fail_local(r, (int)len);
	int64_t asked_ns = clock_now_ns();
	int rc = message_send(conn, &h, buf, r->deadline_ns);
	while (!rc && r->at < r->len) {
		rc = message_recv_header(conn, &h, r->deadline_ns);
		if (!rc && h.type != WIRE_CHUNK)
			rc = -EPROTO;
		if (rc)
			return rc;
		if (h.status) {
			rc = acknowledge(r, conn);
			if (rc)
				return rc;
			r->a.outcome = OUTCOME_GOOD;
			return h.status;
		}
		rc = take_chunk(r, conn, h.length);
	}
	if (!rc) {
		r->a.outcome = OUTCOME_GOOD;
		renew(r->g, asked_ns);
	}
	return rc;
}

static int transfer(struct reading *r, struct transport_conn *conn)
{
	int rc = reading_pull(r, conn);

	return rc || r->at == r->len ? rc : reading_exchange(r, conn);
}

/* ---- lanes ---- */

/* Over a connection that idled and that the peer has closed meanwhile it is tried once more over a new one. */
static int read_over(struct reading *r, struct lane *l)
{
	struct peer *p = r->a.p;
	int rc;

	if (l->conn && (l->epoch != r->a.epoch || clock_now_ns() - l->used_ns > 2 * LANE_IDLE_MS * NS_PER_MS))
		lane_close(p, l);
	for (bool is_old = l->conn;; is_old = false) {
		if (!l->conn) {
			l->epoch = r->a.epoch;
			rc = attempt_connect(&r->a, WIRE_LANE, &l->conn, r->deadline_ns);
			if (rc) {
				attempt_failed(&r->a, rc);
				return rc;
			}
		}
		rc = transfer(r, l->conn);
		if (!rc || (r->a.outcome == OUTCOME_GOOD && !r->is_local))
			return rc;
		lane_close(p, l);
		if (!(is_old && rc == -ECONNRESET && !r->at))
			break;
	}
	/* That bytes came and were not wanted says nothing bad about the peer's connections. */
	if (r->is_local)
		r->a.outcome = OUTCOME_GOOD;
	else
		attempt_failed(&r->a, rc);
	return rc;
}

static void note_rate(struct reading *r, int64_t begin_ns)
{
	struct peer *p = r->a.p;
	int64_t ns = clock_now_ns() - begin_ns;
	guard_lock(&p->lock);

	p->rx_bytes += r->at;
	if (!r->at || r->at < r->len)
		return;
	p->n_reads++;
	uint64_t rate = (uint64_t)((double)r->at * 1e9 / (double)(ns > 0 ? ns : 1));
	p->rx_bytes_per_s = p->rx_bytes_per_s ? p->rx_bytes_per_s - p->rx_bytes_per_s / 8 + rate / 8 : rate;
	if (r->a.epoch == p->epoch && p->n_lanes < p->e->conf.n_lanes) {
		p->n_lanes++;
		pthread_cond_broadcast(&p->changed);
	}
}

int peer_read(struct peer *p, struct peer_grant *g, uint64_t off, size_t len, void *dst, struct transport_mr *mr,
	      peer_chunk_fn on_chunk, void *arg, size_t *n_out, int64_t deadline_ns)
{
	struct reading r = { .g = g,
			     .off = off,
			     .len = len,
			     .dst = dst,
			     .mr = mr,
			     .on_chunk = on_chunk,
			     .arg = arg,
			     .deadline_ns = deadline_ns };
	struct lane *l;

	if (len > PEER_READ_MAX || off > g->size || len > g->size - off)
		return -EINVAL;
	int rc = len ? attempt_begin(&r.a, p) : 0;
	if (rc || !len) {
		if (n_out)
			*n_out = 0;
		return rc;
	}
	atomic_fetch_add(&p->queued_bytes, len);
	rc = channel_open(&p->channels[WIRE_PULSE], &r.a, deadline_ns);
	if (!rc)
		rc = lane_take(&r.a, &l, deadline_ns);
	if (!rc) {
		int64_t begin_ns = clock_now_ns();
		rc = read_over(&r, l);
		note_rate(&r, begin_ns);
		lane_give(p, l);
	}
	atomic_fetch_sub(&p->queued_bytes, len - r.at);
	if (n_out)
		*n_out = r.told;
	return attempt_end(&r.a, rc, "READ failed");
}
