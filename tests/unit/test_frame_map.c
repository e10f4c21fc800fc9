/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in memory, over every tier that maps them, with a registrar that counts, and fails when it is told to. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/tier_test.h"

#define FRAME KIB(256)

/* ---- a registrar ---- */

struct counting {
	atomic_int n_now, n_ever, n_most;
	int limit; /* of n_now; 0: none */
	int rc;	   /* what every call returns; 0: by the limit */
};

static int count_reg(void *arg, void *addr, size_t bytes, void **registration_out)
{
	struct counting *c = arg;

	if (c->rc)
		return c->rc;
	if (c->limit && c->n_now >= c->limit)
		return -ENOMEM;
	*registration_out = addr;
	c->n_now++;
	c->n_ever++;
	c->n_most = c->n_most > c->n_now ? c->n_most : c->n_now;
	return 0;
}

static void count_dereg(void *arg, void *registration)
{
	((struct counting *)arg)->n_now--;
}

/* ---- helpers ---- */

static void use_registrar(struct tier_box *box, struct counting *c)
{
	const struct tier_registrar r = { .reg = count_reg, .deregister = count_dereg, .arg = c };

	tier_call(box->t, set_registrar, c ? &r : NULL);
}

static struct frame_map *map(struct tier_box *box, uint64_t id, uint64_t bytes, int fd)
{
	struct frame_map *m = NULL;

	cr_assert_eq(tier_call(box->t, map, id, bytes, fd, &m), 0);
	cr_assert_eq(m->bytes, bytes);
	return m;
}

static void unmap(struct tier_box *box, struct frame_map *m)
{
	tier_call(box->t, unmap, m);
}

static struct tier_map_stats stats(struct tier_box *box)
{
	struct tier_map_stats s;

	tier_call(box->t, get_map_stats, &s);
	return s;
}

#define EACH_MAPPING(name, budget)                              \
	static void mapping_##name(struct tier_box *box);       \
	EACH_TIER(frame_map, name, budget)                      \
	{                                                       \
		if (box->t->ops->map && box->kind != TIER_SSD)  \
			mapping_##name(box);                    \
	}                                                       \
	static void mapping_##name(struct tier_box *box)

/* ---- one frame ---- */

EACH_MAPPING(shows_the_bytes_of_a_sealed_frame, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', FRAME);
	struct frame_map *m = map(box, s.id, FRAME, -1), *again = map(box, s.id, FRAME, -1);

	cr_assert_eq(m, again, "one record for both");
	cr_assert_null(m->registration);
	cr_assert(is_filled(m->addr, 'a', FRAME));
	cr_assert_eq(stats(box).n_mapped, 1);
	cr_assert_eq(stats(box).mapped_bytes, FRAME);
	unmap(box, m);
	unmap(box, again);
	cr_assert_eq(stats(box).n_mapped, 1, "kept for the next one");
	drop(box, s);
}

EACH_MAPPING(what_is_stored_there_is_in_the_file, BUDGET)
{
	struct frame f = take(box, FRAME);

	cr_assert_eq(tier_call(box->t, charge, &f, FRAME), 0);
	cr_assert_eq(fallocate(f.fd, 0, 0, FRAME), 0);
	struct frame_map *m = map(box, f.id, FRAME, f.fd);
	memset(m->addr, 'b', FRAME);
	unmap(box, m);
	struct sealed s = seal(box, &f);
	int fd = tier_call(box->t, open, s.id);
	char *bytes = malloc(FRAME);
	cr_assert_eq(pread(fd, bytes, FRAME, 0), (ssize_t)FRAME);
	cr_assert(is_filled(bytes, 'b', FRAME));
	free(bytes);
	close(fd);
	drop(box, s);
}

EACH_MAPPING(a_frame_that_is_lost_or_shorter_is_not_mapped, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', FRAME);
	struct frame_map *m;

	cr_assert_eq(tier_call(box->t, map, s.id, 2 * FRAME, -1, &m), -EIO);
	cr_assert_eq(unlink(tier_box_frame_path(box, s.id)), 0);
	cr_assert_eq(tier_call(box->t, map, s.id, FRAME, -1, &m), -ENOENT);
	cr_assert_eq(stats(box).n_mapped, 0);
	drop(box, s);
}

