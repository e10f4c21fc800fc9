/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: who is at the other end; the beginning of each connection.
 *
 *   asker                                  holder
 *   HELLO    role, ids, cluster, nonce A ->
 *                                       <- WELCOME  id, nonce B, HMAC(key, "holder" + all of this)
 *   PROOF    HMAC(key, "asker" + all)   ->
 *                                       <- ACCEPT
 *
 * Each HMAC-SHA256 covers protocol version, role, both ids, the cluster and both nonces: what was recorded on another
 * connection, or comes back from the own one, does not fit. Without a key the HMACs are zeros, and both ends must be
 * without; the holder then listens on a loopback address alone.
 * Errors: -EACCES the key or the cluster is another; -ESTALE the holder is not who was asked for; -EIO: no randomness.
 * Thread safe: an auth does not change.
 */
#ifndef TRANSPORT_AUTH_H
#define TRANSPORT_AUTH_H

#include "wire.h"

struct auth {
	const uint8_t *key; /* PEER_KEY_BYTES; NULL: none */
	struct peer_id self;
	char cluster[WIRE_CLUSTER_BYTES]; /* padded with zeros */
};

/* Asker. */
int auth_begin(const struct auth *a, enum wire_role role, const struct peer_id *to, struct wire_hello *out);
int auth_check_welcome(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w);
void auth_prove(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w,
		uint8_t mac_out[WIRE_MAC_BYTES]);

/* Holder. */
int auth_answer(const struct auth *a, const struct wire_hello *h, struct wire_welcome *out);
int auth_check_proof(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w,
		     const uint8_t mac[WIRE_MAC_BYTES]);

#endif
