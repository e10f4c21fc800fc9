/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/transport_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "auth.h"
#include "lib/peer_node.h"
#include "message.h"

static const uint8_t key_a[PEER_KEY_BYTES] = "the key of the cluster is 32 by", key_b[PEER_KEY_BYTES] = "another";

/* ---- the handshake as such ---- */

static struct auth make_auth(uint64_t node, const uint8_t *key, const char *cluster)
{
	struct auth a = { .key = key, .self = { node, 1 } };

	strcpy(a.cluster, cluster);
	return a;
}

/* 0, or what the first step that failed returned, in *step_out. */
static int shake(const struct auth *asker, const struct auth *holder, const struct peer_id *to, int *step_out)
{
	uint8_t mac[WIRE_MAC_BYTES];
	struct wire_welcome w;
	struct wire_hello h;
	int rc;

	*step_out = 0;
	cr_assert_eq(auth_begin(asker, WIRE_CONTROL, to, &h), 0);
	if ((rc = auth_answer(holder, &h, &w)))
		return rc;
	*step_out = 1;
	if ((rc = auth_check_welcome(asker, &h, &w)))
		return rc;
	*step_out = 2;
	auth_prove(asker, &h, &w, mac);
	return auth_check_proof(holder, &h, &w, mac);
}

Test(auth, agrees_on_key_cluster_and_names)
{
	const struct auth a = make_auth(1, key_a, "c"), b = make_auth(2, key_a, "c");
	const struct auth other_key = make_auth(2, key_b, "c"), no_key = make_auth(2, NULL, "c");
	const struct auth other_cluster = make_auth(2, key_a, "d"), also_no_key = make_auth(1, NULL, "c");
	const struct peer_id other_incarnation = { 2, 2 };
	int step;

	cr_assert_eq(shake(&a, &b, &b.self, &step), 0);
	cr_assert_eq(shake(&also_no_key, &no_key, &no_key.self, &step), 0);
	cr_assert_eq(shake(&a, &other_key, &other_key.self, &step), -EACCES);
	cr_assert_eq(step, 1, "the one that asked notices");
	cr_assert_eq(shake(&a, &no_key, &no_key.self, &step), -EACCES);
	cr_assert_eq(shake(&no_key, &a, &a.self, &step), -EACCES);
	cr_assert_eq(shake(&a, &other_cluster, &b.self, &step), -EACCES);
	cr_assert_eq(shake(&a, &b, &other_incarnation, &step), -ESTALE);
	cr_assert_eq(step, 0, "the holder notices");
}

/* Where no HMAC tells. */
Test(auth, another_name_in_the_answer_is_noticed)
{
	const struct auth a = make_auth(1, NULL, "c"), b = make_auth(2, NULL, "c");
	struct wire_welcome w;
	struct wire_hello h;

	cr_assert_eq(auth_begin(&a, WIRE_LANE, &b.self, &h), 0);
	cr_assert_eq(auth_answer(&b, &h, &w), 0);
	w.id.incarnation++;
	cr_assert_eq(auth_check_welcome(&a, &h, &w), -ESTALE);
}

/* Each field that an HMAC covers, changed by somebody in between. */
Test(auth, changes_on_the_way_are_noticed)
{
	const struct auth a = make_auth(1, key_a, "c"), b = make_auth(2, key_a, "c");
	uint8_t mac[WIRE_MAC_BYTES];
	struct wire_welcome w, seen;
	struct wire_hello h, sent;

	cr_assert_eq(auth_begin(&a, WIRE_LANE, &b.self, &h), 0);
	for (int k = 0; k < 5; k++) {
		sent = h;
		if (k == 0)
			sent.role = WIRE_CONTROL;
		else if (k == 1)
			sent.from.node++;
		else if (k == 2)
			sent.from.incarnation++;
		else if (k == 3)
			sent.nonce[0]++;
		cr_assert_eq(auth_answer(&b, &sent, &w), 0);
		seen = w;
		if (k == 4)
			seen.nonce[31]++;
		cr_expect_eq(auth_check_welcome(&a, &h, &seen), -EACCES, "%d", k);
		auth_prove(&a, &h, &seen, mac);
		cr_expect_eq(auth_check_proof(&b, &sent, &w, mac), -EACCES, "%d", k);
	}
	seen.has_key = false;
	memset(seen.mac, 0, sizeof(seen.mac));
	cr_expect_eq(auth_check_welcome(&a, &h, &seen), -EACCES, "no way down to no key");
}

