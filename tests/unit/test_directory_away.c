/* SPDX-License-Identifier: Apache-2.0 */
/* The directory when its server is away, hangs, forgets, is full, or refuses us. */
#include "mcfs/directory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "directory_parts.h"
#include "lib/directory_box.h"

TestSuite(directory_away, .init = directory_box_init, .fini = directory_box_fini, .timeout = 60);

/* ---- helpers ---- */

static struct redis_server *server(void)
{
	return &directory_box.server;
}

static int lookup_ms(struct directory *d, int64_t *ms_out)
{
	struct directory_value v;
	int64_t begin_ns = directory_box_in_ms(0);
	int rc = directory_box_lookup(d, "/kv", "a", &v);

	*ms_out = (directory_box_in_ms(0) - begin_ns) / 1000000;
	return rc;
}

static bool is_away(struct directory *d)
{
	int error = directory_box_state(d);

	return error == ENETDOWN || error == ETIMEDOUT;
}

static bool is_refused(struct directory *d)
{
	return directory_box_state(d) == EACCES;
}

static bool resynced_twice(struct directory *d)
{
	return atomic_load(&directory_box.n_resyncs[0]) >= 2;
}

static void count_done(void *arg, int rc, const struct directory_value *before)
{
	int *counts = arg;

	counts[rc == 0 ? 0 : rc == -ENOBUFS ? 1 : rc == -ECANCELED ? 2 : 3]++;
}

static void announce(struct directory *d, int i, directory_done_fn done, void *arg)
{
	struct directory_value v = directory_box_file(1 + (uint64_t)i, 1);
	char name[80];

	snprintf(name, sizeof(name), "%064x", i);
	directory_announce(d, "/kv", name, &v, 5, done, arg);
}

static struct directory_stats stats(struct directory *d)
{
	struct directory_stats s;

	directory_get_stats(d, &s);
	return s;
}

static bool takes_changes(struct directory *d)
{
	char text[256];

	return !directory_state(d, text, sizeof(text)) && !*text;
}

static void expect_destroy_is_fast(void)
{
	int64_t begin_ns = directory_box_in_ms(0);

	directory_box_close(0);
	int64_t took_ms = (directory_box_in_ms(0) - begin_ns) / 1000000;
	cr_expect_leq(took_ms, 2000, "%lld ms", (long long)took_ms);
}

/* ---- away ---- */

Test(directory_away, a_server_that_never_was_is_no_reason_not_to_start)
{
	struct directory_conf conf = directory_box_conf(0);
	char text[256];
	int64_t ms;

	redis_server_kill(server());
	cr_assert_eq(directory_create(&conf, &directory_box.nodes[0]), 0);
	struct directory *d = directory_box.nodes[0];
	cr_expect_eq(lookup_ms(d, &ms), -ENETDOWN);
	cr_expect_leq(ms, 50);
	cr_expect_eq(directory_state(d, text, sizeof(text)), ENETDOWN);
	cr_expect(strlen(text) > 0);
	cr_expect_eq(directory_slot(d), -1);
	cr_expect_not(directory_lease_holds(d));
	announce(d, 1, NULL, NULL);
	redis_server_start(server());
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_expect_eq(directory_flush(d, directory_box_in_ms(5000)), 0);
	cr_expect_eq(stats(d).n_announced, 1, "it waited");
	cr_expect_eq(directory_state(d, text, sizeof(text)), 0);
	cr_expect_str_eq(text, "");
}

Test(directory_away, a_server_that_dies_costs_nobody_anything)
{
	struct directory *d = directory_box_node(0);
	int64_t ms;

	cr_expect_eq(lookup_ms(d, &ms), 0);
	redis_server_kill(server());
	cr_expect_eq(lookup_ms(d, &ms), -ENETDOWN);
	cr_expect_leq(ms, 100);
	cr_expect_eq(lookup_ms(d, &ms), -ENETDOWN);
	cr_expect_leq(ms, 50);
	cr_expect(is_away(d));
	cr_expect_not(stats(d).is_up);
}

