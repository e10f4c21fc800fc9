/* SPDX-License-Identifier: Apache-2.0 */
/* version: numbers grow, whatever happens to the process, its clock and its catalog. */
#include "catalog_fixture.h"

#include <pthread.h>
#include <time.h>

#include "fs.h"
#include "object/version.h"

#define NODE_BITS 12
#define NODE_MASK ((1u << NODE_BITS) - 1)

/* ---- fixture ---- */

static struct catalog *c;
static struct version_clock *v;
static struct version_clock *dead[32]; /* of crashed processes */
static size_t n_dead;

static void setup(void)
{
	scratch_create();
	c = catalog_must_open();
	cr_assert_eq(version_clock_create(c, &v), 0);
}

static void teardown(void)
{
	version_clock_destroy(v);
	catalog_close(c);
	while (n_dead)
		version_clock_destroy(dead[--n_dead]);
	scratch_remove();
}

TestSuite(version, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void restart(void)
{
	version_clock_destroy(v);
	catalog_close(c);
	c = catalog_must_open();
	cr_assert_eq(version_clock_create(c, &v), 0);
}

/* As after kill -9: nobody has said goodbye to the clock. */
static void crash(void)
{
	dead[n_dead++] = v;
	cr_assert_eq(version_clock_create(c, &v), 0);
}

static uint64_t wall_us(void)
{
	return (uint64_t)now_real_ns() / 1000;
}

/* ---- tests ---- */

Test(version, numbers_grow_and_are_above_zero)
{
	uint64_t last = 0;

	for (int k = 0; k < 100000; k++) {
		uint64_t next = version_next(v);
		cr_assert_gt(next, last);
		last = next;
	}
	cr_expect_lt(last, UINT64_C(1) << 63);
}

Test(version, numbers_tell_the_time_and_the_node)
{
	uint64_t before = wall_us(), a = version_next(v), b = version_next(v);
	uint64_t after = wall_us();

	cr_expect_geq(a >> NODE_BITS, before);
	cr_expect_leq(b >> NODE_BITS, after + 1);
	cr_expect_eq(a & NODE_MASK, b & NODE_MASK);
}

Test(version, the_node_bits_stay_over_a_restart)
{
	uint64_t a = version_next(v);

	restart();
	cr_expect_eq(version_next(v) & NODE_MASK, a & NODE_MASK);
}

Test(version, numbers_grow_over_a_restart)
{
	for (int k = 0; k < 4; k++) {
		uint64_t last = 0;
		for (int n = 0; n < 100; n++)
			last = version_next(v);
		restart();
		cr_assert_gt(version_next(v), last);
	}
}

Test(version, numbers_grow_over_a_crash)
{
	for (int k = 0; k < 20; k++) {
		uint64_t last = version_next(v);
		crash();
		cr_assert_gt(version_next(v), last);
	}
}

Test(version, numbers_grow_with_a_clock_set_back)
{
	/* The ceiling of a run whose clock was an hour ahead. */
	uint64_t ahead = (wall_us() + 3600000000) << NODE_BITS;

	cr_assert_eq(catalog_control_put(c, "version_ceiling", ahead, true), 0);
	crash();
	cr_expect_gt(version_next(v), ahead);
	uint64_t a = version_next(v);
	cr_expect_gt(version_next(v), a);
	uint64_t ceiling = 0;
	cr_assert_eq(catalog_control_get(c, "version_ceiling", &ceiling), 0);
	cr_expect_gt(ceiling, a, "the ceiling is above what was given");
}

Test(version, every_number_is_below_the_stored_ceiling)
{
	for (int k = 0; k < 1000; k++) {
		uint64_t ceiling = 0, next = version_next(v);
		cr_assert_eq(catalog_control_get(c, "version_ceiling", &ceiling), 0);
		cr_assert_leq(next & ~(uint64_t)NODE_MASK, ceiling);
	}
}

Test(version, without_a_ceiling_there_is_no_number)
{
	struct catalog_conf conf = { .path = catalog_path, .read_only = true };
	struct version_clock *w;
	struct catalog *ro;

	version_next(v); /* node bits and a ceiling are there */
	cr_assert_eq(catalog_sync(c), 0);
	cr_assert_eq(catalog_open(&conf, &ro), 0);
	cr_assert_eq(version_clock_create(ro, &w), 0);
	cr_expect_eq(version_next(w), 0);
	version_clock_destroy(w);
	catalog_close(ro);
}

static uint64_t taken[4][5000];

static void *take_many(void *arg)
{
	uint64_t *mine = arg;

	for (int k = 0; k < 5000; k++)
		mine[k] = version_next(v);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

Test(version, threads_get_different_numbers)
{
	pthread_t threads[4];
	uint64_t *all = &taken[0][0];

	for (int k = 0; k < 4; k++)
		pthread_create(&threads[k], NULL, take_many, taken[k]);
	for (int k = 0; k < 4; k++)
		pthread_join(threads[k], NULL);
	qsort(all, 4 * 5000, sizeof(*all), by_value);
	for (int k = 1; k < 4 * 5000; k++)
		cr_assert_neq(all[k], all[k - 1]);
}

/* ---- other nodes' ---- */

Test(version, comes_after_what_another_node_gave)
{
	uint64_t ahead = (wall_us() + 3600ull * 1000000) << NODE_BITS | 5;

	version_observe(v, ahead);
	cr_expect_gt(version_next(v), ahead);
	restart();
	cr_expect_gt(version_next(v), ahead, "also after a restart");
	version_observe(v, 5);
	cr_expect_gt(version_next(v), ahead, "an old one changes nothing");
}

Test(version, of_the_far_future_is_not_followed)
{
	uint64_t far = (wall_us() + 48ull * 3600 * 1000000) << NODE_BITS;

	version_observe(v, far);
	cr_expect_lt(version_next(v), far);
	version_observe(v, UINT64_MAX);
	cr_expect_lt(version_next(v), far);
}

Test(version, tells_its_time)
{
	cr_expect_leq(llabs(version_time_ns(version_next(v)) - now_real_ns()), 1000000000ll);
}
