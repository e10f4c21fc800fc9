/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of tier.h over every kind of tier: bytes, sizes, charges to the byte, restart. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/tier_test.h"

/* ---- bytes and sizes ---- */

EACH_TIER(frame_dir, sizes_a_fresh_frame_before_it_is_filled, BUDGET)
{
	struct frame f = take(box, MIB(1) + 5);

	struct stat st = stat_fd(f.fd);
	cr_expect_eq(st.st_size, (off_t)MIB(1) + 5);
	cr_expect_eq(st.st_blocks, 0);
	cr_expect_eq(f.size_bytes, MIB(1) + 5);
	cr_expect_eq(f.stale_bytes, 0);
	cr_expect_eq(f.charged_bytes, box->overhead_bytes);
	cr_expect_eq(used(box), box->overhead_bytes);
	expect_bytes(box, &f, 0, 0, KIB(64));
	tier_call(box->t, discard, &f);
}

EACH_TIER(frame_dir, reads_what_was_written_and_not_past_the_end, BUDGET)
{
	char buf[16];
	struct frame f = take(box, 0);

	fill(box, &f, 'a', 0, 10000);
	fill(box, &f, 'b', 10000, 10000);
	cr_expect_eq(f.size_bytes, 20000);
	expect_bytes(box, &f, 'a', 0, 10000);
	expect_bytes(box, &f, 'b', 10000, 10000);
	cr_expect_eq(tier_call(box->t, read, &f, buf, 16, 19990), -EIO);
	cr_expect_eq(tier_call(box->t, write, &f, buf, 16, UINT64_MAX - 4), -EFBIG);
	cr_expect_eq(tier_call(box->t, charge, &f, UINT64_MAX), -EFBIG);
	cr_expect_eq(tier_call(box->t, resize, &f, UINT64_MAX), -EFBIG);
	tier_call(box->t, discard, &f);
}

EACH_TIER(frame_dir, grows_ahead_past_two_mib_only, BUDGET)
{
	struct frame f = take(box, 0);

	fill(box, &f, 'a', 0, MIB(2));
	cr_expect_eq(f.size_bytes, MIB(2), "exact up to 2 MiB");
	fill(box, &f, 'a', MIB(2), 1);
	cr_expect_eq(f.size_bytes, box->grows_ahead ? MIB(4) : MIB(2) + 1);
	cr_assert_eq(tier_call(box->t, resize, &f, MIB(40)), 0);
	fill(box, &f, 'a', MIB(40), 1);
	cr_expect_eq(f.size_bytes, box->grows_ahead ? MIB(50) : MIB(40) + 1, "a quarter ahead");
	cr_expect_eq((uint64_t)stat_fd(f.fd).st_size, f.size_bytes);
	cr_assert_eq(tier_call(box->t, resize, &f, MIB(2) + 1), 0);
	cr_expect_eq(stat_fd(f.fd).st_size, (off_t)MIB(2) + 1);
	expect_bytes(box, &f, 'a', 0, MIB(2) + 1);
	tier_call(box->t, discard, &f);
}

struct writer {
	struct tier_box *box;
	struct frame *f;
	unsigned int index;
};

static void *write_every_fourth(void *arg)
{
	struct writer *w = arg;
	char buf[65536];

	for (uint64_t i = w->index; i < 128; i += 4) {
		memset(buf, (int)i, sizeof(buf));
		if (tier_call(w->box->t, write, w->f, buf, sizeof(buf), i * sizeof(buf)))
			return (void *)1;
	}
	return NULL;
}

