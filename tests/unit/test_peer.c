/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_fixture.h"

/* ---- asking ---- */

EACH_TRANSPORT(peer, grants_reads_and_releases)
{
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(5) + 123 });
	ask_grant(&t);
	cr_assert_eq(t.g.size, t.holder.size);
	cr_assert_eq(t.g.version, 7);
	cr_assert_eq(t.g.n_crc, 6);
	cr_assert_eq(t.g.crc[5], t.holder.crc[5]);
	cr_assert_str_eq(t.holder.last_dir, "/kv/model");
	cr_assert_str_eq(t.holder.last_name, "block");
	cr_assert_eq(t.holder.last_from.node, 1);
	read_range(&t, 0, t.g.size);
	read_range(&t, 0, 1);
	read_range(&t, t.g.size - 1, 1);
	read_range(&t, MIB(1) - 1, 2);
	read_range(&t, MIB(2), MIB(1));
	read_range(&t, 1000, MIB(3));
	read_range(&t, 77, 0);
	peer_release_grant(t.p, t.g.grant);
	cr_assert(becomes(&t.holder.n_releases, 1));
	struct peer_stats s = stats_of(&t);
	cr_assert_eq(s.state, PEER_UP);
	cr_assert_eq(s.n_grants, 1);
	cr_assert_eq(s.n_reads, 6);
	cr_assert_eq(s.rx_bytes, t.g.size + 4 + MIB(4));
	cr_assert_gt(s.rx_bytes_per_s, 0);
	cr_assert_eq(s.n_errors, 0);
	cr_assert_eq(peer_queued_bytes(t.p), 0);
	struct peer_endpoint_stats h;
	peer_endpoint_get_stats(t.holder.e, &h);
	cr_assert_eq(h.tx_bytes, s.rx_bytes);
	cr_assert_eq(h.n_accepted, s.n_connections);
	close_two(&t);
}

EACH_TRANSPORT(peer, reads_64_MiB_at_once)
{
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(64) });
	t.holder.pieces_have_crc = true;
	ask_grant(&t);
	read_range(&t, 0, MIB(64));
	uint8_t byte;
	cr_assert_eq(peer_read(t.p, &t.g, 0, MIB(64) + 1, &byte, NULL, NULL, NULL, NULL, SOON), -EINVAL);
	cr_assert_eq(peer_read(t.p, &t.g, MIB(64), 1, &byte, NULL, NULL, NULL, NULL, SOON), -EINVAL);
	close_two(&t);
}

/* Smaller than chunks: more than wait for an acknowledgement at once, and none told before its checksum. */
EACH_TRANSPORT(peer, takes_pieces_as_they_become_readable)
{
	struct told told = { .next = 100 };
	uint8_t *buf = malloc(MIB(3));
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(3) });
	t.holder.piece_bytes = 20000;
	ask_grant(&t);
	cr_assert_eq(peer_read(t.p, &t.g, 100, MIB(3) - 100, buf, NULL, on_chunk, &told, NULL, SOON), 0);
	cr_assert_eq(memcmp(buf, t.holder.bytes + 100, MIB(3) - 100), 0);
	cr_assert_eq(told.next, MIB(3));
	cr_assert_eq(told.n, (MIB(1) - 100 + 19999) / 20000 + 2, "%d: pieces of the edge, then whole chunks",
		     told.n);
	free(buf);
	close_two(&t);
}

EACH_TRANSPORT(peer, stops_when_told)
{
	struct told told = { .stop_at = 2 };
	uint8_t *buf = malloc(MIB(8));
	struct two t;
	size_t n;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(8) });
	ask_grant(&t);
	cr_assert_eq(peer_read(t.p, &t.g, 0, MIB(8), buf, NULL, on_chunk, &told, &n, SOON), -EINTR);
	cr_assert_eq(n, MIB(2));
	cr_assert(peer_is_usable(t.p), "nothing is wrong with the peer");
	read_range(&t, 0, MIB(8));
	free(buf);
	close_two(&t);
}

