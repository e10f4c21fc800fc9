/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of the fast path: tickets, completions, cancelling, and what is left when they close. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "fastpath/executor.h"
#include "lib/fp_client.h"

#define SLOW_NS UINT64_C(50000000)
#define A fs_box_who(1)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dir;
static struct fp_client c;
static struct handle *dir_handle;
static uint64_t dir_id;
static struct fp_books books;

static void open_client(void)
{
	dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	books = fp_books(&box);
	fp_open(&c, &box, fp_root(), 8 << 20);
	dir_handle = fp_open_dir(&box, dir, 0, &dir_id);
}

static void setup(void)
{
	fs_box_open(&box);
	open_client();
}

/* With writes that wait for room. */
static void setup_patient(void)
{
	fs_box_init(&box);
	box.opt.space_wait_ms = 60000;
	fs_box_start(&box);
	open_client();
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_session, .init = setup, .fini = teardown);
TestSuite(fastpath_session_patient, .init = setup_patient, .fini = teardown);

/* ---- helpers ---- */

static void close_client(void)
{
	fp_close_handle(&box, dir_handle);
	fp_close(&c);
}

/* An asynchronous READ of n items of "f". */
static struct mcfs_item *async_read(uint32_t n, struct mcfs_submit *io)
{
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, n, io);

	for (uint32_t k = 0; k < n; k++) {
		fp_name(&c, &i[k], dir_id, "f");
		fp_dense(&c, &i[k], 16);
	}
	return i;
}

static void put_f(void)
{
	cr_assert_eq(fp_put(&c, dir_id, "f", "0123456789", 10), 0);
}

/* One that runs for long: its frames are slow to come by. */
static struct mcfs_item *slow_write(uint32_t n, struct mcfs_submit *io)
{
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, n, io);

	fault_tier_delay(box.fs.dram, FAULT_take, SLOW_NS);
	for (uint32_t k = 0; k < n; k++) {
		char name[16];
		snprintf(name, sizeof(name), "slow%u", k);
		fp_name(&c, &i[k], dir_id, name);
		fp_dense(&c, &i[k], 100);
	}
	return i;
}

/* Objects that may not go fill what the client's buffer left. */
static void fill_dram(void)
{
	dir->e.policy.pin = 1;
	for (int k = 0; k < 60; k++) {
		char name[16];
		struct mcfs_submit io;
		snprintf(name, sizeof(name), "full%d", k);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		fp_name(&c, i, dir_id, name);
		i->segment_bytes = 1 << 20;
		i->segment_count = 1;
		io.deadline_us = 300000;
		cr_assert_eq(fp_submit(&c, &io), 0);
		fp_reset(&c);
		if (i->status)
			return;
	}
	cr_assert(false, "the dram tier is not full");
}

/* ---- tickets ---- */

Test(fastpath_session, a_ticket_is_collected_with_its_outcome)
{
	struct mcfs_submit io;
	struct mcfs_completion done;

	put_f();
	struct mcfs_item *i = async_read(3, &io);
	i[1].reserved = 1;
	io.user_data = UINT64_C(0xfeedfacecafebeef);
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_expect_eq(io.ticket, 1);
	cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(done.ticket, 1);
	cr_expect_eq(done.user_data, UINT64_C(0xfeedfacecafebeef));
	cr_expect_eq(done.status, 0);
	cr_expect_eq(done.n_ok, 2);
	cr_expect_eq(done.reserved, 0);
	cr_expect_eq(i[1].status, -EINVAL);
	cr_expect_eq(memcmp(fp_at(&c, i[2].base), "0123456789", 10), 0);
	cr_expect_eq(fp_collect(&c, &done, 0), 0);
	cr_expect_eq(fp_cancel(&c, 1), -ENOENT);
}

Test(fastpath_session, a_lookup_can_be_asynchronous)
{
	static const char *const names[] = {"f", "f", "none", "f"};
	struct mcfs_submit io;
	struct mcfs_completion done;

	put_f();
	struct mcfs_state *s = fp_lookup(&c, dir_id, names, 4, &io);
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(done.n_ok, 3);
	cr_expect_eq(done.ready_prefix, 2);
	cr_expect_eq(s[3].state, MCFS_READY);
	io.directory = 1;
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(done.status, -ENOENT);
}

