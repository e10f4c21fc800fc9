/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are slow, wrong, away, or somebody else. */
#include "peer_fixture.h"

/* ---- slow peers ---- */

static void *invalidate(void *arg)
{
	struct two *t = arg;
	const struct peer_invalidation v = { "/", "a", 1, false };

	cr_assert_eq(peer_invalidate(t->p, &v, 1, SOON), 0);
	return NULL;
}

EACH_TRANSPORT(peer, a_slow_INVALIDATE_holds_up_nobody)
{
	pthread_t thread;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(1), .ping_ms = 300 });
	t.holder.invalidate_ms = 1500;
	pthread_create(&thread, NULL, invalidate, &t);
	cr_assert(becomes(&t.holder.n_running, 1));
	ask_grant(&t);
	read_range(&t, 0, MIB(1));
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	cr_assert_eq(t.holder.n_invalidations, 0, "all that while it ran");
	pthread_join(thread, NULL);
	cr_assert_eq(t.holder.n_invalidations, 1);
	cr_assert_eq(stats_of(&t).state, PEER_UP);
	close_two(&t);
}

/* A handler that takes longer than ping_ms is no dead peer; its late grant goes back. */
EACH_TRANSPORT(peer, a_late_grant_is_released)
{
	struct peer_grant g;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 10 });
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	t.holder.grant_ms = 1000;
	cr_assert_eq(peer_ask_grant(t.p, 0, "/", "a", &g, deadline_in_ms(100)), -ETIMEDOUT);
	cr_assert_eq(t.holder.n_granted, 0, "it did not wait for that");
	cr_assert(becomes(&t.holder.n_releases, 1));
	t.holder.grant_ms = 0;
	ask_grant(&t);
	close_two(&t);
}

EACH_TRANSPORT(peer, a_holder_that_stalls_costs_the_deadline)
{
	uint8_t *buf = malloc(MIB(4));
	struct two t;
	size_t n;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4), .ping_ms = 200 });
	ask_grant(&t);
	t.holder.stall_off = MIB(2);
	t.holder.stall_ms = 1500;
	int64_t begin = clock_now_ns();
	cr_assert_eq(peer_read(t.p, &t.g, 0, MIB(4), buf, NULL, NULL, NULL, &n, deadline_in_ms(500)), -ETIMEDOUT);
	int64_t took_ms = (clock_now_ns() - begin) / NS_PER_MS;
	cr_assert(took_ms >= 490 && took_ms < 1200, "%ld ms", (long)took_ms);
	cr_assert_eq(n, MIB(2));
	cr_assert_eq(memcmp(buf, t.holder.bytes, n), 0);
	cr_assert_not(peer_is_usable(t.p), "it will not cost that again at once");
	cr_assert_eq(peer_ping(t.p, SOON), -EHOSTDOWN);
	free(buf);
	close_two(&t);
}

EACH_TRANSPORT(peer, a_wrong_checksum_is_found)
{
	uint8_t *buf = malloc(MIB(4));
	struct told told = { 0 };
	struct two t;
	size_t n;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4) });
	ask_grant(&t);
	t.holder.corrupt_off = (int64_t)MIB(2) + 5;
	cr_assert_eq(peer_read(t.p, &t.g, 0, MIB(4), buf, NULL, on_chunk, &told, &n, SOON), -EBADMSG);
	cr_assert_eq(n, MIB(2));
	cr_assert_eq(told.n, 2);
	/* The connection is of no use any more; the others are, and another range is. */
	struct peer_stats s = stats_of(&t);
	cr_assert_eq(s.n_bad_chunks, 1);
	cr_assert_eq(s.n_connections, 2);
	read_range(&t, 0, MIB(2));
	/* The same without checksums in the grant, and at the edge of a chunk. */
	cr_assert_eq(peer_read(t.p, &t.g, MIB(2) + 1, 100, buf, NULL, NULL, NULL, &n, SOON), -EBADMSG);
	cr_assert_eq(n, 0);
	t.holder.gives_crc = false;
	ask_grant(&t);
	cr_assert_eq(t.g.n_crc, 0);
	cr_assert_eq(peer_read(t.p, &t.g, MIB(1), MIB(3), buf, NULL, NULL, NULL, &n, SOON), -EBADMSG);
	cr_assert_eq(n, MIB(1));
	t.holder.corrupt_off = -1;
	read_range(&t, 0, MIB(4));
	free(buf);
	close_two(&t);
}