EACH_TRANSPORT(peer, tells_what_the_other_answered)
{
	struct peer_grant g;
	uint8_t buf[10];
	struct two t;
	size_t n;

	open_two(&t, ops, (struct peer_node_conf){ .size = 10 });
	cr_assert_eq(peer_ask_grant(t.p, 0, "/", "absent", &g, SOON), -ENOENT);
	cr_assert_eq(peer_ask_grant(t.p, 6, "/", "a", &g, SOON), -ESTALE);
	t.holder.grant_rc = -EAGAIN;
	cr_assert_eq(peer_ask_grant(t.p, 0, "/", "a", &g, SOON), -EAGAIN);
	t.holder.grant_rc = 0;
	ask_grant(&t);
	t.holder.read_rc = -ESTALE;
	cr_assert_eq(peer_read(t.p, &t.g, 0, 10, buf, NULL, NULL, NULL, &n, SOON), -ESTALE);
	cr_assert_eq(n, 0);
	t.holder.read_rc = 0;
	read_range(&t, 0, 10);
	cr_assert_eq(stats_of(&t).n_connects, 3, "answers cost no connection");
	cr_assert(peer_is_usable(t.p));
	cr_assert_eq(peer_ask_grant(t.p, 0, "/a/../b", "a", &g, SOON), -EINVAL);
	cr_assert_eq(peer_ask_grant(t.p, 0, "/a", "b/c", &g, SOON), -EINVAL);
	close_two(&t);
}

EACH_TRANSPORT(peer, gives_a_small_object_with_its_grant)
{
	uint8_t buf[20000] = { 0 };
	struct peer_grant g = { 0 };
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = sizeof(buf) });
	cr_assert_eq(ask_bytes(t.p, 7, buf, sizeof(buf), &g), 0);
	cr_assert(g.has_bytes);
	cr_assert_eq(g.size, sizeof(buf));
	cr_assert_eq(memcmp(buf, t.holder.bytes, sizeof(buf)), 0);
	cr_assert_eq(t.holder.n_releases, 1, "nothing is left to be released");
	cr_assert_eq(t.holder.n_done, 1);
	cr_assert_eq(stats_of(&t).rx_bytes, sizeof(buf));
	free(g.crc);
	memset(buf, 0, sizeof(buf));
	cr_assert_eq(ask_bytes(t.p, 7, buf, sizeof(buf) - 1, &g), 0);
	cr_assert_not(g.has_bytes, "there is no room for them");
	cr_assert_eq(buf[0] | buf[sizeof(buf) - 2], 0);
	free(g.crc);
	t.holder.piece_bytes = 100;
	cr_assert_eq(ask_bytes(t.p, 7, buf, sizeof(buf), &g), 0);
	cr_assert_not(g.has_bytes, "in pieces they come by READ");
	free(g.crc);
	cr_assert_eq(ask_bytes(t.p, 7, buf, PEER_INLINE_MAX + 1, &g), -EINVAL);
	close_two(&t);
}

EACH_TRANSPORT(peer, pings)
{
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	cr_assert_eq(stats_of(&t).state, PEER_IDLE);
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	struct peer_stats s = stats_of(&t);
	cr_assert_eq(s.state, PEER_UP);
	cr_assert_eq(s.load, 250);
	cr_assert_gt(s.rtt_ns, 0);
	close_two(&t);
}

EACH_TRANSPORT(peer, invalidates)
{
	struct peer_invalidation v[PEER_INVALIDATE_MAX];
	char names[PEER_INVALIDATE_MAX][16];
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1 });
	for (int k = 0; k < PEER_INVALIDATE_MAX; k++) {
		snprintf(names[k], sizeof(names[k]), "name%d", k);
		v[k] = (struct peer_invalidation){ "/d", names[k], (uint64_t)k, k & 1 };
	}
	cr_assert_eq(peer_invalidate(t.p, v, PEER_INVALIDATE_MAX, SOON), 0);
	cr_assert_eq(t.holder.n_names, PEER_INVALIDATE_MAX);
	cr_assert_str_eq(t.holder.last_name, "name255");
	t.holder.invalidate_rc = -EBUSY;
	cr_assert_eq(peer_invalidate(t.p, v, 1, SOON), -EBUSY);
	cr_assert_eq(peer_invalidate(t.p, v, 0, SOON), -EINVAL);
	close_two(&t);
}

/* ---- many at once ---- */

