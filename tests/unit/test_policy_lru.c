/* SPDX-License-Identifier: Apache-2.0 */
/* policy_lru: the order of victims, the leaf-first rule, and random operations against a naive model. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tier/policy.h"

#define MS INT64_C(1000000)
#define MAX_NODES 64

/* ---- fixture ---- */

static struct policy *lru;
static struct policy_node nodes[MAX_NODES]; /* named a, b, c, ... */
/* Colder than all of these, so that a run of MAX_NODES is not too large a share of the whole. */
static struct policy_node others[16 * MAX_NODES + 16];
static int64_t now;

static void setup(void)
{
	lru = policy_lru_create();
	cr_assert_not_null(lru);
	memset(nodes, 0, sizeof(nodes));
	memset(others, 0, sizeof(others));
	for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
		lru->ops->insert_cold(lru, &others[k]);
	now = 1000 * MS;
}

static void teardown(void)
{
	lru->ops->destroy(lru);
}

TestSuite(policy_lru, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void insert(char name, uint64_t caller)
{
	lru->ops->insert(lru, &nodes[name - 'a'], caller, now);
}

static void touch(char name, uint64_t caller)
{
	lru->ops->touch(lru, &nodes[name - 'a'], caller, now);
}

/* Each name is used once, long after the one before. */
static void insert_apart(const char *names)
{
	for (; *names; names++) {
		now += 100 * MS;
		insert(*names, 1);
	}
	now += 100 * MS;
}

/* The next victim that is one of nodes. */
static struct policy_node *next_named(struct policy_node *after)
{
	struct policy_node *v = lru->ops->victim(lru, after);

	while (v && (v < nodes || v >= nodes + MAX_NODES))
		v = lru->ops->victim(lru, v);
	return v;
}

static void expect_order(const char *coldest_first)
{
	char order[MAX_NODES + 1];
	size_t n = 0;

	for (struct policy_node *v = next_named(NULL); v; v = next_named(v))
		order[n++] = (char)('a' + (v - nodes));
	order[n] = '\0';
	cr_expect_str_eq(order, coldest_first);
}

/* ---- order ---- */

Test(policy_lru, offers_the_least_recently_used_first)
{
	insert_apart("abcd");
	expect_order("abcd");
	touch('a', 1);
	now += 100 * MS;
	touch('c', 2);
	expect_order("bdac");
	lru->ops->remove(lru, &nodes['d' - 'a']);
	cr_expect_null(nodes['d' - 'a'].prev);
	cr_expect_null(nodes['d' - 'a'].next);
	expect_order("bac");
}

Test(policy_lru, is_empty_at_first_and_after_the_last_removal)
{
	expect_order("");
	insert('a', 1);
	lru->ops->remove(lru, &nodes[0]);
	expect_order("");
	insert('a', 1);
	insert('b', 1);
	expect_order("ba");
}

Test(policy_lru, adopted_nodes_go_first)
{
	insert_apart("ab");
	lru->ops->insert_cold(lru, &nodes['x' - 'a']);
	lru->ops->insert_cold(lru, &nodes['y' - 'a']);
	expect_order("yxab");
	touch('x', 1);
	expect_order("yabx");
}

/* ---- leaf first ---- */

Test(policy_lru, a_chain_goes_from_its_leaf)
{
	insert_apart("xy");
	insert('a', 1);
	insert('b', 1);
	now += 2 * MS;
	insert('c', 1);
	expect_order("xycba");
	now += 100 * MS;
	touch('a', 1);
	touch('b', 1);
	expect_order("xycba");
	touch('c', 1);
	expect_order("xycba");
}

Test(policy_lru, a_touch_again_starts_a_new_run)
{
	insert('a', 1);
	insert('b', 1);
	touch('a', 1);
	expect_order("ba");
	insert('c', 1);
	expect_order("bca");
	touch('a', 1);
	touch('b', 1);
	touch('c', 1);
	expect_order("cba");
}

Test(policy_lru, a_pause_starts_a_new_run)
{
	insert('a', 1);
	insert('b', 1);
	now += 2 * MS + 1;
	insert('c', 1);
	insert('d', 1);
	expect_order("badc");
}

static long hottest(void)
{
	struct policy_node *last = NULL;

	for (struct policy_node *v = lru->ops->victim(lru, NULL); v; v = lru->ops->victim(lru, v))
		last = v;
	return last - nodes;
}

Test(policy_lru, a_run_is_bounded_in_time)
{
	for (int i = 0; i < 40; i++) {
		lru->ops->insert(lru, &nodes[i], 1, now);
		now += 2 * MS;
	}
	cr_expect_eq(next_named(NULL), &nodes[39], "still one run");
	for (int i = 0; i < 300; i++) { /* objects come and go without a pause */
		lru->ops->remove(lru, &nodes[i % 20]);
		lru->ops->insert(lru, &nodes[i % 20], 1, now);
		now += 2 * MS;
	}
	cr_expect_lt(hottest(), 20, "a late one is the hottest");
}

Test(policy_lru, a_run_is_at_most_a_sixteenth_of_all_nodes)
{
	/* 44 nodes: a run ends after two, so that what is newest is never the next to go. */
	for (size_t k = 40; k < sizeof(others) / sizeof(*others); k++)
		lru->ops->remove(lru, &others[k]);
	insert('a', 1);
	insert('b', 1);
	insert('c', 1);
	insert('d', 1);
	expect_order("badc");
}

Test(policy_lru, other_callers_in_between_do_not_break_a_run)
{
	insert('a', 1);
	insert('k', 2);
	insert('b', 1);
	insert('l', 2);
	insert('c', 1);
	expect_order("cbalk");
}

Test(policy_lru, a_node_belongs_to_who_touched_it_last)
{
	insert('a', 1);
	insert('b', 1);
	insert('c', 1);
	touch('c', 2); /* the leaf leaves: the run goes on below b */
	insert('d', 1);
	expect_order("dbac");
	touch('a', 2);
	touch('b', 2);
	touch('d', 2);
	expect_order("dbac"); /* one chain c, a, b, d of caller 2 */
	insert('e', 1);	      /* nothing of its run is left */
	expect_order("dbace");
}

Test(policy_lru, removal_of_a_leaf_keeps_the_run)
{
	insert('x', 3);
	insert('a', 1);
	insert('b', 1);
	insert('y', 4);
	lru->ops->remove(lru, &nodes['b' - 'a']);
	insert('c', 1);
	expect_order("xcay");
}

Test(policy_lru, nobody_has_no_runs)
{
	insert('a', 0);
	insert('b', 0);
	insert('c', 0);
	expect_order("abc");
}

Test(policy_lru, more_callers_than_it_can_tell_apart_are_plain_lru)
{
	for (int i = 0; i < MAX_NODES; i++)
		lru->ops->insert(lru, &nodes[i], 1, now);
	/* Some 100,000 other callers: the run of caller 1 is forgotten, nothing else happens. */
	for (uint64_t caller = 2; caller < 100000; caller++)
		lru->ops->touch(lru, &nodes[5], caller, ++now);
	lru->ops->touch(lru, &nodes[6], 1, ++now);
	cr_expect_eq(hottest(), 6);
}

/* ---- against a model ---- */

/*
 * The rule, naively: a node has a run and a place in it; runs go in the order of their start, the
 * nodes of a run in the reverse order of their touches.
 */
struct model_node {
	long run, place;
	uint64_t caller;
};

struct model_caller {
	long run, n_places;
	int64_t first, last;
};

#define MODEL_CALLERS 4

static struct model_node model[MAX_NODES];
static struct model_caller callers[MODEL_CALLERS];
static bool is_in[MAX_NODES];
static long n_model_runs, n_cold;

static void model_leave(int i)
{
	is_in[i] = false;
}

static bool model_run_lives(long run)
{
	for (int i = 0; i < MAX_NODES; i++)
		if (is_in[i] && model[i].run == run)
			return true;
	return false;
}

static void model_use(int i, uint64_t c, bool is_new)
{
	struct model_caller *caller = &callers[c];
	bool was_in_run = !is_new && model[i].run == caller->run;

	is_in[i] = false;
	bool goes_on = c != 0 && caller->run > 0 && !was_in_run && model_run_lives(caller->run) &&
		       now - caller->last <= 2 * MS && now - caller->first <= 500 * MS;
	is_in[i] = true;
	if (!goes_on)
		*caller = (struct model_caller){.run = ++n_model_runs, .first = now};
	caller->last = now;
	model[i] = (struct model_node){.run = caller->run, .place = ++caller->n_places};
}

static int by_rule(const void *a, const void *b)
{
	const struct model_node *x = &model[*(const int *)a], *y = &model[*(const int *)b];

	if (x->run != y->run)
		return x->run < y->run ? -1 : 1;
	return x->place > y->place ? -1 : 1;
}

static void expect_model_order(int step)
{
	int order[MAX_NODES], n = 0, i = 0;

	for (int k = 0; k < MAX_NODES; k++)
		if (is_in[k])
			order[n++] = k;
	qsort(order, (size_t)n, sizeof(*order), by_rule);
	for (struct policy_node *v = next_named(NULL); v; v = next_named(v), i++) {
		cr_assert_lt(i, n);
		cr_assert_eq(v - nodes, order[i], "step %d, victim %d", step, i);
	}
	cr_assert_eq(i, n);
}

Test(policy_lru, agrees_with_a_naive_model)
{
	unsigned int seed = 42;

	for (int step = 0; step < 50000; step++) {
		int i = rand_r(&seed) % MAX_NODES, kind = rand_r(&seed) % 16;
		uint64_t c = (uint64_t)(rand_r(&seed) % MODEL_CALLERS);
		now += rand_r(&seed) % 64 == 0 ? 3 * MS : rand_r(&seed) % (MS / 2);
		if (is_in[i] && kind < 2) {
			lru->ops->remove(lru, &nodes[i]);
			model_leave(i);
		} else if (is_in[i]) {
			lru->ops->touch(lru, &nodes[i], c, now);
			model_use(i, c, false);
		} else if (kind == 0) {
			lru->ops->insert_cold(lru, &nodes[i]);
			model[i] = (struct model_node){.run = --n_cold};
			is_in[i] = true;
		} else {
			lru->ops->insert(lru, &nodes[i], c, now);
			model_use(i, c, true);
		}
		if (step % 7 == 0)
			expect_model_order(step);
	}
}
