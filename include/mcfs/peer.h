/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: what nodes say to each other, over any transport.
 *
 * An endpoint is this node: it listens, and keeps a fixed number of connections to each peer in use: three for
 * control (PING; GRANT and RELEASE; INVALIDATE: none waits for another), lanes for bytes. Each begins with HELLO:
 * protocol version, cluster, node id and incarnation of both ends, and a mutual HMAC-SHA256 over nonces of both with
 * the cluster key. Then the end that connected asks and the other answers:
 *
 *   PING        alive, and how busy
 *   GRANT       may I read version V of this name, and of these? -> each: a grant id, size, checksums; or all of it,
 *               if it is small
 *   READ        [off, off + len) of a grant -> chunks as they become readable
 *   RELEASE     a grant is not needed any more
 *   INVALIDATE  these names have new versions, or none -> acknowledged when the tables have changed
 *
 * A grant lives until RELEASE, its time to live, or the end of the control connection it came by.
 *
 * A peer is known by node id and incarnation, never by its address. One that fails is left alone for a while (circuit
 * breaker: closed - open - half-open, one probe at a time, twice as long after each failed probe, at most 5 s); what
 * is asked of it meanwhile fails at once with -EHOSTDOWN. After it came back, lanes are used one more at a time.
 *
 * Every call has a deadline (CLOCK_MONOTONIC, ns). Errors: negative errno. -ETIMEDOUT; -EHOSTDOWN the breaker is open;
 * -ESTALE the peer at that address has another node id or incarnation; -EACCES the key or the cluster is another;
 * -EPROTO it speaks another version, or nonsense; -ECANCELED the endpoint stops; what the peer answered.
 * Thread safety: all functions.
 */
#ifndef MCFS_PEER_H
#define MCFS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mcfs/transport.h"

#define PEER_PROTOCOL 1
#define PEER_KEY_BYTES 32
#define PEER_PATH_MAX 4096       /* of a directory, canonical: "/" or "/a/b" */
#define PEER_NAME_MAX 255
#define PEER_CHUNK_BYTES (1u << 20) /* one checksum, one chunk; as CATALOG_CRC_CHUNK */
#define PEER_READ_MAX (64u << 20)   /* bytes of one READ */
#define PEER_INLINE_MAX (128u << 10) /* bytes of an object that may come with its grant */
#define PEER_INVALIDATE_MAX 256     /* names of one INVALIDATE */
#define PEER_GRANTS_MAX 64          /* names of one GRANT */

struct peer_id {
	uint64_t node;          /* random, kept in the catalog */
	uint64_t incarnation;   /* another at each start of the daemon */
};

static inline bool peer_id_is_same(const struct peer_id *a, const struct peer_id *b)
{
	return a->node == b->node && a->incarnation == b->incarnation;
}

/* ---- what this node answers; called on threads of the endpoint, must return before deadline_ns ---- */

struct peer_grant_ask {
	struct peer_id from;
	uint64_t version;       /* 0: whichever there is */
	const char *dir, *name;
	bool wants_key;         /* it reads registered memory by itself */
};

struct peer_grant {
	uint64_t grant;         /* id, never 0 */
	uint64_t version, size; /* size in bytes */
	uint32_t n_crc;         /* ceil(size / PEER_CHUNK_BYTES); 0: not known */
	uint32_t *crc;          /* malloc'd CRC32C per chunk; the receiver of the struct frees it */
	uint32_t ttl_ms;        /* of the grant, renewed by each READ */
	bool has_bytes;         /* all of them came along: there is no grant to read by, or to release */
	bool is_partial;        /* the holder is still fetching it: READ waits for what it does not have yet */
	uint8_t key[TRANSPORT_KEY_BYTES]; /* of registered memory with all of it, where the transport pulls */
	uint16_t key_len;       /* 0: by READ alone */
	int64_t until_ns;       /* the asker's: the grant may be over from then on. Renewed by peer_read */
};

