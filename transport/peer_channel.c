/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"
#include "thread.h"

void channel_init(struct channel *ch, struct peer *p, enum wire_role role)
{
	*ch = (struct channel){ .peer = p, .role = role };
	clock_cond_init(&ch->sendable);
}

void call_init(struct call *c, enum wire_type answer)
{
	*c = (struct call){ .answer = answer };
	clock_cond_init(&c->done);
}

void call_fini(struct call *c)
{
	free(c->payload);
	pthread_cond_destroy(&c->done);
}

/* ---- sending ---- */

/* One sender at a time. c: its call, or NULL; one that ended meanwhile must not go out over the next connection. */
static int sender_enter(struct channel *ch, const struct call *c, struct transport_conn **out, int64_t deadline_ns)
{
	struct peer *p = ch->peer;
	int rc = 0;
	guard_lock(&p->lock);

	while (ch->state == CHANNEL_OPEN && ch->is_sending && !rc)
		rc = clock_cond_wait(&ch->sendable, &p->lock, deadline_ns);
	if (ch->state != CHANNEL_OPEN || (c && c->is_done))
		return -ENOTCONN;
	if (ch->is_sending)
		return -ETIMEDOUT;
	ch->is_sending = true;
	ch->used_ns = clock_now_ns();
	*out = ch->conn;
	return 0;
}

static void sender_leave(struct channel *ch)
{
	guard_lock(&ch->peer->lock);

	ch->is_sending = false;
	pthread_cond_broadcast(&ch->sendable);
}

/* Half a message may have gone out when this fails: then nothing else may follow, and the receiver sees the end. */
static int send_one(struct channel *ch, enum wire_type type, const struct call *c, const void *payload, size_t len,
		    int64_t deadline_ns)
{
	const struct wire_header h = { .type = (uint8_t)type, .length = (uint32_t)len, .seq = c ? c->seq : 0 };
	struct transport_conn *conn;
	int rc = sender_enter(ch, c, &conn, deadline_ns);

	if (rc)
		return rc;
	rc = message_send(conn, &h, payload, deadline_ns);
	if (rc)
		conn->ops->shutdown(conn);
	sender_leave(ch);
	return rc;
}

int channel_tell(struct channel *ch, enum wire_type type, const void *payload, size_t len, int64_t deadline_ns)
{
	return send_one(ch, type, NULL, payload, len, deadline_ns);
}

static void unlink_locked(struct channel *ch, struct call *c)
{
	for (struct call **at = &ch->calls; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			return;
		}
}

/* Calls that nobody answers any more. */
static void give_up_locked(struct channel *ch, struct call *c, size_t n, int rc)
{
	for (size_t k = 0; k < n; k++)
		if (!c[k].is_done) {
			unlink_locked(ch, &c[k]);
			c[k].rc = rc;
			c[k].is_done = true;
		}
}

int channel_start_calls(struct channel *ch, struct call *c, size_t n, enum wire_type type, const void *payload,
			size_t len, int64_t deadline_ns)
{
	struct peer *p = ch->peer;

	pthread_mutex_lock(&p->lock);
	if (ch->state != CHANNEL_OPEN) {
		int rc = p->down_rc ? p->down_rc : -ECONNRESET;
		pthread_mutex_unlock(&p->lock);
		return rc;
	}
	for (size_t k = 0; k < n; k++) {
		c[k].seq = ++ch->last_seq;
		c[k].next = ch->calls;
		ch->calls = &c[k];
	}
	pthread_mutex_unlock(&p->lock);
	int rc = send_one(ch, type, c, payload, len, deadline_ns);
	if (!rc)
		return 0;
	guard_lock(&p->lock);
	if (c->is_done && c->rc)
		rc = c->rc;
	give_up_locked(ch, c, n, rc);
	return rc;
}

int channel_calls(struct channel *ch, struct call *c, size_t n, enum wire_type type, const void *payload, size_t len,
		  int64_t deadline_ns)
{
	struct peer *p = ch->peer;
	int rc = channel_start_calls(ch, c, n, type, payload, len, deadline_ns), first_rc = 0;

	if (rc)
		return rc;
	guard_lock(&p->lock);
	for (size_t k = 0; k < n; k++)
		while (!c[k].is_done && !rc)
			rc = clock_cond_wait(&c[k].done, &p->lock, deadline_ns);
	give_up_locked(ch, c, n, rc);
	for (size_t k = 0; k < n; k++) {
		if (!c[k].rc)
			return 0;
		first_rc = first_rc ? first_rc : c[k].rc;
	}
	return first_rc;
}

/* ---- receiving ---- */

static void finish_locked(struct channel *ch, struct call *c, int rc)
{
	unlink_locked(ch, c);
	c->rc = rc;
	c->is_done = true;
	pthread_cond_signal(&c->done);
}

/* A grant that nobody waits for any more goes back. */
static void release_late(struct channel *ch, const struct wire_header *h, const uint8_t *payload)
{
	uint8_t buf[WIRE_SMALL_BYTES];
	struct peer_grant g;

	if (h->type != WIRE_GRANTED || h->status || wire_granted_decode(payload, h->length, &g))
		return;
	free(g.crc);
	if (g.has_bytes)
		return;
	ssize_t len = wire_u64_encode(g.grant, buf);
	int rc = channel_tell(ch, WIRE_RELEASE, buf, (size_t)len, deadline_in_ms(PAYLOAD_MS));
	if (rc)
		log_debug("peer %s: a late grant lives until its end: error %d", ch->peer->name, -rc);
}