/* Of a batch each has its own answer. */
EACH_TRANSPORT(peer, one_question_for_many_names)
{
	static const char *const names[] = { "a", "absent", "b", "absent", "c" };
	struct peer_want w[5];
	uint8_t bytes[5][1000];
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1000 });
	for (int k = 0; k < 5; k++)
		w[k] = (struct peer_want){ .name = names[k], .dst = bytes[k], .room = k < 4 ? 1000 : 999 };
	cr_assert_eq(peer_ask_grants(t.p, "/", w, 5, SOON), 0);
	for (int k = 0; k < 5; k++) {
		bool is_absent = !strcmp(names[k], "absent");
		cr_assert_eq(w[k].rc, is_absent ? -ENOENT : 0, "%d: %d", k, w[k].rc);
		if (is_absent)
			continue;
		cr_assert_eq(w[k].grant.has_bytes, k < 4);
		cr_assert(k == 4 || !memcmp(bytes[k], t.holder.bytes, 1000));
		free(w[k].grant.crc);
	}
	cr_assert_eq(stats_of(&t).n_grants, 3);
	cr_assert_eq(t.holder.n_grants, 1, "what came along is no grant any more");
	peer_release_grant(t.p, w[4].grant.grant);
	cr_assert(becomes(&t.holder.n_grants, 0));
	for (int k = 0; k < 5; k++)
		w[k].name = "absent";
	cr_assert_eq(peer_ask_grants(t.p, "/", w, 5, SOON), -ENOENT);
	cr_assert_eq(peer_ask_grants(t.p, "/", w, 0, SOON), -EINVAL);
	/* None of them is left without an answer when the time is over. */
	t.holder.grant_ms = 300;
	cr_assert_eq(peer_ask_grants(t.p, "/", w, 5, deadline_in_ms(450)), -ENOENT);
	cr_assert_eq(w[0].rc, -ENOENT);
	cr_assert_eq(w[4].rc, -ETIMEDOUT);
	cr_assert(peer_is_usable(t.p));
	close_two(&t);
}

/* ---- peers that are not there ---- */

EACH_TRANSPORT(peer_failures, a_small_object_with_a_wrong_checksum)
{
	uint8_t buf[1000] = { 0 };
	struct peer_grant g;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = sizeof(buf) });
	t.holder.corrupt_off = 500;
	cr_assert_eq(ask_bytes(t.p, 0, buf, sizeof(buf), &g), -EBADMSG);
	cr_assert_eq(stats_of(&t).n_bad_chunks, 1);
	cr_assert_eq(buf[0], 0, "wrong bytes go nowhere");
	cr_assert(peer_is_usable(t.p));
	close_two(&t);
}

EACH_TRANSPORT(peer, a_peer_that_is_not_there_costs_once_and_comes_back)
{
	struct peer_node_conf conf = { .transport = ops, .key = key_a, .node = 2, .size = MIB(8) };
	char address[TRANSPORT_ADDRESS_BYTES];
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(8) });
	ask_grant(&t);
	read_range(&t, 0, MIB(8));
	strcpy(address, peer_endpoint_address(t.holder.e));
	peer_node_close(&t.holder);
	sleep_ms(50);
	cr_assert_neq(peer_ping(t.p, SOON), 0);
	cr_assert_eq(peer_ping(t.p, SOON), -EHOSTDOWN);
	cr_assert_eq(stats_of(&t).state, PEER_DOWN);
	cr_assert_str_neq(stats_of(&t).reason, "");
	/* Each failed probe doubles the time. */
	int n_asked = 0;
	for (int64_t until = deadline_in_ms(1500); clock_now_ns() < until; sleep_ms(5))
		n_asked += peer_ping(t.p, SOON) != -EHOSTDOWN;
	cr_assert(n_asked >= 1 && n_asked <= 4, "%d", n_asked);
	conf.listen = address;
	cr_assert_eq(peer_node_open(&t.holder, &conf), 0);
	int rc = -1;
	for (int k = 0; k < 1000 && (rc = peer_ping(t.p, SOON)); k++)
		sleep_ms(10);
	cr_assert_eq(rc, 0);
	cr_assert_eq(stats_of(&t).state, PEER_UP);
	ask_grant(&t);
	read_range(&t, 0, MIB(8));
	close_two(&t);
}

/* After the return one READ at a time, then two, ... */
EACH_TRANSPORT(peer, lanes_come_back_one_by_one)
{
	struct reader readers[4];
	uint8_t byte;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4), .ping_ms = 200 });
	ask_grant(&t);
	t.holder.read_ms = 600;
	cr_assert_eq(peer_read(t.p, &t.g, 0, 1, &byte, NULL, NULL, NULL, NULL, deadline_in_ms(300)), -ETIMEDOUT);
	cr_assert_not(peer_is_usable(t.p));
	while (!peer_is_usable(t.p))
		sleep_ms(10);
	t.holder.read_ms = 0;
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	cr_assert_eq(stats_of(&t).n_connections, 2, "pulse and control");
	t.holder.read_ms = 1000;
	for (int k = 0; k < 4; k++) {
		readers[k] = (struct reader){ .t = &t, .n = 7 };
		pthread_create(&readers[k].thread, NULL, read_all, &readers[k]);
	}
	sleep_ms(100);
	t.holder.read_ms = 150;
	cr_assert_eq(stats_of(&t).n_connections, 3, "and one lane");
	for (int k = 0; k < 4; k++) {
		pthread_join(readers[k].thread, NULL);
		cr_assert_eq(readers[k].rc, 0);
	}
	cr_assert_gt(stats_of(&t).n_connections, 3);
	close_two(&t);
}