/* A piece of the answer to READ: from a file, which stays open until done(arg). */
struct peer_piece {
	int fd;
	uint64_t off;           /* in the file */
	uint32_t len;           /* 1 .. PEER_CHUNK_BYTES, not across a multiple of PEER_CHUNK_BYTES of the object */
	uint32_t crc;           /* CRC32C of these bytes, if has_crc */
	bool has_crc;           /* else the sender computes it */
	/* When the asker has the bytes, which may not change before, or its connection ended. May be NULL. */
	void (*done)(void *arg);
	void *arg;
};

struct peer_invalidation {
	const char *dir, *name;
	uint64_t version;       /* the new one: what is older than it goes */
	bool is_removed;        /* unlinked: nothing has the name now */
};

struct peer_handlers {
	/* -ENOENT not here, -ESTALE another version or unsure of it, -EAGAIN busy. */
	int (*grant)(void *arg, const struct peer_grant_ask *ask, struct peer_grant *out, int64_t deadline_ns);
	/*
	 * The bytes from off on, at most len, as soon as some are readable. -ESTALE: the grant is over.
	 * Called again for the rest.
	 */
	int (*read)(void *arg, const struct peer_id *from, uint64_t grant, uint64_t off, uint32_t len,
		    struct peer_piece *out, int64_t deadline_ns);
	void (*release)(void *arg, const struct peer_id *from, uint64_t grant);
	/* A control connection of that peer ended: its grants are over. */
	void (*gone)(void *arg, const struct peer_id *from);
	/* Returns when no open can see what is older any more. */
	int (*invalidate)(void *arg, const struct peer_id *from, const struct peer_invalidation *v, size_t n,
			  int64_t deadline_ns);
	/* 0 idle .. 1000 saturated, told in answers to PING. May be NULL. */
	uint32_t (*load)(void *arg);
	void *arg;
};

/* ---- this node ---- */

struct peer_conf {
	const struct transport_ops *transport;
	const char *device;         /* of the transport: see struct transport_conf; NULL: any */
	struct peer_id self;
	const char *cluster;        /* name, at most 63 bytes: nodes of another one are refused */
	const char *listen;         /* HOST:PORT to bind; port 0: any */
	const char *advertise;      /* HOST:PORT that peers connect to; NULL: what was bound. Port 0: the bound one */
	const uint8_t *key;         /* PEER_KEY_BYTES; NULL: none, then listen must be a loopback address */
	uint32_t n_lanes;           /* per peer, 1 .. 16; 0: 4 */
	uint32_t ping_ms;           /* between two PINGs to a peer in use, and the time to answer; 0: 1000 */
	uint32_t max_connections;   /* accepted, of all peers together; 0: 4096 */
	struct peer_handlers handlers;
};

struct peer_endpoint;

/* Listens. -EACCES: not a loopback address and no key (logged); -EADDRINUSE, ...; -EINVAL. */
int peer_endpoint_create(const struct peer_conf *conf, struct peer_endpoint **out);
/*
 * Everything under way ends with -ECANCELED, peer_get finds nobody; returns when no handler runs any more. What is
 * known may still be asked for. One thread calls it, once or again.
 */
void peer_endpoint_stop(struct peer_endpoint *e);
/* Stops it if need be. Nobody may use e any more. */
void peer_endpoint_destroy(struct peer_endpoint *e);
/* HOST:PORT for others, valid as long as the endpoint. */
const char *peer_endpoint_address(const struct peer_endpoint *e);

/* Does the transport read memory by itself? Else what follows is not called. */
bool peer_endpoint_pulls(const struct peer_endpoint *e);
/* As register_memory, deregister and key_of of mcfs/transport.h; all is deregistered before the endpoint is destroyed. */
int peer_register(struct peer_endpoint *e, void *addr, size_t bytes, struct transport_mr **out);
void peer_deregister(struct peer_endpoint *e, struct transport_mr *mr);
uint16_t peer_key_of(struct peer_endpoint *e, struct transport_mr *mr, uint8_t key_out[TRANSPORT_KEY_BYTES]);

/*
 * Reads a cluster key file: PEER_KEY_BYTES bytes as 64 hex digits, white space around them allowed. -EACCES: others
 * than its owner may read it; -EINVAL: something else; or why it cannot be read. Logged with the path.
 */
int peer_key_read(const char *path, uint8_t key_out[PEER_KEY_BYTES]);

/* ---- the others ---- */

struct peer;

