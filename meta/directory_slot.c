/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_slot: how a node comes by a slot, a number of two bytes that stands for it in every value.
 *
 * A claim (a field of P:n) stays when its node is away, so that what the node announced stays right; a lease (a
 * key that expires) says that it is there. Who wants a slot takes its lease first, which one node at a time can,
 * and the claim then. So two nodes never have one slot, and a claim changes hands only when its node is away.
 *
 * In this order: the slot that is claimed by us already; the one that is preferred, if it is free; any that is
 * free, from one that depends on our id; the one whose node has been away longest. Claims that nobody touched for
 * as long as tombstones are kept count as free.
 *
 * Locks: none; all of it runs on the lease's thread and its connection.
 *
 * How it fails: -EBUSY our id has a lease of a later incarnation; -EAGAIN all slots are in use; as redis says.
 */
#include "directory_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "directory_node.h"
#include "directory_script.h"
#include "directory_wire.h"

#define TRIES_MAX 64

struct script_result {
	enum redis_kind kind;
	int rc;
	int64_t integer;
	uint64_t id; /* of a lease that is another's */
	char refusal[128];
};

static void result_take(void *arg, size_t i, const struct redis_reply *reply)
{
	struct script_result *res = arg;
	struct directory_node n;

	res->kind = reply->kind;
	res->rc = reply->kind == REDIS_FAILURE ? reply->rc : 0;
	res->integer = reply->kind == REDIS_INTEGER ? reply->integer : 0;
	if (reply->kind == REDIS_BYTES && !directory_node_decode(reply->bytes, reply->len, &n))
		res->id = n.id;
	if (reply->kind == REDIS_ARRAY && reply->n == 2) {
		struct redis_reply number = redis_reply_at(reply, 0), words = redis_reply_at(reply, 1);
		res->integer = number.kind == REDIS_INTEGER ? number.integer : 0;
		snprintf(res->refusal, sizeof(res->refusal), "%s",
			 words.kind == REDIS_BYTES ? (const char *)words.bytes : "");
	}
}

static int script_run(struct redis *r, const struct redis_call *call, int64_t deadline_ns,
		      struct script_result *res)
{
	*res = (struct script_result){.kind = REDIS_NIL};
	int rc = redis_run_scripts(r, directory_scripts, call, 1, deadline_ns, result_take, res);
	return rc ? rc : res->rc;
}

int directory_claims_read(struct directory *d, struct redis *r, int64_t deadline_ns,
			  struct directory_claim *claims_out)
{
	char key[DIRECTORY_KEY_BYTES];
	struct redis_reply reply;

	directory_slots_key(key, d->prefix);
	int rc = redis_run(r, 2, (const char *[]){"HGETALL", key}, NULL, deadline_ns, &reply);
	if (rc)
		return rc;
	if (reply.kind != REDIS_ARRAY || reply.n % 2)
		return -EIO;
	for (size_t i = 0; i < reply.n; i += 2) {
		struct redis_reply field = redis_reply_at(&reply, i), bytes = redis_reply_at(&reply, i + 1);
		struct directory_claim c = {.is_there = true};
		uint64_t slot;
		if (field.kind != REDIS_BYTES || bytes.kind != REDIS_BYTES ||
		    parse_u64((const char *)field.bytes, 0, DIRECTORY_SLOTS - 1, &slot) ||
		    directory_claim_decode(bytes.bytes, bytes.len, &c.id, &c.seconds))
			directory_damage_log(d, "slots");
		else
			claims_out[slot] = c;
	}
	return 0;
}

static int claim_set(struct directory *d, struct redis *r, int64_t deadline_ns, int slot,
		     const struct directory_claim *expected)
{
	char key[DIRECTORY_KEY_BYTES], field[8];
	uint8_t id[8], there[DIRECTORY_CLAIM_BYTES];
	struct script_result res;

	wire_put_be64(id, d->lease.self.id);
	if (expected && expected->is_there)
		wire_put_be32(wire_put_be64(there, expected->id), expected->seconds);
	struct redis_call call = {
		.script = DIRECTORY_CLAIM,
		.key = key,
		.key_len = directory_slots_key(key, d->prefix),
		.n_args = 3,
		.args = {field, (const char *)id, (const char *)there},
		.lens = {(size_t)snprintf(field, sizeof(field), "%d", slot), sizeof(id),
			 expected && expected->is_there ? sizeof(there) : 0},
	};
	int rc = script_run(r, &call, deadline_ns, &res);
	return rc ? rc : res.integer == 1 ? 0 : -EAGAIN;
}

int directory_slot_touch(struct directory *d, struct redis *r, int64_t deadline_ns, int slot)
{
	return claim_set(d, r, deadline_ns, slot, NULL);
}

/* Returns what the server says: redis_run_scripts' errors, or 0 and the result. */
static int lease_run(struct directory *d, struct redis *r, int64_t deadline_ns, int slot,
		     enum directory_script script, struct script_result *res)
{
	char key[DIRECTORY_KEY_BYTES], ms[16];
	uint8_t node[DIRECTORY_NODE_MAX];
	struct redis_call call = {
		.script = script,
		.key = key,
		.key_len = directory_lease_key(key, d->prefix, (unsigned)slot),
		.n_args = 2,
		.args = {(const char *)node, ms},
		.lens = {directory_node_encode(&d->lease.self, node),
			 (size_t)snprintf(ms, sizeof(ms), "%u", d->conf.lease_ms)},
	};