Test(auth, what_was_recorded_or_comes_back_does_not_fit)
{
	const struct auth a = make_auth(1, key_a, "c"), b = make_auth(2, key_a, "c");
	uint8_t mac[WIRE_MAC_BYTES], reflected[WIRE_MAC_BYTES];
	struct wire_welcome w, again;
	struct wire_hello h;

	cr_assert_eq(auth_begin(&a, WIRE_LANE, &b.self, &h), 0);
	cr_assert_eq(auth_answer(&b, &h, &w), 0);
	auth_prove(&a, &h, &w, mac);
	cr_assert_eq(auth_check_proof(&b, &h, &w, mac), 0);
	cr_assert_eq(auth_answer(&b, &h, &again), 0);
	cr_assert_neq(memcmp(w.nonce, again.nonce, sizeof(w.nonce)), 0);
	cr_assert_eq(auth_check_proof(&b, &h, &again, mac), -EACCES, "replayed");
	memcpy(reflected, w.mac, sizeof(reflected));
	cr_assert_eq(auth_check_proof(&b, &h, &w, reflected), -EACCES, "the holder's own HMAC");
}

/* ---- strangers at an endpoint ---- */

struct door {
	struct peer_node n;
	struct transport *t;
	struct transport_conn *c;
};

static void open_door(struct door *d, const struct transport_ops *ops)
{
	const struct peer_node_conf conf = {
		.transport = ops, .key = key_a, .node = 2, .ping_ms = 500, .size = 10
	};

	cr_assert_eq(peer_node_open(&d->n, &conf), 0);
	cr_assert_eq(ops->create(NULL, &d->t), 0);
	cr_assert_eq(ops->connect(d->t, peer_endpoint_address(d->n.e), SOON, &d->c), 0);
}

static void close_door(struct door *d, uint64_t n_refused)
{
	const struct transport_ops *ops = d->t->ops;
	struct peer_endpoint_stats s;

	for (int k = 0; k < 500; k++) {
		peer_endpoint_get_stats(d->n.e, &s);
		if (!s.n_accepted)
			break;
		usleep(10000);
	}
	cr_assert_eq(s.n_accepted, 0);
	cr_assert_eq(s.n_refused, n_refused);
	ops->close(d->c);
	ops->destroy(d->t);
	peer_node_close(&d->n);
}

static int send_bytes(struct door *d, const void *bytes, size_t len)
{
	struct iovec v = { (void *)bytes, len };

	return d->c->ops->send(d->c, &v, 1, SOON);
}

/* The connection ends, after at most one answer. */
static int read_to_end(struct door *d)
{
	uint8_t byte;
	int rc;

	while (!(rc = d->c->ops->recv(d->c, &byte, 1, SOON)))
		;
	return rc;
}

EACH_TRANSPORT(peer_hello, garbage_ends_the_connection)
{
	uint8_t garbage[WIRE_HEADER_BYTES + 1000];
	struct door d;

	memset(garbage, 'x', sizeof(garbage));
	open_door(&d, ops);
	cr_assert_eq(send_bytes(&d, garbage, sizeof(garbage)), 0);
	cr_assert_eq(read_to_end(&d), -ECONNRESET);
	close_door(&d, 1);
}

EACH_TRANSPORT(peer_hello, silence_ends_the_connection)
{
	struct door d;

	open_door(&d, ops);
	cr_assert_eq(send_bytes(&d, "MCP1", 4), 0);
	int64_t begin = clock_now_ns();
	cr_assert_eq(read_to_end(&d), -ECONNRESET);
	cr_assert_lt(clock_now_ns() - begin, 3 * NS_PER_S);
	close_door(&d, 1);
}

