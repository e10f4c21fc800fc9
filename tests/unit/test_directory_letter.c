/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "directory_key.h"
#include "directory_node.h"
#include "directory_wire.h"
#include "lib/directory_box.h"
#include "mcfs/directory.h"

TestSuite(directory_letter, .init = directory_box_init, .fini = directory_box_fini, .timeout = 60);

/* ---- fixture ---- */

static struct {
	atomic_int n, ms;
	char last[64];
	_Atomic size_t len;
} seen;

static void see(void *arg, const void *bytes, size_t len)
{
	usleep((useconds_t)atomic_load(&seen.ms) * 1000);
	memcpy(seen.last, bytes, len < sizeof(seen.last) ? len : sizeof(seen.last));
	atomic_store(&seen.len, len);
	atomic_fetch_add(&seen.n, 1);
}

static struct directory *reader(int node, uint64_t incarnation)
{
	struct directory_conf conf = directory_box_conf(node);

	conf.on_letter = see;
	conf.self.incarnation = incarnation;
	conf.self.slot = 7;
	return directory_box_open(node, &conf);
}

/* ---- helpers ---- */

static struct redis_server *server(void)
{
	return &directory_box.server;
}

static int post_in_ms(struct directory *d, int slot, const char *text, int64_t ms)
{
	return directory_post(d, (uint16_t)slot, text, strlen(text), directory_box_in_ms(ms));
}

/* A node that has a lease and reads no letters. */
static void lease_put(int slot, uint64_t id, const char *ms)
{
	char key[DIRECTORY_KEY_BYTES];
	uint8_t bytes[DIRECTORY_NODE_MAX];
	struct directory_node n = {.id = id, .incarnation = 1, .name = "deaf", .address = "h:1"};
	struct redis_reply reply;
	size_t len = directory_node_encode(&n, bytes),
	       key_len = directory_lease_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);

	cr_assert_eq(redis_server_run_bytes(server(), &reply, 5,
					    (const char *[]){"SET", key, (const char *)bytes, "PX", ms},
					    (size_t[]){3, key_len, len, 2, strlen(ms)}),
		     0);
}

static int64_t box_integer(const char *command, int slot)
{
	char key[DIRECTORY_KEY_BYTES];

	directory_box_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);
	return redis_server_integer(server(), command, key);
}

static void raw_letter(int slot, uint64_t to, const char *text)
{
	char key[DIRECTORY_KEY_BYTES];
	uint8_t id[8];
	struct redis_reply reply;
	size_t key_len = directory_box_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);

	wire_put_be64(id, to);
	cr_assert_eq(redis_server_run_bytes(server(), &reply, 9,
					    (const char *[]){"XADD", key, "*", "t", (const char *)id, "i",
							     "12345678", "b", text},
					    (size_t[]){4, key_len, 1, 1, 8, 1, 8, 1, strlen(text)}),
		     0);
}

static bool box_is_empty(struct directory *d)
{
	return !box_integer("XLEN", 7);
}

static bool one_was_seen(struct directory *d)
{
	return atomic_load(&seen.n) == 1;
}

static bool resynced_twice(struct directory *d)
{
	return atomic_load(&directory_box.n_resyncs[1]) >= 2 && directory_lease_holds(d);
}

static int64_t n_xreads(void)
{
	struct redis_reply reply;
	long long n = -1;

	cr_assert_eq(redis_server_run(server(), &reply, "INFO", "commandstats", NULL), 0);
	const char *at = strstr((const char *)reply.bytes, "cmdstat_xread:");
	cr_assert(at && sscanf(at, "cmdstat_xread:calls=%lld", &n) == 1);
	return n;
}

static int64_t ms_since(int64_t begin_ns)
{
	return (directory_box_in_ms(0) - begin_ns) / 1000000;
}

/* ---- letters arrive ---- */

Test(directory_letter, has_been_dealt_with_when_post_returns)
{
	struct directory *a = directory_box_node(0);

	reader(1, 1);
	atomic_store(&seen.ms, 300);
	int64_t begin_ns = directory_box_in_ms(0);
	cr_assert_eq(post_in_ms(a, 7, "hello", 5000), 0);
	cr_expect_geq(ms_since(begin_ns), 300);
	cr_expect_eq(atomic_load(&seen.n), 1);
	cr_expect_arr_eq(seen.last, "hello", 5);
	cr_expect(directory_box_wait(box_is_empty, a, 2000));
}

