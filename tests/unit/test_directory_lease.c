/* SPDX-License-Identifier: Apache-2.0 */
#include "mcfs/directory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "directory_key.h"
#include "directory_node.h"
#include "directory_wire.h"
#include "lib/directory_box.h"

TestSuite(directory_lease, .init = directory_box_init, .fini = directory_box_fini, .timeout = 60);

/* ---- helpers ---- */

static struct redis_server *server(void)
{
	return &directory_box.server;
}

static void claim_put(int slot, uint64_t id, uint32_t seconds)
{
	char key[DIRECTORY_KEY_BYTES], field[8];
	uint8_t claim[DIRECTORY_CLAIM_BYTES];
	struct redis_reply reply;

	wire_put_be32(wire_put_be64(claim, id), seconds);
	size_t key_len = directory_slots_key(key, DIRECTORY_BOX_PREFIX);
	size_t field_len = (size_t)snprintf(field, sizeof(field), "%d", slot);
	cr_assert_eq(redis_server_run_bytes(server(), &reply, 4,
					    (const char *[]){"HSET", key, field, (const char *)claim},
					    (size_t[]){4, key_len, field_len, sizeof(claim)}),
		     0);
}

static void lease_put(int slot, uint64_t id, uint64_t incarnation, const char *ms)
{
	char key[DIRECTORY_KEY_BYTES];
	uint8_t bytes[DIRECTORY_NODE_MAX];
	struct directory_node n = {.id = id, .incarnation = incarnation, .name = "other", .address = "h:1"};
	struct redis_reply reply;
	size_t len = directory_node_encode(&n, bytes),
	       key_len = directory_lease_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);

	cr_assert_eq(redis_server_run_bytes(server(), &reply, 5,
					    (const char *[]){"SET", key, (const char *)bytes, "PX", ms},
					    (size_t[]){3, key_len, len, 2, strlen(ms)}),
		     0);
}

static int64_t lease_ttl(int slot)
{
	char key[DIRECTORY_KEY_BYTES];

	directory_lease_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);
	return redis_server_integer(server(), "PTTL", key);
}

static int n_resyncs(int node)
{
	return atomic_load(&directory_box.n_resyncs[node]);
}

static bool resynced_twice(struct directory *d)
{
	return n_resyncs(0) >= 2;
}

static bool lease_is_lost(struct directory *d)
{
	return !directory_lease_holds(d);
}

static bool is_busy(struct directory *d)
{
	return directory_box_state(d) == EBUSY;
}

static bool is_without_slot(struct directory *d)
{
	char text[256];

	return directory_state(d, text, sizeof(text)) == EAGAIN && strstr(text, "all are in use");
}

struct seen {
	struct directory_node nodes[4];
	size_t n;
};

static void see(void *arg, const struct directory_node *n)
{
	struct seen *s = arg;

	if (s->n < 4)
		s->nodes[s->n++] = *n;
}

static bool sees_two(struct directory *d)
{
	struct seen s = {.n = 0};

	return directory_each_node(d, see, &s) == 2;
}

static bool sees_one(struct directory *d)
{
	struct seen s = {.n = 0};

	return directory_each_node(d, see, &s) == 1;
}

/* ---- the lease ---- */

Test(directory_lease, is_renewed_and_holds)
{
	struct directory *d = directory_box_node(0);

	for (int i = 0; i < 30; i++) {
		usleep(50000);
		cr_assert(directory_lease_holds(d));
		cr_assert_gt(lease_ttl(directory_slot(d)), 0);
	}
	cr_expect_eq(n_resyncs(0), 1, "the first connection");
}

Test(directory_lease, is_given_back_at_the_end)
{
	struct directory *d = directory_box_node(0);
	int slot = directory_slot(d);

	directory_box_close(0);
	cr_expect_eq(lease_ttl(slot), -2, "there is no such key");
	d = directory_box_node(0);
	cr_expect_eq(directory_slot(d), slot, "the claim stayed");
}

Test(directory_lease, holds_no_more_once_the_server_is_away_for_so_long)
{
	struct directory *d = directory_box_node(0);
	int64_t begin_ns = directory_box_in_ms(0);

	redis_server_freeze(server());
	cr_assert(directory_box_wait(lease_is_lost, d, 4000));
	int64_t took_ms = (directory_box_in_ms(0) - begin_ns) / 1000000;
	cr_expect(took_ms >= 1000 && took_ms <= 2500, "%lld ms", (long long)took_ms);
	redis_server_thaw(server());
	cr_assert(directory_box_wait(directory_lease_holds, d, 5000));
}

Test(directory_lease, of_another_makes_us_take_a_new_slot_and_announce_anew)
{
	struct directory *d = directory_box_node(0);
	int slot = directory_slot(d);
	char text[256];

	lease_put(slot, 77, 1, "60000");
	claim_put(slot, 77, 2000000000);
	cr_assert(directory_box_wait(resynced_twice, d, 5000), "%d", directory_state(d, text, sizeof(text)));
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_expect_neq(directory_slot(d), slot);
}

Test(directory_lease, that_ran_out_alone_is_taken_again)
{
	struct directory *d = directory_box_node(0);
	char key[DIRECTORY_KEY_BYTES];
	int slot = directory_slot(d);

	directory_lease_key(key, DIRECTORY_BOX_PREFIX, (unsigned)slot);
	cr_expect_eq(redis_server_integer(server(), "DEL", key), 1);
	usleep(1000000);
	cr_assert(directory_box_wait(directory_box_is_usable, d, 5000));
	cr_expect_eq(directory_slot(d), slot);
	cr_expect(directory_box_wait(resynced_twice, d, 5000), "names may have changed without our being told");
	cr_expect_gt(lease_ttl(slot), 0);
}

