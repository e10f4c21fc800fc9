/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder's side of READ. Pieces of files go out without a copy, so each stays as it is until the asker has told
 * that it came: its pages may be in the socket, or in the asker's on the same machine, long after they were sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/log.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"

#define CRC_BYTES (256u << 10)
#define GRACE_MS 2000 /* for the last acknowledgement, after the asker's deadline */

struct answering {
	struct served *s;
	struct transport_conn *c;
	uint64_t seq;
	int64_t deadline_ns;
	uint32_t n_sent, n_acked;
	struct {
		void (*done)(void *arg);
		void *arg;
	} unacked[WIRE_UNACKED_MAX]; /* by number modulo their count */
};

static void let_go(struct answering *a, uint32_t up_to)
{
	for (; a->n_acked < up_to; a->n_acked++) {
		uint32_t k = a->n_acked % WIRE_UNACKED_MAX;
		if (a->unacked[k].done)
			a->unacked[k].done(a->unacked[k].arg);
	}
}

static int recv_ack(struct answering *a, int64_t deadline_ns)
{
	uint8_t buf[WIRE_SMALL_BYTES];
	struct wire_header h;
	uint32_t n;
	int rc = message_recv_header(a->c, &h, deadline_ns);

	if (!rc && (h.type != WIRE_READ_ACK || h.status))
		rc = -EPROTO;
	if (!rc)
		rc = message_recv(a->c, buf, h.length, deadline_ns);
	if (!rc)
		rc = wire_u32_decode(buf, h.length, &n);
	if (!rc && (n <= a->n_acked || n > a->n_sent))
		rc = -EPROTO;
	if (!rc)
		let_go(a, n);
	return rc;
}

static int piece_crc(const struct peer_piece *p, uint32_t *crc_out)
{
	autofree uint8_t *buf = malloc(CRC_BYTES);
	uint32_t crc = 0;

	if (!buf)
		return -ENOMEM;
	for (uint32_t at = 0; at < p->len;) {
		uint32_t want = p->len - at < CRC_BYTES ? p->len - at : CRC_BYTES;
		ssize_t n = pread(p->fd, buf, want, (off_t)(p->off + at));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		crc = crc32c(crc, buf, (size_t)n);
		at += (uint32_t)n;
	}
	*crc_out = crc;
	return 0;
}

/* An error instead of a chunk ends the answer. */
static int send_error(struct answering *a, int rc)
{
	const struct wire_header h = { .type = WIRE_CHUNK, .status = rc, .seq = a->seq };

	return message_send(a->c, &h, NULL, a->deadline_ns);
}

static int send_piece(struct answering *a, const struct peer_piece *p, uint64_t off, uint32_t crc)
{
	const struct wire_chunk chunk = { .off = off, .len = p->len, .crc = crc };
	const struct wire_header h = { .type = WIRE_CHUNK, .length = WIRE_CHUNK_BYTES + p->len, .seq = a->seq };
	uint8_t head[WIRE_HEADER_BYTES + WIRE_SMALL_BYTES];

	wire_header_encode(&h, head);
	ssize_t len = wire_chunk_encode(&chunk, head + WIRE_HEADER_BYTES);
	if (len < 0)
		return (int)len;
	return a->c->ops->send_file(a->c, head, WIRE_HEADER_BYTES + (size_t)len, p->fd, p->off, p->len,
				    a->deadline_ns);
}

static bool piece_is_valid(const struct peer_piece *p, uint64_t off, uint32_t len)
{
	return p->fd >= 0 && p->len && p->len <= len && p->len <= PEER_CHUNK_BYTES - off % PEER_CHUNK_BYTES;
}

/* The next piece. Positive: it went out, so many bytes; 0: an error went out instead; else the connection is over. */
static int64_t answer_piece(struct answering *a, const struct wire_read *r, uint64_t off, uint32_t len)
{
	const struct peer_handlers *handlers = &a->s->e->conf.handlers;
	struct peer_piece p = { .fd = -1 };
	int rc = handlers->read(handlers->arg, &a->s->from, r->grant, off, len, &p, a->deadline_ns);

	if (rc)
		return send_error(a, rc);
	if (!piece_is_valid(&p, off, len)) {
		log_error("peer %s: a piece of %u bytes at %lu for %u", a->c->ops->peer_name(a->c), p.len,
			  (unsigned long)off, len);
		rc = -EIO;
	}
	uint32_t crc = p.crc;
	if (!rc && !p.has_crc)
		rc = piece_crc(&p, &crc);
	if (rc) {
		if (p.done)
			p.done(p.arg);
		return send_error(a, rc);
	}
	a->unacked[a->n_sent % WIRE_UNACKED_MAX].done = p.done;
	a->unacked[a->n_sent % WIRE_UNACKED_MAX].arg = p.arg;
	a->n_sent++;
	rc = send_piece(a, &p, off, crc);
	if (rc)
		return rc;
	a->s->e->tx_bytes += p.len;
	return p.len;
}

int serve_read(struct served *s, struct transport_conn *c, const struct wire_header *h, const struct wire_read *r)
{
	uint32_t budget_ms = r->budget_ms < BUDGET_MAX_MS ? r->budget_ms : BUDGET_MAX_MS;
	struct answering a = { .s = s, .c = c, .seq = h->seq, .deadline_ns = deadline_in_ms(budget_ms) };
	int64_t last_ns = a.deadline_ns + GRACE_MS * NS_PER_MS;
	int64_t n = 1;
	int rc = 0;

	for (uint32_t at = 0; at < r->len && n > 0; at += (uint32_t)n) {
		while (a.n_sent - a.n_acked == WIRE_UNACKED_MAX && !rc)
			rc = recv_ack(&a, a.deadline_ns);
		n = rc ? rc : answer_piece(&a, r, r->off + at, r->len - at);
	}
	rc = n < 0 ? (int)n : 0;
	while (!rc && a.n_acked < a.n_sent)
		rc = recv_ack(&a, last_ns);
	let_go(&a, a.n_sent);
	return rc;
}
