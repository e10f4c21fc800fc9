/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_impl: what the files peer_*.c share.
 *
 *   peer_endpoint.c  this node: begin and end
 *   peer_served.c    connections that others opened: who they are, how long they live
 *   peer_serve.c     what is asked over them; peer_serve_read.c: bytes
 *   peer_table.c     the others: found, counted, told about
 *   peer_attempt.c   one call to one of them, its breaker, its failures
 *   peer_channel.c   a connection for control: requests by sequence number, answers by a receiving thread
 *   peer_control.c   PING, GRANT, RELEASE, INVALIDATE
 *   peer_lane.c      connections for bytes; peer_read.c: READ; peer_pull.c: what the transport reads by itself
 *   peer_pulse.c     the thread that pings, closes what idles and forgets who is not used
 *
 * Locks, in this order: peer_endpoint.lock, peer.lock. With them held the network is told to shut down, no more.
 */
#ifndef TRANSPORT_PEER_IMPL_H
#define TRANSPORT_PEER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "auth.h"
#include "breaker.h"
#include "mcfs/peer.h"
#include "wire.h"

#define LANES_MAX 16
#define N_CHANNELS 3	     /* pulse, control, notify */
#define LANE_IDLE_MS 30000   /* then the asker closes it */
#define KEEPALIVE_MS 20000   /* PING on connections for control that nobody uses */
#define SERVED_IDLE_MS 90000 /* nothing asked: the holder closes */
#define PEER_IDLE_MS 60000   /* without a reference: forgotten */
#define BUDGET_MAX_MS 120000 /* a peer's deadline is taken for at most this */
#define PAYLOAD_MS 10000     /* from a header to the end of its payload */
#define PULL_MS 3000	     /* of a READ of memory, connecting included: then by the stream */
#define PULL_MAX_MS 60000    /* between two tries where that fails */

/* ---- what others ask ---- */

struct served {
	struct served *next, *prev; /* endpoint.lock, as the rest up to conn */
	uint64_t serial;
	bool is_greeted, is_over;
	enum wire_role role;
	struct peer_id from;
	struct transport_conn *conn; /* NULL once closed */
	struct peer_endpoint *e;
	pthread_t thread;
	uint8_t *payload; /* of the thread */
	size_t payload_room;
};

struct peer_endpoint {
	struct peer_conf conf;
	struct auth auth;
	uint8_t key[PEER_KEY_BYTES];
	char address[TRANSPORT_ADDRESS_BYTES];
	struct transport *transport;
	struct transport_listener *listener;
	pthread_t listener_thread, pulse_thread;
	bool is_stopped;      /* of who stops it */
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool is_stopping;
	struct served *served;
	uint32_t n_served;
	uint64_t last_serial;
	struct peer *peers;
	int64_t complained_ns;
	_Atomic uint64_t n_refused, tx_bytes; /* no lock */
};

int served_start(struct peer_endpoint *e);
/* Returns when no handler runs any more. */
void served_stop(struct peer_endpoint *e);
/* One request; not 0: the connection ends. */
int serve_request(struct served *s, struct transport_conn *c);
int serve_read(struct served *s, struct transport_conn *c, const struct wire_header *h, const struct wire_read *r);

/* ---- what is asked of others ---- */

/* A request under way. On a list of its channel until it is done. */
struct call {
	struct call *next;
	uint64_t seq;
	enum wire_type answer;
	bool is_done;
	int rc;		  /* 0: answered */
	int status;	  /* of the answer */
	uint8_t *payload; /* of the answer; whoever made the call frees it */
	uint32_t length;
	pthread_cond_t done;
};

/*
 * A connection for control: closed -> connecting -> open -> broken -> connecting ... By broken the receiving thread
 * is at its end and all calls are done.
 */
enum channel_state { CHANNEL_CLOSED, CHANNEL_CONNECTING, CHANNEL_OPEN, CHANNEL_BROKEN };

struct channel { /* peer.lock */
	struct peer *peer;
	enum wire_role role;
	enum channel_state state;
	struct transport_conn *conn;
	pthread_t receiver; /* open and broken */
	uint32_t epoch;
	uint32_t n_failed; /* attempts to connect */
	int connect_rc;	   /* of the last one that failed */
	uint64_t last_seq;
	int64_t used_ns;
	struct call *calls;
	bool is_sending;
	pthread_cond_t sendable;
};

struct lane { /* peer.lock; whoever has taken it uses conn without */
	struct transport_conn *conn;
	uint32_t epoch;
	bool is_taken;
	int64_t used_ns;
};

struct lane_waiter {
	struct lane_waiter *next;
};

