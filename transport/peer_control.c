/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "base/log.h"
#include "deadline.h"
#include "peer_impl.h"

/*
 * One request over one channel. 0: c has the answer, which is the caller's to finish. Every call needs the pulse,
 * by which a peer that stands still is noticed.
 */
static int ask(struct attempt *a, enum wire_role role, struct call *c, enum wire_type type, const void *payload,
	       size_t len, int64_t deadline_ns)
{
	struct peer *p = a->p;
	int rc = channel_open(&p->channels[WIRE_PULSE], a, deadline_ns);

	if (!rc && role != WIRE_PULSE)
		rc = channel_open(&p->channels[role], a, deadline_ns);
	if (rc)
		return rc;
	rc = channel_call(&p->channels[role], c, type, payload, len, deadline_ns);
	if (!rc) {
		a->outcome = OUTCOME_GOOD;
		return c->status;
	}
	/* Handlers of INVALIDATE may take their time; the pulse says whether the peer lives. */
	if (role != WIRE_NOTIFY || rc != -ETIMEDOUT)
		attempt_failed(a, rc);
	return rc;
}

void peer_note_load_locked(struct peer *p, uint32_t load, int64_t rtt_ns)
{
	p->load = load > 1000 ? 1000 : load;
	p->rtt_ns = p->rtt_ns ? p->rtt_ns + (rtt_ns - p->rtt_ns) / 8 : rtt_ns;
}

int peer_ping(struct peer *p, int64_t deadline_ns)
{
	struct attempt a;
	struct call c;
	uint32_t load;
	int rc = attempt_begin(&a, p);

	if (rc)
		return rc;
	call_init(&c, WIRE_PONG);
	rc = channel_open(&p->channels[WIRE_PULSE], &a, deadline_ns);
	int64_t begin = clock_now_ns();
	if (!rc)
		rc = ask(&a, WIRE_PULSE, &c, WIRE_PING, NULL, 0, deadline_ns);
	if (!rc)
		rc = wire_u32_decode(c.payload, c.length, &load);
	if (!rc) {
		guard_lock(&p->lock);
		peer_note_load_locked(p, load, clock_now_ns() - begin);
	}
	call_fini(&c);
	return attempt_end(&a, rc, "PING failed");
}

/* What breaks a rule of the protocol is the end of the connections, not only of this call. */
static int distrust(struct attempt *a, const char *what)
{
	struct peer *p = a->p;
	guard_lock(&p->lock);

	a->outcome = OUTCOME_BAD;
	if (a->epoch == p->epoch)
		peer_down_locked(p, -EPROTO, what);
	return -EPROTO;
}

/* What came along, of an answer that was sound. */
static int take_bytes(struct peer *p, const struct call *c, const struct peer_grant *g, void *dst)
{
	const uint8_t *bytes = c->payload + c->length - g->size;
	bool is_right = crc32c(0, bytes, g->size) == g->crc[0];
	guard_lock(&p->lock);

	if (!is_right) {
		p->n_bad_chunks++;
		log_error("peer %s at %s: wrong checksum in version %#lx, %lu bytes that came with a grant", p->name,
			  p->address, (unsigned long)g->version, (unsigned long)g->size);
		return -EBADMSG;
	}
	memcpy(dst, bytes, g->size);
	p->rx_bytes += g->size;
	return 0;
}

int peer_ask_bytes(struct peer *p, uint64_t version, const char *dir, const char *name, void *dst, size_t room,
		   struct peer_grant *out, int64_t deadline_ns)
{
	const struct wire_grant g = { .version = version,
				      .budget_ms = deadline_budget_ms(deadline_ns),
				      .inline_max = (uint32_t)room,
				      .wants_key = peer_can_pull(p),
				      .dir = dir,
				      .name = name };
	autofree uint8_t *buf = malloc(WIRE_ASK_BYTES);
	struct peer_grant granted = { .grant = 0 };
	struct attempt a;
	struct call c;

	if (!buf)
		return -ENOMEM;
	ssize_t len = room <= PEER_INLINE_MAX ? wire_grant_encode(&g, buf, WIRE_ASK_BYTES) : -EINVAL;
	if (len < 0)
		return (int)len;
	int rc = attempt_begin(&a, p);
	if (rc)
		return rc;
	call_init(&c, WIRE_GRANTED);
	rc = ask(&a, WIRE_CONTROL, &c, WIRE_GRANT, buf, (size_t)len, deadline_ns);
	if (!rc)
		rc = wire_granted_decode(c.payload, c.length, &granted);
	if (rc == -EPROTO && a.outcome == OUTCOME_GOOD && !c.status)
		rc = distrust(&a, "an answer to GRANT that is none");
	if (!rc && version && granted.version != version)
		rc = distrust(&a, "a grant of another version");
	if (!rc && granted.has_bytes)
		rc = dst && granted.size <= room ? take_bytes(p, &c, &granted, dst) :
						   distrust(&a, "more bytes with a grant than were asked for");
	call_fini(&c);
	if (!rc) {
		guard_lock(&p->lock);
		p->n_grants++;
	}
	rc = attempt_end(&a, rc, "GRANT failed");
	granted.until_ns = a.begin_ns + granted.ttl_ms * NS_PER_MS;
	if (!rc)
		*out = granted;
	else
		free(granted.crc);
	return rc;
}

int peer_ask_grant(struct peer *p, uint64_t version, const char *dir, const char *name, struct peer_grant *out,
		   int64_t deadline_ns)
{
	return peer_ask_bytes(p, version, dir, name, NULL, 0, out, deadline_ns);
}

void peer_release_grant(struct peer *p, uint64_t grant)
{
	uint8_t buf[WIRE_SMALL_BYTES];
	ssize_t len = wire_u64_encode(grant, buf);

	pthread_mutex_lock(&p->lock);
	bool is_possible = !p->is_cut && p->channels[WIRE_CONTROL].state == CHANNEL_OPEN;
	uint32_t ping_ms = is_possible ? p->e->conf.ping_ms : 0;
	if (is_possible)
		p->n_calls++;
	pthread_mutex_unlock(&p->lock);
	/* Without the connection the grant is over already. */
	if (!is_possible)
		return;
	int rc = channel_tell(&p->channels[WIRE_CONTROL], WIRE_RELEASE, buf, (size_t)len, deadline_in_ms(ping_ms));
	if (rc)
		log_debug("peer %s: RELEASE failed: error %d", p->name, -rc);
	guard_lock(&p->lock);
	if (!--p->n_calls)
		pthread_cond_broadcast(&p->changed);
}

int peer_invalidate(struct peer *p, const struct peer_invalidation *v, size_t n, int64_t deadline_ns)
{
	size_t room = wire_invalidate_bytes(v, n);
	autofree uint8_t *buf = room ? malloc(room) : NULL;
	struct attempt a;
	struct call c;

	if (!buf)
		return room ? -ENOMEM : -EINVAL;
	ssize_t len = wire_invalidate_encode(v, n, deadline_budget_ms(deadline_ns), buf, room);
	if (len < 0)
		return (int)len;
	int rc = attempt_begin(&a, p);
	if (rc)
		return rc;
	call_init(&c, WIRE_INVALIDATED);
	rc = ask(&a, WIRE_NOTIFY, &c, WIRE_INVALIDATE, buf, (size_t)len, deadline_ns);
	call_fini(&c);
	if (!rc) {
		guard_lock(&p->lock);
		p->n_invalidations++;
	}
	return attempt_end(&a, rc, "INVALIDATE failed");
}
