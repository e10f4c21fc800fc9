/* SPDX-License-Identifier: Apache-2.0 */
/* message: the messages of wire.h over a connection, and the HELLO that a connection begins with. Errors: as peer.h. */
#ifndef TRANSPORT_MESSAGE_H
#define TRANSPORT_MESSAGE_H

#include "auth.h"
#include "wire.h"

/* h.length is that of the payload. */
int message_send(struct transport_conn *c, const struct wire_header *h, const void *payload, int64_t deadline_ns);
/* The payload is the caller's to receive. -EPROTO: nonsense, or another version (logged). */
int message_recv_header(struct transport_conn *c, struct wire_header *out, int64_t deadline_ns);
int message_recv(struct transport_conn *c, void *buf, size_t len, int64_t deadline_ns);

/* The end that connected. */
int hello_ask(struct transport_conn *c, const struct auth *a, enum wire_role role, const struct peer_id *to,
	      int64_t deadline_ns);
/* The other one: until it is clear who is there. A refusal is told to the peer. */
int hello_answer(struct transport_conn *c, const struct auth *a, struct wire_hello *out, int64_t deadline_ns);
/* Its last step. status: 0, or why not, which is then returned. */
int hello_accept(struct transport_conn *c, int status, int64_t deadline_ns);

#endif