struct peer {
	struct peer *next;	 /* endpoint.lock */
	struct peer_endpoint *e; /* until is_cut */
	struct peer_id id;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	char name[64], address[TRANSPORT_ADDRESS_BYTES];
	uint32_t n_refs, n_calls;
	bool is_cut; /* the endpoint is gone or going */
	/* Goes up when all connections are shut down: what began before has failed with down_rc. */
	uint32_t epoch;
	int down_rc;
	char reason[128];
	struct breaker breaker;
	struct breaker pulls; /* whether its memory can be read */
	char pull_reason[128];
	int64_t used_ns;
	struct channel channels[N_CHANNELS]; /* by enum wire_role */
	struct lane lanes[LANES_MAX];
	uint32_t n_lanes;	     /* that may be used now */
	struct lane_waiter *waiters; /* for a lane, the first in line first */
	struct call ping;	     /* of the pulse thread */
	bool is_pinging;
	int64_t pinged_ns;
	uint32_t load;
	int64_t rtt_ns;
	uint64_t rx_bytes_per_s, rx_bytes, pulled_bytes, n_pull_failures;
	uint64_t n_reads, n_grants, n_invalidations, n_errors, n_bad_chunks, n_connects;
	_Atomic uint64_t queued_bytes; /* no lock */
};

/* All connections; waiters fail with rc. */
void peer_down_locked(struct peer *p, int rc, const char *why);
void peer_open_breaker_locked(struct peer *p, int rc, const char *why);
void peer_note_load_locked(struct peer *p, uint32_t load, int64_t rtt_ns);
void peer_destroy(struct peer *p);
/* Ends what is under way; then only peer_put may follow. */
void peers_cut(struct peer_endpoint *e);

/* A call of the interface. */
enum outcome { OUTCOME_NONE, OUTCOME_GOOD, OUTCOME_BAD };

struct attempt {
	struct peer *p;
	bool is_probe;
	uint32_t epoch;
	int64_t begin_ns;
	enum outcome outcome; /* what it says about the peer */
};

/* -EHOSTDOWN, -ECANCELED; else attempt_end follows. */
int attempt_begin(struct attempt *a, struct peer *p);
/* Returns what the caller is told. */
int attempt_end(struct attempt *a, int rc, const char *what);
/* The connection's failure rc, as an outcome: a deadline that left no time says nothing. */
void attempt_failed(struct attempt *a, int rc);
/* A connection with HELLO done, in *slot, which peer_down_locked knows. */
int attempt_connect(struct attempt *a, enum wire_role role, struct transport_conn **slot, int64_t deadline_ns);

void channel_init(struct channel *ch, struct peer *p, enum wire_role role);
/* Connects if need be; of several callers one does, the others wait for it. */
int channel_open(struct channel *ch, struct attempt *a, int64_t deadline_ns);
/*
 * One message that has n answers. All n are done then: c[k].rc 0: answered, see c[k].status; c[k].payload is the
 * caller's. 0: at least one was answered.
 */
int channel_calls(struct channel *ch, struct call *c, size_t n, enum wire_type type, const void *payload, size_t len,
		  int64_t deadline_ns);
/* A message without an answer, over an open channel. -ENOTCONN. */
int channel_tell(struct channel *ch, enum wire_type type, const void *payload, size_t len, int64_t deadline_ns);
/* The first half of it: c[k].is_done (peer.lock) says that one is over. Not 0: all are. */
int channel_start_calls(struct channel *ch, struct call *c, size_t n, enum wire_type type, const void *payload,
			size_t len, int64_t deadline_ns);
void call_init(struct call *c, enum wire_type answer);
void call_fini(struct call *c);
/* Joins the receiver of a broken channel and closes its connection. */
void channel_reap(struct channel *ch);

/* In turn. -ETIMEDOUT: all are busy. */
int lane_take(struct attempt *a, struct lane **out, int64_t deadline_ns);
void lane_give(struct peer *p, struct lane *l);
void lane_close(struct peer *p, struct lane *l);
void lanes_trim(struct peer *p, int64_t now);

/* One peer_read under way. */
struct reading {
	struct attempt a;
	struct peer_grant *g;
	uint64_t off;
	size_t len, at; /* at: received of len */
	size_t told;	/* of these, checked and told */
	uint32_t crc;	/* of the checksummed chunk that is not complete */
	uint32_t n_chunks, n_acked;
	uint8_t *dst;
	struct transport_mr *mr; /* of dst; NULL: none */
	peer_chunk_fn on_chunk;
	void *arg;
	int64_t deadline_ns;
	bool is_local; /* it is not the connection that failed */
};

/* The bytes up to `to` of what was asked are right. */
int reading_tell(struct reading *r, size_t to);
/* Bytes [off, off + len) of the object are wrong. */
int reading_bad_chunk(struct reading *r, uint64_t off, size_t len);
/* READ of what is missing: 0, the peer's answer (outcome is good then), or the connection is of no use any more. */
int reading_exchange(struct reading *r, struct transport_conn *conn);
/* Is it worth asking that peer for keys? */
bool peer_can_pull(struct peer *p);
/*
 * Reads what is missing out of the holder's memory, if it can. 0 with r->at where it was: by READ, then. Not 0: as
 * reading_exchange.
 */
int reading_pull(struct reading *r, struct transport_conn *conn);

int pulse_start(struct peer_endpoint *e);
void pulse_stop(struct peer_endpoint *e);

#endif