	return script_run(r, &call, deadline_ns, res);
}

static int slot_try(struct directory *d, struct redis *r, int64_t deadline_ns, int slot,
		    const struct directory_claim *there)
{
	struct script_result res;
	int64_t sent_ns = clock_now_ns();
	int rc = lease_run(d, r, deadline_ns, slot, DIRECTORY_TAKE, &res);

	if (rc)
		return rc;
	if (res.kind != REDIS_NIL)
		return res.id == d->lease.self.id ? -EBUSY : -EAGAIN;
	rc = claim_set(d, r, deadline_ns, slot, there);
	if (!rc)
		atomic_store(&d->lease.renewed_ns, sent_ns);
	if (rc != -EAGAIN)
		return rc;
	rc = lease_run(d, r, deadline_ns, slot, DIRECTORY_RELEASE, &res);
	return rc ? rc : -EAGAIN;
}

/* Tries slots from `first` on that are free; every try reads the claims as they were when it began. */
static int slot_try_free(struct directory *d, struct redis *r, int64_t deadline_ns, unsigned first,
			 const struct directory_claim *claims, uint32_t newest, int *slot_out)
{
	int rc = -EAGAIN;

	for (unsigned i = 0, n_tries = 0; rc == -EAGAIN && i < DIRECTORY_SLOTS && n_tries < TRIES_MAX; i++) {
		unsigned slot = (first + i) % DIRECTORY_SLOTS;
		if (claims[slot].is_there && newest - claims[slot].seconds <= DIRECTORY_TOMBSTONE_S)
			continue;
		n_tries++;
		rc = slot_try(d, r, deadline_ns, (int)slot, &claims[slot]);
		*slot_out = (int)slot;
	}
	return rc;
}

static int slot_try_oldest(struct directory *d, struct redis *r, int64_t deadline_ns,
			   struct directory_claim *claims, int *slot_out)
{
	int rc = -EAGAIN;

	for (unsigned n_tries = 0; rc == -EAGAIN && n_tries < TRIES_MAX; n_tries++) {
		int oldest = -1;
		for (int s = 0; s < DIRECTORY_SLOTS; s++)
			if (claims[s].is_there && (oldest < 0 || claims[s].seconds < claims[oldest].seconds))
				oldest = s;
		if (oldest < 0)
			return -EAGAIN;
		rc = slot_try(d, r, deadline_ns, oldest, &claims[oldest]);
		*slot_out = oldest;
		claims[oldest].is_there = false;
	}
	return rc;
}

int directory_slot_claim(struct directory *d, struct redis *r, int64_t deadline_ns, int *slot_out,
			 bool *was_ours_out)
{
	autofree struct directory_claim *claims = calloc(DIRECTORY_SLOTS, sizeof(*claims));
	uint32_t newest = 0;
	int slot = d->lease.self.slot;

	if (!claims)
		return -ENOMEM;
	int rc = directory_claims_read(d, r, deadline_ns, claims);
	if (rc)
		return rc;
	for (int s = 0; s < DIRECTORY_SLOTS; s++)
		if (claims[s].is_there && claims[s].seconds > newest)
			newest = claims[s].seconds;
	rc = -EAGAIN;
	for (int i = 0; rc == -EAGAIN && i < DIRECTORY_SLOTS; i++) {
		slot = (d->lease.self.slot + i) % DIRECTORY_SLOTS;
		if (claims[slot].is_there && claims[slot].id == d->lease.self.id)
			rc = slot_try(d, r, deadline_ns, slot, &claims[slot]);
	}
	*was_ours_out = !rc;
	if (rc == -EAGAIN && !claims[d->lease.self.slot].is_there) {
		slot = d->lease.self.slot;
		rc = slot_try(d, r, deadline_ns, slot, &claims[slot]);
	}
	if (rc == -EAGAIN)
		rc = slot_try_free(d, r, deadline_ns, (unsigned)(d->lease.self.id % DIRECTORY_SLOTS), claims,
				   newest, &slot);
	if (rc == -EAGAIN)
		rc = slot_try_oldest(d, r, deadline_ns, claims, &slot);
	if (!rc)
		*slot_out = slot;
	return rc;
}

int directory_slot_renew(struct directory *d, struct redis *r, int64_t deadline_ns, int slot)
{
	struct script_result res;
	int64_t sent_ns = clock_now_ns();
	int rc = lease_run(d, r, deadline_ns, slot, DIRECTORY_RENEW, &res);

	if (rc)
		return rc;
	if (res.integer != 1)
		return -EAGAIN;
	directory_health_refuses(d, res.refusal);
	atomic_store(&d->lease.renewed_ns, sent_ns);
	return 0;
}

int directory_slot_release(struct directory *d, struct redis *r, int64_t deadline_ns, int slot)
{
	struct script_result res;

	return lease_run(d, r, deadline_ns, slot, DIRECTORY_RELEASE, &res);
}
