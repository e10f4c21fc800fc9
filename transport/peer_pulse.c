/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that looks after the connections to others. Peers in use are pinged; one that does not answer in time
 * stands still or is cut off, whatever its kernel still acknowledges, and all its connections are shut down.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "deadline.h"
#include "peer_impl.h"
#include "thread.h"

#define TICK_MAX_MS 250
#define IN_USE_MS 5000 /* after the last call */
#define SEND_MS 20     /* a PING fits in any buffer that is not full */
#define LATE_MS 50     /* woken later than this: the process stood still itself, or waits for a processor */

static bool is_in_use_locked(const struct peer *p, int64_t now)
{
	return p->n_calls || now - p->used_ns < IN_USE_MS * NS_PER_MS;
}

/* ---- PING ---- */

/* Looks at the one under way. True: another one is due. */
static bool look_at_ping(struct peer *p, int64_t now)
{
	int64_t ping_ns = p->e->conf.ping_ms * NS_PER_MS;
	struct channel *ch = &p->channels[WIRE_PULSE];
	uint32_t load;
	guard_lock(&p->lock);

	if (p->is_pinging && p->ping.is_done) {
		p->is_pinging = false;
		if (!p->ping.rc && !p->ping.status && !wire_u32_decode(p->ping.payload, p->ping.length, &load))
			p->load = load > 1000 ? 1000 : load;
		free(p->ping.payload);
		p->ping.payload = NULL;
	}
	if (ch->state != CHANNEL_OPEN)
		return false;
	if (p->is_pinging) {
		if (now - p->pinged_ns >= ping_ns && ch->epoch == p->epoch)
			peer_down_locked(p, -ETIMEDOUT, "no answer to PING");
		return false;
	}
	return now - p->pinged_ns >= (is_in_use_locked(p, now) ? ping_ns : KEEPALIVE_MS * NS_PER_MS);
}

static void ping(struct peer *p, int64_t now)
{
	p->ping.is_done = false;
	p->pinged_ns = now;
	p->is_pinging = true;
	int rc = channel_start_calls(&p->channels[WIRE_PULSE], &p->ping, 1, WIRE_PING, NULL, 0,
				    deadline_in_ms(SEND_MS));
	if (!rc)
		return;
	guard_lock(&p->lock);
	p->is_pinging = false;
	/* There is an answer to what did not go out, where the peer guessed the number. */
	free(p->ping.payload);
	p->ping.payload = NULL;
	log_debug("peer %s: PING failed: error %d", p->name, -rc);
}

/* Its answer is nobody's: channel_tell numbers it 0, which a call never has. */
static bool is_quiet(struct channel *ch, int64_t now)
{
	guard_lock(&ch->peer->lock);

	return ch->state == CHANNEL_OPEN && now - ch->used_ns >= KEEPALIVE_MS * NS_PER_MS;
}

static void keep_alive(struct channel *ch, int64_t now)
{
	if (!is_quiet(ch, now))
		return;
	int rc = channel_tell(ch, WIRE_PING, NULL, 0, deadline_in_ms(SEND_MS));
	if (rc)
		log_debug("peer %s: PING failed: error %d", ch->peer->name, -rc);
}

/* late_ns: this thread did not run for so long, and neither may have who receives the answer. */
static void look_after(struct peer *p, int64_t late_ns)
{
	int64_t now = clock_now_ns();

	p->pinged_ns += late_ns;
	if (look_at_ping(p, now))
		ping(p, now);
	for (int k = 0; k < N_CHANNELS; k++) {
		if (k != WIRE_PULSE)
			keep_alive(&p->channels[k], now);
		channel_reap(&p->channels[k]);
	}
	lanes_trim(p, now);
}

/* ---- forgetting ---- */

/* The node has begun another life since, which somebody knows already. endpoint.lock held. */
static bool is_past_locked(const struct peer_endpoint *e, const struct peer *p)
{
	for (const struct peer *o = e->peers; o; o = o->next)
		if (o->id.node == p->id.node && o->id.incarnation > p->id.incarnation)
			return true;
	return false;
}

/* Then it is cut. */
static bool is_forgotten(struct peer *p, bool is_past, int64_t now)
{
	guard_lock(&p->lock);

	if (p->n_refs || p->n_calls || (!is_past && now - p->used_ns < PEER_IDLE_MS * NS_PER_MS))
		return false;
	p->is_cut = true;
	p->epoch++;
	p->down_rc = -ECANCELED;
	for (int k = 0; k < N_CHANNELS; k++)
		if (p->channels[k].conn)
			p->channels[k].conn->ops->shutdown(p->channels[k].conn);
	return true;
}

static struct peer *take_forgotten(struct peer_endpoint *e)
{
	int64_t now = clock_now_ns();
	guard_lock(&e->lock);

	for (struct peer **at = &e->peers; *at; at = &(*at)->next) {
		struct peer *p = *at;
		if (!is_forgotten(p, is_past_locked(e, p), now))
			continue;
		*at = p->next;
		return p;
	}
	return NULL;
}

static void forget(struct peer *p)
{
	for (int k = 0; k < N_CHANNELS; k++)
		channel_reap(&p->channels[k]);
	for (int k = 0; k < LANES_MAX; k++)
		lane_close(p, &p->lanes[k]);
	peer_destroy(p);
}

/* ---- the thread ---- */

/* Peers go away by this thread alone: the next one of a peer in the list stays. */
static struct peer *next_of(struct peer_endpoint *e, struct peer *p)
{
	guard_lock(&e->lock);

	return p ? p->next : e->peers;
}

static bool sleep_a_tick(struct peer_endpoint *e, int64_t *late_ns_out)
{
	uint32_t tick_ms = e->conf.ping_ms / 8 + 1;
	int64_t until = deadline_in_ms(tick_ms < TICK_MAX_MS ? tick_ms : TICK_MAX_MS);
	int rc = 0;
	guard_lock(&e->lock);

	while (!e->is_stopping && !rc)
		rc = clock_cond_wait(&e->changed, &e->lock, until);
	int64_t late_ns = clock_now_ns() - until;
	*late_ns_out = late_ns > LATE_MS * NS_PER_MS ? late_ns : 0;
	return !e->is_stopping;
}

static void *run(void *arg)
{
	struct peer_endpoint *e = arg;
	struct peer *p;
	int64_t late_ns;

	while (sleep_a_tick(e, &late_ns)) {
		for (p = next_of(e, NULL); p; p = next_of(e, p))
			look_after(p, late_ns);
		while ((p = take_forgotten(e)))
			forget(p);
	}
	return NULL;
}

int pulse_start(struct peer_endpoint *e)
{
	return thread_start(&e->pulse_thread, run, e);
}

void pulse_stop(struct peer_endpoint *e)
{
	pthread_join(e->pulse_thread, NULL);
}
