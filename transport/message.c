/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

#include <errno.h>

#include "base/log.h"

int message_send(struct transport_conn *c, const struct wire_header *h, const void *payload, int64_t deadline_ns)
{
	uint8_t head[WIRE_HEADER_BYTES];
	struct iovec iov[] = { { head, sizeof(head) }, { (void *)payload, h->length } };

	wire_header_encode(h, head);
	return c->ops->send(c, iov, h->length ? 2 : 1, deadline_ns);
}

int message_recv_header(struct transport_conn *c, struct wire_header *out, int64_t deadline_ns)
{
	uint8_t head[WIRE_HEADER_BYTES];
	int rc = message_recv(c, head, sizeof(head), deadline_ns);

	if (rc)
		return rc;
	rc = wire_header_decode(head, out);
	if (rc)
		log_debug("peer %s: %s", c->ops->peer_name(c),
			  wire_is_other_version(head) ? "speaks another version" : "a message that is none");
	return rc;
}

int message_recv(struct transport_conn *c, void *buf, size_t len, int64_t deadline_ns)
{
	return len ? c->ops->recv(c, buf, len, deadline_ns) : 0;
}

/* ---- hello ---- */

static int hello_send(struct transport_conn *c, enum wire_type type, int status, const void *payload, size_t len,
		      int64_t deadline_ns)
{
	const struct wire_header h = { .type = (uint8_t)type, .length = (uint32_t)len, .status = status };

	return message_send(c, &h, payload, deadline_ns);
}

/* The message that is due, or its status. Its size is that of its type. */
static int hello_recv(struct transport_conn *c, enum wire_type type, uint8_t buf[WIRE_SMALL_BYTES],
		      int64_t deadline_ns)
{
	struct wire_header h;
	int rc = message_recv_header(c, &h, deadline_ns);

	if (rc)
		return rc;
	if (h.type != type)
		return -EPROTO;
	if (h.status)
		return h.status;
	return message_recv(c, buf, h.length, deadline_ns);
}

/* The connection ends anyway: whether the peer hears why is not waited for. */
static int refuse(struct transport_conn *c, enum wire_type type, int rc, int64_t deadline_ns)
{
	int sent = hello_send(c, type, rc, NULL, 0, deadline_ns);

	if (sent)
		log_debug("peer %s: cannot be told that it is refused: error %d", c->ops->peer_name(c), -sent);
	return rc;
}

int hello_ask(struct transport_conn *c, const struct auth *a, enum wire_role role, const struct peer_id *to,
	      int64_t deadline_ns)
{
	uint8_t buf[WIRE_SMALL_BYTES], mac[WIRE_MAC_BYTES];
	struct wire_welcome welcome;
	struct wire_hello hello;
	int rc = auth_begin(a, role, to, &hello);

	if (rc)
		return rc;
	ssize_t len = wire_hello_encode(&hello, buf);
	if (len < 0)
		return (int)len;
	rc = hello_send(c, WIRE_HELLO, 0, buf, (size_t)len, deadline_ns);
	if (!rc)
		rc = hello_recv(c, WIRE_WELCOME, buf, deadline_ns);
	if (!rc)
		rc = wire_welcome_decode(buf, WIRE_WELCOME_BYTES, &welcome);
	if (rc)
		return rc;
	rc = auth_check_welcome(a, &hello, &welcome);
	if (rc)
		return refuse(c, WIRE_PROOF, rc, deadline_ns);
	auth_prove(a, &hello, &welcome, mac);
	rc = hello_send(c, WIRE_PROOF, 0, mac, sizeof(mac), deadline_ns);
	return rc ? rc : hello_recv(c, WIRE_ACCEPT, buf, deadline_ns);
}

int hello_answer(struct transport_conn *c, const struct auth *a, struct wire_hello *out, int64_t deadline_ns)
{
	uint8_t buf[WIRE_SMALL_BYTES];
	struct wire_welcome welcome;
	struct wire_hello hello;
	int rc = hello_recv(c, WIRE_HELLO, buf, deadline_ns);

	if (!rc)
		rc = wire_hello_decode(buf, WIRE_HELLO_BYTES, &hello);
	if (!rc)
		rc = auth_answer(a, &hello, &welcome);
	if (rc)
		return rc == -ECONNRESET || rc == -ECANCELED ? rc : refuse(c, WIRE_WELCOME, rc, deadline_ns);
	ssize_t len = wire_welcome_encode(&welcome, buf);
	rc = hello_send(c, WIRE_WELCOME, 0, buf, (size_t)len, deadline_ns);
	if (!rc)
		rc = hello_recv(c, WIRE_PROOF, buf, deadline_ns);
	if (rc)
		return rc;
	rc = auth_check_proof(a, &hello, &welcome, buf);
	if (rc)
		return refuse(c, WIRE_ACCEPT, rc, deadline_ns);
	*out = hello;
	return 0;
}

int hello_accept(struct transport_conn *c, int status, int64_t deadline_ns)
{
	return status ? refuse(c, WIRE_ACCEPT, status, deadline_ns) :
			hello_send(c, WIRE_ACCEPT, 0, NULL, 0, deadline_ns);
}
