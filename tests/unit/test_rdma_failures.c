/* SPDX-License-Identifier: Apache-2.0 */
/* The provider rdma when verbs or rdma_cm fail, each call and each answer of them, over the fake. */
#include <criterion/criterion.h>

#ifndef MCFS_RDMA
Test(rdma_failures, are_tested_where_it_is_built_in)
{
	cr_skip_test("this build has no RDMA");
}
#else

#include <dirent.h>

#include "fakes/fake_rdma.h"
#include "lib/rdma_pair.h"

static const struct rdma_stats *stats(struct rdma_pair *p)
{
	return rdma_get_stats(p->asker);
}

static int n_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void nothing_is_left(void)
{
	cr_assert_eq(fake_rdma_n_left(), 0);
}

/* ---- completions with an error ---- */

struct outcome {
	int status, rc;
};

static const struct outcome outcomes[] = {
	{IBV_WC_REM_ACCESS_ERR, -EACCES},
	{IBV_WC_RETRY_EXC_ERR, -ECONNRESET},
	{IBV_WC_RNR_RETRY_EXC_ERR, -ECONNRESET},
	{IBV_WC_REM_ABORT_ERR, -ECONNRESET},
	{IBV_WC_WR_FLUSH_ERR, -ECONNRESET},
	{IBV_WC_LOC_PROT_ERR, -EIO},
	{IBV_WC_LOC_LEN_ERR, -EIO},
	{IBV_WC_LOC_QP_OP_ERR, -EIO},
	{IBV_WC_REM_INV_REQ_ERR, -EIO},
	{IBV_WC_REM_OP_ERR, -EIO},
	{IBV_WC_FATAL_ERR, -EIO},
	{IBV_WC_GENERAL_ERR, -EIO},
};

/* Each status, at each of the READs of a pull. */
Test(rdma_failures, every_error_of_a_completion_has_its_errno, .timeout = 60)
{
	struct rdma_pair p;

	pair_open(&p, MIB(5));
	for (size_t k = 0; k < sizeof(outcomes) / sizeof(*outcomes); k++)
		for (int n = 0; n < 5; n++) {
			fake_rdma.wc_after = n;
			fake_rdma.wc_status = outcomes[k].status;
			cr_assert_eq(pull(&p, 0, 0, MIB(5), SOON), outcomes[k].rc,
				     "status %d at %d", outcomes[k].status, n);
		}
	pull_right(&p, 0, 0, MIB(5));
	pair_close(&p);
	nothing_is_left();
}

/* ---- the n-th call fails ---- */

Test(rdma_failures, the_nth_post_fails)
{
	struct rdma_pair p;

	pair_open(&p, MIB(20));
	for (int n = 1; n <= 20; n++) {
		fake_rdma.fail_post_send = n;
		cr_assert_eq(pull(&p, 0, 0, MIB(20), SOON), -ENOMEM, "%d", n);
		cr_assert_eq(stats(&p)->n_pull_links, 0);
	}
	fake_rdma.fail_post_send = 0;
	pull_right(&p, 0, 0, MIB(20));
	pair_close(&p);
	nothing_is_left();
}

/* On their way: the asker's queue, channel, id and queue pair; the holder's queue pair and accept. */
Test(rdma_failures, what_connecting_needs_fails)
{
	atomic_int *const calls[] = {&fake_rdma.fail_create_cq, &fake_rdma.fail_create_channel,
				     &fake_rdma.fail_create_id, &fake_rdma.fail_create_qp};
	struct rdma_pair p;

	pair_open(&p, 4096);
	for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++) {
		*calls[k] = 1;
		cr_assert_eq(pull(&p, 0, 0, 4096, SOON), -ENOMEM, "%zu", k);
		cr_assert_eq(fake_rdma.n_qps, 0);
	}
	fake_rdma.fail_create_qp = 2;
	cr_assert_eq(pull(&p, 0, 0, 4096, SOON), -EAGAIN, "the holder has no more of them");
	fake_rdma.fail_accept = 1;
	cr_assert_eq(pull(&p, 0, 0, 4096, SOON), -EAGAIN);
	cr_assert_eq(fake_rdma.n_qps, 0);
	pull_right(&p, 0, 0, 4096);
	pair_close(&p);
	nothing_is_left();
}

/* Of two transports in one process one hears it; a process has one. */
Test(rdma_failures, a_device_that_is_dead_is_not_used_any_more)
{
	uint8_t key[TRANSPORT_KEY_BYTES];
	struct transport_mr *mr;
	struct rdma_pair p;

	pair_open(&p, 8192);
	pull_right(&p, 0, 0, 8192);
	fake_rdma_say(IBV_EVENT_PORT_ERR);
	fake_rdma_say(IBV_EVENT_PORT_ACTIVE);
	pull_right(&p, 0, 0, 8192);
	for (int n = 0; n < 1000 && transport_rdma.key_of(p.from.mr, key); n++) {
		fake_rdma_say(IBV_EVENT_DEVICE_FATAL);
		sleep_ms(10);
	}
	cr_assert_eq(transport_rdma.key_of(p.from.mr, key), 0);
	cr_assert_eq(transport_rdma.register_memory(p.holder, p.from.bytes, 4096, &mr), -ENODEV);
	cr_assert_eq(rdma_get_stats(p.holder)->n_served_links, 0);
	cr_assert_neq(pull(&p, 0, 0, 8192, SOON), 0);
	struct iovec v = {"x", 1};
	cr_assert_eq(transport_rdma.send(p.a, &v, 1, SOON), 0, "the stream has nothing to do with it");
	pair_close(&p);
	nothing_is_left();
}

