/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of variable size: those with names, and the answer to GRANT with its checksums. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define FLAG_REMOVED 1u
#define FLAG_WANTS_KEY 1u
#define FLAG_PARTIAL 1u
#define FLAG_BYTES 2u

/* 0 names, 4 budget in ms, 8 flags, 10 length of dir, 12 zero, 16 dir, NUL, names */
struct grant {
	uint32_t n, budget_ms;
	uint16_t flags, dir_len;
	uint8_t zero[4];
};
_Static_assert(sizeof(struct grant) == 16, "on the wire");

/* 0 version, 8 bytes that may come along, 12 length of name, 14 zero, 16 name, NUL */
struct wanted {
	uint64_t version;
	uint32_t inline_max;
	uint16_t name_len;
	uint8_t zero[2];
};
_Static_assert(sizeof(struct wanted) == 16, "on the wire");

/* 0 grant, 8 version, 16 size, 24 checksums, 28 time to live in ms, 32 length of the key, 34 flags, 36 zero, 40 key,
 * checksums, bytes */
struct granted {
	uint64_t grant, version, size;
	uint32_t n_crc, ttl_ms;
	uint16_t key_len, flags;
	uint8_t zero[4];
};
_Static_assert(sizeof(struct granted) == 40, "on the wire");
_Static_assert(WIRE_PAYLOAD_MAX >= sizeof(struct granted) + TRANSPORT_KEY_BYTES + 4u * WIRE_CRC_MAX, "fits");

/* 0 records, 4 budget in ms, 8 records */
struct invalidate {
	uint32_t n, budget_ms;
};
_Static_assert(sizeof(struct invalidate) == 8, "on the wire");

/* 0 version, 8 flags, 10 zero, 12 length of dir, 14 of name, 16 dir, NUL, name, NUL */
struct record {
	uint64_t version;
	uint16_t flags, zero, dir_len, name_len;
};
_Static_assert(sizeof(struct record) == 16, "on the wire");
_Static_assert(WIRE_PAYLOAD_MAX >=
		       sizeof(struct invalidate) +
			       PEER_INVALIDATE_MAX * (sizeof(struct record) + PEER_PATH_MAX + PEER_NAME_MAX + 2),
	       "fits");

static bool is_zero(const uint8_t *bytes, size_t n)
{
	while (n && !*bytes)
		bytes++, n--;
	return !n;
}

/* ---- names ---- */

static size_t names_bytes(const char *dir, const char *name)
{
	return strlen(dir) + strlen(name) + 2;
}

static bool names_are_valid(const char *dir, const char *name)
{
	return wire_dir_is_canonical(dir) && wire_name_is_valid(name);
}

static void names_put(uint8_t *out, const char *dir, const char *name)
{
	size_t dir_bytes = strlen(dir) + 1;

	memcpy(out, dir, dir_bytes);
	memcpy(out + dir_bytes, name, strlen(name) + 1);
}

/* Bytes that they took, or -EPROTO. */
static ssize_t names_get(const uint8_t *in, size_t len, size_t dir_len, size_t name_len, const char **dir_out,
			 const char **name_out)
{
	const char *dir = (const char *)in, *name = dir + dir_len + 1;

	if (dir_len + name_len + 2 > len || dir_len > PEER_PATH_MAX || name_len > PEER_NAME_MAX)
		return -EPROTO;
	if (strnlen(dir, dir_len + 1) != dir_len || strnlen(name, name_len + 1) != name_len)
		return -EPROTO;
	if (!names_are_valid(dir, name))
		return -EPROTO;
	*dir_out = dir;
	*name_out = name;
	return (ssize_t)(dir_len + name_len + 2);
}

/* ---- grant ---- */

size_t wire_grant_bytes(const struct wire_grant *g)
{
	size_t total = sizeof(struct grant) + strlen(g->dir) + 1;

	for (uint32_t k = 0; k < g->n; k++)
		total += sizeof(struct wanted) + strlen(g->names[k].name) + 1;
	return total;
}

ssize_t wire_grant_encode(const struct wire_grant *g, uint8_t *out, size_t room)
{
	if (!g->n || g->n > PEER_GRANTS_MAX || !wire_dir_is_canonical(g->dir))
		return -EINVAL;
	for (uint32_t k = 0; k < g->n; k++)
		if (!wire_name_is_valid(g->names[k].name) || g->names[k].inline_max > PEER_INLINE_MAX)
			return -EINVAL;
	if (wire_grant_bytes(g) > room)
		return -EMSGSIZE;
	struct grant w = { .n = htole32(g->n),
			   .budget_ms = htole32(g->budget_ms),
			   .flags = htole16(g->wants_key ? FLAG_WANTS_KEY : 0),
			   .dir_len = htole16((uint16_t)strlen(g->dir)) };
	uint8_t *at = out;
	memcpy(at, &w, sizeof(w));
	at += sizeof(w);
	memcpy(at, g->dir, strlen(g->dir) + 1);
	at += strlen(g->dir) + 1;
	for (uint32_t k = 0; k < g->n; k++) {
		size_t len = strlen(g->names[k].name);
		struct wanted v = { .version = htole64(g->names[k].version),
				    .inline_max = htole32(g->names[k].inline_max),
				    .name_len = htole16((uint16_t)len) };
		memcpy(at, &v, sizeof(v));
		memcpy(at + sizeof(v), g->names[k].name, len + 1);
		at += sizeof(v) + len + 1;
	}
	return at - out;
}

