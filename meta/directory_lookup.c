/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_lookup: names asked for, many in one pipeline.
 *
 * Locks: none of its own; a connection of the pool is the caller's for the call.
 *
 * How it fails: a server that twice takes longer than lookup_ms is away for everybody; one that takes longer than
 * a shorter deadline of the caller is not. A value that makes no sense is logged and counts as none: it hides one
 * name.
 */
#include "mcfs/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "directory_parts.h"
#include "directory_value.h"
#include "mcfs/catalog.h"

/* Names of one bucket, next to each other, are asked for by one command. */
#define COMMAND_NAMES 64u

struct lookup_item {
	uint64_t bucket; /* its number below those of the directory's place among the names */
	size_t i;
};

struct lookup {
	struct directory *d;
	const struct directory_name *names;
	size_t n;
	struct directory_value *values;
	struct lookup_item *items; /* sorted by bucket */
	size_t n_replies;
};

static int item_compare(const void *a, const void *b)
{
	const struct lookup_item *x = a, *y = b;

	if (x->bucket != y->bucket)
		return x->bucket < y->bucket ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

static int lookup_init(struct lookup *l)
{
	uint64_t place = 0;

	l->items = malloc(l->n * sizeof(*l->items));
	if (!l->items)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		const struct directory_name *name = &l->names[i];
		l->values[i] = (struct directory_value){.kind = DIRECTORY_NONE};
		if (i && name->dir != name[-1].dir && strcmp(name->dir, name[-1].dir))
			place += DIRECTORY_BUCKETS;
		l->items[i].i = i;
		l->items[i].bucket = place + directory_bucket_of(catalog_name_cookie(name->name));
	}
	if (l->n > 1)
		qsort(l->items, l->n, sizeof(*l->items), item_compare);
	return 0;
}

static size_t command_end(const struct lookup *l, size_t first)
{
	size_t end = first + 1;

	while (end < l->n && end - first < COMMAND_NAMES && l->items[end].bucket == l->items[first].bucket)
		end++;
	return end;
}

static int command_append(const struct lookup *l, struct redis *r, const char *key, size_t key_len, size_t first,
			  size_t end)
{
	uint8_t fields[COMMAND_NAMES][DIRECTORY_FIELD_MAX];
	const char *argv[2 + COMMAND_NAMES] = {"HMGET", key};
	size_t lens[2 + COMMAND_NAMES] = {strlen("HMGET"), key_len};

	for (size_t k = 0; k < end - first; k++) {
		int rc = directory_field_encode(l->names[l->items[first + k].i].name, fields[k], &lens[2 + k]);
		if (rc)
			return rc;
		argv[2 + k] = (const char *)fields[k];
	}
	return redis_append(r, 2 + end - first, argv, lens);
}

static int lookup_ask(const struct lookup *l, struct redis *r)
{
	char key[DIRECTORY_KEY_BYTES];
	size_t key_len = 0;
	int rc = 0;

	for (size_t first = 0, end; !rc && first < l->n; first = end) {
		const struct lookup_item *item = &l->items[first];
		unsigned bucket = (unsigned)(item->bucket % DIRECTORY_BUCKETS);
		end = command_end(l, first);
		if (!first || item[-1].bucket / DIRECTORY_BUCKETS != item->bucket / DIRECTORY_BUCKETS)
			key_len = directory_bucket_key(key, l->d->prefix,
						       directory_path_hash(l->names[item->i].dir), bucket);
		else
			directory_bucket_key_move(key, key_len, bucket);
		rc = command_append(l, r, key, key_len, first, end);
	}
	return rc;
}

static int value_take(struct directory *d, const struct redis_reply *reply, struct directory_value *v)
{
	if (reply->kind == REDIS_NIL)
		return 0;
	int rc = reply->kind == REDIS_BYTES ? directory_value_decode(reply->bytes, reply->len, v) : -EIO;
	if (rc != -EIO)
		return rc;
	directory_damage_log(d, "a name");
	atomic_fetch_add(&d->n_lookup_errors, 1);
	return 0;
}

static int command_answer(struct lookup *l, const struct redis_reply *reply, size_t first, size_t end)
{
	int rc = 0;

	if (reply->kind == REDIS_FAILURE) {
		directory_health_down(l->d, reply->rc, (const char *)reply->bytes);
		return reply->rc;
	}
	if (reply->kind != REDIS_ARRAY || reply->n != end - first)
		return -EIO;
	for (size_t k = 0; !rc && k < reply->n; k++) {
		struct redis_reply bytes = redis_reply_at(reply, k);
		rc = value_take(l->d, &bytes, &l->values[l->items[first + k].i]);
	}
	return rc;
}

static int lookup_exchange(struct lookup *l, struct redis *r, int64_t deadline_ns)
{
	struct redis_reply reply;
	int rc = lookup_ask(l, r);

	for (size_t first = 0, end; !rc && first < l->n; first = end) {
		end = command_end(l, first);
		rc = redis_next(r, deadline_ns, &reply);
		if (rc)
			break;
		l->n_replies++;
		rc = command_answer(l, &reply, first, end);
	}
	return rc;
}

static int lookup_run(struct lookup *l, int64_t deadline_ns, bool is_patient)
{
	struct redis *r;
	uint64_t epoch;
	int rc = directory_pool_take(l->d, deadline_ns, is_patient, &r, &epoch);

	if (rc)
		return rc;
	rc = lookup_exchange(l, r, deadline_ns);
	/* One that answers, too slowly for so many names, is there. */
	if (!redis_is_connected(r) && (rc != -ETIMEDOUT || (is_patient && !l->n_replies)))
		directory_health_down(l->d, rc, redis_text(r));
	directory_pool_put(l->d, r, epoch);
	return rc;
}

/* A question may be lost, or the machine be busy for a moment: once more, by another connection. */
static int lookup_twice(struct lookup *l, int64_t deadline_ns)
{
	int rc = -ETIMEDOUT;

	for (int n = 0; rc == -ETIMEDOUT && !l->n_replies && n < 2; n++) {
		int64_t limit_ns = clock_now_ns() + l->d->conf.lookup_ms * NS_PER_MS;
		bool has_time = deadline_ns >= limit_ns;
		rc = lookup_run(l, has_time ? limit_ns : deadline_ns, has_time && n);
		if (!has_time)
			break;
	}
	return rc;
}

int directory_lookup(struct directory *d, const struct directory_name *names, size_t n,
		     struct directory_value *values_out, int64_t deadline_ns)
{
	struct lookup l = {.d = d, .names = names, .n = n, .values = values_out};

	if (!n)
		return 0;
	atomic_fetch_add(&d->n_lookups, n);
	int rc = directory_health_check(d);
	if (!rc)
		rc = lookup_init(&l);
	if (!rc) {
		rc = lookup_twice(&l, deadline_ns);
		while (rc && n)
			directory_value_fini(&values_out[--n]);
	}
	free(l.items);
	if (rc)
		atomic_fetch_add(&d->n_lookup_errors, l.n);
	return rc;
}
