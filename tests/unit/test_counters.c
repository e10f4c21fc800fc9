/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "base/counters.h"

Test(counters, start_at_zero_and_add_up)
{
	cr_expect_eq(counter_get(COUNTER_reads), 0);
	counter_inc(reads);
	counter_add(reads, 41);
	cr_expect_eq(counter_get(COUNTER_reads), 42);
	cr_expect_eq(counter_get(COUNTER_writes), 0);
}

/* Names become mooncakefs_<name>_total; Prometheus allows no more than this and wants each once. */
Test(counters, have_exportable_and_distinct_names)
{
	for (int i = 0; i < N_COUNTERS; i++) {
		const char *name = counter_name((enum counter_id)i);
		cr_assert(*name && *counter_help((enum counter_id)i));
		for (const char *p = name; *p; p++)
			cr_expect(islower((unsigned char)*p) || isdigit((unsigned char)*p) ||
					  *p == '_',
				  "%s", name);
		for (int k = 0; k < i; k++)
			cr_expect_str_neq(name, counter_name((enum counter_id)k));
	}
}

static void *add_many(void *arg)
{
	for (int i = 0; i < 100000; i++)
		counter_inc(lookups);
	return NULL;
}

Test(counters, lose_nothing_between_threads)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_expect_eq(counter_get(COUNTER_lookups), 400000);
}