Test(directory_away, a_server_that_hangs_costs_one_lookup_twice_its_limit)
{
	struct directory_conf conf = directory_box_conf(0);
	int64_t ms;

	conf.lookup_ms = 100;
	struct directory *d = directory_box_open(0, &conf);

	cr_expect_eq(lookup_ms(d, &ms), 0);
	redis_server_freeze(server());
	cr_expect_eq(lookup_ms(d, &ms), -ETIMEDOUT);
	cr_expect(ms >= 180 && ms <= 500, "%lld ms", (long long)ms);
	for (int i = 0; i < 20; i++) {
		cr_expect_eq(lookup_ms(d, &ms), -ENETDOWN);
		cr_expect_leq(ms, 50);
		usleep(50000);
	}
	redis_server_thaw(server());
	cr_assert(directory_box_wait(directory_box_is_usable, d, 3000));
	cr_expect_eq(lookup_ms(d, &ms), 0);
}

Test(directory_away, an_impatient_lookup_does_not_make_it_away)
{
	struct directory *d = directory_box_node(0);
	struct directory_name name = {.dir = "/kv", .name = "a"};
	struct directory_value v;

	redis_server_freeze(server());
	cr_expect_eq(directory_lookup(d, &name, 1, &v, directory_box_in_ms(10)), -ETIMEDOUT);
	cr_expect(stats(d).is_up);
	redis_server_thaw(server());
	cr_expect_eq(directory_lookup(d, &name, 1, &v, directory_box_in_ms(5000)), 0);
	cr_expect_eq(directory_lookup(d, &name, 1, &v, directory_box_in_ms(-1)), -ETIMEDOUT);
}

static int list_none(void *arg, uint64_t cookie, const char *name, const struct directory_value *v)
{
	return 0;
}

Test(directory_away, a_list_ends_at_its_deadline)
{
	struct directory *d = directory_box_node(0);
	int64_t begin_ns = directory_box_in_ms(0);

	redis_server_freeze(server());
	int rc = directory_list(d, "/kv", 0, list_none, NULL, directory_box_in_ms(100));
	cr_expect(rc == -ETIMEDOUT || rc == -ENETDOWN, "%d", rc);
	cr_expect_leq((directory_box_in_ms(0) - begin_ns) / 1000000, 300);
	redis_server_thaw(server());
}

/* ---- forgetful ---- */

Test(directory_away, a_restart_makes_us_announce_anew)
{
	struct directory *d = directory_box_node(0);

	redis_server_kill(server());
	cr_assert(directory_box_wait(is_away, d, 5000));
	redis_server_start(server());
	cr_expect(directory_box_wait(resynced_twice, d, 5000));
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_expect_eq(directory_slot(d), 0, "the same slot");
	cr_expect_eq(stats(d).n_resyncs, 2);
}

Test(directory_away, a_wipe_makes_us_announce_anew)
{
	struct directory *d = directory_box_node(0);
	struct redis_reply reply;

	cr_assert_eq(redis_server_run(server(), &reply, "FLUSHALL", NULL), 0);
	cr_expect(directory_box_wait(resynced_twice, d, 5000));
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_expect_eq(directory_slot(d), 0);
}

Test(directory_away, a_short_absence_loses_nothing_and_announces_nothing_anew)
{
	struct directory *d = directory_box_node(0);
	int counts[4] = {0};

	redis_server_freeze(server());
	cr_assert(directory_box_wait(is_away, d, 5000));
	for (int i = 0; i < 1000; i++)
		announce(d, i, count_done, counts);
	redis_server_thaw(server());
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_assert_eq(directory_flush(d, directory_box_in_ms(10000)), 0);
	cr_expect_eq(counts[0], 1000);
	cr_expect_eq(atomic_load(&directory_box.n_resyncs[0]), 1);
}

/* ---- full ---- */

Test(directory_away, a_full_queue_gives_up_and_announces_anew_later)
{
	struct directory_conf conf = directory_box_conf(0);
	int counts[4] = {0};

	conf.max_queue_bytes = 50000;
	struct directory *d = directory_box_open(0, &conf);
	redis_server_freeze(server());
	cr_assert(directory_box_wait(is_away, d, 5000));
	for (int i = 0; i < 2000; i++)
		announce(d, i, count_done, counts);
	cr_expect_leq(stats(d).queue_bytes, 50000);
	uint64_t n_given_up = stats(d).n_given_up;
	cr_expect(n_given_up > 1000 && n_given_up < 2000);
	redis_server_thaw(server());
	cr_expect(directory_box_wait(resynced_twice, d, 10000));
	cr_assert_eq(directory_flush(d, directory_box_in_ms(10000)), 0);
	cr_expect_eq(counts[1], (int)n_given_up);
	cr_expect_eq(counts[0], 2000 - (int)n_given_up);
}

