/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "deadline.h"
#include "message.h"
#include "peer_impl.h"

/* ---- failures of a peer ---- */

/* Why a peer fails, for people. */
static const char *words_of(int rc)
{
	switch (rc) {
	case -EACCES:
		return "it has another cluster key, or is of another cluster";
	case -ESTALE:
		return "another node, or another life of it, is at its address";
	case -EPROTO:
		return "it speaks another version, or nonsense";
	default:
		return strerror(-rc);
	}
}

void peer_open_breaker_locked(struct peer *p, int rc, const char *why)
{
	bool was_open = p->breaker.state == BREAKER_OPEN;

	breaker_fail(&p->breaker, clock_now_ns());
	p->down_rc = rc;
	snprintf(p->reason, sizeof(p->reason), "%s: %s", why, words_of(rc));
	if (!was_open)
		log_info("peer %s at %s is down: %s", p->name, p->address, p->reason);
}

static void shut_all_locked(struct peer *p)
{
	for (int k = 0; k < N_CHANNELS; k++)
		if (p->channels[k].conn)
			p->channels[k].conn->ops->shutdown(p->channels[k].conn);
	for (int k = 0; k < LANES_MAX; k++)
		if (p->lanes[k].conn)
			p->lanes[k].conn->ops->shutdown(p->lanes[k].conn);
	pthread_cond_broadcast(&p->changed);
}

void peer_down_locked(struct peer *p, int rc, const char *why)
{
	peer_open_breaker_locked(p, rc, why);
	p->epoch++;
	shut_all_locked(p);
}

void peers_cut(struct peer_endpoint *e)
{
	struct peer *next;

	pthread_mutex_lock(&e->lock);
	struct peer *list = e->peers;
	e->peers = NULL;
	pthread_mutex_unlock(&e->lock);
	for (struct peer *p = list; p; p = p->next) {
		guard_lock(&p->lock);
		p->is_cut = true;
		p->epoch++;
		p->down_rc = -ECANCELED;
		shut_all_locked(p);
	}
	for (struct peer *p = list; p; p = next) {
		next = p->next;
		pthread_mutex_lock(&p->lock);
		while (p->n_calls)
			pthread_cond_wait(&p->changed, &p->lock);
		pthread_mutex_unlock(&p->lock);
		for (int k = 0; k < N_CHANNELS; k++)
			channel_reap(&p->channels[k]);
		for (int k = 0; k < LANES_MAX; k++)
			lane_close(p, &p->lanes[k]);
		pthread_mutex_lock(&p->lock);
		p->e = NULL;
		bool is_free = !p->n_refs;
		pthread_mutex_unlock(&p->lock);
		if (is_free)
			peer_destroy(p);
	}
}

/* ---- one call ---- */

int attempt_begin(struct attempt *a, struct peer *p)
{
	int64_t now = clock_now_ns();
	guard_lock(&p->lock);

	if (p->is_cut)
		return -ECANCELED;
	enum breaker_verdict verdict = breaker_ask(&p->breaker, now);
	if (verdict == BREAKER_REFUSE)
		return -EHOSTDOWN;
	*a = (struct attempt){ .p = p, .is_probe = verdict == BREAKER_PROBE, .epoch = p->epoch, .begin_ns = now };
	p->n_calls++;
	p->used_ns = now;
	return 0;
}

void attempt_failed(struct attempt *a, int rc)
{
	int64_t enough_ns = a->p->e->conf.ping_ms * NS_PER_MS;

	if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EIO)
		return;
	if (rc != -ETIMEDOUT || clock_now_ns() - a->begin_ns >= enough_ns)
		a->outcome = OUTCOME_BAD;
}

/* Lanes come back one by one. */
static void note_success_locked(struct attempt *a)
{
	struct peer *p = a->p;

	if (!a->is_probe || a->epoch != p->epoch)
		return;
	breaker_succeed(&p->breaker, a->is_probe);
	if (p->breaker.state != BREAKER_CLOSED)
		return;
	p->n_lanes = 1;
	p->reason[0] = '\0';
	log_info("peer %s at %s is back", p->name, p->address);
}

int attempt_end(struct attempt *a, int rc, const char *what)
{
	struct peer *p = a->p;
	guard_lock(&p->lock);

	p->used_ns = clock_now_ns();
	if (rc && a->outcome != OUTCOME_GOOD) {
		p->n_errors++;
		if (p->is_cut)
			rc = -ECANCELED;
		else if (a->epoch != p->epoch && (rc == -ECANCELED || rc == -ECONNRESET))
			rc = p->down_rc;
	}
	if (a->outcome == OUTCOME_GOOD)
		note_success_locked(a);
	else if (a->outcome == OUTCOME_BAD && a->epoch == p->epoch)
		peer_open_breaker_locked(p, rc, what);
	else if (a->is_probe && a->epoch == p->epoch)
		breaker_abandon(&p->breaker, p->used_ns);
	if (!--p->n_calls)
		pthread_cond_broadcast(&p->changed);
	return rc;
}

/* ---- connections ---- */

static int in_slot(struct attempt *a, struct transport_conn **slot, struct transport_conn *conn)
{
	struct peer *p = a->p;
	guard_lock(&p->lock);

	if (a->epoch != p->epoch)
		return p->down_rc;
	*slot = conn;
	return 0;
}

int attempt_connect(struct attempt *a, enum wire_role role, struct transport_conn **slot, int64_t deadline_ns)
{
	struct peer *p = a->p;
	struct peer_endpoint *e = p->e;
	const struct transport_ops *ops = e->conf.transport;
	char address[TRANSPORT_ADDRESS_BYTES];
	struct transport_conn *conn;

	deadline_ns = deadline_earlier(deadline_ns, deadline_in_ms(e->conf.ping_ms));
	pthread_mutex_lock(&p->lock);
	memcpy(address, p->address, sizeof(address));
	pthread_mutex_unlock(&p->lock);
	int rc = ops->connect(e->transport, address, deadline_ns, &conn);
	if (rc)
		return rc;
	rc = in_slot(a, slot, conn);
	if (rc) {
		ops->close(conn);
		return rc;
	}
	rc = hello_ask(conn, &e->auth, role, &p->id, deadline_ns);
	pthread_mutex_lock(&p->lock);
	if (!rc)
		p->n_connects++;
	else
		*slot = NULL;
	if (rc == -ECANCELED && a->epoch != p->epoch)
		rc = p->down_rc;
	pthread_mutex_unlock(&p->lock);
	if (rc) {
		log_debug("peer %s at %s: HELLO failed: %s", p->name, address, strerror(-rc));
		ops->close(conn);
	}
	return rc;
}
