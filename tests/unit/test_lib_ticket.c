/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ticket.c: submissions without waiting, on the fake of the ioctls. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "fakes/fake_fastpath.h"

#define MAX_ITEMS 4

/* ---- fixture ---- */

static struct mcfs_session *s;
static struct mcfs_dir *dir;
static struct mcfs_buffer *buffer;
static char *memory;

static void setup(void)
{
	char path[128];

	fake_fastpath_start(MAX_ITEMS);
	cr_assert_eq(mcfs_session_open(fake_fastpath_root(), 0, &s), 0);
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	cr_assert_eq(mcfs_buffer_alloc(s, 64 * 1024, &buffer), 0);
	memory = mcfs_buffer_memory(buffer);
	snprintf(path, sizeof(path), "%s/a", fake_fastpath_root());
	int fd = open(path, O_CREAT | O_WRONLY, 0644);
	cr_assert_eq(write(fd, "abc", 3), 3);
	close(fd);
}

static void teardown(void)
{
	mcfs_session_close(s);
	fake_fastpath_stop();
}

TestSuite(lib_ticket, .init = setup, .fini = teardown, .timeout = 30);

/* ---- helpers ---- */

static struct mcfs_request request(size_t at)
{
	return (struct mcfs_request){
		.dir = dir, .name = "a", .memory = memory + at, .segment_bytes = 3};
}

static struct mcfs_ticket *start(struct mcfs_request *r, size_t n, void *user)
{
	struct mcfs_ticket *t = NULL;

	cr_assert_eq(mcfs_read_batch_async(s, r, n, &(struct mcfs_call){.user = user}, &t), 0);
	return t;
}

/* ---- success ---- */

Test(lib_ticket, ends_with_what_the_call_would_have_returned)
{
	struct mcfs_request r[2] = {request(0), request(10)};

	r[1].name = "none";
	struct mcfs_ticket *t = start(r, 2, &r);
	cr_assert_eq(mcfs_ticket_wait(t, 1000), 1);
	cr_assert_eq(mcfs_ticket_wait(t, 0), 1);
	cr_assert_eq(mcfs_ticket_user(t), &r);
	cr_assert_arr_eq(memory, "abc", 3);
	cr_assert_eq(r[1].status, -ENOENT);
	mcfs_ticket_free(t);
}

Test(lib_ticket, goes_on_part_by_part)
{
	struct mcfs_request r[3 * MAX_ITEMS];

	for (size_t i = 0; i < 3 * MAX_ITEMS; i++)
		r[i] = request(10 * i);
	unsigned before = fake_fastpath_submissions();
	struct mcfs_ticket *t = start(r, 3 * MAX_ITEMS, NULL);
	cr_assert_eq(mcfs_ticket_wait(t, 1000), 3 * MAX_ITEMS);
	cr_assert_eq(fake_fastpath_submissions() - before, 3);
	mcfs_ticket_free(t);
}

Test(lib_ticket, next_done_gives_each_out_once)
{
	struct mcfs_request r[3] = {request(0), request(10), request(20)};
	int seen = 0;

	fake_fastpath_hold(true);
	for (int i = 0; i < 3; i++)
		start(&r[i], 1, &r[i]);
	cr_assert_null(mcfs_session_next_done(s));
	fake_fastpath_hold(false);
	for (struct mcfs_ticket *t; (t = mcfs_session_next_done(s)); seen++) {
		struct mcfs_request *user = mcfs_ticket_user(t);
		cr_assert_eq(user->status, 0);
		mcfs_ticket_free(t);
	}
	cr_assert_eq(seen, 3);
}

Test(lib_ticket, waiting_for_one_collects_the_others)
{
	struct mcfs_request r[2] = {request(0), request(10)};
	struct mcfs_ticket *first = start(&r[0], 1, NULL), *second = start(&r[1], 1, NULL);

	cr_assert_eq(mcfs_ticket_wait(second, 1000), 1);
	cr_assert_eq(mcfs_session_next_done(s), first);
	mcfs_ticket_free(first);
	mcfs_ticket_free(second);
}

Test(lib_ticket, lookups_too)
{
	const char *const names[] = {"a", "a", "a", "a", "a", "b"};
	struct mcfs_state states[6];
	struct mcfs_ticket *t;

	cr_assert_eq(mcfs_lookup_prefix_async(s, dir,
					      &(struct mcfs_names){.strings = names, .n = 6}, NULL,
					      states, &t),
		     0);
	cr_assert_eq(mcfs_ticket_wait(t, 1000), 5);
	cr_assert_eq(states[4].state, MCFS_READY);
	cr_assert_eq(states[5].state, MCFS_MISS);
	mcfs_ticket_free(t);
}

