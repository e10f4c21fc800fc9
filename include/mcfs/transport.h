/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport: one way of moving bytes between nodes; the seam that a provider fills in.
 *
 * A provider gives connections: ordered, reliable streams of bytes between two nodes, on which the peer protocol
 * (peer.h) speaks. One that can read a peer's memory by itself (RDMA) also registers memory, gives out keys for it
 * and pulls by key; the others leave those operations NULL and bytes come over the connection.
 *
 *   loopback  both ends in one process, through memory; the reference, for tests
 *   tcp       sockets, IPv4 and IPv6
 *   rdma      tcp, and pull by RDMA READ; only where it is built in (MCFS_RDMA) and, at run time, a device is
 *
 * Addresses are "HOST:PORT", an IPv6 host in brackets (base/host_port.h).
 * Deadlines are CLOCK_MONOTONIC in nanoseconds; every call that may block has one.
 * Errors: negative errno. -ETIMEDOUT the deadline passed; -ECONNRESET the other end closed or failed;
 * -ECANCELED this end was shut down; -ECONNREFUSED, -EHOSTUNREACH, -EADDRINUSE, ... as the system said.
 * After an error other than a deadline's in accept a connection can only be closed: part of a message may be gone.
 * Thread safety: a connection has one sender and one receiver at a time; shutdown may come from any thread.
 */
#ifndef MCFS_TRANSPORT_H
#define MCFS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The longest "[HOST]:PORT" with its NUL. */
#define TRANSPORT_ADDRESS_BYTES 280
/* What a key for registered memory takes at most (RDMA: address, rkey, length). */
#define TRANSPORT_KEY_BYTES 64

struct transport;
struct transport_listener;
struct transport_conn;
struct transport_mr; /* registered memory */

struct transport_conf {
	uint32_t buffer_bytes; /* of a socket, each way; 0: the system's own tuning */
	const char *device;    /* the one to use, by its name, where there are several; NULL: whichever serve */
};

struct transport_ops {
	const char *name;
	/* Has this machine what the provider needs? NULL: any machine has. */
	bool (*is_available)(void);

	/* -ENODEV: what the provider needs is not on this machine (logged). */
	int (*create)(const struct transport_conf *conf, struct transport **out);
	/* After all its listeners, connections and registrations are closed. */
	void (*destroy)(struct transport *t);

	/* Port 0: any free one. bound_out gets the address with the port it has. -EADDRINUSE, -EADDRNOTAVAIL. */
	int (*listen)(struct transport *t, const char *address, struct transport_listener **out,
		      char bound_out[TRANSPORT_ADDRESS_BYTES]);
	/* -ETIMEDOUT: nobody came, call it again. -ECANCELED after stop_listening. */
	int (*accept)(struct transport_listener *l, int64_t deadline_ns, struct transport_conn **out);
	/* Wakes accept, from any thread; then close_listener by its owner. */
	void (*stop_listening)(struct transport_listener *l);
	void (*close_listener)(struct transport_listener *l);

	/* Tries every address that the host has until the deadline. -ENOENT: no such host. */
	int (*connect)(struct transport *t, const char *address, int64_t deadline_ns,
		       struct transport_conn **out);
	/* Who is at the other end, for messages; "" when not known. Valid as long as the connection. */
	const char *(*peer_name)(struct transport_conn *c);
	/* All of it. iov is used up (changed) by the call. */
	int (*send)(struct transport_conn *c, struct iovec *iov, int n, int64_t deadline_ns);
	/* head, then len bytes of a file from off, without a copy where the provider can. -EIO: the file is shorter. */
	int (*send_file)(struct transport_conn *c, const void *head, size_t head_len, int fd, uint64_t off,
			 size_t len, int64_t deadline_ns);
	/* Exactly len bytes. -ECONNRESET at the end of the stream. */
	int (*recv)(struct transport_conn *c, void *buf, size_t len, int64_t deadline_ns);
	/* Calls under way and later ones return -ECANCELED, the other end sees -ECONNRESET. From any thread. */
	void (*shutdown)(struct transport_conn *c);
	void (*close)(struct transport_conn *c);

	/*
	 * NULL together where peers cannot read memory by themselves. addr: host memory, page aligned, mapped for
	 * writing, that stays until deregister. Peers may read it who have its key; pull writes there. -ENOMEM: a limit
	 * is reached (logged with its name).
	 */
	int (*register_memory)(struct transport *t, void *addr, size_t len, struct transport_mr **out);
	void (*deregister)(struct transport_mr *mr);
	/* At most TRANSPORT_KEY_BYTES, for a peer. 0: none can pull it, its bytes go over the connection. */
	size_t (*key_of)(struct transport_mr *mr, uint8_t key_out[TRANSPORT_KEY_BYTES]);
	/*
	 * [off, off + len) of the memory behind a peer's key into [dst, dst + len), which lies in mr. One at a time per
	 * connection (-EBUSY), beside whoever sends and receives. After a failure dst has any bytes, and gets no more
	 * of them; the stream is as it was, and another pull may be tried.
	 * -EINVAL: no key, or a range outside of it or of mr; -EACCES: the key is not valid (any more); -EIO: the device.
	 */
	int (*pull)(struct transport_conn *c, const uint8_t *key, size_t key_len, uint64_t off,
		    struct transport_mr *mr, void *dst, size_t len, int64_t deadline_ns);
};

/* Every implementation embeds these first. */
struct transport {
	const struct transport_ops *ops;
};
struct transport_listener {
	const struct transport_ops *ops;
};
struct transport_conn {
	const struct transport_ops *ops;
};

extern const struct transport_ops transport_loopback, transport_tcp;
#ifdef MCFS_RDMA
extern const struct transport_ops transport_rdma;
#endif

/* By its name; NULL: there is none of that name. */
const struct transport_ops *transport_find(const char *name);

#endif
