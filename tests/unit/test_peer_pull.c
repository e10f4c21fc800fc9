/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport reads out of the holder's memory, and what comes by READ instead. Where it reads none, all does. */
#include "peer_fixture.h"

#define OBJECT MIB(8)

/* Memory of the asker that its transport knows, if it is one that reads by itself. */
struct place {
	struct peer_endpoint *e;
	uint8_t *bytes;
	struct transport_mr *mr;
};

static void place_open(struct place *x, struct two *t)
{
	x->e = t->asker.e;
	x->bytes = mmap(NULL, OBJECT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(x->bytes, MAP_FAILED);
	x->mr = NULL;
	if (peer_endpoint_pulls(x->e))
		cr_assert_eq(peer_register(x->e, x->bytes, OBJECT, &x->mr), 0);
}

static void place_close(struct place *x)
{
	if (x->mr)
		peer_deregister(x->e, x->mr);
	munmap(x->bytes, OBJECT);
}

static void open_all(struct two *t, struct place *x, const struct transport_ops *ops, struct peer_node_conf conf)
{
	conf.size = OBJECT;
	conf.gives_keys = true;
	open_two(t, ops, conf);
	ask_grant(t);
	place_open(x, t);
}

static void close_all(struct two *t, struct place *x)
{
	place_close(x);
	close_two(t);
}

static int read_into(struct two *t, struct place *x, uint64_t off, size_t len)
{
	size_t n = 0;

	memset(x->bytes, 0xa5, OBJECT);
	int rc = peer_read(t->p, &t->g, off, len, x->bytes, x->mr, NULL, NULL, &n, SOON);
	cr_assert_eq(memcmp(x->bytes, t->holder.bytes + off, n), 0);
	cr_assert(rc || n == len);
	return rc;
}

/* By which way did it come? */
static void came_by(struct two *t, uint64_t pulled, int n_reads)
{
	struct peer_stats s = stats_of(t);

	if (!peer_endpoint_pulls(t->asker.e))
		return;
	cr_assert_eq(s.pulled_bytes, pulled, "%lu bytes", (unsigned long)s.pulled_bytes);
	cr_assert_eq(t->holder.n_reads, n_reads, "%d READs", t->holder.n_reads);
}

/* ---- by itself ---- */

EACH_TRANSPORT(peer_pull, no_thread_of_the_holder_takes_part)
{
	struct told told = { 0 };
	struct place x;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	cr_assert_eq(!t.g.key_len, !peer_endpoint_pulls(t.asker.e));
	cr_assert_eq(peer_read(t.p, &t.g, 0, OBJECT, x.bytes, x.mr, on_chunk, &told, NULL, SOON), 0);
	cr_assert_eq(memcmp(x.bytes, t.holder.bytes, OBJECT), 0);
	cr_assert_eq(told.n, 8, "each chunk is told");
	came_by(&t, OBJECT, 0);
	cr_assert_eq(read_into(&t, &x, MIB(3), MIB(5)), 0);
	came_by(&t, OBJECT + MIB(5), 0);
	cr_assert_eq(stats_of(&t).rx_bytes, OBJECT + MIB(5));
	cr_assert_eq(peer_queued_bytes(t.p), 0);
	close_all(&t, &x);
}

EACH_TRANSPORT(peer_pull, who_stops_it_gets_no_more)
{
	struct told told = { .stop_at = 2 };
	struct place x;
	struct two t;
	size_t n;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	cr_assert_eq(peer_read(t.p, &t.g, 0, OBJECT, x.bytes, x.mr, on_chunk, &told, &n, SOON), -EINTR);
	cr_assert_eq(n, MIB(2));
	cr_assert_eq(peer_queued_bytes(t.p), 0);
	cr_assert_eq(read_into(&t, &x, 0, OBJECT), 0);
	close_all(&t, &x);
}

/* ---- by READ ---- */

EACH_TRANSPORT(peer_pull, what_no_checksum_covers_comes_by_READ)
{
	struct place x;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	cr_assert_eq(read_into(&t, &x, 100, 1000), 0);
	came_by(&t, 0, 1);
	t.holder.gives_crc = false;
	ask_grant(&t);
	cr_assert_eq(read_into(&t, &x, 0, MIB(1)), 0);
	came_by(&t, 0, 2);
	close_all(&t, &x);
}

EACH_TRANSPORT(peer_pull, into_memory_that_is_not_registered_it_comes_by_READ)
{
	struct place x, other;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	other = x;
	other.mr = NULL;
	cr_assert_eq(read_into(&t, &other, 0, MIB(1)), 0);
	came_by(&t, 0, 1);
	close_all(&t, &x);
}

/* Its key is void at once; the grant is not. */
EACH_TRANSPORT(peer_pull, what_cannot_be_pulled_comes_by_READ)
{
	struct place x;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	peer_node_deregister(&t.holder);
	cr_assert_eq(read_into(&t, &x, 0, MIB(1)), 0);
	came_by(&t, 0, 1);
	struct peer_stats s = stats_of(&t);
	if (peer_endpoint_pulls(t.asker.e)) {
		cr_assert_eq(s.n_pull_failures, 1);
		cr_assert_not(s.can_pull);
		cr_assert_str_neq(s.pull_reason, "");
	}
	cr_assert_eq(s.state, PEER_UP);
	/* It costs no second time. */
	cr_assert_eq(read_into(&t, &x, MIB(1), MIB(1)), 0);
	came_by(&t, 0, 2);
	cr_assert_leq(stats_of(&t).n_pull_failures, 1);
	/* And is back by itself, with a new key. */
	peer_node_register(&t.holder);
	for (int k = 0; k < 500 && peer_endpoint_pulls(t.asker.e) && !stats_of(&t).pulled_bytes; k++) {
		sleep_ms(20);
		ask_grant(&t);
		cr_assert_eq(read_into(&t, &x, 0, MIB(1)), 0);
	}
	s = stats_of(&t);
	cr_assert_eq(s.can_pull, peer_endpoint_pulls(t.asker.e));
	cr_assert_str_eq(s.pull_reason, "");
	close_all(&t, &x);
}

EACH_TRANSPORT(peer_pull, wrong_bytes_are_found)
{
	struct place x;
	struct two t;
	size_t n;

	open_all(&t, &x, ops, (struct peer_node_conf){ 0 });
	t.holder.bytes[MIB(2) + 5] ^= 1; /* not as its checksum says */
	cr_assert_eq(peer_read(t.p, &t.g, 0, OBJECT, x.bytes, x.mr, NULL, NULL, &n, SOON), -EBADMSG);
	cr_assert_eq(n, MIB(2));
	cr_assert_eq(stats_of(&t).n_bad_chunks, 1);
	cr_assert_eq(peer_queued_bytes(t.p), 0);
	cr_assert(peer_is_usable(t.p));
	close_all(&t, &x);
}

/* ---- grants are durations ---- */

EACH_TRANSPORT(peer_pull, a_grant_is_renewed_before_its_end)
{
	struct place x;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ .ttl_ms = 2000 });
	cr_assert_eq(read_into(&t, &x, 0, MIB(1)), 0);
	came_by(&t, MIB(1), 0);
	sleep_ms(1100);
	int64_t before = t.g.until_ns;
	cr_assert_eq(read_into(&t, &x, 0, MIB(1)), 0);
	came_by(&t, MIB(2), 1);
	cr_assert_gt(t.g.until_ns, before);
	close_all(&t, &x);
}

EACH_TRANSPORT(peer_pull, a_grant_that_is_over_is_told)
{
	struct place x;
	struct two t;

	open_all(&t, &x, ops, (struct peer_node_conf){ .ttl_ms = 100 });
	sleep_ms(150);
	t.holder.read_rc = -ESTALE;
	cr_assert_eq(read_into(&t, &x, 0, MIB(1)), -ESTALE);
	came_by(&t, 0, 1);
	cr_assert(peer_is_usable(t.p));
	close_all(&t, &x);
}
