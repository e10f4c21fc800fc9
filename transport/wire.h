/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: the messages of the peer protocol as bytes.
 *
 * A message is a header and a payload of header.length bytes. All numbers are little-endian and of fixed width.
 *
 *   0  magic    u32   "MCP1"
 *   4  version  u8    PEER_PROTOCOL
 *   5  type     u8    enum wire_type
 *   6  flags    u16   0
 *   8  length   u32   of the payload
 *  12  status   u32   of an answer: 0, or a number of the table in wire.c
 *  16  seq      u64   an answer has that of what it answers
 *
 * A connection begins with HELLO -> WELCOME -> PROOF -> ACCEPT; then the end that connected asks. An answer with a
 * status has no payload.
 *
 *   role     asks                     answers
 *   pulse    PING                     PONG
 *   control  PING GRANT RELEASE       PONG GRANTED -
 *   notify   PING INVALIDATE          PONG INVALIDATED
 *   lane     READ READ_ACK            CHUNK... ; the last one ends the range, or has a status
 *
 * GRANT asks for one name or several of a directory, and each has an answer of its own: the k-th has the seq of the
 * question plus k.
 *
 * READ_ACK tells how many chunks have come: every WIRE_ACK_CHUNKS, and at the end if it was not told. What a chunk
 * was sent from stays as it is until then, since bytes of a file may be on their way without a copy.
 *
 * Decoders take any bytes: they look at nothing outside the buffer, and what breaks a rule is -EPROTO.
 * Encoders return bytes, or -EINVAL for what no decoder would take, -EMSGSIZE when there is no room.
 * Thread safe.
 */
#ifndef TRANSPORT_WIRE_H
#define TRANSPORT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/peer.h"

#define WIRE_HEADER_BYTES 24
#define WIRE_CLUSTER_BYTES 64
#define WIRE_NONCE_BYTES 32
#define WIRE_MAC_BYTES 32
#define WIRE_CRC_MAX (1u << 20) /* checksums of one grant: an object of 1 TiB; a larger one has none */
#define WIRE_PAYLOAD_MAX (4u * WIRE_CRC_MAX + 4096u)
#define WIRE_HELLO_BYTES 136
#define WIRE_WELCOME_BYTES 88
#define WIRE_CHUNK_BYTES 16  /* before the bytes */
#define WIRE_SMALL_BYTES 136 /* the largest payload of fixed size */
#define WIRE_ASK_BYTES (16 + PEER_PATH_MAX + 1 + PEER_GRANTS_MAX * (16 + PEER_NAME_MAX + 1))
#define WIRE_ACK_CHUNKS 32
#define WIRE_UNACKED_MAX 64 /* chunks: then their sender waits */

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_WELCOME,
	WIRE_PROOF,
	WIRE_ACCEPT,
	WIRE_PING,
	WIRE_PONG,
	WIRE_GRANT,
	WIRE_GRANTED,
	WIRE_RELEASE,
	WIRE_INVALIDATE,
	WIRE_INVALIDATED,
	WIRE_READ,
	WIRE_CHUNK,
	WIRE_READ_ACK,
	WIRE_N_TYPES,
};

enum wire_role { WIRE_PULSE, WIRE_CONTROL, WIRE_NOTIFY, WIRE_LANE, WIRE_N_ROLES };

struct wire_header {
	uint8_t type;
	uint32_t length;
	int status; /* 0 or negative errno */
	uint64_t seq;
};

struct wire_hello {
	uint8_t role;
	bool has_key;
	struct peer_id from, to;
	char cluster[WIRE_CLUSTER_BYTES]; /* padded with zeros */
	uint8_t nonce[WIRE_NONCE_BYTES];
};

struct wire_welcome {
	bool has_key;
	struct peer_id id;
	uint8_t nonce[WIRE_NONCE_BYTES], mac[WIRE_MAC_BYTES];
};

struct wire_grant {
	uint32_t budget_ms;
	bool wants_key; /* the asker can read memory by itself */
	const char *dir;
	uint32_t n;
	struct wire_wanted {
		uint64_t version;
		uint32_t inline_max; /* bytes that may come with the answer */
		const char *name;
	} names[PEER_GRANTS_MAX];
};

struct wire_read {
	uint64_t grant, off;
	uint32_t len, budget_ms;
};

struct wire_chunk {
	uint64_t off;
	uint32_t len, crc;
};

/* An errno that the table does not have goes out as EIO. */
void wire_header_encode(const struct wire_header *h, uint8_t out[WIRE_HEADER_BYTES]);
int wire_header_decode(const uint8_t in[WIRE_HEADER_BYTES], struct wire_header *out);
/* Ours, but of another version. */
bool wire_is_other_version(const uint8_t in[WIRE_HEADER_BYTES]);

/* Payloads; each buffer holds at least WIRE_SMALL_BYTES. */
ssize_t wire_hello_encode(const struct wire_hello *h, uint8_t *out);
int wire_hello_decode(const uint8_t *in, size_t len, struct wire_hello *out);
ssize_t wire_welcome_encode(const struct wire_welcome *w, uint8_t *out);
int wire_welcome_decode(const uint8_t *in, size_t len, struct wire_welcome *out);
ssize_t wire_read_encode(const struct wire_read *r, uint8_t *out);
int wire_read_decode(const uint8_t *in, size_t len, struct wire_read *out);
ssize_t wire_chunk_encode(const struct wire_chunk *c, uint8_t *out);
/* in: the WIRE_CHUNK_BYTES before the bytes; length: of the whole payload. */
int wire_chunk_decode(const uint8_t in[WIRE_CHUNK_BYTES], uint32_t length, struct wire_chunk *out);
/* PONG's load and READ_ACK's count; RELEASE's grant. */
ssize_t wire_u32_encode(uint32_t v, uint8_t *out);
int wire_u32_decode(const uint8_t *in, size_t len, uint32_t *out);
ssize_t wire_u64_encode(uint64_t v, uint8_t *out);
int wire_u64_decode(const uint8_t *in, size_t len, uint64_t *out);

/* Strings of what was decoded point into in. */
size_t wire_grant_bytes(const struct wire_grant *g);
ssize_t wire_grant_encode(const struct wire_grant *g, uint8_t *out, size_t room);
int wire_grant_decode(const uint8_t *in, size_t len, struct wire_grant *out);
/* Room that granted_encode needs. Where g->has_bytes the last g->size of them are the object's, the caller's to fill. */
size_t wire_granted_bytes(const struct peer_grant *g);
ssize_t wire_granted_encode(const struct peer_grant *g, uint8_t *out, size_t room);
/* crc is allocated; -ENOMEM. */
int wire_granted_decode(const uint8_t *in, size_t len, struct peer_grant *out);
/* 0: more than PEER_INVALIDATE_MAX, or none. */
size_t wire_invalidate_bytes(const struct peer_invalidation *v, size_t n);
ssize_t wire_invalidate_encode(const struct peer_invalidation *v, size_t n, uint32_t budget_ms, uint8_t *out,
			       size_t room);
int wire_invalidate_decode(const uint8_t *in, size_t len, struct peer_invalidation out[PEER_INVALIDATE_MAX],
			   size_t *n_out, uint32_t *budget_ms_out);

/* The rules of strings. */
bool wire_dir_is_canonical(const char *dir);
bool wire_name_is_valid(const char *name);

#endif
