/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "deadline.h"
#include "peer_impl.h"

/* ---- making and finding ---- */

static struct peer *peer_create(struct peer_endpoint *e, const struct peer_id *id)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->e = e;
	p->id = *id;
	p->n_lanes = e->conf.n_lanes;
	p->pulls.max_ns = PULL_MAX_MS * NS_PER_MS;
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->changed);
	for (int k = 0; k < N_CHANNELS; k++)
		channel_init(&p->channels[k], p, (enum wire_role)k);
	call_init(&p->ping, WIRE_PONG);
	return p;
}

void peer_destroy(struct peer *p)
{
	for (int k = 0; k < N_CHANNELS; k++)
		pthread_cond_destroy(&p->channels[k].sendable);
	call_fini(&p->ping);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static struct peer *find_locked(struct peer_endpoint *e, const struct peer_id *id)
{
	struct peer *p = e->peers;

	while (p && !peer_id_is_same(&p->id, id))
		p = p->next;
	return p;
}

struct peer *peer_get(struct peer_endpoint *e, const struct peer_id *id, const char *name, const char *address)
{
	guard_lock(&e->lock);

	if (e->is_stopping || strlen(address) >= TRANSPORT_ADDRESS_BYTES)
		return NULL;
	struct peer *p = find_locked(e, id);
	if (!p) {
		p = peer_create(e, id);
		if (!p)
			return NULL;
		p->next = e->peers;
		e->peers = p;
	}
	guard_lock(&p->lock);
	snprintf(p->name, sizeof(p->name), "%s", name);
	strcpy(p->address, address);
	p->used_ns = clock_now_ns();
	p->n_refs++;
	return p;
}

struct peer *peer_ref(struct peer *p)
{
	guard_lock(&p->lock);

	p->n_refs++;
	return p;
}

void peer_put(struct peer *p)
{
	pthread_mutex_lock(&p->lock);
	p->used_ns = clock_now_ns();
	/* Else the pulse thread forgets it after a while, or the endpoint at its end. */
	bool is_last = !--p->n_refs && p->is_cut && !p->e;
	pthread_mutex_unlock(&p->lock);
	if (is_last)
		peer_destroy(p);
}

/* ---- what is known ---- */

bool peer_is_usable(struct peer *p)
{
	guard_lock(&p->lock);

	if (p->is_cut || p->breaker.state == BREAKER_HALF_OPEN)
		return false;
	return p->breaker.state == BREAKER_CLOSED || clock_now_ns() >= p->breaker.until_ns;
}

uint64_t peer_queued_bytes(struct peer *p)
{
	return p->queued_bytes;
}

static enum peer_state state_of_locked(const struct peer *p)
{
	switch (p->breaker.state) {
	case BREAKER_OPEN:
		return PEER_DOWN;
	case BREAKER_HALF_OPEN:
		return PEER_PROBING;
	default:
		return p->channels[WIRE_PULSE].state == CHANNEL_OPEN ? PEER_UP : PEER_IDLE;
	}
}

static void get_stats(struct peer *p, struct peer_stats *out)
{
	guard_lock(&p->lock);

	*out = (struct peer_stats){ .id = p->id,
				    .state = state_of_locked(p),
				    .load = p->load,
				    .rtt_ns = p->rtt_ns,
				    .rx_bytes_per_s = p->rx_bytes_per_s,
				    .rx_bytes = p->rx_bytes,
				    .n_reads = p->n_reads,
				    .n_grants = p->n_grants,
				    .n_invalidations = p->n_invalidations,
				    .n_errors = p->n_errors,
				    .n_bad_chunks = p->n_bad_chunks,
				    .n_connects = p->n_connects,
				    .pulled_bytes = p->pulled_bytes,
				    .n_pull_failures = p->n_pull_failures,
				    .can_pull = p->e->conf.transport->pull && p->pulls.state == BREAKER_CLOSED };
	memcpy(out->name, p->name, sizeof(out->name));
	memcpy(out->address, p->address, sizeof(out->address));
	memcpy(out->reason, p->reason, sizeof(out->reason));
	memcpy(out->pull_reason, p->pull_reason, sizeof(out->pull_reason));
	for (int k = 0; k < N_CHANNELS; k++)
		out->n_connections += p->channels[k].state == CHANNEL_OPEN;
	for (int k = 0; k < LANES_MAX; k++)
		out->n_connections += p->lanes[k].conn != NULL;
}

size_t peer_each(struct peer_endpoint *e, void (*fn)(void *arg, const struct peer_stats *s), void *arg)
{
	struct peer_stats *all = NULL;
	size_t n = 0, k = 0;

	pthread_mutex_lock(&e->lock);
	for (struct peer *p = e->peers; p; p = p->next)
		n++;
	if (n)
		all = malloc(n * sizeof(*all));
	for (struct peer *p = all ? e->peers : NULL; p; p = p->next)
		get_stats(p, &all[k++]);
	pthread_mutex_unlock(&e->lock);
	for (n = 0; n < k; n++)
		fn(arg, &all[n]);
	free(all);
	return k;
}
