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
 * One request over one channel, which has n answers. 0: at least one came, see c[k]; they are the caller's to finish.
 * Every call needs the pulse, by which a peer that stands still is noticed.
 */
static int ask(struct attempt *a, enum wire_role role, struct call *c, size_t n, enum wire_type type,
	       const void *payload, size_t len, int64_t deadline_ns)
{
	struct peer *p = a->p;
	int rc = channel_open(&p->channels[WIRE_PULSE], a, deadline_ns);

	if (!rc && role != WIRE_PULSE)
		rc = channel_open(&p->channels[role], a, deadline_ns);
	if (rc)
		return rc;
	rc = channel_calls(&p->channels[role], c, n, type, payload, len, deadline_ns);
	if (!rc)
		a->outcome = OUTCOME_GOOD;
	/* Handlers of INVALIDATE may take their time; the pulse says whether the peer lives. */
	else if (role != WIRE_NOTIFY || rc != -ETIMEDOUT)
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
		rc = ask(&a, WIRE_PULSE, &c, 1, WIRE_PING, NULL, 0, deadline_ns);
	if (!rc)
		rc = c.status;
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

/* One answer, as w->rc and w->grant. -EPROTO: it is none. */
static int take_granted(struct attempt *a, const struct call *c, struct peer_want *w)
{
	struct peer_grant g = { .grant = 0 };

	w->rc = c->rc ? c->rc : c->status;
	if (w->rc)
		return 0;
	int rc = wire_granted_decode(c->payload, c->length, &g);
	if (rc)
		return rc == -EPROTO ? distrust(a, "an answer to GRANT that is none") : rc;
	if (w->version && g.version != w->version)
		rc = distrust(a, "a grant of another version");
	else if (g.has_bytes && (!w->dst || g.size > w->room))
		rc = distrust(a, "more bytes with a grant than were asked for");
	else if (g.has_bytes)
		w->rc = take_bytes(a->p, c, &g, w->dst);
	if (rc || w->rc) {
		free(g.crc);
		return rc;
	}
	g.until_ns = a->begin_ns + g.ttl_ms * NS_PER_MS;
	w->grant = g;
	return 0;
}

/* All of them, as far as the peer keeps to the rules. The first one's rc where none was granted. */
static int take_all(struct attempt *a, const struct call *c, struct peer_want *w, size_t n)
{
	size_t n_granted = 0;

	for (size_t k = 0; k < n; k++) {
		int rc = take_granted(a, &c[k], &w[k]);
		if (rc) {
			for (; k < n; k++)
				w[k].rc = rc;
			break;
		}
		n_granted += !w[k].rc;
	}
	guard_lock(&a->p->lock);
	a->p->n_grants += n_granted;
	return n_granted ? 0 : w->rc;
}

static ssize_t encode_wants(struct peer *p, const char *dir, const struct peer_want *w, size_t n, int64_t deadline_ns,
			    uint8_t **buf_out)
{
	autofree struct wire_grant *g = malloc(sizeof(*g));

	if (!g)
		return -ENOMEM;
	if (!n || n > PEER_GRANTS_MAX)
		return -EINVAL;
	g->budget_ms = deadline_budget_ms(deadline_ns);
	g->wants_key = peer_can_pull(p);
	g->dir = dir;
	g->n = (uint32_t)n;
	for (size_t k = 0; k < n; k++) {
		if (w[k].room > PEER_INLINE_MAX)
			return -EINVAL;
		g->names[k] = (struct wire_wanted){ w[k].version, (uint32_t)w[k].room, w[k].name };
	}
	size_t bytes = wire_grant_bytes(g);
	*buf_out = malloc(bytes);
	return *buf_out ? wire_grant_encode(g, *buf_out, bytes) : -ENOMEM;
}

int peer_ask_grants(struct peer *p, const char *dir, struct peer_want *w, size_t n, int64_t deadline_ns)
{
	autofree struct call *c = calloc(n ? n : 1, sizeof(*c));
	autofree uint8_t *buf = NULL;
	struct attempt a;

	ssize_t len = c ? encode_wants(p, dir, w, n, deadline_ns, &buf) : -ENOMEM;
	int rc = len < 0 ? (int)len : attempt_begin(&a, p);
	if (rc) {
		for (size_t k = 0; k < n; k++)
			w[k].rc = rc;
		return rc;
	}
	for (size_t k = 0; k < n; k++)
		call_init(&c[k], WIRE_GRANTED);
	rc = ask(&a, WIRE_CONTROL, c, n, WIRE_GRANT, buf, (size_t)len, deadline_ns);
	if (!rc)
		rc = take_all(&a, c, w, n);
	rc = attempt_end(&a, rc, "GRANT failed");
	for (size_t k = 0; k < n; k++) {
		if (c[k].rc || !c[k].is_done)
			w[k].rc = c[k].is_done ? c[k].rc : rc;
		call_fini(&c[k]);
	}
	return rc;
}

int peer_ask_grant(struct peer *p, uint64_t version, const char *dir, const char *name, struct peer_grant *out,
		   int64_t deadline_ns)
{
	struct peer_want w = { .version = version, .name = name };
	int rc = peer_ask_grants(p, dir, &w, 1, deadline_ns);

	if (!rc)
		*out = w.grant;
	return rc;
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
	rc = ask(&a, WIRE_NOTIFY, &c, 1, WIRE_INVALIDATE, buf, (size_t)len, deadline_ns);
	if (!rc)
		rc = c.status;
	call_fini(&c);
	if (!rc) {
		guard_lock(&p->lock);
		p->n_invalidations++;
	}
	return attempt_end(&a, rc, "INVALIDATE failed");
}
