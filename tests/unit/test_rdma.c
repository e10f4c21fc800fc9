/* SPDX-License-Identifier: Apache-2.0 */
/* The provider rdma over a fake of its libraries: what a real device does not do when asked. */
#include <criterion/criterion.h>

#ifndef MCFS_RDMA
Test(rdma, is_tested_where_it_is_built_in)
{
	cr_skip_test("this build has no RDMA");
}
#else

#include "fakes/fake_rdma.h"
#include "lib/rdma_pair.h"

static const struct rdma_stats *stats(struct rdma_pair *p)
{
	return rdma_get_stats(p->asker);
}

static void nothing_is_left(void)
{
	cr_assert_eq(fake_rdma_n_left(), 0);
}

/* ---- success ---- */

Test(rdma, pulls_any_range)
{
	struct rdma_pair p;

	pair_open(&p, MIB(3) + 4096);
	pull_right(&p, 0, 0, 1);
	pull_right(&p, 4095, 1, 4097);
	pull_right(&p, 77, 3, MIB(1) - 1);
	pull_right(&p, 1, 2, MIB(1) + 1);
	pull_right(&p, 0, 0, p.from.len);
	pull_right(&p, p.from.len - 1, p.to.len - 1, 1);
	cr_assert_eq(pull(&p, p.from.len, 0, 0, SOON), 0, "nothing of nothing");
	cr_assert_eq(stats(&p)->n_connects, 1, "one queue pair serves all of them");
	cr_assert_eq(stats(&p)->n_pulls, 6);
	cr_assert_eq(stats(&p)->n_pull_failures, 0);
	cr_assert_eq(stats(&p)->pull_bytes, 1 + 4097 + MIB(1) - 1 + MIB(1) + 1 + p.from.len + 1);
	cr_assert_eq(rdma_get_stats(p.holder)->n_served_links, 1);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, either_end_of_a_connection_may_ask)
{
	struct transport_listener *l;
	char bound[TRANSPORT_ADDRESS_BYTES];
	uint8_t key[TRANSPORT_KEY_BYTES];
	struct rdma_memory from, to;
	struct rdma_pair p;

	pair_open(&p, 4096);
	pull_right(&p, 0, 0, 4096);
	cr_assert_eq(transport_rdma.listen(p.asker, any_port(), &l, bound), 0);
	memory_open(&from, p.asker, 4096, 5);
	memory_open(&to, p.holder, 4096, 6);
	size_t len = transport_rdma.key_of(from.mr, key);
	cr_assert_eq(transport_rdma.pull(p.b, key, len, 0, to.mr, to.bytes, 4096, SOON), 0);
	cr_assert_eq(memcmp(from.bytes, to.bytes, 4096), 0);
	/* What was read into is read from next. */
	len = transport_rdma.key_of(to.mr, key);
	cr_assert_eq(transport_rdma.pull(p.a, key, len, 0, p.to.mr, p.to.bytes, 4096, SOON), 0);
	cr_assert_eq(memcmp(from.bytes, p.to.bytes, 4096), 0);
	memory_close(&from);
	memory_close(&to);
	transport_rdma.close_listener(l);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, posts_in_chains_and_asks_for_few_completions)
{
	struct rdma_pair p;

	pair_open(&p, MIB(100));
	cr_assert_eq(pull(&p, 0, 0, MIB(100), SOON), 0);
	cr_assert_eq(memcmp(p.from.bytes, p.to.bytes, MIB(100)), 0);
	cr_assert_eq(stats(&p)->n_reads, 100);
	cr_assert_gt(fake_rdma.longest_chain, 4);
	cr_assert_leq(fake_rdma.longest_chain, RDMA_WINDOW_MAX);
	cr_assert_lt(fake_rdma.n_doorbells, 26, "%d", fake_rdma.n_doorbells);
	cr_assert_lt(fake_rdma.n_signalled, 51, "%d", fake_rdma.n_signalled);
	pair_close(&p);
}

Test(rdma, keeps_a_bounded_number_of_reads_under_way)
{
	struct rdma_pair p;

	pair_open(&p, MIB(100));
	fake_rdma.holds_reads = true;
	struct puller x = {.p = &p, .len = MIB(100)};
	puller_start(&x);
	while (!x.is_over) {
		fake_rdma_release_reads();
		sleep_ms(1);
	}
	cr_assert_eq(puller_finish(&x), 0);
	cr_assert_eq(memcmp(p.from.bytes, p.to.bytes, MIB(100)), 0);
	cr_assert_eq(fake_rdma.most_outstanding, 16, "twice what the device reads at once: %d",
		     fake_rdma.most_outstanding);
	cr_assert_gt(stats(&p)->n_sleeps, 0, "it has not polled all the time");
	pair_close(&p);
}

