/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define MAGIC 0x3150434du /* "MCP1" */
#define FLAG_KEY 1u

struct header {
	uint32_t magic;
	uint8_t version, type;
	uint16_t flags;
	uint32_t length, status;
	uint64_t seq;
};
_Static_assert(sizeof(struct header) == WIRE_HEADER_BYTES, "on the wire");

/* 0 role u8, 1 flags u8, 2 zero, 8 from, 24 to, 40 cluster, 104 nonce */
struct hello {
	uint8_t role, flags, zero[6];
	uint64_t from_node, from_incarnation, to_node, to_incarnation;
	char cluster[WIRE_CLUSTER_BYTES];
	uint8_t nonce[WIRE_NONCE_BYTES];
};
_Static_assert(sizeof(struct hello) == WIRE_HELLO_BYTES, "on the wire");
_Static_assert(sizeof(struct hello) <= WIRE_SMALL_BYTES, "fits in small buffers");

/* 0 flags u8, 1 zero, 8 id, 24 nonce, 56 mac */
struct welcome {
	uint8_t flags, zero[7];
	uint64_t node, incarnation;
	uint8_t nonce[WIRE_NONCE_BYTES], mac[WIRE_MAC_BYTES];
};
_Static_assert(sizeof(struct welcome) == WIRE_WELCOME_BYTES, "on the wire");

/* 0 grant, 8 off, 16 len, 20 budget in ms */
struct read {
	uint64_t grant, off;
	uint32_t len, budget_ms;
};
_Static_assert(sizeof(struct read) == 24, "on the wire");

/* 0 off, 8 len, 12 crc, 16 the bytes */
struct chunk {
	uint64_t off;
	uint32_t len, crc;
};
_Static_assert(sizeof(struct chunk) == WIRE_CHUNK_BYTES, "on the wire");

/* What a payload may have in bytes, when the status is 0. */
static const struct {
	uint32_t min, max;
} lengths[WIRE_N_TYPES] = {
	[WIRE_HELLO] = { sizeof(struct hello), sizeof(struct hello) },
	[WIRE_WELCOME] = { sizeof(struct welcome), sizeof(struct welcome) },
	[WIRE_PROOF] = { WIRE_MAC_BYTES, WIRE_MAC_BYTES },
	[WIRE_ACCEPT] = { 0, 0 },
	[WIRE_PING] = { 0, 0 },
	[WIRE_PONG] = { 4, 4 },
	[WIRE_GRANT] = { 16, WIRE_ASK_BYTES },
	[WIRE_GRANTED] = { 40, WIRE_PAYLOAD_MAX },
	[WIRE_RELEASE] = { 8, 8 },
	[WIRE_INVALIDATE] = { 8, WIRE_PAYLOAD_MAX },
	[WIRE_INVALIDATED] = { 0, 0 },
	[WIRE_READ] = { sizeof(struct read), sizeof(struct read) },
	[WIRE_CHUNK] = { WIRE_CHUNK_BYTES + 1, WIRE_CHUNK_BYTES + PEER_CHUNK_BYTES },
	[WIRE_READ_ACK] = { 4, 4 },
};

/* Numbers of errors on the wire: machines differ in theirs. Only ever added to. */
static const int errors[] = {
	0,	EIO,	 ENOENT,  ESTALE, EAGAIN, EACCES,     EINVAL,	    ENOMEM, ETIMEDOUT,
	EPROTO, EBADMSG, ENOSPC,  EBUSY,  EPERM,  EOPNOTSUPP, ENAMETOOLONG, EMFILE, ENFILE,
	EROFS,	EEXIST,	 ENOTDIR, EISDIR, EINTR,  EOVERFLOW,  ERANGE,
};

enum { N_ERRORS = sizeof(errors) / sizeof(*errors) };