/* Bytes that it took, or -EPROTO. */
static ssize_t wanted_get(const uint8_t *in, size_t len, struct wire_wanted *out)
{
	struct wanted v;

	if (len < sizeof(v))
		return -EPROTO;
	memcpy(&v, in, sizeof(v));
	size_t name_len = le16toh(v.name_len);
	if (!is_zero(v.zero, sizeof(v.zero)) || le32toh(v.inline_max) > PEER_INLINE_MAX ||
	    name_len > PEER_NAME_MAX || len - sizeof(v) < name_len + 1)
		return -EPROTO;
	const char *name = (const char *)in + sizeof(v);
	if (strnlen(name, name_len + 1) != name_len || !wire_name_is_valid(name))
		return -EPROTO;
	*out = (struct wire_wanted){ le64toh(v.version), le32toh(v.inline_max), name };
	return (ssize_t)(sizeof(v) + name_len + 1);
}

int wire_grant_decode(const uint8_t *in, size_t len, struct wire_grant *out)
{
	struct grant w;

	if (len < sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	uint32_t n = le32toh(w.n);
	size_t dir_len = le16toh(w.dir_len), at = sizeof(w) + dir_len + 1;
	if (!n || n > PEER_GRANTS_MAX || !is_zero(w.zero, sizeof(w.zero)) || le16toh(w.flags) & ~FLAG_WANTS_KEY ||
	    dir_len > PEER_PATH_MAX || at > len)
		return -EPROTO;
	const char *dir = (const char *)in + sizeof(w);
	if (strnlen(dir, dir_len + 1) != dir_len || !wire_dir_is_canonical(dir))
		return -EPROTO;
	for (uint32_t k = 0; k < n; k++) {
		ssize_t took = wanted_get(in + at, len - at, &out->names[k]);
		if (took < 0)
			return -EPROTO;
		at += (size_t)took;
	}
	if (at != len)
		return -EPROTO;
	out->budget_ms = le32toh(w.budget_ms);
	out->wants_key = le16toh(w.flags) & FLAG_WANTS_KEY;
	out->dir = dir;
	out->n = n;
	return 0;
}

static uint64_t n_chunks(uint64_t size)
{
	return size / PEER_CHUNK_BYTES + (size % PEER_CHUNK_BYTES != 0);
}

/* Of an object that is too large for a message they stay here. */
static uint32_t n_crc_sent(const struct peer_grant *g)
{
	return g->n_crc <= WIRE_CRC_MAX ? g->n_crc : 0;
}

size_t wire_granted_bytes(const struct peer_grant *g)
{
	return sizeof(struct granted) + g->key_len + 4 * (size_t)n_crc_sent(g) + (g->has_bytes ? g->size : 0);
}

/* They have a checksum. */
static bool bytes_are_valid(const struct peer_grant *g)
{
	return !g->has_bytes || (g->n_crc == 1 && g->size <= PEER_INLINE_MAX && !g->is_partial);
}

ssize_t wire_granted_encode(const struct peer_grant *g, uint8_t *out, size_t room)
{
	uint32_t n = n_crc_sent(g);

	if (!g->grant || g->size > INT64_MAX || g->key_len > TRANSPORT_KEY_BYTES)
		return -EINVAL;
	if (g->n_crc && (g->n_crc != n_chunks(g->size) || !g->crc))
		return -EINVAL;
	if (!bytes_are_valid(g))
		return -EINVAL;
	if (wire_granted_bytes(g) > room)
		return -EMSGSIZE;
	struct granted w = { .grant = htole64(g->grant),
			     .version = htole64(g->version),
			     .size = htole64(g->size),
			     .n_crc = htole32(n),
			     .ttl_ms = htole32(g->ttl_ms),
			     .key_len = htole16(g->key_len),
			     .flags = htole16((g->is_partial ? FLAG_PARTIAL : 0) | (g->has_bytes ? FLAG_BYTES : 0)) };
	memcpy(out, &w, sizeof(w));
	memcpy(out + sizeof(w), g->key, g->key_len);
	uint8_t *at = out + sizeof(w) + g->key_len;
	for (uint32_t k = 0; k < n; k++, at += 4)
		wire_u32_encode(g->crc[k], at);
	return at - out + (g->has_bytes ? (ssize_t)g->size : 0);
}

int wire_granted_decode(const uint8_t *in, size_t len, struct peer_grant *out)
{
	struct granted w;

	if (len < sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	struct peer_grant g = { .grant = le64toh(w.grant),
				.version = le64toh(w.version),
				.size = le64toh(w.size),
				.n_crc = le32toh(w.n_crc),
				.ttl_ms = le32toh(w.ttl_ms),
				.key_len = le16toh(w.key_len),
				.has_bytes = le16toh(w.flags) & FLAG_BYTES,
				.is_partial = le16toh(w.flags) & FLAG_PARTIAL };
	if (!g.grant || g.size > INT64_MAX || g.key_len > TRANSPORT_KEY_BYTES || g.n_crc > WIRE_CRC_MAX ||
	    le16toh(w.flags) & ~(FLAG_PARTIAL | FLAG_BYTES) || !is_zero(w.zero, sizeof(w.zero)))
		return -EPROTO;
	if (g.n_crc && g.n_crc != n_chunks(g.size))
		return -EPROTO;
	if (!bytes_are_valid(&g) || len != wire_granted_bytes(&g))
		return -EPROTO;
	memcpy(g.key, in + sizeof(w), g.key_len);
	if (g.n_crc) {
		g.crc = malloc(g.n_crc * sizeof(*g.crc));
		if (!g.crc)
			return -ENOMEM;
	}
	for (uint32_t k = 0; k < g.n_crc; k++)
		wire_u32_decode(in + sizeof(w) + g.key_len + 4 * (size_t)k, 4, &g.crc[k]);
	*out = g;
	return 0;
}

/* ---- invalidate ---- */

size_t wire_invalidate_bytes(const struct peer_invalidation *v, size_t n)
{
	size_t total = sizeof(struct invalidate);

	if (!n || n > PEER_INVALIDATE_MAX)
		return 0;
	for (size_t k = 0; k < n; k++)
		total += sizeof(struct record) + names_bytes(v[k].dir, v[k].name);
	return total;
}

ssize_t wire_invalidate_encode(const struct peer_invalidation *v, size_t n, uint32_t budget_ms, uint8_t *out,
			       size_t room)
{
	struct invalidate head = { htole32((uint32_t)n), htole32(budget_ms) };
	size_t at = sizeof(head);

	if (!n || n > PEER_INVALIDATE_MAX)
		return -EINVAL;
	for (size_t k = 0; k < n; k++)
		if (!names_are_valid(v[k].dir, v[k].name))
			return -EINVAL;
	if (wire_invalidate_bytes(v, n) > room)
		return -EMSGSIZE;
	memcpy(out, &head, sizeof(head));
	for (size_t k = 0; k < n; k++) {
		struct record w = { .version = htole64(v[k].version),
				    .flags = htole16(v[k].is_removed ? FLAG_REMOVED : 0),
				    .dir_len = htole16((uint16_t)strlen(v[k].dir)),
				    .name_len = htole16((uint16_t)strlen(v[k].name)) };
		memcpy(out + at, &w, sizeof(w));
		names_put(out + at + sizeof(w), v[k].dir, v[k].name);
		at += sizeof(w) + names_bytes(v[k].dir, v[k].name);
	}
	return (ssize_t)at;
}

int wire_invalidate_decode(const uint8_t *in, size_t len, struct peer_invalidation out[PEER_INVALIDATE_MAX],
			   size_t *n_out, uint32_t *budget_ms_out)
{
	struct invalidate head;
	size_t at = sizeof(head);

	if (len < sizeof(head))
		return -EPROTO;
	memcpy(&head, in, sizeof(head));
	size_t n = le32toh(head.n);
	if (!n || n > PEER_INVALIDATE_MAX)
		return -EPROTO;
	for (size_t k = 0; k < n; k++) {
		struct record w;
		if (len - at < sizeof(w))
			return -EPROTO;
		memcpy(&w, in + at, sizeof(w));
		at += sizeof(w);
		uint16_t flags = le16toh(w.flags);
		if (flags & ~FLAG_REMOVED || w.zero)
			return -EPROTO;
		out[k].version = le64toh(w.version);
		out[k].is_removed = flags & FLAG_REMOVED;
		ssize_t took = names_get(in + at, len - at, le16toh(w.dir_len), le16toh(w.name_len), &out[k].dir,
					 &out[k].name);
		if (took < 0)
			return (int)took;
		at += (size_t)took;
	}
	if (at != len)
		return -EPROTO;
	*n_out = n;
	*budget_ms_out = le32toh(head.budget_ms);
	return 0;
}