Test(directory_letter, comes_within_milliseconds_and_waiting_for_it_costs_little)
{
	struct directory *a = directory_box_node(0), *b = reader(1, 1);
	int64_t worst_ns = 0, sum_ns = 0;

	cr_assert_eq(post_in_ms(a, 7, "hello", 5000), 0, "it waits at its box from here on");
	for (int i = 0; i < 100; i++) {
		int64_t begin_ns = directory_box_in_ms(0);
		cr_assert_eq(post_in_ms(a, 7, "hello", 5000), 0);
		int64_t took_ns = directory_box_in_ms(0) - begin_ns;
		sum_ns += took_ns;
		worst_ns = took_ns > worst_ns ? took_ns : worst_ns;
		usleep(2000);
	}
	int64_t xreads = n_xreads(), all = redis_server_info(server(), "stats", "total_commands_processed");
	sleep(4);
	xreads = n_xreads() - xreads;
	all = redis_server_info(server(), "stats", "total_commands_processed") - all;
	fprintf(stderr, "post to acknowledgement: %.2f ms, worst %.2f ms; idle: %.2f of %.2f commands/s\n",
		(double)sum_ns / 1e8, (double)worst_ns / 1e6, (double)xreads / 4, (double)all / 4);
	cr_expect_leq(sum_ns / 100, 100 * 1000000);
	cr_expect(xreads >= 2 && xreads <= 8, "%lld", (long long)xreads);
	cr_expect_eq(atomic_load(&seen.n), 101);
	struct directory_stats s;
	directory_get_stats(b, &s);
	cr_expect_eq(s.n_letters, 101);
}

Test(directory_letter, may_have_64_kib_of_any_bytes)
{
	static uint8_t bytes[DIRECTORY_LETTER_MAX + 1];
	struct directory *a = directory_box_node(0);

	reader(1, 1);
	memset(bytes, 0xa5, 8);
	cr_expect_eq(directory_post(a, 7, bytes, DIRECTORY_LETTER_MAX, directory_box_in_ms(5000)), 0);
	cr_expect_eq(atomic_load(&seen.len), (size_t)DIRECTORY_LETTER_MAX);
	cr_expect_arr_eq(seen.last, bytes, sizeof(seen.last));
	cr_expect_eq(directory_post(a, 7, bytes, DIRECTORY_LETTER_MAX + 1, directory_box_in_ms(5000)), -EINVAL);
	cr_expect_eq(directory_post(a, 7, bytes, 0, directory_box_in_ms(5000)), -EINVAL);
}

struct poster {
	pthread_t thread;
	struct directory *d;
	int n_wrong;
};

static void *poster_main(void *arg)
{
	struct poster *p = arg;

	for (int i = 0; i < 20; i++)
		p->n_wrong += post_in_ms(p->d, 7, "many", 10000) != 0;
	return NULL;
}

Test(directory_letter, of_many_senders_are_all_dealt_with)
{
	struct poster posters[24];
	struct directory *a = directory_box_node(0);

	reader(1, 1);
	for (int i = 0; i < 24; i++) {
		posters[i] = (struct poster){.d = a};
		cr_assert_eq(pthread_create(&posters[i].thread, NULL, poster_main, &posters[i]), 0);
	}
	for (int i = 0; i < 24; i++) {
		pthread_join(posters[i].thread, NULL);
		cr_expect_eq(posters[i].n_wrong, 0);
	}
	cr_expect_eq(atomic_load(&seen.n), 24 * 20);
}

Test(directory_letter, to_a_node_that_restarts_is_dealt_with_after_it)
{
	struct directory *a = directory_box_node(0);

	lease_put(7, 1001, "60000");
	cr_expect_eq(post_in_ms(a, 7, "wait", 200), -ETIMEDOUT);
	reader(1, 2);
	cr_expect(directory_box_wait(one_was_seen, a, 5000), "of an incarnation before it");
}

/* ---- and do not ---- */

Test(directory_letter, to_nobody_is_told_so)
{
	struct directory *a = directory_box_node(0);

	cr_expect_eq(post_in_ms(a, 99, "hello", 2000), -ENOENT);
	cr_expect_eq(directory_post(a, DIRECTORY_SLOTS, "hello", 5, directory_box_in_ms(2000)), -ENOENT);
	lease_put(7, 4711, "500");
	int64_t begin_ns = directory_box_in_ms(0);
	cr_expect_eq(post_in_ms(a, 7, "hello", 5000), -ENOENT, "the lease ran out meanwhile");
	cr_expect_leq(ms_since(begin_ns), 2000);
	reader(1, 1);
	directory_box_close(1);
	cr_expect_eq(post_in_ms(a, 7, "hello", 2000), -ENOENT, "it was given back");
}