/*
 * The peer of that id at that address, made if need be, with one reference. Connects when first asked. NULL: no
 * memory, or the endpoint stops. May be put after the endpoint's end; all it is asked then is -ECANCELED.
 */
struct peer *peer_get(struct peer_endpoint *e, const struct peer_id *id, const char *name, const char *address);
struct peer *peer_ref(struct peer *p);
void peer_put(struct peer *p);
/* Is it worth asking now: false while the breaker is open. */
bool peer_is_usable(struct peer *p);
/* Bytes asked for and not yet here, to choose among holders. */
uint64_t peer_queued_bytes(struct peer *p);

int peer_ping(struct peer *p, int64_t deadline_ns);
struct peer_want {
	uint64_t version;       /* 0: whichever there is */
	const char *name;
	void *dst;              /* an object of at most room bytes may come along; room 0: it may not */
	size_t room;            /* <= PEER_INLINE_MAX */
	int rc;                 /* 0: granted. -EBADMSG: its bytes were wrong; counted, logged */
	struct peer_grant grant; /* has_bytes: dst has them, and they are right. Else dst is as it was */
};
/* n <= PEER_GRANTS_MAX names of one directory in one question. Each w[k].rc tells; 0: at least one was granted. */
int peer_ask_grants(struct peer *p, const char *dir, struct peer_want *w, size_t n, int64_t deadline_ns);
int peer_ask_grant(struct peer *p, uint64_t version, const char *dir, const char *name, struct peer_grant *out,
		   int64_t deadline_ns);
/* Sent behind, no answer is waited for. */
void peer_release_grant(struct peer *p, uint64_t grant);
int peer_invalidate(struct peer *p, const struct peer_invalidation *v, size_t n, int64_t deadline_ns);

/*
 * Reads [off, off + len) of a grant into dst over one lane, waiting for a free one; len <= PEER_READ_MAX. mr: what
 * peer_register gave for memory that dst is in (may be NULL): where the grant has a key and checksums for all of the
 * range the transport reads it out of the holder's memory, and what it cannot read comes by READ all the same. Chunks come
 * in order; each is compared with its checksum (of the grant where it has them, else the message's) before on_chunk is
 * told (may be NULL; negative: stop, returned). -EBADMSG: a chunk was wrong (counted, logged); the connection is closed.
 * *n_out (may be NULL): bytes from off on that are right, also on failure.
 */
typedef int (*peer_chunk_fn)(void *arg, uint64_t off, size_t len);
int peer_read(struct peer *p, struct peer_grant *g, uint64_t off, size_t len, void *dst, struct transport_mr *mr,
	      peer_chunk_fn on_chunk, void *arg, size_t *n_out, int64_t deadline_ns);

/* ---- what is known of them ---- */

enum peer_state { PEER_IDLE, PEER_UP, PEER_DOWN, PEER_PROBING };

struct peer_stats {
	struct peer_id id;
	char name[64], address[TRANSPORT_ADDRESS_BYTES];
	enum peer_state state;
	char reason[128];           /* why it is down */
	uint32_t n_connections;     /* open to it */
	uint32_t load;              /* as it said last */
	int64_t rtt_ns;             /* of PING, smoothed; 0: not known */
	uint64_t rx_bytes_per_s;    /* of READ, smoothed; 0: not known */
	uint64_t rx_bytes, n_reads, n_grants, n_invalidations, n_errors, n_bad_chunks, n_connects;
	uint64_t pulled_bytes, n_pull_failures; /* of rx_bytes: read out of its memory */
	bool can_pull;              /* its memory can be read now, as far as is known */
	char pull_reason[128];      /* why it last could not; "" */
};
/* Calls fn for each peer; returns how many. */
size_t peer_each(struct peer_endpoint *e, void (*fn)(void *arg, const struct peer_stats *s), void *arg);

struct peer_endpoint_stats {
	uint32_t n_accepted;        /* connections open now */
	uint64_t n_refused;         /* connections: key, cluster, version, nonsense, too many */
	uint64_t tx_bytes;          /* of READ */
	const char *transport;      /* its name */
};
void peer_endpoint_get_stats(struct peer_endpoint *e, struct peer_endpoint_stats *out);

#endif
