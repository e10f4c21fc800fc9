/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_parts: the parts of a struct directory and what they want of each other. Each part has a lock of its
 * own; none is taken with another held, and nothing outward (server, callbacks) is called under one.
 *
 *   health  whether the server answers, and why not
 *   pool    connections of callers
 *   queue   changes that wait, and the thread that sends them
 *   lease   our slot, and the thread that renews it, probes a server that is away and reads the nodes
 *   nodes   what the other nodes last said
 *   resync  the thread on which the owner announces anew
 *   letters the thread that deals with what was posted to us
 */
#ifndef MCFS_DIRECTORY_PARTS_H
#define MCFS_DIRECTORY_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/monotonic.h"
#include "directory_key.h"
#include "mcfs/directory.h"
#include "redis.h"

#define DIRECTORY_POOL_MAX 16u

struct directory_health {
	pthread_mutex_t lock;
	int error;	/* 0: it answers */
	char text[512]; /* why not, "" when it answers */
	char refusal[192]; /* why it takes no changes though it answers, "" when it does */
	char host[64];	/* the server in digits, as last connected to */
	atomic_bool is_up;
};

struct directory_pool {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct redis *idle[DIRECTORY_POOL_MAX];
	unsigned n_idle, n_open;
	uint64_t epoch; /* changes when the server went away: older connections are not kept */
};

struct directory_change;

struct directory_queue {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* for the sender: work, or the end */
	pthread_cond_t moved;	/* for those that flush or wait for room */
	pthread_t thread;
	struct directory_change *first, *last;		 /* to be sent, in order of seq */
	struct directory_change *refused, *refused_last; /* to be told so */
	bool is_refusing;				 /* some are being told */
	uint64_t next_seq, done_seq;			 /* all changes up to done_seq are done */
	uint64_t urgent_seq;				 /* up to here nothing waits for its time */
	uint64_t bytes, n;
	int64_t due_ns;	      /* when the first of them wants to be sent */
	int64_t next_send_ns; /* by the rate */
	bool stopping;
	atomic_bool gave_up; /* changes that a resync has to make up for */
};

struct directory_lease {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool stopping, is_probe_wanted;
	char text[96];		    /* why there is no slot */
	int error;		    /* 0: there is one */
	atomic_int slot;	    /* -1: none */
	_Atomic int64_t renewed_ns; /* the last renewal that the server confirmed was sent then */
	/* Of the thread alone. */
	struct redis *redis;
	struct directory_node self;
	char run_id[48];
	int64_t touched_ns, nodes_read_ns, resynced_ns, resync_gap_ns;
	bool was_claimed, needs_resync;
};

struct directory_nodes {
	pthread_mutex_t lock;
	struct directory_node *list;
	size_t n;
	int64_t read_ns;
};

struct directory_resync {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool is_wanted, stopping;
};

struct directory_letters {
	pthread_t thread;
	bool is_started;
	struct redis *redis; /* of the thread */
};

struct directory {
	struct directory_conf conf; /* url and prefix: not to be used, they were the caller's */
	char prefix[DIRECTORY_PREFIX_MAX + 1];
	struct redis_address address;
	char where[300]; /* HOST:PORT, for messages */
	int stop_fd;	 /* readable once it is to end */
	int64_t io_ns;	 /* bound of one exchange of our own threads */
	struct directory_health health;
	struct directory_pool pool;
	struct directory_queue queue;
	struct directory_lease lease;
	struct directory_nodes nodes;
	struct directory_resync resync;
	struct directory_letters letters;
	_Atomic uint64_t n_lookups, n_lookup_errors, n_announced, n_retracted, n_removed, n_stale, n_given_up,
		n_resyncs, n_letters;
	_Atomic int64_t rtt_ns, damage_logged_ns;
};

/* ---- health ---- */

void directory_health_init(struct directory *d);
void directory_health_fini(struct directory *d);
/* Of the lease's thread: it answered on r. */
void directory_health_up(struct directory *d, const struct redis *r);
/* An exchange on a connection failed with rc: what means that the server is away has it probed. */
void directory_health_down(struct directory *d, int rc, const char *text);
/* Why it takes no changes; "": it does. */
void directory_health_refuses(struct directory *d, const char *text);
/* 0, or what a call that needs the server returns now. */
int directory_health_check(struct directory *d);
/* What it said of something makes no sense: one line now and then. */
void directory_damage_log(struct directory *d, const char *what);

/* ---- pool ---- */

void directory_pool_init(struct directory *d);
void directory_pool_fini(struct directory *d);
/* Waits for one until the deadline where all are in use. is_patient: who does not answer until then is away. */
int directory_pool_take(struct directory *d, int64_t deadline_ns, bool is_patient, struct redis **out,
			uint64_t *epoch_out);
void directory_pool_put(struct directory *d, struct redis *r, uint64_t epoch);
void directory_pool_drop(struct directory *d);
/* Connects one that is not of the pool; asks no name server where the address is known. */
int directory_connect(struct directory *d, struct redis *r, int64_t deadline_ns);

/* ---- threads: start returns a negative errno; stop waits for the end ---- */

int directory_queue_start(struct directory *d);
/* Takes no more, but lives until it is stopped. */
void directory_queue_end(struct directory *d);
void directory_queue_stop(struct directory *d);
uint64_t directory_queue_count(struct directory *d, uint64_t *bytes_out);
void directory_queue_wake(struct directory *d);
/* Up, with a lease: what is queued may be sent. */
bool directory_can_send(struct directory *d);

int directory_lease_start(struct directory *d);
void directory_lease_stop(struct directory *d);
void directory_lease_probe(struct directory *d);

int directory_resync_start(struct directory *d);
void directory_resync_stop(struct directory *d);
void directory_resync_request(struct directory *d);
/* Whether the caller runs within on_resync. */
bool directory_resync_is_caller(struct directory *d);

/* Where there is an on_letter. Ends once stop_fd is readable. */
int directory_letters_start(struct directory *d);
void directory_letters_stop(struct directory *d);

/* ---- slots and nodes, on the connection of the lease's thread ---- */

struct directory_claim {
	uint64_t id;
	uint32_t seconds;
	bool is_there;
};

/* claims_out: DIRECTORY_SLOTS of them. */
int directory_claims_read(struct directory *d, struct redis *r, int64_t deadline_ns,
			  struct directory_claim *claims_out);
/* Gets a slot, ours where it still is. -EBUSY: our id is in use by a later incarnation; -EAGAIN: none is free. */
int directory_slot_claim(struct directory *d, struct redis *r, int64_t deadline_ns, int *slot_out,
			 bool *was_ours_out);
/* Renews the lease; -EAGAIN: it is gone or another's. */
int directory_slot_renew(struct directory *d, struct redis *r, int64_t deadline_ns, int slot);
int directory_slot_release(struct directory *d, struct redis *r, int64_t deadline_ns, int slot);
/* Says that the slot is still ours; -EAGAIN: it is not. */
int directory_slot_touch(struct directory *d, struct redis *r, int64_t deadline_ns, int slot);

void directory_nodes_init(struct directory *d);
void directory_nodes_fini(struct directory *d);
int directory_nodes_refresh(struct directory *d, struct redis *r, int64_t deadline_ns);
/* Asks who holds the lease of a slot, in two commands; then reads that. -ENOENT: nobody. */
int directory_lease_append(struct directory *d, struct redis *r, unsigned slot);
int directory_lease_read(struct directory *d, struct redis *r, unsigned slot, int64_t deadline_ns,
			 struct directory_node *out);

#endif