EACH_TRANSPORT(peer, many_readers_share_a_fixed_number_of_connections)
{
	struct reader readers[16];
	struct peer_endpoint_stats s;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4), .n_lanes = 3, .ping_ms = 20000 });
	ask_grant(&t);
	for (int k = 0; k < 16; k++) {
		readers[k] = (struct reader){ .t = &t };
		pthread_create(&readers[k].thread, NULL, read_all, &readers[k]);
	}
	for (int k = 0; k < 16; k++) {
		pthread_join(readers[k].thread, NULL);
		cr_assert_eq(readers[k].rc, 0, "%d", readers[k].rc);
	}
	cr_assert_eq(stats_of(&t).n_connects, 2 + 3);
	peer_endpoint_get_stats(t.holder.e, &s);
	cr_assert_eq(s.n_accepted, 2 + 3);
	cr_assert_eq(peer_queued_bytes(t.p), 0);
	close_two(&t);
}

EACH_TRANSPORT(peer, more_connections_than_allowed_are_refused)
{
	struct peer_endpoint_stats s;
	struct peer_grant g;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = 1, .max_connections = 1 });
	cr_assert_eq(peer_ping(t.p, SOON), 0);
	cr_assert_eq(peer_ask_grant(t.p, 0, "/", "a", &g, SOON), -ECONNRESET);
	peer_endpoint_get_stats(t.holder.e, &s);
	cr_assert_eq(s.n_refused, 1);
	close_two(&t);
}

static void destroy_under_load(const struct transport_ops *ops, bool is_holder)
{
	struct reader readers[8];
	atomic_bool stop = false;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4), .ping_ms = 20000 });
	ask_grant(&t);
	for (int k = 0; k < 8; k++) {
		readers[k] = (struct reader){ .t = &t, .stop = &stop };
		pthread_create(&readers[k].thread, NULL, read_all, &readers[k]);
	}
	for (int k = 0; k < 8; k++)
		for (int tries = 0; tries < 1000 && readers[k].n < 2; tries++)
			sleep_ms(10);
	int64_t begin = clock_now_ns();
	peer_endpoint_destroy(is_holder ? t.holder.e : t.asker.e);
	cr_assert_lt(clock_now_ns() - begin, 10 * NS_PER_S);
	for (int k = 0; k < 8; k++) {
		pthread_join(readers[k].thread, NULL);
		cr_assert_gt(readers[k].n, 1);
		if (is_holder)
			cr_assert(readers[k].rc == -ECONNRESET || readers[k].rc == -EHOSTDOWN ||
					  readers[k].rc == -ECONNREFUSED,
				  "%d", readers[k].rc);
		else
			cr_assert_eq(readers[k].rc, -ECANCELED, "%d", readers[k].rc);
	}
	if (is_holder) {
		cr_assert_eq(t.holder.n_running, 0);
		t.holder.e = NULL;
	} else {
		cr_assert_eq(peer_ping(t.p, SOON), -ECANCELED);
		cr_assert_not(peer_is_usable(t.p));
		t.asker.e = NULL;
	}
	close_two(&t);
}

EACH_TRANSPORT(peer, an_asker_ends_under_load)
{
	destroy_under_load(ops, false);
}

EACH_TRANSPORT(peer, a_holder_ends_under_load)
{
	destroy_under_load(ops, true);
}

EACH_TRANSPORT(peer, waiting_for_a_lane_has_a_deadline)
{
	struct reader r = { 0 };
	uint8_t byte;
	struct two t;

	open_two(&t, ops, (struct peer_node_conf){ .size = MIB(4), .n_lanes = 1, .ping_ms = 200 });
	ask_grant(&t);
	t.holder.read_ms = 700;
	r.t = &t;
	r.n = 7;
	pthread_create(&r.thread, NULL, read_all, &r);
	sleep_ms(100);
	int64_t begin = clock_now_ns();
	cr_assert_eq(peer_read(t.p, &t.g, 0, 1, &byte, NULL, NULL, NULL, NULL, deadline_in_ms(300)), -ETIMEDOUT);
	cr_assert_lt(clock_now_ns() - begin, 600 * NS_PER_MS);
	cr_assert(peer_is_usable(t.p), "that is not the peer's fault");
	pthread_join(r.thread, NULL);
	cr_assert_eq(r.rc, 0);
	close_two(&t);
}
