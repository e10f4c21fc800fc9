/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library: threads share a session of libmooncakefs, on the fake of the ioctls, while the daemon is
 * restarted under them. Every call ends, with its result or with -ENOTCONN; what was read is what was
 * written.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fakes/fake_fastpath.h"

#define THREADS 6
#define ROUNDS 300
#define ITEMS 5
#define BLOCK 512u
#define RESTARTS 5

struct worker {
	pthread_t thread;
	unsigned number;
	struct mcfs_session *s;
	struct mcfs_dir *dir;
	char *memory; /* 2 * ITEMS blocks */
	char names[ITEMS][16];
	int n_bad;
};

static atomic_bool is_over;

static void fill_requests(struct worker *w, struct mcfs_request *r, size_t at)
{
	for (unsigned i = 0; i < ITEMS; i++)
		r[i] = (struct mcfs_request){.dir = w->dir,
					     .name = w->names[i],
					     .memory = w->memory + (at + i) * BLOCK,
					     .segment_bytes = BLOCK};
}

static void expect(struct worker *w, long got, const char *what)
{
	if (got == ITEMS || got == -ENOTCONN)
		return;
	w->n_bad++;
	fprintf(stderr, "library: thread %u: %s: %ld: %s\n", w->number, what, got,
		mcfs_strerror((int)got));
}

static uint64_t incarnation(struct worker *w)
{
	struct mcfs_hello hello;

	mcfs_session_hello(w->s, &hello);
	return hello.incarnation;
}

/* While another thread reconnects, what is stored here may be lost. */
static void expect_found(struct worker *w, uint64_t before, long got, const char *what)
{
	if (got < 0 || incarnation(w) == before)
		expect(w, got, what);
}

static long through_ticket(struct worker *w, struct mcfs_request *r, bool is_cancelled)
{
	struct mcfs_ticket *t;
	int rc = mcfs_read_batch_async(w->s, r, ITEMS, NULL, &t);

	if (rc)
		return rc;
	if (is_cancelled)
		mcfs_ticket_cancel(t);
	long n = mcfs_ticket_wait(t, 20000);
	mcfs_ticket_free(t);
	return is_cancelled && n == -ECANCELED ? -ENOTCONN : n;
}

static void work_once(struct worker *w, int round)
{
	uint64_t before = incarnation(w);
	struct mcfs_request out[ITEMS], in[ITEMS];
	const char *pointers[ITEMS];
	struct mcfs_dir *dir;

	fill_requests(w, out, 0);
	fill_requests(w, in, ITEMS);
	for (unsigned i = 0; i < ITEMS; i++)
		pointers[i] = w->names[i];
	memset(w->memory, 'a' + round % 26, ITEMS * BLOCK);
	expect(w, mcfs_write_batch(w->s, out, ITEMS, NULL), "write");
	long n = round % 3 ? through_ticket(w, in, round % 9 == 1) :
			     mcfs_read_batch(w->s, in, ITEMS, NULL);
	expect_found(w, before, n, "read");
	if (n == ITEMS && incarnation(w) == before &&
	    memcmp(w->memory, w->memory + ITEMS * BLOCK, ITEMS * BLOCK)) {
		w->n_bad++;
		fprintf(stderr, "library: thread %u: other bytes than written\n", w->number);
	}
	if (!mcfs_dir_open(w->s, ".", &dir)) {
		const struct mcfs_names names = {.strings = pointers, .n = ITEMS};
		expect_found(w, before, mcfs_lookup_prefix(w->s, dir, &names, NULL, NULL), "lookup");
		mcfs_dir_close(dir);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < ROUNDS; round++)
		work_once(w, round);
	return NULL;
}

static void *restart(void *arg)
{
	for (int i = 0; i < RESTARTS && !atomic_load(&is_over); i++) {
		usleep(20000);
		fake_fastpath_restart();
	}
	return NULL;
}

static int worker_start(struct worker *w, struct mcfs_session *s, unsigned number)
{
	struct mcfs_buffer *buffer;

	*w = (struct worker){.number = number, .s = s};
	int rc = mcfs_buffer_alloc(s, 2 * ITEMS * BLOCK, &buffer);
	if (!rc)
		rc = mcfs_dir_open(s, "", &w->dir);
	if (rc)
		return rc;
	w->memory = mcfs_buffer_memory(buffer);
	for (unsigned i = 0; i < ITEMS; i++)
		snprintf(w->names[i], sizeof(w->names[i]), "%u-%u", number, i);
	return -pthread_create(&w->thread, NULL, work, w);
}

int main(void)
{
	struct worker workers[THREADS];
	struct mcfs_session *s;
	pthread_t restarter;
	int n_bad = 0, rc;

	fake_fastpath_start(3); /* fewer than a batch has: parts */
	rc = mcfs_session_open(fake_fastpath_root(), MCFS_RECONNECT, &s);
	for (unsigned i = 0; i < THREADS && !rc; i++)
		rc = worker_start(&workers[i], s, i);
	if (!rc)
		rc = -pthread_create(&restarter, NULL, restart, NULL);
	if (rc) {
		fprintf(stderr, "library: %s\n", mcfs_strerror(rc));
		return 1;
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		n_bad += workers[i].n_bad;
	}
	atomic_store(&is_over, true);
	pthread_join(restarter, NULL);
	mcfs_session_close(s);
	fake_fastpath_stop();
	printf("library: %d bad\n", n_bad);
	return n_bad != 0;
}