Test(lib_ticket, an_empty_batch_ends_at_once)
{
	struct mcfs_ticket *t = start(NULL, 0, NULL);

	cr_assert_eq(mcfs_ticket_wait(t, 0), 0);
	mcfs_ticket_free(t);
}

struct worker {
	pthread_t thread;
	int n_bad;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct mcfs_ticket *t;

	for (int i = 0; i < 200; i++) {
		struct mcfs_request r[5];
		for (int k = 0; k < 5; k++)
			r[k] = request(0);
		if (mcfs_read_batch_async(s, r, 5, NULL, &t) || mcfs_ticket_wait(t, 10000) != 5)
			w->n_bad++;
		mcfs_ticket_free(t);
	}
	return NULL;
}

Test(lib_ticket, threads_share_a_session)
{
	struct worker w[6] = {0};

	for (int i = 0; i < 6; i++)
		cr_assert_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	for (int i = 0; i < 6; i++) {
		pthread_join(w[i].thread, NULL);
		cr_assert_eq(w[i].n_bad, 0);
	}
	cr_assert_eq(fake_fastpath_registered(), 2); /* the buffer and one for descriptors */
}

/* ---- failure ---- */

Test(lib_ticket, one_that_has_not_ended_says_so)
{
	struct mcfs_request r = request(0);

	fake_fastpath_hold(true);
	struct mcfs_ticket *t = start(&r, 1, NULL);
	cr_assert_eq(mcfs_ticket_wait(t, 0), -EINPROGRESS);
	cr_assert_eq(mcfs_ticket_wait(t, 20), -EINPROGRESS);
	fake_fastpath_hold(false);
	cr_assert_eq(mcfs_ticket_wait(t, -1), 1);
	mcfs_ticket_free(t);
}

Test(lib_ticket, a_cancelled_one_ends_early)
{
	struct mcfs_request r[MAX_ITEMS + 1];

	for (size_t i = 0; i < MAX_ITEMS + 1; i++)
		r[i] = request(0);
	fake_fastpath_hold(true);
	struct mcfs_ticket *t = start(r, MAX_ITEMS + 1, NULL);
	cr_assert_eq(mcfs_ticket_cancel(t), 0);
	cr_assert_eq(mcfs_ticket_wait(t, 1000), -ECANCELED);
	cr_assert_eq(r[0].status, -ECANCELED);
	cr_assert_eq(r[MAX_ITEMS].status, -ECANCELED);
	mcfs_ticket_free(t);
}

Test(lib_ticket, freeing_a_running_one_waits_for_its_end)
{
	struct mcfs_request r = request(0);

	fake_fastpath_hold(true);
	mcfs_ticket_free(start(&r, 1, NULL));
	cr_assert_eq(r.status, -ECANCELED);
}

Test(lib_ticket, too_many_are_refused_and_cost_nothing)
{
	struct mcfs_request r = request(0), refused = request(10);
	struct mcfs_ticket *t, *none = (void *)1;

	fake_fastpath_max_tickets(1);
	fake_fastpath_hold(true);
	t = start(&r, 1, NULL);
	cr_assert_eq(mcfs_read_batch_async(s, &refused, 1, NULL, &none), -EAGAIN);
	cr_assert_null(none);
	fake_fastpath_hold(false);
	cr_assert_eq(mcfs_ticket_wait(t, 1000), 1);
	mcfs_ticket_free(t);
	mcfs_ticket_free(start(&r, 1, NULL));
}

Test(lib_ticket, closing_the_session_frees_running_ones)
{
	struct mcfs_request r = request(0);

	fake_fastpath_hold(true);
	start(&r, 1, NULL);
}

Test(lib_ticket, a_dead_daemon_ends_them_all)
{
	struct mcfs_request r[2] = {request(0), request(10)};

	fake_fastpath_hold(true);
	struct mcfs_ticket *a = start(&r[0], 1, NULL), *b = start(&r[1], 1, NULL);
	fake_fastpath_die();
	cr_assert_eq(mcfs_ticket_wait(b, 1000), -ENOTCONN);
	cr_assert_eq(mcfs_ticket_wait(a, 0), -ENOTCONN);
	cr_assert_eq(r[0].status, -ENOTCONN);
	mcfs_ticket_free(a);
	mcfs_ticket_free(b);
}
