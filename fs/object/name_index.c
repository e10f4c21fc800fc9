/* SPDX-License-Identifier: Apache-2.0 */
#include "object/name_index.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/log.h"
#include "fs.h"
#include "object/object.h"

struct name_index {
	uint64_t seed;
	struct object **buckets;
	size_t n_buckets, n; /* n_buckets: a power of two */
};

struct name_index *name_index_create(void)
{
	struct name_index *x = xcalloc(1, sizeof(*x));

	if (getrandom(&x->seed, sizeof(x->seed), 0) != (ssize_t)sizeof(x->seed)) {
		log_error("getrandom: %m");
		free(x);
		return NULL;
	}
	x->n_buckets = 4096;
	x->buckets = xcalloc(x->n_buckets, sizeof(*x->buckets));
	return x;
}

void name_index_destroy(struct name_index *x)
{
	if (!x)
		return;
	free(x->buckets);
	free(x);
}

struct name_key name_key_of(const struct fs *fs, uint64_t dir_ino, const char *name, size_t len)
{
	uint64_t seed = fs->names->seed ^ dir_ino * UINT64_C(0x9e3779b97f4a7c15);
	XXH128_hash_t h = XXH3_128bits_withSeed(name, len, seed);

	return (struct name_key){ h.high64, h.low64 };
}

static struct object **bucket_of(struct name_index *x, struct name_key key)
{
	return &x->buckets[key.low & (x->n_buckets - 1)];
}

static void grow(struct name_index *x)
{
	size_t old_n = x->n_buckets;
	struct object **old = x->buckets;

	x->n_buckets *= 2;
	x->buckets = xcalloc(x->n_buckets, sizeof(*x->buckets));
	for (size_t b = 0; b < old_n; b++)
		for (struct object *o = old[b], *next; o; o = next) {
			next = o->name_next;
			struct object **to = bucket_of(x, o->name_key);
			o->name_next = *to;
			*to = o;
		}
	free(old);
}

void name_index_put_locked(struct fs *fs, struct object *o, struct name_key key)
{
	struct name_index *x = fs->names;

	name_index_remove_locked(fs, o);
	if (x->n >= x->n_buckets)
		grow(x);
	struct object **to = bucket_of(x, key);
	o->name_key = key;
	o->is_named = true;
	o->name_next = *to;
	*to = o;
	x->n++;
}

void name_index_remove_locked(struct fs *fs, struct object *o)
{
	if (!o->is_named)
		return;
	for (struct object **p = bucket_of(fs->names, o->name_key); *p; p = &(*p)->name_next)
		if (*p == o) {
			*p = o->name_next;
			break;
		}
	o->is_named = false;
	fs->names->n--;
}

struct object *name_index_find_locked(struct fs *fs, struct name_key key)
{
	struct object *o = *bucket_of(fs->names, key);

	while (o && (o->name_key.low != key.low || o->name_key.high != key.high))
		o = o->name_next;
	return o;
}