Test(rdma_failures, a_queue_that_overran_ends_the_pull)
{
	struct rdma_pair p;
	struct puller x = {.p = &p, .len = 8192};

	pair_open(&p, 8192);
	fake_rdma.holds_reads = true;
	puller_start(&x);
	for (int n = 0; n < 1000 && !x.is_over; n++) {
		fake_rdma_say(IBV_EVENT_CQ_ERR);
		sleep_ms(10);
	}
	/* The holder may have heard it: then it hung up. */
	int rc = puller_finish(&x);
	cr_assert(rc == -EIO || rc == -ECONNRESET, "%d", rc);
	fake_rdma.holds_reads = false;
	pull_right(&p, 0, 0, 8192);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma_failures, the_device_that_is_asked_for)
{
	struct transport_conf conf = {.device = "fake0"};
	struct transport *t;

	cr_assert_eq(transport_rdma.create(&conf, &t), 0);
	transport_rdma.destroy(t);
	conf.device = "mlx5_9";
	cr_assert_eq(transport_rdma.create(&conf, &t), -ENODEV);
	nothing_is_left();
}

Test(rdma_failures, registering_fails)
{
	struct transport_mr *mr = NULL;
	struct rdma_pair p;

	pair_open(&p, 8192);
	fake_rdma.fail_reg_mr = 1;
	cr_assert_eq(transport_rdma.register_memory(p.asker, p.to.bytes, 4096, &mr), -ENOMEM);
	cr_assert_eq(transport_rdma.register_memory(p.asker, p.to.bytes + 1, 4096, &mr),
		     -EINVAL);
	cr_assert_eq(transport_rdma.register_memory(p.asker, p.to.bytes, 0, &mr), -EINVAL);
	cr_assert_null(mr);
	cr_assert_eq(stats(&p)->n_mrs, 1);
	cr_assert_eq(stats(&p)->registered_bytes, 8192);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma_failures, creating_fails)
{
	struct transport *t = NULL;

	fake_rdma.has_no_device = true;
	cr_assert_eq(transport_rdma.create(NULL, &t), -ENODEV);
	fake_rdma.has_no_device = false;
	fake_rdma.fail_alloc_pd = 1;
	cr_assert_eq(transport_rdma.create(NULL, &t), -ENOMEM);
	fake_rdma.fail_create_cq = 1;
	cr_assert_eq(transport_rdma.create(NULL, &t), -ENOMEM);
	cr_assert_null(t);
	nothing_is_left();
}

/* ---- rdma_cm says no, or nothing ---- */

Test(rdma_failures, tells_why_it_cannot_connect)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	fake_rdma.reject_status = 8; /* nobody listens there */
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -ECONNREFUSED);
	fake_rdma.reject_status = 10; /* a stale connection */
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -ECONNRESET);
	fake_rdma.reject_status = 28; /* by somebody who says nothing that is known */
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -ECONNREFUSED);
	fake_rdma.reject_status = 0;
	fake_rdma.resolve_status = -EHOSTUNREACH;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EHOSTUNREACH);
	fake_rdma.resolve_status = 0;
	fake_rdma.is_silent = true;
	cr_assert_eq(pull(&p, 0, 0, 1, deadline_in_ms(50)), -ETIMEDOUT);
	fake_rdma.is_silent = false;
	pull_right(&p, 0, 0, 4096);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma_failures, a_thousand_failed_connects_leave_nothing, .timeout = 120)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	pull_right(&p, 0, 0, 4096);
	p.key[4] ^= 1;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EACCES);
	cr_assert(BECOMES(fake_rdma.n_qps == 0 && fake_rdma.n_ids == 1), "the listener's is left");
	int n_fds = n_descriptors();
	for (int n = 0; n < 1000; n++) {
		fake_rdma.reject_status = n % 3 ? 0 : 8;
		fake_rdma.is_silent = n % 50 == 1;
		int rc = pull(&p, 0, 0, 1, fake_rdma.is_silent ? deadline_in_ms(2) : SOON);
		cr_assert(rc == -EACCES || rc == -ECONNREFUSED || rc == -ETIMEDOUT, "%d", rc);
	}
	cr_assert(BECOMES(fake_rdma.n_ids == 1));
	cr_assert_eq(n_descriptors(), n_fds);
	cr_assert_eq(fake_rdma.n_qps, 0);
	cr_assert_eq(fake_rdma.n_channels, 0);
	cr_assert_eq(stats(&p)->n_connect_failures, 1001);
	pair_close(&p);
	nothing_is_left();
}

/* Where a notification is lost the deadline is what ends it, not chance. */
Test(rdma_failures, a_lost_notification_costs_the_deadline)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	fake_rdma.holds_reads = true;
	fake_rdma.loses_notifications = true;
	struct puller x = {.p = &p, .len = 4096, .deadline_ns = deadline_in_ms(400)};
	puller_start(&x);
	cr_assert(BECOMES(fake_rdma.most_outstanding == 1));
	sleep_ms(50);
	fake_rdma_release_reads();
	cr_assert_eq(puller_finish(&x), -ETIMEDOUT);
	pair_close(&p);
	nothing_is_left();
}

#endif