Test(fastpath_session, completions_come_in_the_order_of_submission_when_they_can)
{
	struct mcfs_submit io;
	struct mcfs_completion done;
	uint64_t last = 0;

	put_f();
	for (int k = 0; k < 100; k++) {
		async_read(1, &io);
		cr_assert_eq(fp_submit_async(&c, &io), 0);
		cr_assert_gt(io.ticket, last);
		last = io.ticket;
		cr_assert_eq(fp_collect(&c, &done, 5000), 1);
		cr_expect_eq(done.ticket, last);
	}
}

Test(fastpath_session, replaced_names_are_told_after_the_notification)
{
	struct mcfs_submit io;
	struct mcfs_completion done;

	put_f();
	for (int k = 0; k < 20; k++) {
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		fp_name(&c, i, dir_id, "f");
		fp_dense(&c, i, 10);
		cr_assert_eq(fp_submit_async(&c, &io), 0);
		cr_assert_eq(fp_collect(&c, &done, 5000), 1);
		cr_expect_eq(i->status, 0);
	}
}

Test(fastpath_session, a_ticket_too_many_has_to_wait)
{
	struct mcfs_completion done;
	struct mcfs_submit io;
	static bool is_seen[SESSION_MAX_TICKETS + 2];

	put_f();
	async_read(1, &io);
	for (int k = 0; k < SESSION_MAX_TICKETS; k++)
		cr_assert_eq(fp_submit_async(&c, &io), 0, "ticket %d", k);
	cr_expect_eq(fp_submit_async(&c, &io), -EAGAIN);
	cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(fp_submit_async(&c, &io), 0);
	is_seen[done.ticket] = true;
	for (int k = 1; k <= SESSION_MAX_TICKETS; k++) {
		cr_assert_eq(fp_collect(&c, &done, 5000), 1, "ticket %d", k);
		cr_expect_not(is_seen[done.ticket]);
		cr_expect_eq(done.n_ok, 1);
		is_seen[done.ticket] = true;
	}
	cr_expect_eq(fp_collect(&c, &done, 0), 0);
}

Test(fastpath_session, tickets_never_collected_go_with_the_session)
{
	struct mcfs_submit io;

	put_f();
	async_read(1, &io);
	for (int k = 0; k < SESSION_MAX_TICKETS; k++)
		cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_assert_eq(fs_box_unlink(&box, dir, "f", A), 0);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_session, copies_of_submissions_have_a_limit)
{
	enum {
		BUSY = 16
	}; /* as many threads as there may be */
	struct mcfs_submit io;
	struct mcfs_completion done;
	int rc = 0, n = 0;

	fs_box_fault_dram(&box);
	for (int k = 0; k < BUSY; k++) {
		slow_write(100, &io);
		cr_assert_eq(fp_submit_async(&c, &io), 0);
	}
	fp_reset(&c);
	fp_items(&c, MCFS_OP_PREFETCH, SESSION_MAX_ITEMS, &io);
	for (; n < SESSION_MAX_TICKETS && !rc; n++)
		rc = fp_submit_async(&c, &io);
	cr_expect_eq(rc, -EAGAIN);
	cr_expect_lt(n, 100);
	cr_expect_leq(box.fs.batch_bytes, SESSION_MAX_BATCH_BYTES);
	for (uint64_t k = 1; k < (uint64_t)(BUSY + n); k++)
		fp_cancel(&c, k);
	for (int k = 0; k < BUSY + n - 1; k++)
		cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(box.fs.batch_bytes, 0);
	cr_expect_eq(fp_submit(&c, &io), 0);
}

Test(fastpath_session, a_running_submission_keeps_its_buffers)
{
	struct mcfs_submit io;
	struct mcfs_completion done;

	fs_box_fault_dram(&box);
	slow_write(4, &io);
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_expect_eq(fp_unregister(&c, c.main.number), -EBUSY);
	cr_assert_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(done.n_ok, 4);
	cr_expect_eq(fp_unregister(&c, c.main.number), 0); /* free before it is told */
}