static void announce_all(void *arg)
{
	for (int i = 0; i < 5000; i++)
		announce(directory_box.nodes[0], i, NULL, NULL);
	atomic_fetch_add(&directory_box.n_resyncs[0], 1);
}

static bool resynced(struct directory *d)
{
	return atomic_load(&directory_box.n_resyncs[0]) >= 1;
}

Test(directory_away, announcing_anew_is_slowed_down_rather_than_given_up)
{
	struct directory_conf conf = directory_box_conf(0);

	conf.max_queue_bytes = 20000;
	conf.on_resync = announce_all;
	struct directory *d = directory_box_open(0, &conf);
	cr_assert(directory_box_wait(resynced, d, 20000));
	cr_assert_eq(directory_flush(d, directory_box_in_ms(10000)), 0);
	cr_expect_eq(stats(d).n_given_up, 0);
	cr_expect_eq(stats(d).n_announced, 5000);
}

Test(directory_away, a_server_out_of_memory_says_so)
{
	struct directory *d = directory_box_node(0);
	struct directory_value v = directory_box_file(1, 1), got;
	struct redis_reply reply;
	char text[256];

	cr_assert_eq(directory_box_announce(d, "/kv", "before", &v, NULL), 0);
	cr_assert_eq(redis_server_run(server(), &reply, "CONFIG", "SET", "maxmemory-policy", "noeviction", NULL),
		     0);
	cr_assert_eq(redis_server_run(server(), &reply, "CONFIG", "SET", "maxmemory", "1000", NULL), 0);
	cr_expect_eq(directory_box_announce(d, "/kv", "after", &v, NULL), -ENOSPC);
	cr_expect_not(takes_changes(d));
	cr_expect_eq(directory_box_lookup(d, "/kv", "before", &got), 0);
	cr_expect_eq(got.kind, DIRECTORY_FILE);
	cr_expect_eq(directory_box_retract(d, "/kv", "before", NULL), 0, "that takes no memory");
	usleep(2500000);
	cr_expect(directory_lease_holds(d), "nor does a lease");
	cr_expect_eq(directory_state(d, text, sizeof(text)), 0);
	cr_expect(strstr(text, "takes no changes: OOM"), "%s", text);
	cr_assert_eq(redis_server_run(server(), &reply, "CONFIG", "SET", "maxmemory", "0", NULL), 0);
	cr_expect(directory_box_wait(takes_changes, d, 2000), "as soon as a beat has found it");
	cr_expect_eq(directory_box_announce(d, "/kv", "after", &v, NULL), 0);
	cr_expect(directory_box_wait(resynced_twice, d, 10000), "what was lost is made up for");
}

/* Of how often a claim is touched: a minute would be long for a test. */
static void touch_claim_now(struct directory *d)
{
	d->lease.touched_ns = clock_now_ns() - 3600 * NS_PER_S;
}

static bool has_touched_claim(struct directory *d)
{
	return clock_now_ns() - d->lease.touched_ns < 60 * NS_PER_S;
}

Test(directory_away, a_server_out_of_memory_is_there_when_the_claim_is_touched)
{
	struct directory *d = directory_box_node(0);
	struct redis_reply reply;

	cr_assert_eq(redis_server_run(server(), &reply, "CONFIG", "SET", "maxmemory", "1000", NULL), 0);
	int64_t n_connections = redis_server_info(server(), "stats", "total_connections_received");
	touch_claim_now(d);
	cr_assert(directory_box_wait(has_touched_claim, d, 5000));
	usleep(1000000);
	cr_expect(stats(d).is_up);
	cr_expect_eq(redis_server_info(server(), "stats", "total_connections_received"), n_connections,
		     "it was not taken for away");
}

