/* SPDX-License-Identifier: Apache-2.0 */
/* A holder that has the key and does not keep to the protocol: what it says is checked, and its silence is bounded. */
#include "lib/transport_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "lib/peer_node.h"
#include "message.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define MAX_CONNECTIONS 32

static const uint8_t key[PEER_KEY_BYTES] = "the key of the cluster is 32 by";

/* ---- fixture ---- */

enum manner {
	HONEST,	       /* answers PING and GRANT; READ too */
	SILENT,	       /* nothing after HELLO */
	SILENT_READ,   /* READ alone is not answered */
	STALE_PONG,    /* an answer to what was not asked */
	WRONG_TYPE,    /* PONG to GRANT */
	WRONG_VERSION, /* of the grant */
	CHUNK_AHEAD,   /* chunks elsewhere than asked */
	CHUNK_BEFORE,
	CHUNK_BEYOND, /* more than asked */
	CHUNK_LIES,   /* its length is not the message's */
	CHUNK_ENDS,   /* the connection ends in the middle of it */
	NOT_A_CHUNK,
	NO_MAGIC,
};

struct rogue {
	struct auth auth;
	struct transport *t;
	struct transport_listener *l;
	char address[TRANSPORT_ADDRESS_BYTES];
	pthread_t listener, threads[MAX_CONNECTIONS];
	int n_threads;
	atomic_int manner;
	pthread_mutex_t lock; /* guards conns */
	struct transport_conn *conns[MAX_CONNECTIONS];
	struct peer_node asker;
	struct peer *p;
};

struct visit {
	struct rogue *r;
	int k;
};

static int say(struct transport_conn *c, const struct wire_header *asked, uint8_t type, const void *payload,
	       size_t len)
{
	const struct wire_header h = { .type = type, .length = (uint32_t)len, .seq = asked->seq };

	return message_send(c, &h, payload, SOON);
}

static int answer_grant(struct rogue *r, struct transport_conn *c, const struct wire_header *h,
			const uint8_t *payload)
{
	const struct peer_grant g = { .grant = 1, .version = r->manner == WRONG_VERSION ? 8 : 7, .size = MIB(4) };
	uint8_t buf[WIRE_SMALL_BYTES];
	ssize_t len = wire_granted_encode(&g, buf, sizeof(buf));

	if (r->manner == WRONG_TYPE) {
		wire_u32_encode(0, buf);
		return say(c, h, WIRE_PONG, buf, 4);
	}
	return say(c, h, WIRE_GRANTED, buf, (size_t)len);
}

static int answer_read(struct rogue *r, struct transport_conn *c, const struct wire_header *h,
		       const uint8_t *payload)
{
	static const uint8_t zeros[4096];
	uint8_t buf[WIRE_HEADER_BYTES + WIRE_SMALL_BYTES];
	struct wire_header head = { .type = WIRE_CHUNK, .seq = h->seq };
	struct wire_chunk chunk = { .crc = crc32c(0, zeros, 1000), .len = 1000 };
	struct wire_read ask;

	cr_assert_eq(wire_read_decode(payload, h->length, &ask), 0);
	chunk.off = ask.off;
	if (r->manner == CHUNK_AHEAD)
		chunk.off = ask.off + 1;
	else if (r->manner == CHUNK_BEFORE)
		chunk.off = ask.off - 1;
	else if (r->manner == CHUNK_BEYOND)
		chunk.len = ask.len + 1;
	head.length = WIRE_CHUNK_BYTES + chunk.len + (r->manner == CHUNK_LIES);
	if (r->manner == NOT_A_CHUNK)
		head = (struct wire_header){ .type = WIRE_INVALIDATED, .seq = h->seq };
	wire_header_encode(&head, buf);
	if (r->manner == NO_MAGIC)
		memset(buf, 'x', 4);
	cr_assert_gt(wire_chunk_encode(&chunk, buf + WIRE_HEADER_BYTES), 0);
	struct iovec v[] = { { buf, WIRE_HEADER_BYTES + WIRE_CHUNK_BYTES },
			     { (void *)zeros, r->manner == CHUNK_ENDS ? 500 : chunk.len } };
	int rc = c->ops->send(c, v, 2, SOON);
	return rc ? rc : r->manner == CHUNK_ENDS ? -EPIPE : 0;
}