Test(rdma, has_no_keys_where_no_device_serves_the_address)
{
	uint8_t key[TRANSPORT_KEY_BYTES];
	struct rdma_memory m;
	struct transport_listener *l;
	char bound[TRANSPORT_ADDRESS_BYTES];
	struct transport *t;

	cr_assert_eq(transport_rdma.create(NULL, &t), 0);
	memory_open(&m, t, 4096, 1);
	cr_assert_eq(transport_rdma.key_of(m.mr, key), 0, "nobody listens");
	fake_rdma.has_no_gid = true;
	cr_assert_eq(transport_rdma.listen(t, any_port(), &l, bound), 0, "by TCP they reach it");
	cr_assert_eq(transport_rdma.key_of(m.mr, key), 0);
	transport_rdma.close_listener(l);
	memory_close(&m);
	transport_rdma.destroy(t);
	nothing_is_left();
}

/* ---- what is not asked for in order ---- */

Test(rdma, refuses_ranges_outside)
{
	struct rdma_pair p;

	pair_open(&p, 8192);
	cr_assert_eq(pull(&p, 0, 0, 8193, SOON), -EINVAL);
	cr_assert_eq(pull(&p, 8192, 0, 1, SOON), -EINVAL);
	cr_assert_eq(pull(&p, SIZE_MAX, 0, 2, SOON), -EINVAL);
	cr_assert_eq(pull(&p, 0, 8191, 2, SOON), -EINVAL);
	cr_assert_eq(pull(&p, 0, (size_t)-1, 2, SOON), -EINVAL);
	cr_assert_eq(
		transport_rdma.pull(p.a, p.key, p.key_len - 1, 0, p.to.mr, p.to.bytes, 1, SOON),
		-EINVAL);
	p.key[0]++;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EPROTONOSUPPORT);
	cr_assert_eq(fake_rdma.n_qps, 0, "nothing was connected for that");
	pair_close(&p);
}

Test(rdma, refuses_a_wrong_rkey_and_works_on)
{
	struct rdma_pair p;

	pair_open(&p, MIB(4));
	p.key[RDMA_KEY_FIXED_BYTES] ^= 0xff;
	cr_assert_eq(pull(&p, 0, 0, MIB(4), SOON), -EACCES);
	cr_assert_eq(stats(&p)->n_pull_links, 0);
	p.key[RDMA_KEY_FIXED_BYTES] ^= 0xff;
	pull_right(&p, 0, 0, MIB(4));
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, refuses_a_wrong_token)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	p.key[4] ^= 1;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EACCES);
	cr_assert_eq(rdma_get_stats(p.holder)->n_refused, 1);
	cr_assert_eq(stats(&p)->n_connect_failures, 1);
	p.key[4] ^= 1;
	pull_right(&p, 0, 0, 4096);
	p.key[19] ^= 1;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EACCES, "also where a queue pair is there already");
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, refuses_who_has_no_connection)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	transport_rdma.close(p.b);
	p.b = NULL;
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -ECONNRESET);
	cr_assert_eq(fake_rdma.n_qps, 0);
	pair_close(&p);
}

Test(rdma, one_pull_at_a_time)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	fake_rdma.holds_reads = true;
	struct puller x = {.p = &p, .len = 4096};
	puller_start(&x);
	cr_assert(BECOMES(fake_rdma.most_outstanding == 1));
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -EBUSY);
	fake_rdma_release_reads();
	cr_assert_eq(puller_finish(&x), 0);
	pair_close(&p);
}

/* ---- the end of things, in the middle ---- */

/* After pull has returned nothing may come: what the device still has to do is void. */
static void no_late_bytes(struct rdma_pair *p)
{
	memset(p->to.bytes, 0x5a, p->to.len);
	cr_assert_eq(fake_rdma_release_reads(), 0);
	for (size_t k = 0; k < p->to.len; k++)
		cr_assert_eq(p->to.bytes[k], 0x5a);
	cr_assert_eq(stats(p)->n_pull_links, 0);
	cr_assert_eq(fake_rdma.n_channels, 0);
}

