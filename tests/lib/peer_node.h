/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_node: an endpoint with objects to give, for tests of the peer protocol.
 *
 * An object is a memfd. "/dir/absent" is not there. A grant counts until RELEASE or the end of its connection.
 * What else a handler does is set in the fields, at any time. Failed assertions abort, as in all of tests/lib.
 */
#ifndef MCFS_TESTS_PEER_NODE_H
#define MCFS_TESTS_PEER_NODE_H

#include <pthread.h>
#include <stdatomic.h>

#include "mcfs/peer.h"

#define PEER_NODE_MAX_GRANTS 256

struct peer_node {
	struct peer_endpoint *e;
	struct peer_id id;
	int fd; /* the object */
	uint64_t size, version;
	uint32_t n_crc, *crc;
	uint8_t *bytes; /* its content */
	struct transport_mr *mr; /* lock; of it, with a key for who wants one; NULL: none */

	atomic_bool gives_crc, pieces_have_crc;
	atomic_bool knows_crc;	 /* of whole pieces, without computing it */
	atomic_uint piece_bytes; /* the most of one piece; 0: PEER_CHUNK_BYTES */
	atomic_int grant_rc, read_rc, invalidate_rc;
	atomic_int grant_ms, read_ms, invalidate_ms; /* a handler's time */
	_Atomic uint64_t stall_off;		     /* READ from here on takes stall_ms; 0: none */
	atomic_int stall_ms;
	_Atomic int64_t corrupt_off; /* the byte that goes out wrong; -1: none */

	uint32_t ttl_ms;
	atomic_int n_granted, n_grants, n_releases, n_gone, n_reads, n_invalidations, n_names, n_pieces, n_done,
		n_running;
	pthread_mutex_t lock; /* guards the rest */
	char last_dir[PEER_PATH_MAX + 1], last_name[PEER_NAME_MAX + 1];
	struct peer_id last_from;
};

/* What a test may want otherwise; zeros: a node of the cluster "test" without a key on 127.0.0.1:0. */
struct peer_node_conf {
	const struct transport_ops *transport;
	uint64_t node, incarnation; /* 0: 1 and 1 */
	const char *listen, *cluster;
	const uint8_t *key;
	uint32_t n_lanes, ping_ms, max_connections;
	uint32_t ttl_ms; /* of grants; 0: 10000 */
	uint64_t size;
	bool gives_keys; /* where the transport reads memory by itself */
};

/* 0 or what peer_endpoint_create returned. */
int peer_node_open(struct peer_node *n, const struct peer_node_conf *conf);
/* Also after its endpoint was destroyed and set to NULL. */
void peer_node_close(struct peer_node *n);
/* Its object can be read by who is given a key from now on, or by nobody. */
void peer_node_register(struct peer_node *n);
void peer_node_deregister(struct peer_node *n);
/* The other node as this one sees it. */
struct peer *peer_node_meet(struct peer_node *n, const struct peer_node *other);

#endif