static int answer(struct rogue *r, struct transport_conn *c)
{
	uint8_t payload[WIRE_ASK_BYTES], buf[WIRE_SMALL_BYTES];
	struct wire_header h;
	int rc = message_recv_header(c, &h, SOON);

	if (!rc)
		rc = message_recv(c, payload, h.length, SOON);
	if (rc || r->manner == SILENT)
		return rc;
	switch (h.type) {
	case WIRE_PING:
		if (r->manner == STALE_PONG)
			h.seq += 1000;
		return say(c, &h, WIRE_PONG, buf, (size_t)wire_u32_encode(5, buf));
	case WIRE_GRANT:
		return answer_grant(r, c, &h, payload);
	case WIRE_READ:
		return r->manner == SILENT_READ ? 0 : answer_read(r, c, &h, payload);
	default:
		return 0;
	}
}

static void *run_visit(void *arg)
{
	struct visit *v = arg;
	struct rogue *r = v->r;
	struct transport_conn *c = r->conns[v->k];
	struct wire_hello hello;
	int rc = hello_answer(c, &r->auth, &hello, SOON);

	if (!rc)
		rc = hello_accept(c, 0, SOON);
	while (!rc)
		rc = answer(r, c);
	pthread_mutex_lock(&r->lock);
	r->conns[v->k] = NULL;
	pthread_mutex_unlock(&r->lock);
	c->ops->close(c);
	free(v);
	return NULL;
}

static void *run_listener(void *arg)
{
	struct rogue *r = arg;
	struct transport_conn *c;

	while (!r->l->ops->accept(r->l, deadline_in_ms(100000), &c)) {
		struct visit *v = malloc(sizeof(*v));
		*v = (struct visit){ r, r->n_threads };
		cr_assert_lt(r->n_threads, MAX_CONNECTIONS);
		r->conns[v->k] = c;
		pthread_create(&r->threads[r->n_threads++], NULL, run_visit, v);
	}
	return NULL;
}

static void open_rogue(struct rogue *r, const struct transport_ops *ops, enum manner manner, uint32_t ping_ms)
{
	const struct peer_node_conf conf = { .transport = ops, .key = key, .node = 1, .ping_ms = ping_ms };

	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	r->manner = manner;
	r->auth = (struct auth){ .key = key, .self = { 2, 1 }, .cluster = "test" };
	cr_assert_eq(ops->create(NULL, &r->t), 0);
	cr_assert_eq(ops->listen(r->t, "127.0.0.1:0", &r->l, r->address), 0);
	pthread_create(&r->listener, NULL, run_listener, r);
	cr_assert_eq(peer_node_open(&r->asker, &conf), 0);
	r->p = peer_get(r->asker.e, &r->auth.self, "rogue", r->address);
}

static void close_rogue(struct rogue *r)
{
	const struct transport_ops *ops = r->t->ops;

	peer_put(r->p);
	peer_node_close(&r->asker);
	ops->stop_listening(r->l);
	pthread_join(r->listener, NULL);
	pthread_mutex_lock(&r->lock);
	for (int k = 0; k < r->n_threads; k++)
		if (r->conns[k])
			ops->shutdown(r->conns[k]);
	pthread_mutex_unlock(&r->lock);
	for (int k = 0; k < r->n_threads; k++)
		pthread_join(r->threads[k], NULL);
	ops->close_listener(r->l);
	ops->destroy(r->t);
}

static struct peer_grant some_grant = { .grant = 1, .version = 7, .size = MIB(4) };

/* ---- silence ---- */

static int took_ms(int64_t begin)
{
	return (int)((clock_now_ns() - begin) / NS_PER_MS);
}

EACH_TRANSPORT(peer_rogue, a_process_that_stands_still_costs_two_pings)
{
	struct peer_grant g;
	struct rogue r;

	open_rogue(&r, ops, HONEST, 300);
	cr_assert_eq(peer_ping(r.p, SOON), 0);
	r.manner = SILENT;
	int64_t begin = clock_now_ns();
	cr_assert_eq(peer_ask_grant(r.p, 0, "/", "a", &g, SOON), -ETIMEDOUT);
	cr_assert_lt(took_ms(begin), 1500, "%d ms", took_ms(begin));
	cr_assert_eq(peer_ask_grant(r.p, 0, "/", "a", &g, SOON), -EHOSTDOWN);
	close_rogue(&r);
}

EACH_TRANSPORT(peer_rogue, a_READ_under_way_ends_when_the_process_stands_still)
{
	uint8_t *buf = malloc(MIB(1));
	struct rogue r;
	size_t n;

	open_rogue(&r, ops, SILENT_READ, 300);
	cr_assert_eq(peer_ping(r.p, SOON), 0);
	r.manner = SILENT;
	int64_t begin = clock_now_ns();
	cr_assert_eq(peer_read(r.p, &some_grant, 0, MIB(1), buf, NULL, NULL, NULL, &n, SOON), -ETIMEDOUT);
	cr_assert_lt(took_ms(begin), 1500, "%d ms", took_ms(begin));
	cr_assert_eq(n, 0);
	free(buf);
	close_rogue(&r);
}

