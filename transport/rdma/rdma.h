/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma: the provider that reads a peer's memory by itself. Its connections are those of tcp, with all their streams
 * do, and beside them a reliable-connected queue pair on which only RDMA READs travel: the asker's CPU and the two
 * devices move the bytes, no thread of the holder does.
 *
 *   rdma.c          the table of operations; a connection as a TCP stream; counters
 *   rdma_device.c   the devices of this machine, and which of them serves an address
 *   rdma_memory.c   registered memory, and keys for it
 *   rdma_cm.c       the thread that takes the events of rdma_cm; links by number
 *   rdma_async.c    the same thread: what devices and ports say of themselves
 *   rdma_listen.c   the holder: listens, takes or refuses queue pairs
 *   rdma_connect.c  the asker: makes the queue pair at the first pull
 *   rdma_read.c     the asker: READs, completions, and the end of them
 *   rdma_error.c    errors of verbs and rdma_cm as errno
 *   rdma_key.[ch], rdma_gid.[ch]   bytes and choices, without verbs
 *
 * A link is a queue pair with its rdma_cm_id, from the asker's end (`pull`) or the holder's (`served`). A connection has
 * at most one of each; either end may ask. A served link belongs to the TCP connection that its REQ names and ends with
 * it, so a peer that is gone keeps nothing. A link that failed is destroyed before pull returns: after that the device
 * writes nowhere any more.
 *
 * Rights: memory is registered once, for writing by this node's own READs and for reading by peers; none may write it.
 * Who has a key was given it over an authenticated connection; the token in it proves that to the holder, who refuses
 * others.
 *
 * Locks: rdma.lock guards who is known (links, connections, listeners) and what events have said of a link. Nothing of
 * verbs or rdma_cm is called with it. Links are taken out of the list by the one thread that then destroys them.
 * Thread safety: as mcfs/transport.h says.
 */
#ifndef TRANSPORT_RDMA_RDMA_H
#define TRANSPORT_RDMA_RDMA_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "mcfs/transport.h"
#include "rdma/rdma_key.h"

/* One READ; a smaller one at the end, or where the port knows no such messages. */
#define RDMA_READ_BYTES (1u << 20)
/* READs that are posted and not known to be done, per link. */
#define RDMA_WINDOW_MAX 32

struct rdma_device {
	struct ibv_context *verbs; /* of librdmacm */
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	struct ibv_cq *idle_cq; /* of served links: nothing is ever posted there */
	atomic_bool is_gone;	/* removed or dead while we run: nothing new on it */
};

/* Counts since create, and what there is now. */
struct rdma_stats {
	atomic_uint n_mrs, n_pull_links, n_served_links;
	_Atomic uint64_t registered_bytes, n_registrations;
	_Atomic uint64_t n_connects, n_connect_failures,
		n_refused; /* links; REQs that this node refused */
	_Atomic uint64_t n_pulls, pull_bytes, n_pull_failures, n_reads; /* n_reads: work requests */
	_Atomic uint64_t n_sleeps; /* waits that polling did not end */
};

struct rdma_link;
struct rdma_listener;
struct rdma_conn;

struct rdma {
	struct transport base;
	struct transport *tcp;
	uint8_t token[RDMA_TOKEN_BYTES]; /* of this process */
	struct ibv_context **found;	 /* rdma_get_devices */
	uint32_t n_devices;
	struct rdma_device devices[RDMA_DEVICES_MAX];
	struct rdma_event_channel *channel;
	int stop_fd;
	_Atomic int64_t complained_ns; /* of memory that cannot be registered */
	pthread_t cm_thread;
	struct rdma_stats stats;

	pthread_mutex_t lock; /* guards the rest */
	uint64_t last_number;
	struct rdma_link *links;
	struct rdma_conn *conns;
	struct rdma_listener *listeners;
};

/* One end of a TCP connection: an IPv6 address, or IPv4 as ::ffff:a.b.c.d. */
struct rdma_end {
	struct sockaddr_storage sa; /* as the system has it */
	uint8_t address[16];
	uint16_t port;
};

struct rdma_conn {
	struct transport_conn base;
	struct rdma *t;
	struct transport_conn *tcp;
	struct rdma_end self, peer;
	atomic_bool is_shut;
	pthread_mutex_t pulling; /* held by pull */
	/* Under t->lock: */
	struct rdma_conn *next;
	struct rdma_link *pull; /* set and cleared by who holds pulling, or closes */
	struct rdma_link *served;
};

struct rdma_link {
	struct rdma *t;
	struct rdma_conn *conn;
	struct rdma_cm_id *id; /* its context is number */
	struct rdma_device *_Atomic dev; /* NULL: not known yet */
	bool is_served;

	/* Under t->lock, what events said: */
	uint64_t number; /* never used again: events of a link that is gone find nothing */
	struct rdma_link *next;
	int event; /* the last good one, enum rdma_cm_event_type; -1: none yet */
	uint8_t peer_device;
	atomic_int
		ended_rc; /* negative errno: why it is over; 0: it is not. Read without the lock */

	/* The asker's: */
	int wake_fd; /* eventfd: an event came, or the connection was shut down */
	uint8_t token[RDMA_TOKEN_BYTES];
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t n_events;	/* of channel, not acknowledged yet */
	uint32_t window, group; /* READs posted at most; every group-th tells of its completion */
	uint32_t read_bytes;	/* of one READ at most */
	uint32_t n_posted, n_done; /* READs since the beginning, modulo 2^32 */
	bool is_armed;		   /* the channel tells of the next completion */
	int64_t spin_ns;	   /* to poll before sleeping; what has paid lately */
	struct ibv_send_wr wrs[RDMA_WINDOW_MAX];
	struct ibv_sge sges[RDMA_WINDOW_MAX];
};