/* That this end stops is not that the asker's does: to others it is busy. */
static uint32_t error_to_wire(int status)
{
	if (status == -ECANCELED)
		status = -EAGAIN;
	for (uint32_t k = 0; k < N_ERRORS; k++)
		if (errors[k] == -status)
			return k;
	return 1;
}

/* ---- header ---- */

void wire_header_encode(const struct wire_header *h, uint8_t out[WIRE_HEADER_BYTES])
{
	struct header w = { .magic = htole32(MAGIC),
			    .version = PEER_PROTOCOL,
			    .type = h->type,
			    .length = htole32(h->length),
			    .status = htole32(error_to_wire(h->status)),
			    .seq = htole64(h->seq) };

	memcpy(out, &w, sizeof(w));
}

int wire_header_decode(const uint8_t in[WIRE_HEADER_BYTES], struct wire_header *out)
{
	struct header w;

	memcpy(&w, in, sizeof(w));
	uint32_t length = le32toh(w.length), status = le32toh(w.status);
	if (le32toh(w.magic) != MAGIC || w.version != PEER_PROTOCOL || w.flags)
		return -EPROTO;
	if (!w.type || w.type >= WIRE_N_TYPES || status >= N_ERRORS)
		return -EPROTO;
	if (status ? length != 0 : length < lengths[w.type].min || length > lengths[w.type].max)
		return -EPROTO;
	*out = (struct wire_header){
		.type = w.type, .length = length, .status = -errors[status], .seq = le64toh(w.seq)
	};
	return 0;
}

bool wire_is_other_version(const uint8_t in[WIRE_HEADER_BYTES])
{
	struct header w;

	memcpy(&w, in, sizeof(w));
	return le32toh(w.magic) == MAGIC && w.version != PEER_PROTOCOL;
}

/* ---- hello ---- */

static bool is_zero(const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n && !*b)
		b++, n--;
	return !n;
}

/* Ends with a NUL and has nothing behind it. */
static bool cluster_is_valid(const char cluster[WIRE_CLUSTER_BYTES])
{
	size_t len = strnlen(cluster, WIRE_CLUSTER_BYTES);

	return len < WIRE_CLUSTER_BYTES && is_zero(cluster + len, WIRE_CLUSTER_BYTES - len);
}

ssize_t wire_hello_encode(const struct wire_hello *h, uint8_t *out)
{
	struct hello w = { .role = h->role,
			   .flags = h->has_key ? FLAG_KEY : 0,
			   .from_node = htole64(h->from.node),
			   .from_incarnation = htole64(h->from.incarnation),
			   .to_node = htole64(h->to.node),
			   .to_incarnation = htole64(h->to.incarnation) };

	if (h->role >= WIRE_N_ROLES || !cluster_is_valid(h->cluster))
		return -EINVAL;
	memcpy(w.cluster, h->cluster, sizeof(w.cluster));
	memcpy(w.nonce, h->nonce, sizeof(w.nonce));
	memcpy(out, &w, sizeof(w));
	return sizeof(w);
}

