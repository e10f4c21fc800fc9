/* SPDX-License-Identifier: Apache-2.0 */
/* peer_fixture: one node that asks and one that holds, for tests of what they say. Included by one file per program. */
#ifndef MCFS_TESTS_PEER_FIXTURE_H
#define MCFS_TESTS_PEER_FIXTURE_H

#include "lib/transport_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/peer_node.h"

#define MIB(n) ((uint64_t)(n) << 20)

static const uint8_t key_a[PEER_KEY_BYTES] = "the key of the cluster is 32 by";

/* ---- fixture: one that asks, one that holds ---- */

struct two {
	struct peer_node asker, holder;
	struct peer *p;
	struct peer_grant g;
};

static inline void open_two(struct two *t, const struct transport_ops *ops, struct peer_node_conf conf)
{
	conf.transport = ops;
	conf.key = key_a;
	if (!conf.ping_ms)
		conf.ping_ms = 2000;
	memset(t, 0, sizeof(*t));
	conf.node = 2;
	cr_assert_eq(peer_node_open(&t->holder, &conf), 0);
	conf.node = 1;
	conf.size = 0;
	conf.gives_keys = false;
	cr_assert_eq(peer_node_open(&t->asker, &conf), 0);
	t->p = peer_node_meet(&t->asker, &t->holder);
	cr_assert_not_null(t->p);
}

static inline void close_two(struct two *t)
{
	free(t->g.crc);
	peer_put(t->p);
	peer_node_close(&t->asker);
	peer_node_close(&t->holder);
	cr_assert_eq(t->holder.n_pieces, t->holder.n_done, "%d pieces, %d done", t->holder.n_pieces,
		     t->holder.n_done);
}

static inline void ask_grant(struct two *t)
{
	free(t->g.crc);
	memset(&t->g, 0, sizeof(t->g));
	cr_assert_eq(peer_ask_grant(t->p, 0, "/kv/model", "block", &t->g, SOON), 0);
}

/* One whose bytes may come along. */
static inline int ask_bytes(struct peer *p, uint64_t version, void *dst, size_t room, struct peer_grant *out)
{
	struct peer_want w = { .version = version, .name = "a", .dst = dst, .room = room };
	int rc = peer_ask_grants(p, "/", &w, 1, SOON);

	if (!rc)
		*out = w.grant;
	return rc;
}

static struct peer_stats stats_seen;
static inline void see(void *arg, const struct peer_stats *s)
{
	stats_seen = *s;
}

static inline struct peer_stats stats_of(struct two *t)
{
	cr_assert_eq(peer_each(t->asker.e, see, NULL), 1);
	return stats_seen;
}

static inline void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static inline bool becomes(atomic_int *v, int wanted)
{
	for (int k = 0; k < 1000 && *v != wanted; k++)
		sleep_ms(10);
	return *v == wanted;
}

/* The range is right, byte for byte. */
static inline void read_range(struct two *t, uint64_t off, size_t len)
{
	uint8_t *buf = malloc(len ? len : 1);
	size_t n = 77;

	memset(buf, 0xa5, len);
	cr_assert_eq(peer_read(t->p, &t->g, off, len, buf, NULL, NULL, NULL, &n, SOON), 0);
	cr_assert_eq(n, len);
	cr_assert_eq(memcmp(buf, t->holder.bytes + off, len), 0);
	free(buf);
}

struct told {
	uint64_t next;
	int n, stop_at;
};

static inline int on_chunk(void *arg, uint64_t off, size_t len)
{
	struct told *told = arg;

	cr_assert_eq(off, told->next);
	told->next += len;
	return ++told->n == told->stop_at ? -EINTR : 0;
}

/* ---- readers on threads ---- */

struct reader {
	struct two *t;
	pthread_t thread;
	int rc;
	atomic_int n;
	atomic_bool *stop;
};

static inline void *read_all(void *arg)
{
	struct reader *r = arg;
	uint8_t *buf = malloc(MIB(2));

	do {
		uint64_t off = MIB((unsigned int)r->n % 3);
		r->rc = peer_read(r->t->p, &r->t->g, off, MIB(2), buf, NULL, NULL, NULL, NULL, SOON);
		if (!r->rc && memcmp(buf, r->t->holder.bytes + off, MIB(2)))
			r->rc = -EILSEQ;
		r->n++;
	} while (!r->rc && (r->stop ? !*r->stop : r->n < 8));
	free(buf);
	return NULL;
}

#endif