Test(directory_lease, of_a_later_incarnation_of_ours_is_left_alone)
{
	struct directory_conf conf = directory_box_conf(1);
	struct directory *d = directory_box_node(0);
	char text[256];

	conf.self.id = 1000;
	conf.self.incarnation = 0;
	cr_assert_eq(directory_create(&conf, &directory_box.nodes[1]), 0);
	cr_assert(directory_box_wait(is_busy, directory_box.nodes[1], 5000));
	cr_expect_eq(directory_slot(directory_box.nodes[1]), -1);
	cr_expect_eq(directory_state(directory_box.nodes[1], text, sizeof(text)), EBUSY, "%s", text);
	cr_expect(directory_lease_holds(d));
	directory_box_close(1);
	conf.self.incarnation = 2;
	directory_box_open(1, &conf);
	cr_expect_eq(directory_slot(directory_box.nodes[1]), 0, "a restart does not wait for its own lease");
	cr_assert(directory_box_wait(lease_is_lost, d, 5000));
}

/* ---- slots ---- */

Test(directory_lease, prefers_the_slot_it_is_told)
{
	struct directory_conf conf = directory_box_conf(0);

	conf.self.slot = 321;
	cr_expect_eq(directory_slot(directory_box_open(0, &conf)), 321);
}

Test(directory_lease, takes_the_slot_of_who_was_away_longest_when_all_are_claimed)
{
	for (int s = 0; s < DIRECTORY_SLOTS; s++)
		claim_put(s, 5000 + (uint64_t)s, 2000000000 - (s == 1234 ? 10 : s == 99 ? 20 : 0));
	lease_put(99, 5099, 1, "60000");
	struct directory *d = directory_box_node(0);
	cr_expect_eq(directory_slot(d), 1234, "slot 99 is older but its node is there");
}

Test(directory_lease, counts_a_claim_untouched_for_a_week_as_none)
{
	for (int s = 0; s < DIRECTORY_SLOTS; s++)
		claim_put(s, 5000 + (uint64_t)s, s == 77 ? 1300000000 : 2000000000);
	cr_expect_eq(directory_slot(directory_box_node(0)), 77);
}

Test(directory_lease, has_no_slot_while_all_are_in_use)
{
	struct directory_conf conf = directory_box_conf(0);

	for (int s = 0; s < DIRECTORY_SLOTS; s++) {
		claim_put(s, 5000 + (uint64_t)s, 2000000000);
		lease_put(s, 5000 + (uint64_t)s, 1, "60000");
	}
	cr_assert_eq(directory_create(&conf, &directory_box.nodes[0]), 0);
	cr_assert(directory_box_wait(is_without_slot, directory_box.nodes[0], 5000));
	cr_expect_eq(directory_slot(directory_box.nodes[0]), -1);
	struct directory_value v;
	cr_expect_eq(directory_box_lookup(directory_box.nodes[0], "/kv", "a", &v), 0, "it is there for lookups");
}

/* ---- nodes ---- */

static void renew(void *arg, struct directory_node *self)
{
	self->n_objects = 42;
	self->load = 500;
}

Test(directory_lease, tells_each_node_of_the_others)
{
	struct directory_conf conf = directory_box_conf(0);
	struct directory_node n;
	struct seen s = {.n = 0};

	conf.on_renew = renew;
	conf.self.dram_bytes = UINT64_C(1) << 40;
	struct directory *a = directory_box_open(0, &conf), *b = directory_box_node(1);
	cr_assert(directory_box_wait(sees_two, a, 5000));
	cr_assert(directory_box_wait(sees_two, b, 5000));
	cr_expect_eq(directory_each_node(b, see, &s), 2);
	cr_assert_eq(directory_node_of(b, (uint16_t)directory_slot(a), &n, directory_box_in_ms(1000)), 0);
	cr_expect_eq(n.slot, directory_slot(a));
	cr_expect_eq(n.id, 1000);
	cr_expect_eq(n.incarnation, 1);
	cr_expect_str_eq(n.name, "node0");
	cr_expect_str_eq(n.address, "10.0.0.0:7000");
	cr_expect_eq(n.n_objects, 42);
	cr_expect_eq(n.load, 500);
	cr_expect_eq(n.dram_bytes, UINT64_C(1) << 40);
	cr_expect(n.lease_ms > 0 && n.lease_ms <= 2000, "%lld", (long long)n.lease_ms);
	cr_expect_eq(directory_node_of(b, 4095, &n, directory_box_in_ms(1000)), -ENOENT);
	cr_expect_eq(directory_node_of(b, 60000, &n, directory_box_in_ms(1000)), -ENOENT);
	directory_box_close(1);
	cr_expect(directory_box_wait(sees_one, a, 3000), "who left is forgotten");
}

Test(directory_lease, asks_for_a_node_that_memory_does_not_know)
{
	struct directory *d = directory_box_node(0);
	struct directory_node n;

	lease_put(500, 88, 3, "60000");
	cr_assert_eq(directory_node_of(d, 500, &n, directory_box_in_ms(1000)), 0);
	cr_expect_eq(n.id, 88);
	cr_expect_eq(n.slot, 500);
	cr_expect_gt(n.lease_ms, 50000);
}

Test(directory_lease, writes_events)
{
	directory_box_node(0);
	directory_box_close(0);
	cr_expect_eq(redis_server_integer(server(), "XLEN", DIRECTORY_BOX_PREFIX ":ev"), 2, "joined and left");
}