EACH_TRANSPORT(peer_hello, requests_before_it_are_refused)
{
	const struct wire_header h = { .type = WIRE_PING, .seq = 1 };
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct door d;

	open_door(&d, ops);
	wire_header_encode(&h, bytes);
	cr_assert_eq(send_bytes(&d, bytes, sizeof(bytes)), 0);
	cr_assert_eq(read_to_end(&d), -ECONNRESET);
	close_door(&d, 1);
}

EACH_TRANSPORT(peer_hello, another_version_is_told_so)
{
	struct wire_header h = { .type = WIRE_HELLO, .length = WIRE_HELLO_BYTES };
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct door d;

	open_door(&d, ops);
	wire_header_encode(&h, bytes);
	bytes[4] = PEER_PROTOCOL + 1;
	cr_assert_eq(send_bytes(&d, bytes, sizeof(bytes)), 0);
	cr_assert_eq(message_recv_header(d.c, &h, SOON), 0);
	cr_assert_eq(h.type, WIRE_WELCOME);
	cr_assert_eq(h.status, -EPROTO);
	cr_assert_eq(read_to_end(&d), -ECONNRESET);
	close_door(&d, 1);
}

/* HELLO and PROOF of a conversation that somebody recorded. */
EACH_TRANSPORT(peer_hello, a_recorded_one_is_refused)
{
	const struct auth a = make_auth(1, key_a, "test");
	struct wire_header h = { .type = WIRE_HELLO, .length = WIRE_HELLO_BYTES };
	uint8_t hello_bytes[WIRE_SMALL_BYTES], welcome_bytes[WIRE_SMALL_BYTES], mac[WIRE_MAC_BYTES];
	struct wire_welcome welcome;
	struct wire_hello hello;
	struct door d;

	open_door(&d, ops);
	cr_assert_eq(auth_begin(&a, WIRE_CONTROL, &d.n.id, &hello), 0);
	cr_assert_gt(wire_hello_encode(&hello, hello_bytes), 0);
	for (int round = 0; round < 2; round++) {
		if (round) {
			ops->close(d.c);
			cr_assert_eq(ops->connect(d.t, peer_endpoint_address(d.n.e), SOON, &d.c), 0);
		}
		h = (struct wire_header){ .type = WIRE_HELLO, .length = WIRE_HELLO_BYTES };
		cr_assert_eq(message_send(d.c, &h, hello_bytes, SOON), 0);
		cr_assert_eq(message_recv_header(d.c, &h, SOON), 0);
		cr_assert_eq(h.status, 0);
		cr_assert_eq(message_recv(d.c, welcome_bytes, WIRE_WELCOME_BYTES, SOON), 0);
		if (!round) {
			cr_assert_eq(wire_welcome_decode(welcome_bytes, WIRE_WELCOME_BYTES, &welcome), 0);
			auth_prove(&a, &hello, &welcome, mac);
		}
		h = (struct wire_header){ .type = WIRE_PROOF, .length = WIRE_MAC_BYTES };
		cr_assert_eq(message_send(d.c, &h, mac, SOON), 0);
		cr_assert_eq(message_recv_header(d.c, &h, SOON), 0);
		cr_assert_eq(h.type, WIRE_ACCEPT);
		cr_assert_eq(h.status, round ? -EACCES : 0);
	}
	close_door(&d, 1);
}

static void greet(struct door *d, enum wire_role role)
{
	const struct auth a = make_auth(1, key_a, "test");

	cr_assert_eq(hello_ask(d->c, &a, role, &d->n.id, SOON), 0);
}

