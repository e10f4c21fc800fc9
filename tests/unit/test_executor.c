/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fastpath/executor.h"

#define MAX_PARTS 2000

static struct executor *x;

static void begin(void)
{
	x = executor_create();
}

static void end(void)
{
	executor_destroy(x);
}

TestSuite(executor, .init = begin, .fini = end, .timeout = 30);

struct work {
	_Atomic int n_calls[MAX_PARTS];
	_Atomic int n_at_once, most_at_once;
	useconds_t us;
};

static void part(void *arg, uint32_t k)
{
	struct work *w = arg;
	int n = ++w->n_at_once, most = w->most_at_once;

	while (most < n && !atomic_compare_exchange_weak(&w->most_at_once, &most, n))
		;
	if (w->us)
		usleep(w->us);
	w->n_calls[k]++;
	w->n_at_once--;
}

static void expect_each_once(struct work *w, uint32_t n)
{
	for (uint32_t k = 0; k < MAX_PARTS; k++)
		cr_expect_eq(w->n_calls[k], k < n, "part %u", k);
	cr_expect_eq(w->n_at_once, 0, "all have returned");
}

Test(executor, every_part_is_done_once)
{
	static const uint32_t n[] = { 0, 1, 2, 3, 64, MAX_PARTS };

	for (size_t k = 0; k < sizeof(n) / sizeof(*n); k++)
		for (unsigned int helpers = 0; helpers < 20; helpers += 3) {
			struct work w = { .n_at_once = 0 };
			executor_share(x, part, &w, n[k], helpers);
			expect_each_once(&w, n[k]);
		}
}

Test(executor, idle_threads_help)
{
	struct work w = { .us = 20000 };

	executor_share(x, part, &w, 8, 3);
	expect_each_once(&w, 8);
	cr_expect_gt(w.most_at_once, 1);
	cr_expect_leq(w.most_at_once, 4);
}

Test(executor, nobody_helps_unasked)
{
	struct work w = { .us = 1000 };

	executor_share(x, part, &w, 8, 0);
	expect_each_once(&w, 8);
	cr_expect_eq(w.most_at_once, 1);
}

static void *share(void *arg)
{
	executor_share(x, part, arg, 20, 3);
	return NULL;
}

/* Many at once: whoever finds no idle thread does its own work alone. */
Test(executor, sharers_do_not_wait_for_each_others_helpers)
{
	static struct work works[12];
	pthread_t threads[12];

	for (int k = 0; k < 12; k++) {
		works[k].us = k % 3 * 500u;
		cr_assert_eq(pthread_create(&threads[k], NULL, share, &works[k]), 0);
	}
	for (int k = 0; k < 12; k++) {
		pthread_join(threads[k], NULL);
		expect_each_once(&works[k], 20);
	}
}

static void outer(void *arg, uint32_t k)
{
	executor_share(x, part, (struct work *)arg + k, 4, 3);
}

Test(executor, a_part_may_share_its_own_work)
{
	static struct work works[6];

	executor_share(x, outer, works, 6, 3);
	for (int k = 0; k < 6; k++)
		expect_each_once(&works[k], 4);
}