/* ---- recycling ---- */

EACH_MAPPING(is_kept_while_the_frame_is_recycled, BUDGET)
{
	struct counting c = { 0 };
	void *addr = NULL;

	use_registrar(box, &c);
	for (int k = 0; k < 10; k++) {
		struct frame f = take(box, FRAME);
		cr_assert_eq(tier_call(box->t, charge, &f, FRAME), 0);
		cr_assert_eq(fallocate(f.fd, 0, 0, FRAME), 0);
		struct frame_map *m = map(box, f.id, FRAME, f.fd);
		cr_assert_not_null(m->registration);
		cr_assert(!addr || addr == m->addr, "the same pages");
		addr = m->addr;
		memset(addr, 'a' + k, FRAME);
		unmap(box, m);
		struct sealed s = seal(box, &f);
		m = map(box, s.id, FRAME, -1);
		cr_assert(is_filled(m->addr, (char)('a' + k), FRAME));
		unmap(box, m);
		drop(box, s);
	}
	cr_assert_eq(c.n_ever, 1, "%d registrations", c.n_ever);
	cr_assert_eq(tier_box_stats(box).n_zombies, 0);
	cr_assert_eq(tier_box_stats(box).n_recycled, 9);
	use_registrar(box, NULL);
	cr_assert_eq(c.n_now, 0);
}

EACH_MAPPING(a_frame_that_is_held_is_not_recycled, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', FRAME);
	struct frame_map *m = map(box, s.id, FRAME, -1);

	drop(box, s);
	cr_assert_eq(tier_box_stats(box).n_free_list, 0);
	struct sealed t = make_sealed(box, 'b', FRAME);
	cr_assert(is_filled(m->addr, 'a', FRAME), "nobody writes there");
	unmap(box, m);
	cr_assert_eq(stats(box).n_mapped, 0);
	tier_call(box->t, reclaim, 0);
	cr_assert_eq(tier_box_stats(box).n_zombies, 0);
	drop(box, t);
}

EACH_MAPPING(a_frame_that_shrinks_is_not_known_any_more, BUDGET)
{
	struct counting c = { 0 };

	use_registrar(box, &c);
	struct frame f = take(box, FRAME);
	cr_assert_eq(tier_call(box->t, charge, &f, FRAME), 0);
	cr_assert_eq(fallocate(f.fd, 0, 0, FRAME), 0);
	unmap(box, map(box, f.id, FRAME, f.fd));
	cr_assert_eq(c.n_now, 1);
	cr_assert_eq(tier_call(box->t, resize, &f, FRAME / 2), 0);
	cr_assert_eq(c.n_now, 0, "its pages are gone");
	struct frame_map *m = map(box, f.id, FRAME / 2, f.fd);
	cr_assert_not_null(m->registration);
	unmap(box, m);
	tier_call(box->t, discard, &f);
	use_registrar(box, NULL);
}

EACH_MAPPING(what_leaves_the_free_list_leaves_its_registration, BUDGET)
{
	struct counting c = { 0 };

	use_registrar(box, &c);
	struct sealed s = make_sealed(box, 'a', FRAME);
	unmap(box, map(box, s.id, FRAME, -1));
	drop(box, s);
	cr_assert_eq(c.n_now, 1);
	tier_call(box->t, reclaim, 0);
	cr_assert_eq(c.n_now, 0);
	cr_assert_eq(stats(box).n_mapped, 0);
	use_registrar(box, NULL);
}

/* ---- limits ---- */