/* What may be asked depends on the role, and has a form. */
EACH_TRANSPORT(peer_hello, nonsense_after_it_ends_the_connection)
{
	static const struct {
		enum wire_role role;
		struct wire_header h;
	} rows[] = {
		{ WIRE_LANE, { .type = WIRE_GRANT, .length = 40 } },
		{ WIRE_PULSE, { .type = WIRE_READ, .length = 24 } },
		{ WIRE_LANE, { .type = WIRE_RELEASE, .length = 8 } },
		{ WIRE_CONTROL, { .type = WIRE_INVALIDATE, .length = 40 } },
		{ WIRE_CONTROL, { .type = WIRE_HELLO, .length = WIRE_HELLO_BYTES } },
		{ WIRE_CONTROL, { .type = WIRE_GRANT, .length = 40 } },
		{ WIRE_NOTIFY, { .type = WIRE_INVALIDATE, .length = 40 } },
		{ WIRE_LANE, { .type = WIRE_READ, .length = 24 } },
		{ WIRE_PULSE, { .type = WIRE_PING, .status = -EIO } },
	};
	uint8_t zeros[WIRE_SMALL_BYTES] = { 0 };

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct door d;
		open_door(&d, ops);
		greet(&d, rows[k].role);
		int rc = message_send(d.c, &rows[k].h, zeros, SOON);
		cr_assert(!rc || rc == -ECONNRESET, "%zu: the header alone may be enough", k);
		cr_assert_eq(read_to_end(&d), -ECONNRESET, "%zu", k);
		cr_assert_eq(d.n.n_reads + d.n.n_granted + d.n.n_invalidations, 0);
		cr_assert_eq(d.n.n_gone, rows[k].role == WIRE_CONTROL);
		close_door(&d, 0);
	}
}

/* A peer that connects anew before its old connection was missed: the old one's grants go first. */
EACH_TRANSPORT(peer_hello, a_new_control_connection_replaces_the_old_one)
{
	struct transport_conn *old;
	uint8_t byte;
	struct door d;

	open_door(&d, ops);
	greet(&d, WIRE_CONTROL);
	old = d.c;
	cr_assert_eq(ops->connect(d.t, peer_endpoint_address(d.n.e), SOON, &d.c), 0);
	greet(&d, WIRE_CONTROL);
	cr_assert_eq(ops->recv(old, &byte, 1, SOON), -ECONNRESET);
	for (int k = 0; k < 500 && d.n.n_gone != 1; k++)
		usleep(10000);
	cr_assert_eq(d.n.n_gone, 1);
	ops->close(old);
	ops->shutdown(d.c);
	close_door(&d, 0);
}

/* ---- key files ---- */

static int key_from(const char *text, mode_t mode, uint8_t out[PEER_KEY_BYTES])
{
	char path[] = "/tmp/mcfs-key.XXXXXX";
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
	int rc = peer_key_read(path, out);
	unlink(path);
	return rc;
}

#define DIGITS "00112233445566778899aabbccddeeff0123456789ABCDEF0123456789abcdef"

Test(peer_key, is_64_hexadecimal_digits)
{
	uint8_t key[PEER_KEY_BYTES] = { 0 };

	cr_assert_eq(key_from(DIGITS "\n", 0600, key), 0);
	cr_assert_eq(key[1], 0x11);
	cr_assert_eq(key[31], 0xef);
	cr_assert_eq(key_from("\n \t" DIGITS "  \r\n", 0400, key), 0);
	cr_assert_eq(key_from("", 0600, key), -EINVAL);
	cr_assert_eq(key_from(DIGITS "0", 0600, key), -EINVAL);
	cr_assert_eq(key_from(&DIGITS[1], 0600, key), -EINVAL);
	cr_assert_eq(key_from("x" DIGITS, 0600, key), -EINVAL);
	cr_assert_eq(key_from(" g0112233445566778899aabbccddeeff0123456789ABCDEF0123456789abcdef", 0600, key),
		     -EINVAL);
}

Test(peer_key, is_its_owners_alone)
{
	uint8_t key[PEER_KEY_BYTES] = { 7 };

	cr_assert_eq(key_from(DIGITS, 0640, key), -EACCES);
	cr_assert_eq(key_from(DIGITS, 0604, key), -EACCES);
	cr_assert_eq(key[0], 7);
	cr_assert_eq(peer_key_read("/nonexistent/key", key), -ENOENT);
	cr_assert_eq(peer_key_read("/tmp", key), -EINVAL);
}
