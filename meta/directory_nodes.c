/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_nodes: what the nodes last said of themselves.
 *
 * Invariants: the list is as of read_ns; a node whose lease has run out since is passed over. Ourselves are in it
 * as the server knows us.
 *
 * Lock: nodes.lock guards all of it. Callbacks run without it, on a copy.
 *
 * How it fails: a refresh that fails leaves the list, which empties itself as the leases run out.
 */
#include "directory_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "directory_node.h"

#define CLAIM_STALE_S 600 /* who has not touched its claim for so long is not asked for */

void directory_nodes_init(struct directory *d)
{
	pthread_mutex_init(&d->nodes.lock, NULL);
}

void directory_nodes_fini(struct directory *d)
{
	free(d->nodes.list);
	pthread_mutex_destroy(&d->nodes.lock);
}

int directory_lease_append(struct directory *d, struct redis *r, unsigned slot)
{
	char key[DIRECTORY_KEY_BYTES];

	directory_lease_key(key, d->prefix, slot);
	int rc = redis_append(r, 2, (const char *[]){"GET", key}, NULL);
	return rc ? rc : redis_append(r, 2, (const char *[]){"PTTL", key}, NULL);
}

int directory_lease_read(struct directory *d, struct redis *r, unsigned slot, int64_t deadline_ns,
			 struct directory_node *out)
{
	struct directory_node n = {.id = 0};
	struct redis_reply reply;
	int rc = redis_next(r, deadline_ns, &reply), damage = 0;

	if (rc)
		return rc;
	if (reply.kind == REDIS_BYTES)
		damage = directory_node_decode(reply.bytes, reply.len, &n);
	else
		damage = reply.kind == REDIS_NIL ? -ENOENT : reply.kind == REDIS_FAILURE ? reply.rc : -EIO;
	rc = redis_next(r, deadline_ns, &reply);
	if (rc || damage)
		return rc ? rc : damage;
	if (reply.kind != REDIS_INTEGER)
		return reply.kind == REDIS_FAILURE ? reply.rc : -EIO;
	if (reply.integer <= 0)
		return -ENOENT;
	n.slot = (uint16_t)slot;
	n.lease_ms = reply.integer;
	*out = n;
	return 0;
}

static bool claim_is_fresh(const struct directory_claim *c, uint32_t newest)
{
	return c->is_there && newest - c->seconds <= CLAIM_STALE_S;
}

static int nodes_read(struct directory *d, struct redis *r, int64_t deadline_ns,
		      const struct directory_claim *claims, struct directory_node *list, size_t *n_out)
{
	uint32_t newest = 0;
	size_t n = 0;
	int rc = 0;

	for (unsigned s = 0; s < DIRECTORY_SLOTS; s++)
		if (claims[s].is_there && claims[s].seconds > newest)
			newest = claims[s].seconds;
	for (unsigned s = 0; !rc && s < DIRECTORY_SLOTS; s++)
		if (claim_is_fresh(&claims[s], newest))
			rc = directory_lease_append(d, r, s);
	for (unsigned s = 0; !rc && s < DIRECTORY_SLOTS; s++) {
		if (!claim_is_fresh(&claims[s], newest))
			continue;
		rc = directory_lease_read(d, r, s, deadline_ns, &list[n]);
		n += !rc;
		if (rc == -EIO && redis_is_connected(r))
			directory_damage_log(d, "a node");
		if (rc == -ENOENT || (rc == -EIO && redis_is_connected(r)))
			rc = 0;
	}
	*n_out = n;
	return rc;
}

int directory_nodes_refresh(struct directory *d, struct redis *r, int64_t deadline_ns)
{
	autofree struct directory_claim *claims = calloc(DIRECTORY_SLOTS, sizeof(*claims));
	size_t n = 0, n_there = 0;

	if (!claims)
		return -ENOMEM;
	int64_t read_ns = clock_now_ns();
	int rc = directory_claims_read(d, r, deadline_ns, claims);
	if (rc)
		return rc;
	for (unsigned s = 0; s < DIRECTORY_SLOTS; s++)
		n_there += claims[s].is_there;
	struct directory_node *list = calloc(n_there + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	rc = nodes_read(d, r, deadline_ns, claims, list, &n);
	if (rc) {
		free(list);
		return rc;
	}
	guard_lock(&d->nodes.lock);
	free(d->nodes.list);
	d->nodes.list = list;
	d->nodes.n = n;
	d->nodes.read_ns = read_ns;
	return 0;
}

/* Of a node in the list; false: its lease has run out since. */
static bool node_now(struct directory *d, const struct directory_node *from, int64_t read_ns, int64_t now_ns,
		     struct directory_node *out)
{
	int64_t since_ns = read_ns;

	*out = *from;
	if ((int)from->slot == directory_slot(d)) {
		since_ns = atomic_load(&d->lease.renewed_ns);
		out->lease_ms = d->conf.lease_ms;
	}
	out->lease_ms -= (now_ns - since_ns) / NS_PER_MS;
	return out->lease_ms > 0;
}

size_t directory_each_node(struct directory *d, void (*fn)(void *arg, const struct directory_node *n), void *arg)
{
	autofree struct directory_node *list = NULL;
	size_t n = 0;

	pthread_mutex_lock(&d->nodes.lock);
	int64_t read_ns = d->nodes.read_ns, now_ns = clock_now_ns();
	list = d->nodes.n ? malloc(d->nodes.n * sizeof(*list)) : NULL;
	for (size_t i = 0; list && i < d->nodes.n; i++)
		n += node_now(d, &d->nodes.list[i], read_ns, now_ns, &list[n]);
	pthread_mutex_unlock(&d->nodes.lock);
	for (size_t i = 0; i < n; i++)
		fn(arg, &list[i]);
	return n;
}

static bool node_remembered(struct directory *d, uint16_t slot, struct directory_node *out)
{
	guard_lock(&d->nodes.lock);
	for (size_t i = 0; i < d->nodes.n; i++)
		if (d->nodes.list[i].slot == slot)
			return node_now(d, &d->nodes.list[i], d->nodes.read_ns, clock_now_ns(), out);
	return false;
}

int directory_node_of(struct directory *d, uint16_t slot, struct directory_node *out, int64_t deadline_ns)
{
	int64_t limit_ns = clock_now_ns() + d->conf.lookup_ms * NS_PER_MS;
	bool is_patient = deadline_ns >= limit_ns;
	struct directory_node n;
	struct redis *r;
	uint64_t epoch;

	if (slot >= DIRECTORY_SLOTS)
		return -ENOENT;
	if (node_remembered(d, slot, out))
		return 0;
	if (is_patient)
		deadline_ns = limit_ns;
	int rc = directory_pool_take(d, deadline_ns, is_patient, &r, &epoch);
	if (rc)
		return rc;
	rc = directory_lease_append(d, r, slot);
	if (!rc)
		rc = directory_lease_read(d, r, slot, deadline_ns, &n);
	if (!redis_is_connected(r) && (rc != -ETIMEDOUT || is_patient))
		directory_health_down(d, rc, redis_text(r));
	directory_pool_put(d, r, epoch);
	if (!rc)
		*out = n;
	return rc;
}
