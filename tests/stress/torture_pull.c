/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture_pull: connections of the provider rdma, over a fake of its libraries, pulled from by a thread each while calls
 * fail, queue pairs are cut, deadlines pass and either end is shut down. What a pull says it has brought is right; what
 * one failed to bring does not come later; in the end nothing is left.
 *
 * usage: torture_pull [SECONDS] [SEED]
 */
#include <stdio.h>
#include <stdlib.h>

#ifndef MCFS_RDMA
int main(void)
{
	printf("this build has no RDMA\n");
	return 77;
}
#else

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"
#include "fakes/fake_rdma.h"
#include "rdma/rdma.h"

#define N_THREADS 6
#define SOURCE_BYTES (8u << 20)
#define SMALL_BYTES (16u << 10)

static const struct transport_ops *const ops = &transport_rdma;
static struct transport *asker, *holder;
static struct transport_listener *listener;
static struct transport_mr *source_mr;
static char address[TRANSPORT_ADDRESS_BYTES];
static uint8_t *source, key[TRANSPORT_KEY_BYTES];
static size_t key_len;
static atomic_bool is_over;
static atomic_ulong n_right, n_failed, n_lives;
static pthread_mutex_t meeting =
	PTHREAD_MUTEX_INITIALIZER; /* who connects is the one who is accepted */

static void complain(const char *what, long rc)
{
	fprintf(stderr, "torture_pull: %s: %ld\n", what, rc);
	abort();
}

static unsigned int dice(unsigned int *state, unsigned int n)
{
	return (unsigned int)rand_r(state) % n;
}

static uint8_t *pages(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		complain("no memory", errno);
	return p;
}

/* ---- one connection's life ---- */

struct life {
	struct transport_conn *a, *b;
	pthread_t ender;
	unsigned int ms, which;
};

static void *end_one(void *arg)
{
	struct life *l = arg;

	usleep(l->ms * 1000);
	ops->shutdown(l->which ? l->a : l->b);
	return NULL;
}

static void begin(struct life *l, unsigned int *state)
{
	pthread_mutex_lock(&meeting);
	int rc = ops->connect(asker, address, deadline_in_ms(20000), &l->a);
	if (!rc)
		rc = ops->accept(listener, deadline_in_ms(20000), &l->b);
	pthread_mutex_unlock(&meeting);
	if (rc)
		complain("no connection", rc);
	l->ms = dice(state, 60);
	l->which = dice(state, 2);
	if (pthread_create(&l->ender, NULL, end_one, l))
		complain("no thread", 0);
	n_lives++;
}

static bool is_expected(int rc)
{
	return rc == -ECANCELED || rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -ENOMEM ||
	       rc == -EAGAIN || rc == -EIO || rc == -EACCES || rc == -ECONNREFUSED;
}

/* Bytes that come after a failure would be found here, by the thread sanitizer at the latest. */
static void look_for_late_bytes(uint8_t *to, size_t len)
{
	memset(to, 0x5a, len);
	usleep(2000);
	for (size_t k = 0; k < len; k++)
		if (to[k] != 0x5a)
			complain("a late byte", (long)k);
}

static void *run_asker(void *arg)
{
	unsigned int state = (unsigned int)(uintptr_t)arg;
	uint8_t *to = pages(SOURCE_BYTES);
	struct transport_mr *mr;

	while (ops->register_memory(asker, to, SOURCE_BYTES, &mr))
		;
	while (!is_over) {
		struct life l;
		int rc = 0;
		begin(&l, &state);
		while (rc != -ECANCELED && rc != -ECONNRESET) {
			size_t off = dice(&state, SOURCE_BYTES - SMALL_BYTES);
			size_t most = dice(&state, 2) ? SMALL_BYTES : SOURCE_BYTES - off;
			size_t len = 1 + dice(&state, (unsigned int)most);
			int64_t deadline =
				deadline_in_ms(dice(&state, 8) ? 10000 : dice(&state, 3));
			rc = ops->pull(l.a, key, key_len, off, mr, to, len, deadline);
			if (rc && !is_expected(rc))
				complain("a pull failed", rc);
			if (!rc && memcmp(to, source + off, len) != 0)
				complain("wrong bytes", (long)off);
			if (rc)
				look_for_late_bytes(to, len);
			*(rc ? &n_failed : &n_right) += 1;
		}
		pthread_join(l.ender, NULL);
		ops->close(l.a);
		ops->close(l.b);
	}
	ops->deregister(mr);
	munmap(to, SOURCE_BYTES);
	return NULL;
}

/* ---- what happens to them ---- */

static void mischief(unsigned int *state)
{
	static const int statuses[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR,
				       IBV_WC_LOC_PROT_ERR};

	switch (dice(state, 6)) {
	case 0:
		fake_rdma.fail_post_send = 1 + (int)dice(state, 8);
		break;
	case 1:
		fake_rdma.fail_create_qp = 1 + (int)dice(state, 2);
		break;
	case 2:
		fake_rdma.wc_after = (int)dice(state, 8);
		fake_rdma.wc_status = statuses[dice(state, 3)];
		break;
	case 3:
		fake_rdma_disconnect_all();
		break;
	case 4:
		fake_rdma.is_silent = true;
		usleep(2000);
		fake_rdma.is_silent = false;
		fake_rdma_disconnect_all();
		break;
	default:
		fake_rdma.holds_reads = !fake_rdma.holds_reads;
	}
	if (!fake_rdma.holds_reads)
		fake_rdma_release_reads();
}

static void open_all(void)
{
	int rc = ops->create(NULL, &asker);

	if (!rc)
		rc = ops->create(NULL, &holder);
	if (!rc)
		rc = ops->listen(holder, "127.0.0.1:0", &listener, address);
	source = pages(SOURCE_BYTES);
	for (size_t k = 0; k < SOURCE_BYTES; k++)
		source[k] = (uint8_t)(k * 2654435761u >> 11);
	if (!rc)
		rc = ops->register_memory(holder, source, SOURCE_BYTES, &source_mr);
	if (rc)
		complain("cannot begin", rc);
	key_len = ops->key_of(source_mr, key);
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 4;
	unsigned int state = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 1;
	pthread_t threads[N_THREADS];

	log_init("/dev/null", "torture_pull");
	open_all();
	for (uintptr_t k = 0; k < N_THREADS; k++)
		if (pthread_create(&threads[k], NULL, run_asker, (void *)(k + 100 * state)))
			complain("no thread", 0);
	for (int64_t until = deadline_in_ms(seconds * 1000); clock_now_ns() < until;) {
		usleep(1000 * (1 + dice(&state, 10)));
		mischief(&state);
	}
	fake_rdma.holds_reads = false;
	fake_rdma_release_reads();
	is_over = true;
	for (int k = 0; k < N_THREADS; k++)
		pthread_join(threads[k], NULL);
	printf("%lu pulls right, %lu failed, %lu connections\n", n_right, n_failed, n_lives);
	ops->close_listener(listener);
	ops->deregister(source_mr);
	ops->destroy(asker);
	ops->destroy(holder);
	if (fake_rdma_n_left())
		complain("something is left", fake_rdma_n_left());
	if (!n_right || !n_failed)
		complain("too little happened", 0);
	return 0;
}
#endif
