/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/pread_full.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"

#define ANSWER_MS 5000 /* to send one that is not READ's */

/* What may be asked over a connection of a role. */
static const uint32_t askable[WIRE_N_ROLES] = {
	[WIRE_PULSE] = 1u << WIRE_PING,
	[WIRE_CONTROL] = 1u << WIRE_PING | 1u << WIRE_GRANT | 1u << WIRE_RELEASE,
	[WIRE_NOTIFY] = 1u << WIRE_PING | 1u << WIRE_INVALIDATE,
	[WIRE_LANE] = 1u << WIRE_READ,
};

static int answer(struct transport_conn *c, const struct wire_header *asked, enum wire_type type, int status,
		  const void *payload, size_t len)
{
	const struct wire_header h = {
		.type = (uint8_t)type, .length = (uint32_t)len, .status = status, .seq = asked->seq
	};

	return message_send(c, &h, payload, deadline_in_ms(ANSWER_MS));
}

static int64_t deadline_of(uint32_t budget_ms)
{
	return deadline_in_ms(budget_ms < BUDGET_MAX_MS ? budget_ms : BUDGET_MAX_MS);
}

static int serve_ping(struct served *s, struct transport_conn *c, const struct wire_header *h)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	uint8_t buf[WIRE_SMALL_BYTES];
	ssize_t len = wire_u32_encode(handlers->load ? handlers->load(handlers->arg) : 0, buf);

	/* Nobody waits for what was not numbered: it says only that the other end is there. */
	return h->seq ? answer(c, h, WIRE_PONG, 0, buf, (size_t)len) : 0;
}

/* A small object goes along, and the grant is over. False: it does not, and is asked for by READ. */
static bool add_bytes(struct served *s, const struct peer_grant *g, uint8_t *dst)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	struct peer_piece p = { .fd = -1 };
	int rc = handlers->read(handlers->arg, &s->from, g->grant, 0, (uint32_t)g->size, &p, deadline_in_ms(ANSWER_MS));

	if (rc)
		return false;
	bool is_whole = p.len == g->size && pread_full(p.fd, dst, p.len, p.off) == (ssize_t)p.len;
	if (p.done)
		p.done(p.arg);
	if (!is_whole)
		return false;
	handlers->release(handlers->arg, &s->from, g->grant);
	s->e->tx_bytes += g->size;
	return true;
}

static int answer_grant(struct served *s, struct transport_conn *c, const struct wire_header *h,
			const struct wire_grant *g, const struct wire_wanted *w, int64_t deadline_ns)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	const struct peer_grant_ask ask = { .from = s->from, .version = w->version, .dir = g->dir, .name = w->name,
					    .wants_key = g->wants_key && s->e->conf.transport->pull };
	struct peer_grant granted = { .grant = 0 };
	int rc = handlers->grant(handlers->arg, &ask, &granted, deadline_ns);

	if (rc)
		return answer(c, h, WIRE_GRANTED, rc, NULL, 0);
	granted.has_bytes = granted.size && granted.size <= w->inline_max && granted.n_crc == 1 && !granted.is_partial;
	size_t room = wire_granted_bytes(&granted);
	autofree uint8_t *buf = malloc(room);
	if (buf && granted.has_bytes)
		granted.has_bytes = add_bytes(s, &granted, buf + room - granted.size);
	ssize_t len = buf ? wire_granted_encode(&granted, buf, room) : -ENOMEM;
	free(granted.crc);
	if (len < 0) {
		log_error("peer %s: a grant of %s/%s cannot be told: %s", c->ops->peer_name(c), g->dir, w->name,
			  strerror((int)-len));
		handlers->release(handlers->arg, &s->from, granted.grant);
		return answer(c, h, WIRE_GRANTED, -EIO, NULL, 0);
	}
	return answer(c, h, WIRE_GRANTED, 0, buf, (size_t)len);
}

static int serve_grant(struct served *s, struct transport_conn *c, const struct wire_header *h)
{
	autofree struct wire_grant *g = malloc(sizeof(*g));
	int rc = g ? wire_grant_decode(s->payload, h->length, g) : -ENOMEM;

	if (rc)
		return rc;
	int64_t deadline_ns = deadline_of(g->budget_ms);
	for (uint32_t k = 0; k < g->n && !rc; k++) {
		const struct wire_header asked = { .seq = h->seq + k };
		rc = answer_grant(s, c, &asked, g, &g->names[k], deadline_ns);
	}
	return rc;
}

static int serve_release(struct served *s, const struct wire_header *h)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	uint64_t grant;
	int rc = wire_u64_decode(s->payload, h->length, &grant);

	if (!rc)
		handlers->release(handlers->arg, &s->from, grant);
	return rc;
}

static int serve_invalidate(struct served *s, struct transport_conn *c, const struct wire_header *h)
{
	const struct peer_handlers *handlers = &s->e->conf.handlers;
	autofree struct peer_invalidation *v = calloc(PEER_INVALIDATE_MAX, sizeof(*v));
	uint32_t budget_ms;
	size_t n;

	if (!v)
		return answer(c, h, WIRE_INVALIDATED, -ENOMEM, NULL, 0);
	int rc = wire_invalidate_decode(s->payload, h->length, v, &n, &budget_ms);
	if (rc)
		return rc;
	rc = handlers->invalidate(handlers->arg, &s->from, v, n, deadline_of(budget_ms));
	return answer(c, h, WIRE_INVALIDATED, rc, NULL, 0);
}

/* Into s->payload, which keeps its size from message to message. */
static int recv_payload(struct served *s, struct transport_conn *c, uint32_t len)
{
	if (len > s->payload_room) {
		free(s->payload);
		s->payload_room = 0;
		s->payload = malloc(len);
		if (!s->payload)
			return -ENOMEM;
		s->payload_room = len;
	}
	return message_recv(c, s->payload, len, deadline_in_ms(PAYLOAD_MS));
}

int serve_request(struct served *s, struct transport_conn *c)
{
	struct wire_read r;
	struct wire_header h;
	int rc = message_recv_header(c, &h, deadline_in_ms(SERVED_IDLE_MS));

	if (rc)
		return rc;
	if (h.status || !(askable[s->role] & 1u << h.type)) {
		log_debug("peer %s: message %u is not for this connection", c->ops->peer_name(c), h.type);
		return -EPROTO;
	}
	rc = recv_payload(s, c, h.length);
	if (rc)
		return rc;
	switch (h.type) {
	case WIRE_PING:
		return serve_ping(s, c, &h);
	case WIRE_GRANT:
		return serve_grant(s, c, &h);
	case WIRE_RELEASE:
		return serve_release(s, &h);
	case WIRE_INVALIDATE:
		return serve_invalidate(s, c, &h);
	default:
		rc = wire_read_decode(s->payload, h.length, &r);
		return rc ? rc : serve_read(s, c, &h, &r);
	}
}
