/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "object/frame_set.h"

static void fill(struct frame_set *s, const uint64_t *ids, size_t n)
{
	for (size_t k = 0; k < n; k++)
		cr_assert_eq(frame_set_add(s, ids[k]), 0);
	cr_assert_eq(frame_set_sort(s), 0);
}

Test(frame_set, finds_ids_added_in_any_order)
{
	static const uint64_t up[] = {1, 2, 3, 9}, down[] = {9, 3, 2, 1}, mixed[] = {3, 9, 1, 2, 9};
	static const struct { const uint64_t *ids; size_t n; } orders[] = {
		{up, 4}, {down, 4}, {mixed, 5}};

	for (int o = 0; o < 3; o++) {
		struct frame_set s = {.ids = NULL};
		fill(&s, orders[o].ids, orders[o].n);
		cr_expect_eq(s.n, 4);
		for (int k = 3; k >= 0; k--)
			cr_expect(frame_set_take(&s, up[k]));
		cr_expect(frame_set_take(&s, 1) && frame_set_take(&s, 2), "twice is fine");
		cr_expect_not(frame_set_take(&s, 0));
		cr_expect_not(frame_set_take(&s, 4));
		cr_expect_not(frame_set_take(&s, 10));
		frame_set_fini(&s);
	}
}

Test(frame_set, keeps_what_was_not_taken)
{
	struct frame_set s = {.ids = NULL};

	for (uint64_t id = 100000; id > 0; id--)
		cr_assert_eq(frame_set_add(&s, id), 0);
	cr_assert_eq(frame_set_sort(&s), 0);
	for (uint64_t id = 1; id <= 100000; id++)
		if (id % 1000)
			cr_assert(frame_set_take(&s, id));
	frame_set_keep_untaken(&s);
	cr_assert_eq(s.n, 100);
	for (uint64_t k = 0; k < 100; k++)
		cr_expect_eq(s.ids[k], (k + 1) * 1000);
	frame_set_fini(&s);
}

Test(frame_set, may_be_empty)
{
	struct frame_set s = {.ids = NULL};

	cr_assert_eq(frame_set_sort(&s), 0);
	cr_expect_not(frame_set_take(&s, 1));
	frame_set_keep_untaken(&s);
	cr_expect_eq(s.n, 0);
	frame_set_fini(&s);
}