EACH_TIER(frame_dir, writes_of_several_threads_meet_in_one_frame, BUDGET)
{
	struct frame f = take(box, 0);
	struct writer writers[4];
	pthread_t threads[4];

	for (unsigned int i = 0; i < 4; i++) {
		writers[i] = (struct writer){box, &f, i};
		cr_assert_eq(pthread_create(&threads[i], NULL, write_every_fourth, &writers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *failed;
		pthread_join(threads[i], &failed);
		cr_expect_null(failed);
	}
	cr_expect_eq((uint64_t)stat_fd(f.fd).st_size, f.size_bytes);
	cr_assert_geq(f.size_bytes, MIB(8));
	for (int i = 0; i < 128; i++)
		expect_bytes(box, &f, (char)i, (uint64_t)i * 65536, 65536);
	tier_call(box->t, discard, &f);
}

/* ---- charges ---- */

EACH_TIER(frame_dir, charges_whole_pages_and_seals_what_the_file_takes, BUDGET)
{
	struct frame f = take(box, 0);
	uint64_t charge = 0;

	cr_assert_eq(tier_call(box->t, charge, &f, 5000), 0);
	cr_expect_eq(f.charged_bytes, 8192 + box->overhead_bytes);
	cr_assert_eq(tier_call(box->t, charge, &f, 100), 0, "at least: it is enough already");
	cr_expect_eq(used(box), 8192 + box->overhead_bytes);
	fill(box, &f, 'a', 0, 5000);
	uint64_t id = f.id;
	cr_assert_eq(tier_call(box->t, seal, &f, &charge), 0);
	int fd = tier_call(box->t, open, id);
	cr_assert_geq(fd, 0);
	cr_expect_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_expect_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	cr_expect_eq(charge, (uint64_t)stat_fd(fd).st_blocks * 512 + box->overhead_bytes);
	cr_expect_eq(charge, 8192 + box->overhead_bytes);
	cr_expect_eq(used(box), charge);
	struct tier_stats stats = tier_box_stats(box);
	cr_expect_eq(stats.n_sealed, 1);
	cr_expect_eq(stats.n_open, 0);
	close(fd);
}

EACH_TIER(frame_dir, sealing_a_sparse_frame_lowers_its_charge, BUDGET)
{
	struct frame f = take(box, MIB(1));
	uint64_t charge;

	cr_assert_eq(tier_call(box->t, charge, &f, MIB(1)), 0);
	fill(box, &f, 'a', KIB(512), 4096);
	/* 4 KiB, or a larger page where the file system thinks that the rest will follow. */
	uint64_t pages = (uint64_t)stat_fd(f.fd).st_blocks * 512;
	cr_assert_eq(tier_call(box->t, seal, &f, &charge), 0);
	cr_expect_eq(charge, pages + box->overhead_bytes);
	cr_expect_eq(used(box), charge);
}

EACH_TIER(frame_dir, sealing_counts_what_was_never_charged, BUDGET)
{
	struct frame f = take(box, 0);
	uint64_t charge;

	fill(box, &f, 'a', 0, KIB(64));
	cr_assert_eq(tier_call(box->t, seal, &f, &charge), 0);
	cr_expect_eq(charge, KIB(64) + box->overhead_bytes);
	cr_expect_eq(used(box), charge);
}

EACH_TIER(frame_dir, shrinking_lowers_stale_bytes_and_charge, BUDGET)
{
	drop(box, make_sealed(box, 'a', KIB(64)));
	struct frame f = take(box, KIB(64));

	cr_expect_eq(f.stale_bytes, box->recycles ? KIB(64) : 0);
	cr_assert_eq(tier_call(box->t, charge, &f, KIB(64)), 0);
	cr_assert_eq(tier_call(box->t, resize, &f, 4097), 0);
	cr_expect_eq(f.size_bytes, 4097);
	cr_expect_eq(f.stale_bytes, box->recycles ? 4097 : 0);
	cr_expect_eq(f.charged_bytes, 8192 + box->overhead_bytes);
	cr_expect_eq(used(box), 8192 + box->overhead_bytes);
	cr_assert_eq(tier_call(box->t, resize, &f, KIB(64)), 0);
	expect_bytes(box, &f, 0, 4097, KIB(64) - 4097);
	tier_call(box->t, discard, &f);
}

/* ---- restart ---- */

struct found {
	uint64_t ids[16];
	int n;
};

static int note_id(void *arg, uint64_t id)
{
	struct found *found = arg;

	found->ids[found->n++] = id;
	return found->n == 16 ? -E2BIG : 0;
}

static bool was_found(const struct found *found, uint64_t id)
{
	for (int i = 0; i < found->n; i++)
		if (found->ids[i] == id)
			return true;
	return false;
}

static int stop_scan(void *arg, uint64_t id)
{
	return -ECANCELED;
}

EACH_TIER(frame_dir, a_restart_finds_adopts_and_clears_up, BUDGET)
{
	struct found found = {.n = 0};
	struct sealed s[3];
	char stray[200];

	for (int i = 0; i < 3; i++)
		s[i] = make_sealed(box, (char)('a' + i), KIB(64));
	drop(box, make_sealed(box, 'x', KIB(32))); /* on the free list: gone at the end */
	snprintf(stray, sizeof(stray), "%s/README", box->path);
	close(open(stray, O_CREAT | O_WRONLY, 0600));
	tier_box_reopen(box);

	cr_expect_eq(used(box), 0);
	cr_assert_eq(tier_call(box->t, scan, note_id, &found), 0);
	cr_expect_eq(found.n, 3);
	for (int i = 0; i < 3; i++)
		cr_expect(was_found(&found, s[i].id));
	cr_expect_eq(tier_call(box->t, scan, stop_scan, NULL), -ECANCELED);
	tier_call(box->t, adopt, s[0].id, s[0].charge);
	tier_call(box->t, adopt, s[1].id, s[1].charge);
	cr_expect_eq(tier_call(box->t, remove_orphan, s[2].id), 0);
	cr_expect_eq(tier_call(box->t, remove_orphan, s[2].id), -ENOENT);
	cr_expect_eq(used(box), s[0].charge + s[1].charge);
	cr_expect_eq(tier_box_stats(box).n_sealed, 2);
	struct frame view = {
		.id = s[1].id, .fd = tier_call(box->t, open, s[1].id), .size_bytes = KIB(64)};
	expect_bytes(box, &view, 'b', 0, KIB(64));
	close(view.fd);
	struct frame f = take(box, 0);
	for (int i = 0; i < 3; i++)
		cr_expect_gt(f.id, s[i].id);
	tier_call(box->t, discard, &f);
	drop(box, s[0]);
	drop(box, s[1]);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
	unlink(stray);
}

EACH_TIER(frame_dir, ids_stay_unique_when_the_clock_went_back, BUDGET)
{
	struct found found = {.n = 0};
	struct frame f = take(box, 0);
	uint64_t later = f.id + 1000000000;
	char name[200];

	/* A frame of "later", and one in the way of the very next id. */
	snprintf(name, sizeof(name), "%s", tier_box_frame_path(box, later));
	if (box->kind != TIER_SSD)
		close(open(name, O_CREAT | O_WRONLY, 0600));
	close(open(tier_box_frame_path(box, f.id + 1), O_CREAT | O_WRONLY, 0600));
	struct frame g = take(box, 0);
	cr_expect_gt(g.id, f.id + 1);
	cr_assert_eq(tier_call(box->t, scan, note_id, &found), 0);
	struct frame h = take(box, 0);
	if (box->kind != TIER_SSD)
		cr_expect_gt(h.id, later);
	tier_call(box->t, discard, &f);
	tier_call(box->t, discard, &g);
	tier_call(box->t, discard, &h);
}

/* ---- failure ---- */

EACH_TIER(frame_dir, refuses_to_seal_a_file_of_another_length, BUDGET)
{
	struct frame f = take(box, KIB(64));
	uint64_t charge = 77;

	cr_assert_eq(truncate(tier_box_frame_path(box, f.id), 10), 0);
	cr_expect_eq(tier_call(box->t, seal, &f, &charge), -EIO);
	cr_expect_eq(charge, 77);
	cr_expect_geq(f.fd, 0);
	tier_call(box->t, discard, &f);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
}

EACH_TIER(frame_dir, a_lost_frame_is_enoent_and_gives_back_its_charge, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', KIB(64));

	cr_assert_eq(unlink(tier_box_frame_path(box, s.id)), 0);
	cr_expect_eq(tier_call(box->t, open, s.id), -ENOENT);
	drop(box, s);
	cr_expect_eq(used(box), 0);
	cr_expect_eq(tier_box_stats(box).n_sealed, 0);
}