EACH_TRANSPORT(peer, another_incarnation_is_another_peer)
{
	const struct peer_id other = { 2, 99 };
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	struct peer *q = peer_get(t.asker.e, &other, "other", peer_endpoint_address(t.holder.e));
	cr_assert_neq(q, t.p);
	cr_assert_eq(peer_ping(q, SOON), -ESTALE);
	cr_assert_eq(peer_ping(q, SOON), -EHOSTDOWN);
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	struct peer *same = peer_node_meet(&t.asker, &t.holder);
	cr_assert_eq(same, t.p);
	peer_put(same);
	peer_put(q);
	close_two(&t);
}

static bool has_peers(struct two *t, size_t n)
{
	for (int k = 0; k < 500 && peer_each(t->asker.e, see, NULL) != n; k++)
		sleep_ms(10);
	return peer_each(t->asker.e, see, NULL) == n;
}

/* An older life of a node goes once a newer one is known, and nobody holds on to it. */
EACH_TRANSPORT(peer, an_old_incarnation_is_forgotten)
{
	const struct peer_id older = { 2, 0 };
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1, .ping_ms = 200 });
	struct peer *q = peer_get(t.asker.e, &older, "older", peer_endpoint_address(t.holder.e));
	cr_assert_eq(peer_ping(q, SOON), -ESTALE);
	sleep_ms(300);
	cr_assert(has_peers(&t, 2));
	peer_put(q);
	cr_assert(has_peers(&t, 1));
	cr_assert_eq(stats_of(&t).id.incarnation, t.holder.id.incarnation);
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	close_two(&t);
}

/* Whoever has the endpoint may go on to ask it what it knows. */
EACH_TRANSPORT(peer, a_stopped_endpoint_finds_nobody_and_still_tells)
{
	struct peer_endpoint_stats s;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	ask_grant(&t);
	peer_endpoint_stop(t.asker.e);
	cr_assert_eq(peer_ping(t.p, SOON), -ECANCELED);
	cr_assert_null(peer_node_meet(&t.asker, &t.holder));
	cr_assert_eq(peer_each(t.asker.e, see, NULL), 0);
	peer_endpoint_get_stats(t.asker.e, &s);
	cr_assert_eq(s.n_accepted, 0);
	cr_assert_not_null(strchr(peer_endpoint_address(t.asker.e), ':'));
	peer_endpoint_stop(t.asker.e);
	close_two(&t);
}

EACH_TRANSPORT(peer, another_key_or_cluster_is_refused)
{
	static const uint8_t key_b[PEER_KEY_BYTES] = "another";
	const struct {
		const uint8_t *key;
		const char *cluster;
	} rows[] = { { key_b, "test" }, { NULL, "test" }, { key_a, "other" } };
	struct peer_endpoint_stats s;
	struct peer_node stranger;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		const struct peer_node_conf conf = {
			.transport = ops, .node = 3 + k, .key = rows[k].key, .cluster = rows[k].cluster
		};
		cr_assert_eq(peer_node_open(&stranger, &conf), 0);
		struct peer *p = peer_node_meet(&stranger, &t.holder), *back = peer_node_meet(&t.asker, &stranger);
		cr_assert_eq(peer_ping(p, SOON), -EACCES, "%zu", k);
		cr_assert_eq(peer_each(stranger.e, see, NULL), 1);
		cr_assert_not_null(strstr(stats_seen.reason, "another cluster key"), "%s", stats_seen.reason);
		cr_assert_eq(peer_ping(back, SOON), -EACCES, "%zu", k);
		peer_put(p);
		peer_put(back);
		peer_node_close(&stranger);
	}
	/* Counted after the stranger has its answer. */
	for (int k = 0; k < 1000; k++, sleep_ms(10)) {
		peer_endpoint_get_stats(t.holder.e, &s);
		if (s.n_refused == 3)
			break;
	}
	cr_assert_eq(s.n_refused, 3);
	close_two(&t);
}

EACH_TRANSPORT(peer, needs_a_key_where_others_can_reach_it)
{
	struct peer_node_conf conf = { .transport = ops, .listen = "0.0.0.0:0" };
	struct peer_node n;

	cr_assert_eq(peer_node_open(&n, &conf), -EACCES);
	conf.key = key_a;
	cr_assert_eq(peer_node_open(&n, &conf), 0);
	peer_node_close(&n);
	conf.listen = "nonsense";
	cr_assert_eq(peer_node_open(&n, &conf), -EINVAL);
}

EACH_TRANSPORT(peer, grants_end_with_the_connection)
{
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	ask_grant(&t);
	cr_assert_eq(t.holder.n_grants, 1);
	cr_assert_eq(t.holder.n_gone, 0);
	peer_put(t.p);
	peer_node_close(&t.asker);
	cr_assert(becomes(&t.holder.n_gone, 1));
	const struct peer_node_conf conf = { .transport = ops, .key = key_a, .node = 1 };
	cr_assert_eq(peer_node_open(&t.asker, &conf), 0);
	t.p = peer_node_meet(&t.asker, &t.holder);
	ask_grant(&t);
	cr_assert_eq(t.holder.n_grants, 1);
	close_two(&t);
}
