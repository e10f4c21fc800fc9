/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_pair: two transports of the provider rdma with a connection, memory to read and memory to read into. For unit
 * tests over the fake and for those on a device. Included by one test file per program.
 */
#ifndef MCFS_TESTS_RDMA_PAIR_H
#define MCFS_TESTS_RDMA_PAIR_H

#include "lib/transport_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "rdma/rdma.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* Memory that both ends of a test may touch, of bytes that depend on the seed; registered with t. */
struct rdma_memory {
	uint8_t *bytes;
	size_t len;
	struct transport_mr *mr;
};

static inline void memory_open(struct rdma_memory *m, struct transport *t, size_t len, unsigned seed)
{
	int fd = make_file(len, seed);

	m->len = len;
	m->bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(m->bytes, MAP_FAILED);
	close(fd);
	cr_assert_eq(transport_rdma.register_memory(t, m->bytes, len, &m->mr), 0);
}

static inline void memory_close(struct rdma_memory *m)
{
	if (m->mr)
		transport_rdma.deregister(m->mr);
	munmap(m->bytes, m->len);
}

struct rdma_pair {
	struct transport *asker, *holder;
	struct transport_listener *l;
	struct transport_conn *a, *b; /* the asker's end, the holder's */
	struct rdma_memory from, to;
	uint8_t key[TRANSPORT_KEY_BYTES];
	size_t key_len;
	char address[TRANSPORT_ADDRESS_BYTES];
};

static inline void pair_open(struct rdma_pair *p, size_t len)
{
	memset(p, 0, sizeof(*p));
	cr_assert_eq(transport_rdma.create(NULL, &p->asker), 0);
	cr_assert_eq(transport_rdma.create(NULL, &p->holder), 0);
	cr_assert_eq(transport_rdma.listen(p->holder, any_port(), &p->l, p->address), 0);
	cr_assert_eq(transport_rdma.connect(p->asker, p->address, SOON, &p->a), 0);
	cr_assert_eq(transport_rdma.accept(p->l, SOON, &p->b), 0);
	memory_open(&p->from, p->holder, len, 1);
	memory_open(&p->to, p->asker, len, 2);
	p->key_len = transport_rdma.key_of(p->from.mr, p->key);
	cr_assert_gt(p->key_len, 0, "no device serves %s", p->address);
}

static inline void pair_close(struct rdma_pair *p)
{
	if (p->a)
		transport_rdma.close(p->a);
	if (p->b)
		transport_rdma.close(p->b);
	if (p->l)
		transport_rdma.close_listener(p->l);
	memory_close(&p->from);
	memory_close(&p->to);
	transport_rdma.destroy(p->asker);
	transport_rdma.destroy(p->holder);
}

static inline int pull(struct rdma_pair *p, size_t off, size_t to, size_t len, int64_t deadline_ns)
{
	return transport_rdma.pull(p->a, p->key, p->key_len, off, p->to.mr, p->to.bytes + to, len,
				   deadline_ns);
}

/* It succeeds, brings these bytes, and touches none beside them. */
static inline void pull_right(struct rdma_pair *p, size_t off, size_t to, size_t len)
{
	memset(p->to.bytes, 0xa5, p->to.len);
	int rc = pull(p, off, to, len, SOON);
	cr_assert_eq(rc, 0, "%zu bytes from %zu to %zu: %d", len, off, to, rc);
	cr_assert_eq(memcmp(p->to.bytes + to, p->from.bytes + off, len), 0,
		     "%zu bytes from %zu to %zu", len, off, to);
	size_t n_touched = 0;
	for (size_t k = 0; k < p->to.len; k++)
		n_touched += (k < to || k >= to + len) && p->to.bytes[k] != 0xa5;
	cr_assert_eq(n_touched, 0);
}

/* ---- a pull on another thread ---- */

struct puller {
	struct rdma_pair *p;
	size_t len;
	int64_t deadline_ns;
	int rc;
	atomic_bool is_over;
	pthread_t thread;
};

static inline void *do_pull(void *arg)
{
	struct puller *x = arg;

	x->rc = pull(x->p, 0, 0, x->len, x->deadline_ns ? x->deadline_ns : SOON);
	x->is_over = true;
	return NULL;
}

static inline void puller_start(struct puller *x)
{
	cr_assert_eq(pthread_create(&x->thread, NULL, do_pull, x), 0);
}

static inline int puller_finish(struct puller *x)
{
	pthread_join(x->thread, NULL);
	return x->rc;
}

static inline void sleep_ms(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

/* What is waited for at most some seconds, because another thread does it. */
#define BECOMES(condition)                                        \
	({                                                        \
		for (int n_ = 0; n_ < 1000 && !(condition); n_++) \
			sleep_ms(10);                             \
		(condition);                                      \
	})

#endif
