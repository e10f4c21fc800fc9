// SPDX-License-Identifier: Apache-2.0
/*
 * torture_peer - nodes of one process ask each other for everything at once, while handlers stall and corrupt and
 * nodes end and come back, over each transport
 *
 * usage: torture_peer [SECONDS] [SEED] [THREADS]     (4 1 6)
 *
 * A read that succeeds has the right bytes, whatever happens meanwhile; one that was corrupted never does. Every call
 * returns soon after its deadline. No error is one of a protocol out of step. At the end every piece that a holder
 * gave was given back and no handler runs. Meant for ThreadSanitizer, and for AddressSanitizer's leaks.
 *
 * Exit status: 0 all right (prints counts), 1 a difference (named, with the seed).
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"
#include "lib/peer_node.h"

enum {
	N_NODES = 3,
	MAX_THREADS = 64,
	OBJECT_BYTES = 6 << 20,
	READ_BYTES = 3 << 20,
	CALL_MS = 400,
	LATE_MS = 8000
};

struct slot {
	struct peer_node *node; /* NULL: between two lives */
	int n_pins;
	uint64_t incarnation;
};

static struct slot slots[N_NODES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards slots */
static pthread_cond_t unpinned = PTHREAD_COND_INITIALIZER;
static const struct transport_ops *ops;
static unsigned long seed;
static atomic_bool is_over;
static atomic_ulong n_right, n_bad, n_failed, n_lives, n_acked, n_pulled_bytes;

static void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void complain(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "torture_peer: %s, seed %lu: ", ops->name, seed);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static unsigned int dice(unsigned int *state, unsigned int n)
{
	return (unsigned int)rand_r(state) % n;
}

/* ---- nodes ---- */

static void open_node(int k)
{
	struct peer_node *n = malloc(sizeof(*n));
	const struct peer_node_conf conf = { .transport = ops,
					     .node = (uint64_t)k + 1,
					     .n_lanes = 2,
					     .ping_ms = 150,
					     .incarnation = ++slots[k].incarnation,
					     .size = OBJECT_BYTES,
					     .gives_keys = true };
	int rc = n ? peer_node_open(n, &conf) : -ENOMEM;

	if (rc)
		complain("node %d does not begin: %s", k, strerror(-rc));
	n->pieces_have_crc = slots[k].incarnation & 1;
	n->gives_crc = slots[k].incarnation & 2;
	pthread_mutex_lock(&lock);
	slots[k].node = n;
	pthread_mutex_unlock(&lock);
	n_lives++;
}

static void count_pulled(void *arg, const struct peer_stats *s)
{
	n_pulled_bytes += s->pulled_bytes;
}

static void close_node(int k)
{
	pthread_mutex_lock(&lock);
	struct peer_node *n = slots[k].node;
	slots[k].node = NULL;
	pthread_mutex_unlock(&lock);
	int64_t begin = clock_now_ns();
	peer_each(n->e, count_pulled, NULL);
	/* Peers may be put after the endpoint's end; memory that is registered with it may not stay so. */
	if (peer_endpoint_pulls(n->e)) {
		peer_endpoint_stop(n->e);
	} else {
		peer_endpoint_destroy(n->e);
		n->e = NULL;
	}
	if (clock_now_ns() - begin > LATE_MS * NS_PER_MS)
		complain("the end of node %d took %ld ms", k, (long)((clock_now_ns() - begin) / NS_PER_MS));
	if (n->n_running || n->n_pieces != n->n_done)
		complain("node %d: %d handlers run, %d pieces given, %d done", k, n->n_running, n->n_pieces,
			 n->n_done);
	pthread_mutex_lock(&lock);
	while (slots[k].n_pins)
		pthread_cond_wait(&unpinned, &lock);
	pthread_mutex_unlock(&lock);
	peer_node_close(n);
	free(n);
}

/* A peer b as a sees it, both pinned; NULL: one of them is between two lives. */
static struct peer *meet(int a, int b, struct peer_node **asker_out, struct peer_node **holder_out)
{
	struct peer *p = NULL;

	pthread_mutex_lock(&lock);
	if (slots[a].node && slots[b].node) {
		p = peer_node_meet(slots[a].node, slots[b].node);
		if (!p)
			complain("a peer cannot be had");
		slots[a].n_pins++;
		slots[b].n_pins++;
		*asker_out = slots[a].node;
		*holder_out = slots[b].node;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

static void part(int a, int b, struct peer *p)
{
	peer_put(p);
	pthread_mutex_lock(&lock);
	slots[a].n_pins--;
	slots[b].n_pins--;
	pthread_cond_broadcast(&unpinned);
	pthread_mutex_unlock(&lock);
}

/* ---- calls ---- */

static int checked(int rc, int64_t begin, const char *what)
{
	static const int expected[] = { 0,	   ETIMEDOUT, EHOSTDOWN, ECONNRESET, ECONNREFUSED,
					ECANCELED, ESTALE,    EAGAIN,	 EBADMSG,    EBUSY };
	int64_t took_ms = (clock_now_ns() - begin) / NS_PER_MS;

	if (took_ms > CALL_MS + LATE_MS)
		complain("%s took %ld ms of %d", what, (long)took_ms, CALL_MS);
	for (size_t k = 0; k < sizeof(expected) / sizeof(*expected); k++)
		if (rc == -expected[k]) {
			n_failed += rc != 0;
			return rc;
		}
	complain("%s: %s", what, strerror(-rc));
}

static void read_some(struct peer *p, const struct peer_node *holder, struct peer_grant *g,
		      unsigned int *state, uint8_t *buf, struct transport_mr *mr)
{
	bool is_whole = dice(state, 2) == 0; /* chunks: those can be pulled */
	uint32_t off = is_whole ? dice(state, 6) << 20 : dice(state, OBJECT_BYTES);
	uint32_t len = is_whole ? (dice(state, 3) + 1) << 20 : dice(state, READ_BYTES) + 1;
	int64_t begin = clock_now_ns();
	size_t n = 0;

	if (len > OBJECT_BYTES - off)
		len = OBJECT_BYTES - off;
	int rc = peer_read(p, g, off, len, buf, mr, NULL, NULL, &n, begin + CALL_MS * NS_PER_MS);
	checked(rc, begin, "READ");
	if (n > len || (!rc && n != len) || memcmp(buf, holder->bytes + off, n))
		complain("READ of %u at %u: %s, %zu bytes, which are wrong", len, off, strerror(-rc), n);
	n_right += !rc;
	n_bad += rc == -EBADMSG;
}

static void ask(struct peer *p, const struct peer_node *holder, unsigned int *state, uint8_t *buf,
		struct transport_mr *mr)
{
	const struct peer_invalidation v = { "/kv", "b", 1, false };
	int64_t begin = clock_now_ns(), deadline = begin + CALL_MS * NS_PER_MS;
	struct peer_grant g;

	if (dice(state, 8) == 0)
		n_acked += !checked(peer_invalidate(p, &v, 1, deadline), begin, "INVALIDATE");
	if (dice(state, 8) == 0)
		checked(peer_ping(p, clock_now_ns() + CALL_MS * NS_PER_MS), clock_now_ns(), "PING");
	begin = clock_now_ns();
	deadline = begin + CALL_MS * NS_PER_MS;
	if (checked(peer_ask_grant(p, 0, "/kv/m", "block", &g, deadline), begin, "GRANT"))
		return;
	for (unsigned int k = dice(state, 4); k; k--)
		read_some(p, holder, &g, state, buf, mr);
	if (dice(state, 4))
		peer_release_grant(p, g.grant);
	free(g.crc);
}

static void *run_asker(void *arg)
{
	unsigned int state = (unsigned int)seed * 977u + (unsigned int)(uintptr_t)arg;
	uint8_t *buf = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		complain("no memory");
	while (!is_over) {
		int a = (int)dice(&state, N_NODES), b = (a + 1 + (int)dice(&state, N_NODES - 1)) % N_NODES;
		struct peer_node *asker, *holder;
		struct transport_mr *mr = NULL;
		struct peer *p = meet(a, b, &asker, &holder);
		if (!p || !peer_is_usable(p))
			usleep(2000);
		if (!p)
			continue;
		if (dice(&state, 4) && peer_endpoint_pulls(asker->e) &&
		    peer_register(asker->e, buf, READ_BYTES, &mr))
			complain("memory is not registered");
		ask(p, holder, &state, buf, mr);
		if (mr)
			peer_deregister(asker->e, mr);
		part(a, b, p);
	}
	munmap(buf, READ_BYTES);
	return NULL;
}

/* ---- mischief: of the main thread alone, which also ends and begins nodes ---- */

static void mischief(unsigned int *state)
{
	int k = (int)dice(state, N_NODES);
	struct peer_node *n = slots[k].node;

	switch (dice(state, 9)) {
	case 0:
		close_node(k);
		open_node(k);
		break;
	case 1:
		n->stall_ms = (int)dice(state, 600);
		n->stall_off = dice(state, 2) ? dice(state, OBJECT_BYTES) : 0;
		break;
	case 2:
		n->corrupt_off = dice(state, 2) ? (int64_t)dice(state, OBJECT_BYTES) : -1;
		break;
	case 3:
		n->grant_ms = dice(state, 2) ? (int)dice(state, 600) : 0;
		break;
	case 4:
		n->invalidate_ms = dice(state, 2) ? (int)dice(state, 600) : 0;
		break;
	case 5:
		n->grant_rc = dice(state, 3) ? 0 : -EAGAIN;
		n->read_rc = dice(state, 3) ? 0 : -ESTALE;
		break;
	case 6:
		/* Its keys are void at once, whoever reads by them. */
		if (n->mr)
			peer_node_deregister(n);
		else
			peer_node_register(n);
		break;
	default:
		n->stall_off = 0;
		n->corrupt_off = -1;
		n->grant_ms = 0;
		n->piece_bytes = dice(state, 2) ? 1000 + dice(state, 1 << 19) : 0;
	}
}

static void run(const char *name, int seconds, int n_threads)
{
	unsigned int state = (unsigned int)seed;
	pthread_t threads[MAX_THREADS];

	ops = transport_find(name);
	is_over = false;
	n_right = n_bad = n_failed = n_lives = n_acked = n_pulled_bytes = 0;
	for (int k = 0; k < N_NODES; k++)
		open_node(k);
	for (int k = 0; k < n_threads; k++)
		if (pthread_create(&threads[k], NULL, run_asker, (void *)(uintptr_t)k))
			complain("no thread");
	for (int64_t until = deadline_in_ms(seconds * 1000); clock_now_ns() < until;) {
		usleep(1000 * (20 + dice(&state, 60)));
		mischief(&state);
	}
	is_over = true;
	for (int k = 0; k < n_threads; k++)
		pthread_join(threads[k], NULL);
	for (int k = 0; k < N_NODES; k++)
		close_node(k);
	printf("%s: %lu reads right, %lu MiB pulled, %lu bad chunks found, %lu calls failed, %lu INVALIDATEs, %lu lives of "
	       "nodes\n",
	       name, n_right, n_pulled_bytes >> 20, n_bad, n_failed, n_acked, n_lives);
	if (!n_pulled_bytes == !!ops->pull)
		complain("nothing was pulled, or by whom cannot");
	if (!n_right || !n_acked || n_lives <= N_NODES)
		complain("too little happened");
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 4, n_threads = argc > 3 ? atoi(argv[3]) : 6;

	seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	if (seconds < 1 || n_threads < 1 || n_threads > MAX_THREADS) {
		fprintf(stderr, "usage: torture_peer [SECONDS] [SEED] [THREADS]\n");
		return 2;
	}
	log_init("/dev/null", "torture_peer");
	run("loopback", (seconds + 1) / 2, n_threads);
	run("tcp", (seconds + 1) / 2, n_threads);
	if (transport_find("rdma"))
		run("rdma", (seconds + 1) / 2, n_threads); /* over a fake of its libraries */
	return 0;
}