/* The pulse is there: only the deadline ends it. */
EACH_TRANSPORT(peer_rogue, a_READ_that_is_not_answered_costs_its_deadline)
{
	uint8_t byte;
	struct rogue r;

	open_rogue(&r, ops, SILENT_READ, 100);
	int64_t begin = clock_now_ns();
	cr_assert_eq(peer_read(r.p, &some_grant, 0, 1, &byte, NULL, NULL, NULL, NULL, deadline_in_ms(700)), -ETIMEDOUT);
	cr_assert_geq(took_ms(begin), 690);
	cr_assert_lt(took_ms(begin), 3000);
	close_rogue(&r);
}

/* ---- lanes that the holder closes ---- */

static void close_last_lane(struct rogue *r)
{
	pthread_mutex_lock(&r->lock);
	r->conns[r->n_threads - 1]->ops->shutdown(r->conns[r->n_threads - 1]);
	pthread_mutex_unlock(&r->lock);
}

EACH_TRANSPORT(peer_rogue, a_lane_that_was_closed_while_it_idled_costs_nothing)
{
	uint8_t buf[1000];
	struct rogue r;

	open_rogue(&r, ops, HONEST, 10000);
	cr_assert_eq(peer_read(r.p, &some_grant, 0, 1000, buf, NULL, NULL, NULL, NULL, SOON), 0);
	cr_assert_eq(r.n_threads, 2);
	close_last_lane(&r);
	usleep(50000);
	cr_assert_eq(peer_read(r.p, &some_grant, 0, 1000, buf, NULL, NULL, NULL, NULL, SOON), 0);
	cr_assert_eq(r.n_threads, 3, "one more connection");
	cr_assert(peer_is_usable(r.p));
	close_rogue(&r);
}

/* ---- nonsense ---- */

EACH_TRANSPORT(peer_rogue, answers_that_are_none_end_the_connections)
{
	static const enum manner manners[] = { STALE_PONG, WRONG_TYPE, WRONG_VERSION };

	for (size_t k = 0; k < sizeof(manners) / sizeof(*manners); k++) {
		struct peer_grant g = { .grant = 5 };
		struct rogue r;
		open_rogue(&r, ops, manners[k], 10000);
		int rc = manners[k] == STALE_PONG ? peer_ping(r.p, SOON) :
						    peer_ask_grant(r.p, 7, "/", "a", &g, SOON);
		cr_expect_eq(rc, -EPROTO, "%zu: %d", k, rc);
		cr_expect_eq(g.grant, 5);
		cr_expect_not(peer_is_usable(r.p));
		close_rogue(&r);
	}
}

EACH_TRANSPORT(peer_rogue, chunks_that_were_not_asked_for_go_nowhere)
{
	static const enum manner manners[] = { CHUNK_AHEAD, CHUNK_BEFORE, CHUNK_BEYOND, CHUNK_LIES,
					       NOT_A_CHUNK, NO_MAGIC,	  CHUNK_ENDS };

	for (size_t k = 0; k < sizeof(manners) / sizeof(*manners); k++) {
		uint8_t buf[3000];
		struct rogue r;
		size_t n = 9;
		memset(buf, 0xa5, sizeof(buf));
		open_rogue(&r, ops, manners[k], 10000);
		int rc = peer_read(r.p, &some_grant, 5000, 1000, buf + 1000, NULL, NULL, NULL, &n, SOON);
		cr_expect_eq(rc, manners[k] == CHUNK_ENDS ? -ECONNRESET : -EPROTO, "%zu: %d", k, rc);
		cr_expect_eq(n, 0);
		for (size_t j = 0; j < 1000; j++)
			cr_assert(buf[j] == 0xa5 && buf[2000 + j] == 0xa5, "%zu: written outside", k);
		cr_expect_not(peer_is_usable(r.p));
		close_rogue(&r);
	}
}

EACH_TRANSPORT(peer_rogue, the_fixture_can_be_honest)
{
	uint8_t buf[1000];
	struct peer_grant g;
	struct rogue r;

	open_rogue(&r, ops, HONEST, 10000);
	cr_assert_eq(peer_ask_grant(r.p, 7, "/", "a", &g, SOON), 0);
	cr_assert_eq(peer_read(r.p, &g, 5000, 1000, buf, NULL, NULL, NULL, NULL, SOON), 0);
	cr_assert_eq(buf[999], 0);
	close_rogue(&r);
}
