/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of frames that no object needs, over every kind of tier: budget, free list and its
 * bounds, zombies with a real second process.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/tier_test.h"

/* ---- helpers ---- */

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A process that maps the file of fd, closes every fd of it, and stays until told to end. */
struct mapper {
	pid_t pid;
	int go_fd;
};

static struct mapper map_in_child(int fd, size_t len, char expected)
{
	int go[2], ready[2];
	char byte;

	cr_assert_eq(pipe(go), 0);
	cr_assert_eq(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		const char *bytes = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
		if (bytes == MAP_FAILED)
			_exit(2);
		for (int i = 3; i < 1024; i++)
			if (i != go[0] && i != ready[1])
				close(i);
		if (write(ready[1], "r", 1) != 1 || read(go[0], &byte, 1) < 0)
			_exit(3);
		_exit(is_filled(bytes, expected, len) ? 0 : 1);
	}
	cr_assert_gt(pid, 0);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	return (struct mapper){.pid = pid, .go_fd = go[1]};
}

static int end_mapper(struct mapper m)
{
	int status;

	close(m.go_fd);
	cr_assert_eq(waitpid(m.pid, &status, 0), m.pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- budget ---- */

EACH_TIER(frame_space, refuses_what_passes_the_budget_and_changes_nothing, MIB(1))
{
	struct frame f = take(box, 0), g = FRAME_NONE;
	uint64_t before = used(box);

	cr_expect_eq(tier_call(box->t, charge, &f, MIB(1) + 1), -ENOSPC);
	cr_expect_eq(f.charged_bytes, box->overhead_bytes);
	cr_expect_eq(used(box), before);
	uint64_t most = (MIB(1) - box->overhead_bytes) & ~UINT64_C(4095);
	cr_assert_eq(tier_call(box->t, charge, &f, most), 0);
	cr_expect_eq(tier_call(box->t, charge, &f, most + 1), -ENOSPC);
	cr_expect_eq(f.charged_bytes, most + box->overhead_bytes);
	if (tier_call(box->t, take, 0, &g) == 0) {
		cr_expect_eq(tier_call(box->t, charge, &g, 4096), -ENOSPC);
		tier_call(box->t, discard, &g);
	}
	tier_call(box->t, discard, &f);
	cr_expect_eq(used(box), 0);
}

EACH_TIER(frame_space, the_free_list_gives_way_to_a_charge, MIB(1))
{
	drop(box, make_sealed(box, 'a', KIB(64)));
	drop(box, make_sealed(box, 'a', KIB(32)));
	struct frame f = take(box, 0);

	cr_expect_eq(tier_box_stats(box).n_free_list, box->recycles ? 2 : 0);
	cr_expect_eq(tier_call(box->t, charge, &f, MIB(2)), -ENOSPC);
	cr_expect_eq(tier_box_stats(box).n_free_list, box->recycles ? 2 : 0, "not for nothing");
	cr_expect_eq(tier_call(box->t, charge, &f, MIB(1) - KIB(60)), 0);
	cr_expect_eq(tier_box_stats(box).n_free_list, box->recycles ? 1 : 0, "the oldest left");
	tier_call(box->t, discard, &f);
}

/* ---- recycling ---- */

EACH_TIER(frame_space, recycles_the_same_inode_under_a_new_id, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', KIB(64));
	struct stat before;

	cr_assert_eq(stat(tier_box_frame_path(box, s.id), &before), 0);
	drop(box, s);
	cr_expect_eq(used(box), box->recycles ? s.charge : 0);
	struct frame other = take(box, KIB(60));
	cr_expect_eq(other.stale_bytes, 0, "another size is fresh");
	struct frame f = take(box, KIB(64));
	struct tier_stats stats = tier_box_stats(box);
	if (box->recycles) {
		cr_expect_eq(stat_fd(f.fd).st_ino, before.st_ino);
		cr_expect_eq(f.stale_bytes, KIB(64));
		cr_expect_eq(f.charged_bytes, s.charge);
	} else {
		cr_expect_eq(f.stale_bytes, 0);
	}
	cr_expect_eq(stats.n_recycled, box->recycles ? 1 : 0);
	cr_expect_eq(stats.n_created, box->recycles ? 2 : 3);
	cr_expect_neq(f.id, s.id);
	cr_expect_eq(tier_call(box->t, open, s.id), -ENOENT, "the old id finds nothing");
	cr_expect_eq(access(tier_box_frame_path(box, f.id), F_OK), 0);
	tier_call(box->t, discard, &f);
	tier_call(box->t, discard, &other);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
}

EACH_TIER(frame_space, zero_clears_stale_and_written_bytes_only, BUDGET)
{
	drop(box, make_sealed(box, 'a', MIB(3)));
	struct frame f = take(box, MIB(3));

	if (!box->recycles)
		fill(box, &f, 'a', 0, MIB(3));
	fill(box, &f, 'b', 100, 100);
	cr_assert_eq(tier_call(box->t, zero, &f, 150, MIB(2)), 0);
	expect_bytes(box, &f, 'a', 0, 100);
	expect_bytes(box, &f, 'b', 100, 50);
	expect_bytes(box, &f, 0, 150, MIB(2));
	expect_bytes(box, &f, 'a', MIB(2) + 150, MIB(1) - 150);
	cr_assert_eq(tier_call(box->t, zero, &f, MIB(3) - 1, UINT64_MAX), 0);
	expect_bytes(box, &f, 0, MIB(3) - 1, 1);
	cr_expect_eq(f.size_bytes, MIB(3));
	tier_call(box->t, discard, &f);
}

EACH_TIER(frame_space, zero_takes_no_page_for_a_hole, BUDGET)
{
	struct frame f = take(box, MIB(1));

	fill(box, &f, 'a', KIB(512), 4096);
	blkcnt_t before = stat_fd(f.fd).st_blocks;
	cr_assert_eq(tier_call(box->t, zero, &f, 0, MIB(1)), 0);
	cr_expect_eq(stat_fd(f.fd).st_blocks, before);
	expect_bytes(box, &f, 0, 0, MIB(1));
	tier_call(box->t, discard, &f);
}

EACH_TIER(frame_space, the_free_list_is_bounded_and_drops_the_oldest, MIB(8))
{
	enum {
		N = 40
	};
	struct sealed s[N];
	struct stat oldest;

	for (int i = 0; i < N; i++)
		s[i] = make_sealed(box, 'a', KIB(64));
	cr_assert_eq(stat(tier_box_frame_path(box, s[0].id), &oldest), 0);
	for (int i = 0; i < N; i++)
		drop(box, s[i]);
	struct tier_stats stats = tier_box_stats(box);
	cr_expect_eq(stats.n_free_list, box->recycles ? MIB(1) / s[0].charge : 0);
	cr_expect_eq(stats.free_list_bytes, stats.n_free_list * s[0].charge);
	cr_expect_eq(stats.used_bytes, stats.free_list_bytes);
	for (uint64_t i = 0; i < stats.n_free_list; i++) {
		struct frame f = take(box, KIB(64));
		cr_expect_neq(stat_fd(f.fd).st_ino, oldest.st_ino);
		close(f.fd);
	}
}

EACH_TIER(frame_space, discard_counts_the_pages_a_draft_really_took, BUDGET)
{
	struct frame f = take(box, MIB(1)), g = take(box, MIB(1));

	fill(box, &f, 'a', 0, KIB(64)); /* never charged */
	uint64_t pages = (uint64_t)stat_fd(f.fd).st_blocks * 512;
	tier_call(box->t, discard, &f);
	cr_expect_eq(f.id, 0);
	cr_expect_eq(f.fd, -1);
	cr_expect_eq(tier_box_stats(box).free_list_bytes,
		     box->recycles ? pages + box->overhead_bytes : 0);
	cr_assert_eq(tier_call(box->t, charge, &g, MIB(1)), 0); /* never written */
	tier_call(box->t, discard, &g);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
	tier_call(box->t, discard, &g); /* none: nothing happens */
	cr_expect_eq(tier_box_stats(box).n_open, 0);
}

EACH_TIER(frame_space, sealed_frames_hold_no_fd, BUDGET)
{
	int before = count_fds();

	for (int i = 0; i < 300; i++)
		make_sealed(box, 'a', 100);
	cr_expect_eq(count_fds(), before);
	cr_expect_eq(tier_box_stats(box).n_sealed, 300);
}

/* ---- zombies ---- */

EACH_TIER(frame_space, never_recycles_a_frame_that_is_mapped_elsewhere, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', KIB(64));
	int fd = tier_call(box->t, open, s.id);
	struct mapper mapper = map_in_child(fd, KIB(64), 'a');

	close(fd);
	drop(box, s);
	struct tier_stats stats = tier_box_stats(box);
	cr_expect_eq(stats.n_zombies, 1);
	cr_expect_eq(stats.zombie_bytes, s.charge);
	cr_expect_eq(stats.used_bytes, s.charge, "still charged");
	cr_expect_eq(stats.n_free_list, 0);
	cr_expect_eq(tier_call(box->t, open, s.id), -ENOENT, "without a name");
	struct frame f = take(box, KIB(64));
	cr_expect_eq(f.stale_bytes, 0, "a fresh one");
	fill(box, &f, 'x', 0, KIB(64));
	cr_expect_eq(tier_call(box->t, reclaim, UINT64_MAX), 0, "mapped: nothing to give back");
	cr_expect_eq(tier_box_stats(box).n_zombies, 1);
	cr_expect_eq(end_mapper(mapper), 0, "the mapping showed its own bytes to the end");
	cr_expect_eq(tier_call(box->t, reclaim, UINT64_MAX), s.charge);
	stats = tier_box_stats(box);
	cr_expect_eq(stats.n_zombies, 0);
	cr_expect_eq(stats.zombie_bytes, 0);
	cr_expect_eq(stats.n_free_list, 0, "a file without a name is not used again");
	tier_call(box->t, discard, &f);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
}

/* ---- failure ---- */

EACH_TIER(frame_space, does_not_recycle_a_frame_whose_record_has_a_wrong_size, BUDGET)
{
	struct sealed s = make_sealed(box, 'a', KIB(64));

	s.size = KIB(32);
	drop(box, s);
	struct frame f = take(box, KIB(32));
	cr_expect_eq(f.stale_bytes, 0);
	tier_call(box->t, discard, &f);
	tier_call(box->t, reclaim, 0);
	cr_expect_eq(used(box), 0);
}

EACH_TIER(frame_space, the_free_list_gives_up_fds_when_there_are_none, BUDGET)
{
	struct rlimit fds = {.rlim_cur = 64, .rlim_max = 64};
	struct frame f = FRAME_NONE;
	struct sealed s[8];

	for (int i = 0; i < 8; i++)
		s[i] = make_sealed(box, 'a', KIB(64));
	for (int i = 0; i < 7; i++)
		drop(box, s[i]);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &fds), 0);
	int n_taken = 0, taken[64];
	while ((taken[n_taken] = open("/dev/null", O_RDONLY)) >= 0)
		n_taken++;
	int fd = tier_call(box->t, open, s[7].id);
	int rc = tier_call(box->t, take, KIB(4), &f);
	if (box->recycles) {
		cr_expect_geq(fd, 0);
		cr_expect_eq(rc, 0);
		cr_expect_lt(tier_box_stats(box).n_free_list, 7);
	} else {
		cr_expect_eq(fd, -EMFILE);
		cr_expect_eq(rc, -EMFILE);
	}
	cr_expect_eq(tier_box_stats(box).used_bytes, s[7].charge +
							     tier_box_stats(box).free_list_bytes +
							     (rc ? 0 : box->overhead_bytes));
	while (n_taken > 0)
		close(taken[--n_taken]);
	if (!rc)
		tier_call(box->t, discard, &f);
	if (fd >= 0)
		close(fd);
}