/* ---- read, poll ---- */

Test(fastpath_session, a_waiting_read_gets_the_next_completion)
{
	struct mcfs_completion done;
	struct mcfs_submit io;

	fs_box_fault_dram(&box);
	slow_write(1, &io);
	cr_expect_eq(fp_collect(&c, &done, 1), 0);
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_expect_eq(fp_collect(&c, &done, 0), 0);
	cr_expect_eq(fp_collect(&c, &done, 5000), 1);
	cr_expect_eq(done.ticket, io.ticket);
}

static void *close_soon(void *arg)
{
	usleep(20000);
	session_close(arg);
	return NULL;
}

Test(fastpath_session, a_waiting_read_ends_with_the_session)
{
	struct mcfs_completion done;
	pthread_t thread;

	session_get(c.session);
	cr_assert_eq(pthread_create(&thread, NULL, close_soon, c.session), 0);
	cr_expect_eq(fp_collect(&c, &done, 5000), -EBADF);
	pthread_join(thread, NULL);
	session_put(c.session);
	c.session = c.handle->session = NULL;
}

static bool says_yes(void *request)
{
	return true;
}

Test(fastpath_session, a_read_that_is_interrupted_already_does_not_wait)
{
	struct session_callbacks mine = *c.session->callbacks;
	struct mcfs_completion done;

	mine.is_interrupted = says_yes;
	c.session->callbacks = &mine;
	cr_expect_eq(session_collect(c.session, &done, 1, &done), -EINTR);
	cr_expect_not(session_forget_reader(c.session, &done));
}

Test(fastpath_session, a_poller_is_told_of_each_completion_once)
{
	atomic_int told = 0, other = 0;
	struct mcfs_completion done;
	struct mcfs_submit io;
	void *old = &io;

	put_f();
	cr_expect_not(session_poll(c.session, &told, &old));
	cr_expect_null(old);
	cr_expect_not(session_poll(c.session, NULL, &old)); /* only looks */
	cr_expect_null(old);
	async_read(1, &io);
	for (int k = 1; k <= 3; k++) {
		cr_assert_eq(fp_submit_async(&c, &io), 0);
		for (int wait = 0; wait < 500 && told < k; wait++)
			usleep(10000);
		cr_expect_eq(told, k);
		cr_expect(session_poll(c.session, &told,
				       &old)); /* there is one, and the next is told */
		cr_expect_null(old);
	}
	for (int k = 0; k < 3; k++)
		cr_assert_eq(fp_collect(&c, &done, 0), 1);
	cr_expect_not(session_poll(c.session, &other, &old));
	cr_expect_eq(old, &told);
	fp_close_session(&c);
	cr_expect_eq(other, 1);
	cr_expect_eq(told, 3);
}

/* ---- stopping ---- */

Test(fastpath_session, a_cancelled_submission_says_so)
{
	struct mcfs_completion done;
	struct mcfs_submit io;

	fs_box_fault_dram(&box);
	struct mcfs_item *i = slow_write(100, &io); /* 5 s of it */
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	usleep(60000);
	cr_expect_eq(fp_cancel(&c, io.ticket), 0);
	cr_expect_eq(fp_cancel(&c, io.ticket + 1), -ENOENT);
	cr_assert_eq(fp_collect(&c, &done, 2000), 1);
	cr_expect_eq(done.status, -ECANCELED);
	uint32_t n_cancelled = 0;
	for (int k = 0; k < 100; k++)
		n_cancelled += i[k].status == -ECANCELED;
	cr_expect_gt(n_cancelled, 0);
	cr_expect_eq(done.n_ok, 100 - n_cancelled);
}