/* ---- what is told ---- */

static size_t count_lines(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t n = 0;

	cr_assert_not_null(f);
	for (int c; (c = fgetc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

Test(directory_away, a_refusal_of_many_words_is_logged_once)
{
	static struct directory d = {.where = "127.0.0.1:1"};
	char path[sizeof(server()->top) + 8], words[192];

	memset(words, 'x', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	snprintf(path, sizeof(path), "%s/told", server()->top);
	cr_assert_eq(log_init(path, "test"), 0);
	directory_health_init(&d);
	for (int i = 0; i < 10; i++)
		directory_health_down(&d, -EACCES, words);
	directory_health_fini(&d);
	log_fini();
	cr_expect_eq(count_lines(path), 1, "%zu lines", count_lines(path));
	unlink(path);
}

struct slow_done {
	atomic_bool has_begun, is_over;
};

static void be_slow(void *arg, int rc, const struct directory_value *before)
{
	struct slow_done *done = arg;

	atomic_store(&done->has_begun, true);
	usleep(200000);
	atomic_store(&done->is_over, true);
}

Test(directory_away, a_flush_waits_until_a_refused_change_has_been_told)
{
	struct directory *d = directory_box_node(0);
	struct slow_done done = {.has_begun = false};

	directory_remove(d, "/kv", "a/b", 1, be_slow, &done);
	while (!atomic_load(&done.has_begun))
		usleep(1000);
	cr_expect_eq(directory_flush(d, directory_box_in_ms(5000)), 0);
	cr_expect(atomic_load(&done.is_over));
}

/* ---- passwords ---- */

Test(directory_away, a_password_is_told_and_a_wrong_one_named)
{
	struct directory_conf conf = directory_box_conf(0);
	char url[128], text[256];
	struct directory_value v;

	redis_server_fini(server());
	redis_server_init(server(), "p@ss:w%rd");
	snprintf(url, sizeof(url), "redis://:p%%40ss%%3Aw%%25rd@127.0.0.1:%u/5", server()->port);
	conf.url = url;
	struct directory *d = directory_box_open(0, &conf);
	cr_expect_eq(directory_box_lookup(d, "/kv", "a", &v), 0);
	directory_box_close(0);

	const char *const wrong[] = {"redis://127.0.0.1:%u", "redis://:nosuchword@127.0.0.1:%u",
				     "redis://default:nosuchword@127.0.0.1:%u"};
	for (size_t i = 0; i < 3; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(url, sizeof(url), wrong[i], server()->port);
#pragma GCC diagnostic pop
		cr_assert_eq(directory_create(&conf, &directory_box.nodes[0]), 0);
		d = directory_box.nodes[0];
		cr_expect(directory_box_wait(is_refused, d, 5000));
		cr_expect_eq(directory_state(d, text, sizeof(text)), EACCES, "%s: %s", url, text);
		cr_expect_null(strstr(text, "nosuchword"));
		cr_expect_eq(directory_box_lookup(d, "/kv", "a", &v), -EACCES);
		directory_box_close(0);
	}
}

/* ---- the end ---- */

Test(directory_away, destroying_does_not_wait_for_a_server_that_hangs)
{
	struct directory *d = directory_box_node(0);
	int counts[4] = {0};

	redis_server_freeze(server());
	for (int i = 0; i < 300; i++)
		announce(d, i, count_done, counts);
	expect_destroy_is_fast();
	cr_expect_eq(counts[2], 300, "all are told");
	redis_server_thaw(server());
}

Test(directory_away, destroying_sends_what_is_queued)
{
	struct directory *d = directory_box_node(0);
	int counts[4] = {0};

	for (int i = 0; i < 3000; i++)
		announce(d, i, count_done, counts);
	directory_box_close(0);
	cr_expect_eq(counts[0], 3000);
}

Test(directory_away, destroying_one_that_never_connected_is_fast)
{
	struct directory_conf conf = directory_box_conf(0);

	redis_server_kill(server());
	cr_assert_eq(directory_create(&conf, &directory_box.nodes[0]), 0);
	announce(directory_box.nodes[0], 1, NULL, NULL);
	expect_destroy_is_fast();
}