EACH_MAPPING(the_one_unused_for_longest_gives_way_at_a_limit, BUDGET)
{
	struct counting c = { .limit = 4 };
	struct sealed s[40];

	use_registrar(box, &c);
	for (int k = 0; k < 40; k++)
		s[k] = make_sealed(box, (char)('a' + k % 26), FRAME);
	struct frame_map *held = map(box, s[0].id, FRAME, -1);
	for (int k = 1; k < 40; k++) {
		struct frame_map *m = map(box, s[k].id, FRAME, -1);
		cr_assert_not_null(m->registration, "%d", k);
		cr_assert(is_filled(m->addr, (char)('a' + k % 26), FRAME));
		unmap(box, m);
	}
	cr_assert_leq(c.n_most, 4);
	cr_assert_not_null(held->registration, "who holds one keeps it");
	cr_assert_eq(stats(box).n_failures, 0);
	unmap(box, held);
	for (int k = 0; k < 40; k++)
		drop(box, s[k]);
	use_registrar(box, NULL);
	cr_assert_eq(c.n_now, 0);
}

EACH_MAPPING(what_cannot_be_registered_is_mapped_and_tried_again_later, BUDGET)
{
	struct counting c = { .rc = -ENOMEM };
	struct sealed s = make_sealed(box, 'a', FRAME);

	use_registrar(box, &c);
	struct frame_map *m = map(box, s.id, FRAME, -1);
	cr_assert_null(m->registration);
	cr_assert(is_filled(m->addr, 'a', FRAME));
	unmap(box, m);
	cr_assert_eq(stats(box).n_failures, 1);
	c.rc = 0;
	m = map(box, s.id, FRAME, -1);
	cr_assert_null(m->registration, "not at once");
	unmap(box, m);
	cr_assert_eq(stats(box).n_failures, 1);
	usleep(1100000);
	m = map(box, s.id, FRAME, -1);
	cr_assert_not_null(m->registration);
	unmap(box, m);
	drop(box, s);
	use_registrar(box, NULL);
}

/* Registering takes every page, also those of holes, which nobody was charged for. */
EACH_MAPPING(a_sparse_frame_is_not_registered, BUDGET)
{
	struct counting c = { 0 };
	struct frame f = take(box, FRAME);

	use_registrar(box, &c);
	cr_assert_eq(tier_call(box->t, charge, &f, FRAME), 0);
	fill(box, &f, 'a', 0, KIB(4));
	if ((uint64_t)stat_fd(f.fd).st_blocks * 512 >= FRAME) { /* the file system knows better */
		tier_call(box->t, discard, &f);
		use_registrar(box, NULL);
		return;
	}
	struct sealed s = seal(box, &f);
	struct frame_map *m = map(box, s.id, FRAME, -1);
	cr_assert_null(m->registration);
	unmap(box, m);
	cr_assert_eq(c.n_ever, 0);
	drop(box, s);
	use_registrar(box, NULL);
}

/* ---- threads ---- */

struct mapper {
	struct tier_box *box;
	struct sealed *s;
	int n;
	atomic_bool *stop;
	pthread_t thread;
};

static void *map_all(void *arg)
{
	struct mapper *x = arg;

	for (int k = 0; !*x->stop; k = (k + 1) % x->n) {
		struct frame_map *m = map(x->box, x->s[k].id, FRAME, -1);
		cr_assert_eq(*(char *)m->addr, 'a' + k);
		cr_assert_eq(((char *)m->addr)[FRAME - 1], 'a' + k);
		unmap(x->box, m);
	}
	return NULL;
}

EACH_MAPPING(threads_share_what_one_of_them_makes, BUDGET)
{
	struct counting c = { .limit = 5 };
	struct sealed s[8];
	struct mapper x[4];
	atomic_bool stop = false;

	use_registrar(box, &c);
	for (int k = 0; k < 8; k++)
		s[k] = make_sealed(box, (char)('a' + k), FRAME);
	for (int k = 0; k < 4; k++) {
		x[k] = (struct mapper){ .box = box, .s = s, .n = 8, .stop = &stop };
		pthread_create(&x[k].thread, NULL, map_all, &x[k]);
	}
	usleep(300000);
	stop = true;
	for (int k = 0; k < 4; k++)
		pthread_join(x[k].thread, NULL);
	cr_assert_leq(c.n_most, 5);
	for (int k = 0; k < 8; k++)
		drop(box, s[k]);
	use_registrar(box, NULL);
	cr_assert_eq(c.n_now, 0);
	cr_assert_eq(tier_box_stats(box).n_zombies, 0);
}