/* payload is taken. */
static int deliver(struct channel *ch, const struct wire_header *h, uint8_t *payload)
{
	pthread_mutex_lock(&ch->peer->lock);
	struct call *c = ch->calls;
	bool was_asked = h->seq && h->seq <= ch->last_seq;
	while (c && c->seq != h->seq)
		c = c->next;
	if (c && c->answer == h->type) {
		c->status = h->status;
		c->payload = payload;
		c->length = h->length;
		finish_locked(ch, c, 0);
		pthread_mutex_unlock(&ch->peer->lock);
		return 0;
	}
	pthread_mutex_unlock(&ch->peer->lock);
	if (!c && was_asked)
		release_late(ch, h, payload);
	free(payload);
	return c || !was_asked ? -EPROTO : 0;
}

static int receive_one(struct channel *ch, struct transport_conn *conn)
{
	struct wire_header h;
	uint8_t *payload = NULL;
	int rc = message_recv_header(conn, &h, DEADLINE_NEVER);

	if (rc)
		return rc;
	if (h.length) {
		payload = malloc(h.length);
		rc = payload ? message_recv(conn, payload, h.length, deadline_in_ms(PAYLOAD_MS)) : -ENOMEM;
	}
	if (rc) {
		free(payload);
		return rc;
	}
	return deliver(ch, &h, payload);
}

static void *receive(void *arg)
{
	struct channel *ch = arg;
	struct peer *p = ch->peer;
	int rc;

	pthread_mutex_lock(&p->lock);
	struct transport_conn *conn = ch->conn;
	pthread_mutex_unlock(&p->lock);
	do {
		rc = receive_one(ch, conn);
	} while (!rc);
	guard_lock(&p->lock);
	/* Shut by a sender that could not go on, unless by all being shut. */
	if (ch->epoch == p->epoch)
		peer_down_locked(p, rc == -ECANCELED ? -ETIMEDOUT : rc, "connection lost");
	conn->ops->shutdown(conn);
	ch->state = CHANNEL_BROKEN;
	while (ch->calls)
		finish_locked(ch, ch->calls, p->down_rc);
	pthread_cond_broadcast(&ch->sendable);
	pthread_cond_broadcast(&p->changed);
	return NULL;
}

/* ---- connecting ---- */

/* In the state connecting, which is the caller's alone. */
static void close_broken(struct channel *ch)
{
	struct peer *p = ch->peer;

	pthread_mutex_lock(&p->lock);
	while (ch->is_sending)
		pthread_cond_wait(&ch->sendable, &p->lock);
	struct transport_conn *conn = ch->conn;
	ch->conn = NULL;
	pthread_mutex_unlock(&p->lock);
	pthread_join(ch->receiver, NULL);
	conn->ops->close(conn);
}

void channel_reap(struct channel *ch)
{
	struct peer *p = ch->peer;

	pthread_mutex_lock(&p->lock);
	/* After the end of the endpoint the receiver is on its way. */
	while (p->is_cut && ch->state == CHANNEL_OPEN)
		pthread_cond_wait(&p->changed, &p->lock);
	bool is_broken = ch->state == CHANNEL_BROKEN;
	if (is_broken)
		ch->state = CHANNEL_CONNECTING;
	pthread_mutex_unlock(&p->lock);
	if (!is_broken)
		return;
	close_broken(ch);
	guard_lock(&p->lock);
	ch->state = CHANNEL_CLOSED;
	pthread_cond_broadcast(&p->changed);
}

static int start_receiver(struct channel *ch, struct attempt *a)
{
	struct peer *p = ch->peer;
	guard_lock(&p->lock);

	ch->epoch = a->epoch;
	ch->last_seq = 0;
	ch->used_ns = clock_now_ns();
	int rc = thread_start(&ch->receiver, receive, ch);
	if (!rc)
		ch->state = CHANNEL_OPEN;
	return rc;
}

static int connect_now(struct channel *ch, struct attempt *a, bool was_broken, int64_t deadline_ns)
{
	struct peer *p = ch->peer;

	if (was_broken)
		close_broken(ch);
	int rc = attempt_connect(a, ch->role, &ch->conn, deadline_ns);
	if (!rc) {
		rc = start_receiver(ch, a);
		if (rc) {
			log_error("peer %s: cannot start a thread: %s", p->name, strerror(-rc));
			pthread_mutex_lock(&p->lock);
			struct transport_conn *conn = ch->conn;
			ch->conn = NULL;
			pthread_mutex_unlock(&p->lock);
			conn->ops->close(conn);
		}
	}
	if (rc)
		attempt_failed(a, rc);
	guard_lock(&p->lock);
	if (rc) {
		ch->state = CHANNEL_CLOSED;
		ch->connect_rc = rc;
		/* Else who waits has more time, and tries itself. */
		if (a->outcome == OUTCOME_BAD)
			ch->n_failed++;
	}
	pthread_cond_broadcast(&p->changed);
	return rc;
}

int channel_open(struct channel *ch, struct attempt *a, int64_t deadline_ns)
{
	struct peer *p = ch->peer;

	pthread_mutex_lock(&p->lock);
	uint32_t n_failed = ch->n_failed;
	int rc = 0;
	while (ch->state == CHANNEL_CONNECTING && a->epoch == p->epoch && ch->n_failed == n_failed && !rc)
		rc = clock_cond_wait(&p->changed, &p->lock, deadline_ns);
	if (a->epoch != p->epoch)
		rc = p->down_rc;
	else if (ch->n_failed != n_failed)
		rc = ch->connect_rc;
	else if (ch->state != CHANNEL_CONNECTING)
		rc = 0;
	bool is_open = ch->state == CHANNEL_OPEN, was_broken = ch->state == CHANNEL_BROKEN;
	if (!rc && !is_open)
		ch->state = CHANNEL_CONNECTING;
	pthread_mutex_unlock(&p->lock);
	return rc || is_open ? rc : connect_now(ch, a, was_broken, deadline_ns);
}