Test(fastpath_session, a_queued_submission_is_cancelled_before_it_begins)
{
	enum {
		N = 40
	};
	struct mcfs_completion done;
	struct mcfs_submit io;
	uint64_t tickets[N];
	uint32_t n_done = 0;

	fs_box_fault_dram(&box);
	for (int k = 0; k < N; k++) {
		slow_write(20, &io); /* one second each */
		cr_assert_eq(fp_submit_async(&c, &io), 0);
		tickets[k] = io.ticket;
	}
	for (int k = 0; k < N; k++)
		cr_expect_eq(fp_cancel(&c, tickets[k]), 0);
	for (int k = 0; k < N; k++) {
		cr_assert_eq(fp_collect(&c, &done, 5000), 1);
		cr_expect_eq(done.status, -ECANCELED);
		n_done += done.n_ok;
	}
	cr_expect_lt(n_done, 200);
}

Test(fastpath_session, a_deadline_ends_an_asynchronous_one)
{
	struct mcfs_completion done;
	struct mcfs_submit io;

	put_f();
	struct mcfs_item *i = async_read(10, &io);
	io.deadline_us = 1;
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	cr_assert_eq(fp_collect(&c, &done, 2000), 1);
	cr_expect_eq(done.status, -ETIMEDOUT);
	cr_expect_eq(done.n_ok, 0);
	cr_expect_eq(i[9].status, -ETIMEDOUT);
}

Test(fastpath_session, closing_with_work_under_way_leaves_nothing)
{
	struct mcfs_submit io;

	fs_box_fault_dram(&box);
	for (int k = 0; k < 20; k++) {
		slow_write(20, &io);
		cr_assert_eq(fp_submit_async(&c, &io), 0);
	}
	usleep(70000);
	close_client();
	fault_tier_delay(box.fs.dram, FAULT_take, 0);
	usleep(200000);
	for (int k = 0; k < 20; k++) {
		char name[16];
		snprintf(name, sizeof(name), "slow%d", k);
		fs_box_unlink(&box, dir, name, A);
	}
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_session_patient, a_write_that_waits_for_room_is_cancelled_at_once)
{
	struct mcfs_completion done;
	struct mcfs_submit io;

	fill_dram();
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
	fp_name(&c, i, dir_id, "f");
	i->segment_bytes = 4 << 20;
	i->segment_count = 1;
	cr_assert_eq(fp_submit_async(&c, &io), 0);
	usleep(50000);
	cr_expect_eq(fp_collect(&c, &done, 0), 0);
	cr_expect_eq(fp_cancel(&c, io.ticket), 0);
	cr_assert_eq(fp_collect(&c, &done, 1000), 1);
	cr_expect_eq(done.status, -ECANCELED);
	cr_expect_eq(i->status, -ECANCELED);
}

Test(fastpath_session_patient, a_write_that_waits_for_room_has_a_deadline)
{
	struct mcfs_submit io;

	fill_dram();
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
	fp_name(&c, i, dir_id, "f");
	i->segment_bytes = 4 << 20;
	i->segment_count = 1;
	io.deadline_us = 50000;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, -ETIMEDOUT, "%d", i->status);
}

/* Ten writes that wait for room which does not come. */
static void submit_hopeless(void)
{
	struct mcfs_submit io;

	fill_dram();
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
	fp_name(&c, i, dir_id, "f");
	i->segment_bytes = 4 << 20;
	i->segment_count = 1;
	for (int k = 0; k < 10; k++)
		cr_assert_eq(fp_submit_async(&c, &io), 0);
	usleep(50000);
}

Test(fastpath_session_patient, the_executor_ends_though_work_is_under_way, .timeout = 20)
{
	struct mcfs_completion done;

	submit_hopeless();
	int64_t began = now_mono_ns();
	executor_destroy(box.fs.executor);
	box.fs.executor = NULL;
	cr_expect_lt(now_mono_ns() - began, 3000000000ll);
	for (int k = 0; k < 10; k++) {
		cr_assert_eq(fp_collect(&c, &done, 0), 1);
		cr_expect_eq(done.status, -EINTR);
	}
}

Test(fastpath_session_patient, the_daemon_ends_though_work_is_under_way, .timeout = 20)
{
	submit_hopeless();
	int64_t began = now_mono_ns();
	fs_box_stop(&box, true);
	cr_expect_lt(now_mono_ns() - began, 3000000000ll);
}