struct rdma_mr {
	struct rdma *t;
	void *addr;
	size_t len;
	struct ibv_mr *mrs[RDMA_DEVICES_MAX]; /* per device; NULL where there is none */
};

/* ---- rdma.c ---- */

const struct rdma_stats *rdma_get_stats(const struct transport *t);
/* A TCP connection becomes one of this provider, which closes it; also when this fails. */
int rdma_conn_create(struct rdma *t, struct transport_conn *tcp, struct transport_conn **out);

/* ---- rdma_device.c ---- */

bool rdma_has_device(void);
/* only: the one of that name; NULL: all. -ENODEV: none that can be used; logged. */
int rdma_devices_open(struct rdma *t, const char *only);
void rdma_devices_close(struct rdma *t);
/* NULL: none of those that were opened. */
struct rdma_device *rdma_device_find(struct rdma *t, const struct ibv_context *verbs);
/* Can peers reach that address, or any if it is 0.0.0.0 or ::, by a routable GID of one of the devices? Logs how, or why not. */
bool rdma_address_is_served(struct rdma *t, const char *address);
/* Of an IPv4 or IPv6 address. */
void rdma_end_of(const struct sockaddr *sa, struct rdma_end *out);
/* Of "HOST:PORT" in numbers. -EINVAL. */
int rdma_end_parse(const char *address, struct rdma_end *out);

/* ---- rdma_memory.c ---- */

int rdma_register_memory(struct transport *t, void *addr, size_t len, struct transport_mr **out);
void rdma_deregister(struct transport_mr *mr);
size_t rdma_key_of(struct transport_mr *mr, uint8_t key_out[TRANSPORT_KEY_BYTES]);

/* ---- rdma_cm.c ---- */

/* Starts and ends the thread of the event channel. -ENODEV: the kernel has no rdma_cm. */
int rdma_cm_start(struct rdma *t);
void rdma_cm_stop(struct rdma *t);

/* What was copied from an event before it was acknowledged. */
struct rdma_note {
	enum rdma_cm_event_type event;
	int status;
	uint64_t number;		 /* of the link or listener it is for */
	const struct ibv_context *verbs; /* of its device; NULL: none yet */
	struct rdma_cm_id *new_id;	 /* CONNECT_REQUEST: belongs to the handler */
	uint8_t responder_resources, initiator_depth;
	uint8_t len;
	uint8_t data[56]; /* private data, as much of it as is ever looked at */
};

/* A new link is in the list. is_served: without what only an asker needs. -ENOMEM, -EMFILE. */
int rdma_link_create(struct rdma *t, struct rdma_conn *c, bool is_served, struct rdma_link **out);
/* By the one who took it out of its connection: of the list, of the device, all of it. */
void rdma_link_destroy(struct rdma_link *k);
/* Takes the served link out of its connection; NULL if there is none. t->lock is held. */
struct rdma_link *rdma_take_served_locked(struct rdma_conn *c);

/* All links on a device end. */
void rdma_end_links(struct rdma *t, const struct rdma_device *d, int rc);

/* ---- rdma_async.c ---- */

/* Readable when a device has something to say. */
int rdma_async_open(struct rdma_device *d);
void rdma_async_take(struct rdma *t, struct rdma_device *d);

/* ---- rdma_listen.c ---- */

int rdma_listen_at(struct transport *t, const char *address, struct transport_listener **out,
		   char bound_out[TRANSPORT_ADDRESS_BYTES]);
int rdma_accept_conn(struct transport_listener *l, int64_t deadline_ns,
		     struct transport_conn **out);
void rdma_stop_listening(struct transport_listener *l);
void rdma_close_listener(struct transport_listener *l);
/* Where peers connect queue pairs to; 0: nowhere. */
uint16_t rdma_listening_port(struct rdma *t);

/* Handlers of the thread of rdma_cm. */
void rdma_on_connect_request(struct rdma *t, const struct rdma_note *n);
/* The device of a listener is removed. Was it a listener's number? */
bool rdma_on_listener_removal(struct rdma *t, const struct rdma_note *n);

/* ---- rdma_connect.c ---- */

/* The asker's link of a connection, made if need be. t->lock is not held, c->pulling is. Errors as of pull. */
int rdma_link_get(struct rdma_conn *c, const struct rdma_key *key, int64_t deadline_ns,
		  struct rdma_link **out);
/* Ends the asker's link, if there is one. */
void rdma_link_drop(struct rdma_conn *c);
/* Why an asker must not go on waiting: -ECANCELED, or why the link is over; 0: it may. */
int rdma_link_check(struct rdma_link *k);
/* Sleeps until an event, a completion (fd: the channel's, or -1), a shutdown or the end of the peer. -ETIMEDOUT. */
int rdma_link_sleep(struct rdma_link *k, int fd, int64_t deadline_ns);

/* ---- rdma_read.c ---- */

int rdma_pull(struct transport_conn *c, const uint8_t *key, size_t key_len, uint64_t off,
	      struct transport_mr *mr, void *dst, size_t len, int64_t deadline_ns);
/* After the queue pair went to its error state: takes what is left of its completions, for a bounded time. */
void rdma_drain(struct rdma_link *k);

/* ---- rdma_error.c ---- */

/* Of the call before, negative: never 0. */
static inline int rdma_last_errno(void)
{
	int err = errno;

	return err > 0 ? -err : -EIO;
}
int rdma_errno_of_wc(enum ibv_wc_status s);
/* Of the events that end an attempt to connect, or a link. */
int rdma_errno_of_event(const struct rdma_note *n);
/* errno of a call that made something, as a negative errno; logs what it was and which limit ENOMEM may mean. */
int rdma_failed(const struct rdma_device *d, const char *what, const char *limit, uint64_t value);

#endif