Test(directory_letter, to_who_had_the_slot_before_is_thrown_away_unread)
{
	struct directory *a = reader(1, 1);

	raw_letter(7, 4711, "not for us");
	raw_letter(7, 1001, "for us");
	cr_assert(directory_box_wait(one_was_seen, a, 5000));
	cr_expect_arr_eq(seen.last, "for us", 6);
	cr_expect(directory_box_wait(box_is_empty, a, 2000));
	cr_expect_eq(atomic_load(&seen.n), 1);
}

Test(directory_letter, that_makes_no_sense_is_thrown_away)
{
	struct directory *a = reader(1, 1);
	char key[DIRECTORY_KEY_BYTES];
	struct redis_reply reply;

	directory_box_key(key, DIRECTORY_BOX_PREFIX, 7);
	cr_assert_eq(redis_server_run(server(), &reply, "XADD", key, "*", "t", "short", NULL), 0);
	cr_assert_eq(redis_server_run(server(), &reply, "XADD", key, "*", "t", "12345678", "i", "1", "b", "",
				      NULL),
		     0);
	raw_letter(7, 1001, "for us");
	cr_assert(directory_box_wait(box_is_empty, a, 5000));
	cr_expect_eq(atomic_load(&seen.n), 1);
	cr_assert_eq(redis_server_run(server(), &reply, "SET", key, "no stream", NULL), 0);
	usleep(300000);
	redis_server_integer(server(), "DEL", key);
	cr_expect_eq(post_in_ms(a, 7, "after", 5000), 0);
}

Test(directory_letter, finds_a_box_of_bounded_size_and_time)
{
	struct directory *a = directory_box_node(0);

	lease_put(7, 4711, "60000");
	for (int i = 0; i < 70; i++)
		cr_assert_eq(post_in_ms(a, 7, "hello", 20), -ETIMEDOUT);
	cr_expect_eq(box_integer("XLEN", 7), 64);
	int64_t ms = box_integer("PTTL", 7);
	cr_expect(ms > 0 && ms <= 30000, "%lld", (long long)ms);
}

Test(directory_letter, that_a_wipe_took_is_posted_anew_by_its_sender)
{
	struct directory *a = directory_box_node(0);
	struct redis_reply reply;

	reader(1, 1);
	cr_assert_eq(redis_server_run(server(), &reply, "FLUSHALL", NULL), 0);
	int rc = post_in_ms(a, 7, "hello", 1000);
	cr_expect(rc == 0 || rc == -ENOENT, "%d", rc);
	cr_assert(directory_box_wait(resynced_twice, directory_box.nodes[1], 5000));
	cr_expect_eq(post_in_ms(a, 7, "hello", 5000), 0);
}

Test(directory_letter, to_a_server_that_is_away_fails_in_bounded_time)
{
	struct directory *a = directory_box_node(0);

	reader(1, 1);
	redis_server_freeze(server());
	int64_t begin_ns = directory_box_in_ms(0);
	int rc = post_in_ms(a, 7, "hello", 500);
	cr_expect(rc == -ETIMEDOUT || rc == -ENETDOWN, "%d", rc);
	cr_expect_leq(ms_since(begin_ns), 1500);
	begin_ns = directory_box_in_ms(0);
	directory_box_close(1);
	cr_expect_leq(ms_since(begin_ns), 2000, "the end does not wait for it");
	redis_server_thaw(server());
}

Test(directory_letter, to_a_server_that_restarted_arrives)
{
	struct directory *a = directory_box_node(0);

	reader(1, 1);
	redis_server_kill(server());
	cr_expect_eq(post_in_ms(a, 7, "hello", 500), -ENETDOWN);
	redis_server_start(server());
	cr_assert(directory_box_wait(resynced_twice, directory_box.nodes[1], 5000));
	cr_assert(directory_box_wait(directory_box_is_usable, a, 5000));
	cr_expect_eq(post_in_ms(a, 7, "hello", 5000), 0);
}

Test(directory_letter, nobody_waits_for_ends_at_once)
{
	reader(1, 1);
	usleep(200000);
	int64_t begin_ns = directory_box_in_ms(0);
	directory_box_close(1);
	cr_expect_leq(ms_since(begin_ns), 500);
}