int wire_hello_decode(const uint8_t *in, size_t len, struct wire_hello *out)
{
	struct hello w;

	if (len != sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	if (w.role >= WIRE_N_ROLES || w.flags & ~FLAG_KEY || !is_zero(w.zero, sizeof(w.zero)) ||
	    !cluster_is_valid(w.cluster))
		return -EPROTO;
	*out = (struct wire_hello){ .role = w.role,
				    .has_key = w.flags & FLAG_KEY,
				    .from = { le64toh(w.from_node), le64toh(w.from_incarnation) },
				    .to = { le64toh(w.to_node), le64toh(w.to_incarnation) } };
	memcpy(out->cluster, w.cluster, sizeof(w.cluster));
	memcpy(out->nonce, w.nonce, sizeof(w.nonce));
	return 0;
}

ssize_t wire_welcome_encode(const struct wire_welcome *h, uint8_t *out)
{
	struct welcome w = { .flags = h->has_key ? FLAG_KEY : 0,
			     .node = htole64(h->id.node),
			     .incarnation = htole64(h->id.incarnation) };

	memcpy(w.nonce, h->nonce, sizeof(w.nonce));
	memcpy(w.mac, h->mac, sizeof(w.mac));
	memcpy(out, &w, sizeof(w));
	return sizeof(w);
}

int wire_welcome_decode(const uint8_t *in, size_t len, struct wire_welcome *out)
{
	struct welcome w;

	if (len != sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	if (w.flags & ~FLAG_KEY || !is_zero(w.zero, sizeof(w.zero)))
		return -EPROTO;
	*out = (struct wire_welcome){ .has_key = w.flags & FLAG_KEY,
				      .id = { le64toh(w.node), le64toh(w.incarnation) } };
	memcpy(out->nonce, w.nonce, sizeof(w.nonce));
	memcpy(out->mac, w.mac, sizeof(w.mac));
	return 0;
}

/* ---- reading ---- */

static bool read_is_valid(const struct wire_read *r)
{
	return r->grant && r->len && r->len <= PEER_READ_MAX && r->off <= (uint64_t)INT64_MAX - r->len;
}

ssize_t wire_read_encode(const struct wire_read *r, uint8_t *out)
{
	struct read w = { htole64(r->grant), htole64(r->off), htole32(r->len), htole32(r->budget_ms) };

	if (!read_is_valid(r))
		return -EINVAL;
	memcpy(out, &w, sizeof(w));
	return sizeof(w);
}

int wire_read_decode(const uint8_t *in, size_t len, struct wire_read *out)
{
	struct read w;

	if (len != sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	struct wire_read r = { le64toh(w.grant), le64toh(w.off), le32toh(w.len), le32toh(w.budget_ms) };
	if (!read_is_valid(&r))
		return -EPROTO;
	*out = r;
	return 0;
}

/* Not across a multiple of PEER_CHUNK_BYTES. */
static bool chunk_is_valid(const struct wire_chunk *c)
{
	return c->len && c->len <= PEER_CHUNK_BYTES - c->off % PEER_CHUNK_BYTES &&
	       c->off <= (uint64_t)INT64_MAX - c->len;
}

ssize_t wire_chunk_encode(const struct wire_chunk *c, uint8_t *out)
{
	struct chunk w = { htole64(c->off), htole32(c->len), htole32(c->crc) };

	if (!chunk_is_valid(c))
		return -EINVAL;
	memcpy(out, &w, sizeof(w));
	return sizeof(w);
}

int wire_chunk_decode(const uint8_t in[WIRE_CHUNK_BYTES], uint32_t length, struct wire_chunk *out)
{
	struct chunk w;

	memcpy(&w, in, sizeof(w));
	struct wire_chunk c = { le64toh(w.off), le32toh(w.len), le32toh(w.crc) };
	if (!chunk_is_valid(&c) || length != WIRE_CHUNK_BYTES + c.len)
		return -EPROTO;
	*out = c;
	return 0;
}

/* ---- single numbers ---- */

ssize_t wire_u32_encode(uint32_t v, uint8_t *out)
{
	v = htole32(v);
	memcpy(out, &v, sizeof(v));
	return sizeof(v);
}

int wire_u32_decode(const uint8_t *in, size_t len, uint32_t *out)
{
	uint32_t v;

	if (len != sizeof(v))
		return -EPROTO;
	memcpy(&v, in, sizeof(v));
	*out = le32toh(v);
	return 0;
}

ssize_t wire_u64_encode(uint64_t v, uint8_t *out)
{
	v = htole64(v);
	memcpy(out, &v, sizeof(v));
	return sizeof(v);
}

int wire_u64_decode(const uint8_t *in, size_t len, uint64_t *out)
{
	uint64_t v;

	if (len != sizeof(v))
		return -EPROTO;
	memcpy(&v, in, sizeof(v));
	*out = le64toh(v);
	return 0;
}