Test(rdma, keeps_its_deadline)
{
	struct rdma_pair p;

	pair_open(&p, MIB(8));
	fake_rdma.holds_reads = true;
	int64_t begin = clock_now_ns();
	cr_assert_eq(pull(&p, 0, 0, MIB(8), deadline_in_ms(100)), -ETIMEDOUT);
	int64_t took_ms = (clock_now_ns() - begin) / NS_PER_MS;
	cr_assert_geq(took_ms, 100);
	cr_assert_lt(took_ms, 5000);
	no_late_bytes(&p);
	fake_rdma.holds_reads = false;
	pull_right(&p, 0, 0, MIB(8));
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, sleeps_while_it_waits)
{
	struct timespec before, after;
	struct rdma_pair p;

	pair_open(&p, 4096);
	fake_rdma.holds_reads = true;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	cr_assert_eq(pull(&p, 0, 0, 4096, deadline_in_ms(300)), -ETIMEDOUT);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	int64_t cpu_ns = (after.tv_sec - before.tv_sec) * NS_PER_S + after.tv_nsec - before.tv_nsec;
	cr_assert_lt(cpu_ns, 30 * NS_PER_MS, "%lld", (long long)cpu_ns);
	pair_close(&p);
}

Test(rdma, shutdown_ends_a_pull)
{
	struct rdma_pair p;

	pair_open(&p, MIB(8));
	fake_rdma.holds_reads = true;
	struct puller x = {.p = &p, .len = MIB(8)};
	puller_start(&x);
	cr_assert(BECOMES(fake_rdma.most_outstanding > 0));
	transport_rdma.shutdown(p.a);
	cr_assert_eq(puller_finish(&x), -ECANCELED);
	no_late_bytes(&p);
	cr_assert_eq(pull(&p, 0, 0, 1, SOON), -ECANCELED);
	pair_close(&p);
	nothing_is_left();
}

Test(rdma, shutdown_ends_a_connect)
{
	struct rdma_pair p;

	pair_open(&p, 4096);
	fake_rdma.is_silent = true;
	struct puller x = {.p = &p, .len = 4096};
	puller_start(&x);
	cr_assert(BECOMES(stats(&p)->n_pull_links == 1));
	transport_rdma.shutdown(p.a);
	cr_assert_eq(puller_finish(&x), -ECANCELED);
	pair_close(&p);
	nothing_is_left();
}

static void ends_with_reset(void (*end)(struct rdma_pair *p))
{
	struct rdma_pair p;

	pair_open(&p, MIB(8));
	fake_rdma.holds_reads = true;
	struct puller x = {.p = &p, .len = MIB(8)};
	puller_start(&x);
	cr_assert(BECOMES(fake_rdma.most_outstanding > 0));
	end(&p);
	cr_assert_eq(puller_finish(&x), -ECONNRESET);
	no_late_bytes(&p);
	pair_close(&p);
	nothing_is_left();
}

static void shut_the_holder(struct rdma_pair *p)
{
	transport_rdma.shutdown(p->b);
}

static void close_the_holder(struct rdma_pair *p)
{
	transport_rdma.close(p->b);
	p->b = NULL;
}

static void cut(struct rdma_pair *p)
{
	fake_rdma_disconnect_all();
}

Test(rdma, sees_the_holder_shut_down)
{
	ends_with_reset(shut_the_holder);
}

Test(rdma, sees_the_holder_close)
{
	ends_with_reset(close_the_holder);
}

Test(rdma, sees_its_queue_pair_cut)
{
	ends_with_reset(cut);
}

static void remove_device(struct rdma_pair *p)
{
	fake_rdma_remove_device();
}

Test(rdma, sees_its_device_removed)
{
	ends_with_reset(remove_device);
}

Test(rdma, a_removed_device_is_not_used_again)
{
	uint8_t key[TRANSPORT_KEY_BYTES];
	struct transport_mr *mr;
	struct rdma_pair p;

	pair_open(&p, 4096);
	pull_right(&p, 0, 0, 4096);
	fake_rdma_remove_device();
	cr_assert(BECOMES(fake_rdma.n_qps == 1 && !rdma_get_stats(p.holder)->n_served_links));
	cr_assert(BECOMES(!transport_rdma.key_of(p.from.mr, key)));
	cr_assert_eq(transport_rdma.register_memory(p.holder, p.from.bytes, 4096, &mr),
		     -ENODEV);
	/* The first may still find a queue pair, which fails. */
	cr_assert(BECOMES(pull(&p, 0, 0, 4096, SOON) == -ENODEV));
	struct iovec v = {"x", 1};
	cr_assert_eq(transport_rdma.send(p.a, &v, 1, SOON), 0,
		     "the stream has nothing to do with it");
	pair_close(&p);
	nothing_is_left();
}

#endif
