/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_list: the names of one directory in the order of their cookies, some buckets at a time.
 *
 * Invariants: the sizes of all buckets are asked for first, so an empty directory costs one exchange. A group of
 * buckets is in memory, sorted, before fn sees any of it; no connection is held meanwhile.
 *
 * Locks: none.
 *
 * How it fails: what names came before has been given to fn. A field or value that makes no sense hides one name.
 */
#include "mcfs/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "catalog_key.h"
#include "directory_parts.h"
#include "directory_value.h"

#define GROUP_NAMES 4096 /* a group of buckets ends when it has so many */

struct list_entry {
	uint64_t cookie;
	char *name;
	struct directory_value value;
};

struct list {
	struct directory *d;
	struct directory_hash hash;
	uint64_t after;
	int64_t deadline_ns;
	uint64_t sizes[DIRECTORY_BUCKETS];
	struct list_entry *entries;
	size_t n, size;
};

static void entries_clear(struct list *l)
{
	while (l->n) {
		struct list_entry *e = &l->entries[--l->n];
		directory_value_fini(&e->value);
		free(e->name);
	}
}

static int entry_compare(const void *a, const void *b)
{
	const struct list_entry *x = a, *y = b;

	if (x->cookie != y->cookie)
		return x->cookie < y->cookie ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int entries_reserve(struct list *l)
{
	size_t size = l->size ? 2 * l->size : 64;

	if (l->n < l->size)
		return 0;
	struct list_entry *entries = realloc(l->entries, size * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	l->entries = entries;
	l->size = size;
	return 0;
}

static int entry_add(struct list *l, unsigned bucket, const struct redis_reply *field,
		     const struct redis_reply *bytes)
{
	char name[DIRECTORY_NAME_MAX + 1];
	struct list_entry e = {.name = NULL};

	if (field->kind != REDIS_BYTES || bytes->kind != REDIS_BYTES)
		return -EIO;
	int rc = directory_field_decode(field->bytes, field->len, name);
	if (!rc)
		rc = directory_value_decode(bytes->bytes, bytes->len, &e.value);
	if (rc)
		return rc;
	e.cookie = catalog_name_cookie(name);
	if (directory_bucket_of(e.cookie) != bucket)
		rc = -EIO;
	else if (e.value.kind == DIRECTORY_TOMBSTONE || e.cookie <= l->after)
		rc = 1;
	if (!rc)
		rc = entries_reserve(l);
	if (!rc)
		e.name = strdup(name);
	if (rc || !e.name) {
		directory_value_fini(&e.value);
		return rc > 0 ? 0 : rc ? rc : -ENOMEM;
	}
	l->entries[l->n++] = e;
	return 0;
}

static int bucket_read(struct list *l, unsigned bucket, const struct redis_reply *reply)
{
	if (reply->kind != REDIS_ARRAY || reply->n % 2)
		return reply->kind == REDIS_FAILURE ? reply->rc : -EIO;
	for (size_t i = 0; i < reply->n; i += 2) {
		struct redis_reply field = redis_reply_at(reply, i), bytes = redis_reply_at(reply, i + 1);
		int rc = entry_add(l, bucket, &field, &bytes);
		if (rc == -EIO)
			directory_damage_log(l->d, "a listed name");
		else if (rc)
			return rc;
	}
	return 0;
}

static int bucket_append(struct list *l, struct redis *r, const char *command, unsigned bucket)
{
	char key[DIRECTORY_KEY_BYTES];

	directory_bucket_key(key, l->d->prefix, l->hash, bucket);
	return redis_append(r, 2, (const char *[]){command, key}, NULL);
}

/* An exchange of a whole list waits no longer than one of our own threads. */
static int64_t exchange_deadline(const struct list *l)
{
	int64_t limit_ns = clock_now_ns() + l->d->io_ns;

	return limit_ns < l->deadline_ns ? limit_ns : l->deadline_ns;
}

static int sizes_read(struct list *l, struct redis *r, unsigned first, unsigned end)
{
	struct redis_reply reply;
	int64_t deadline_ns = exchange_deadline(l);
	int rc = 0;

	for (unsigned b = first; !rc && b < end; b++)
		rc = bucket_append(l, r, "HLEN", b);
	for (unsigned b = first; !rc && b < end; b++) {
		rc = redis_next(r, deadline_ns, &reply);
		if (!rc && reply.kind != REDIS_INTEGER)
			rc = reply.kind == REDIS_FAILURE ? reply.rc : -EIO;
		if (!rc)
			l->sizes[b] = (uint64_t)reply.integer;
	}
	return rc;
}

static int buckets_read(struct list *l, struct redis *r, unsigned first, unsigned end)
{
	struct redis_reply reply;
	int64_t deadline_ns = exchange_deadline(l);
	int rc = 0;

	for (unsigned b = first; !rc && b < end; b++)
		if (l->sizes[b])
			rc = bucket_append(l, r, "HGETALL", b);
	for (unsigned b = first; !rc && b < end; b++) {
		if (!l->sizes[b])
			continue;
		rc = redis_next(r, deadline_ns, &reply);
		if (!rc)
			rc = bucket_read(l, b, &reply);
	}
	return rc;
}

typedef int (*exchange_fn)(struct list *l, struct redis *r, unsigned first, unsigned end);

static int list_exchange(struct list *l, exchange_fn fn, unsigned first, unsigned end)
{
	struct redis *r;
	uint64_t epoch;
	int rc = directory_pool_take(l->d, exchange_deadline(l), false, &r, &epoch);

	if (rc)
		return rc;
	rc = fn(l, r, first, end);
	if (!redis_is_connected(r) && (rc != -ETIMEDOUT || clock_now_ns() < l->deadline_ns))
		directory_health_down(l->d, rc, redis_text(r));
	directory_pool_put(l->d, r, epoch);
	return rc;
}

static unsigned group_end(const struct list *l, unsigned first)
{
	uint64_t n = 0;
	unsigned end = first;

	while (end < DIRECTORY_BUCKETS && n < GROUP_NAMES)
		n += l->sizes[end++];
	return end;
}

static int list_walk(struct list *l, directory_list_fn fn, void *arg)
{
	unsigned first = directory_bucket_of(l->after);
	int rc = list_exchange(l, sizes_read, first, DIRECTORY_BUCKETS);

	while (!rc && first < DIRECTORY_BUCKETS) {
		unsigned end = group_end(l, first);
		rc = list_exchange(l, buckets_read, first, end);
		if (l->n)
			qsort(l->entries, l->n, sizeof(*l->entries), entry_compare);
		for (size_t i = 0; !rc && i < l->n; i++)
			rc = fn(arg, l->entries[i].cookie, l->entries[i].name, &l->entries[i].value);
		entries_clear(l);
		first = end;
	}
	return rc;
}

int directory_list(struct directory *d, const char *dir, uint64_t after, directory_list_fn fn, void *arg,
		   int64_t deadline_ns)
{
	struct list l = {.d = d, .hash = directory_path_hash(dir), .after = after, .deadline_ns = deadline_ns};

	if (after >= CATALOG_COOKIE_END)
		return 0;
	int rc = list_walk(&l, fn, arg);
	free(l.entries);
	return rc;
}
