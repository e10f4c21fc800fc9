/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a grant is, and what ends it. */
#include "cluster/parts.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "lib/fs_box.h"

/* ---- fixture: a node with one object below kv/ ---- */

static struct fs_box box;
static struct cluster cluster = { .fs = &box.fs };
static const struct peer_id before = { 7, 1 }, after = { 7, 2 };

static void open_box(void)
{
	fs_box_open(&box);
	struct inode *kv = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	cr_assert_eq(fs_box_put_file(&box, kv, "a", "bytes", 5, fs_box_who(1)), 0);
	cluster.grants = grants_create(&cluster);
}

static void close_box(void)
{
	grants_destroy(cluster.grants);
	fs_box_close(&box);
}

TestSuite(serve, .init = open_box, .fini = close_box, .timeout = 60);

/* ---- helpers ---- */

static uint64_t give(const struct peer_id *to)
{
	const struct peer_grant_ask ask = { .from = *to, .dir = "/kv", .name = "a" };
	struct peer_grant g;

	cr_assert_eq(grants_give(&cluster, &ask, &g, INT64_MAX), 0);
	free(g.crc);
	return g.grant;
}

static int read_grant(const struct peer_id *from, uint64_t grant)
{
	struct peer_piece p;
	int rc = grants_read(&cluster, from, grant, 0, 5, &p, INT64_MAX);

	if (!rc)
		p.done(p.arg);
	return rc;
}

/* ---- tests ---- */

Test(serve, what_was_granted_is_read_until_it_is_released)
{
	uint64_t grant = give(&before);

	cr_expect_eq(read_grant(&before, grant), 0);
	cr_expect_eq(read_grant(&after, grant), -ESTALE, "it is another's");
	grants_release(&cluster, &after, grant);
	cr_expect_eq(read_grant(&before, grant), 0);
	grants_release(&cluster, &before, grant);
	cr_expect_eq(read_grant(&before, grant), -ESTALE);
}

Test(serve, the_late_end_of_a_nodes_life_takes_nothing_from_its_next_one)
{
	uint64_t old = give(&before), new = give(&after);

	grants_gone(&cluster, &before);
	cr_expect_eq(read_grant(&before, old), -ESTALE);
	cr_expect_eq(read_grant(&after, new), 0);
}
