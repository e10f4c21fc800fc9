/* SPDX-License-Identifier: Apache-2.0 */
/* disk_place and disk_list: which disk is which at start, whatever happened to it meanwhile. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/ssd_box.h"
#include "tier/disk_list.h"
#include "tier/frame_dir.h"

/* ---- fixture ---- */

#define BUDGET (UINT64_C(16) << 20)

static struct ssd_box box;

static void setup(void)
{
	ssd_box_init(&box, 2, BUDGET);
}

static void teardown(void)
{
	ssd_box_fini(&box);
}

TestSuite(disk_place, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static uint64_t make_frame(uint32_t disk)
{
	struct frame f = FRAME_NONE;
	uint64_t charge;

	for (int tries = 0; tries < 4; tries++) {
		cr_assert_eq(tier_call(box.t, take, 0, &f), 0);
		if (f.id >> FRAME_NUMBER_SHIFT == disk)
			break;
		/* The other one has more room: it gets some, and the next goes here. */
		cr_assert_eq(tier_call(box.t, charge, &f, 4096), 0);
		cr_assert_eq(tier_call(box.t, write, &f, "a", 1, 0), 0);
		cr_assert_eq(tier_call(box.t, seal, &f, &charge), 0);
	}
	uint64_t id = f.id;
	cr_assert_eq(id >> FRAME_NUMBER_SHIFT, disk);
	cr_assert_eq(tier_call(box.t, seal, &f, &charge), 0);
	return id;
}

static int collect(void *arg, uint64_t id)
{
	uint64_t *found = arg;

	found[id >> FRAME_NUMBER_SHIFT & 3]++;
	return 0;
}

/* Frames found, by the number of their disk. */
static uint64_t *scan(void)
{
	static uint64_t found[4];

	memset(found, 0, sizeof(found));
	cr_assert_eq(tier_call(box.t, scan, collect, found), 0);
	return found;
}

static bool opens(uint64_t id)
{
	int fd = tier_call(box.t, open, id);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void move(const char *from, const char *to)
{
	cr_assert_eq(rename(from, to), 0, "%m");
}

static void remove_marker(uint32_t k)
{
	disk_marker_remove(box.paths[k]);
}

static uint32_t n_failed(void)
{
	struct tier_stats stats;

	tier_call(box.t, get_stats, &stats);
	cr_expect_eq(stats.n_disks, box.n_dirs);
	return stats.n_failed_disks;
}

/* On a file system of its own as far as the list is concerned: a mount could be missing. */
static void forget_where_the_state_is(void)
{
	struct disk_list list;

	cr_assert_eq(disk_list_load(box.state, &list), 0);
	for (uint32_t k = 0; k < list.n; k++)
		list.v[k].is_beside_state = false;
	cr_assert_eq(disk_list_save(box.state, &list), 0);
	disk_list_fini(&list);
}

static void create(void)
{
	cr_assert_eq(ssd_box_create(&box), 0);
}

static void restart(void)
{
	ssd_box_destroy(&box);
	create();
}

static void write_file(const char *dir, const char *name, const char *text)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	fclose(f);
}

/* ---- success ---- */

Test(disk_place, new_directories_get_numbers_that_last)
{
	struct disk_identity marker;
	struct disk_list list;

	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	restart();
	cr_expect_eq(scan()[0] > 0 && scan()[1] > 0, true);
	cr_expect(opens(a) && opens(b));
	cr_expect_eq(disk_list_load(box.state, &list), 0);
	cr_assert_eq(list.n, 2);
	for (uint32_t k = 0; k < 2; k++) {
		cr_expect_eq(list.v[k].identity.number, k);
		cr_expect_str_eq(list.v[k].path, box.paths[k]);
		cr_expect_eq(disk_marker_read(box.paths[k], &marker), 0);
		cr_expect_str_eq(marker.id, list.v[k].identity.id);
		cr_expect_str_eq(ssd_box_disk(&box, k).id, marker.id);
	}
	cr_expect_str_neq(list.v[0].identity.id, list.v[1].identity.id);
	disk_list_fini(&list);
}

Test(disk_place, numbers_follow_the_disks_not_the_order)
{
	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	ssd_box_destroy(&box);
	struct ssd_dir first = box.dirs[0];
	box.dirs[0] = box.dirs[1];
	box.dirs[1] = first;
	create();
	cr_expect_eq(ssd_box_disk(&box, 0).number, 1);
	cr_expect(opens(a) && opens(b));
}

Test(disk_place, disks_may_change_places)
{
	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	ssd_box_destroy(&box);
	move(box.paths[0], box.paths[2]);
	move(box.paths[1], box.paths[0]);
	move(box.paths[2], box.paths[1]);
	create();
	cr_expect(opens(a) && opens(b));
	cr_expect_eq(ssd_box_disk(&box, 0).number, 1);
	restart();
	cr_expect(opens(a) && opens(b));
}

Test(disk_place, a_new_disk_may_take_the_place_of_one_that_moved)
{
	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	ssd_box_destroy(&box);
	forget_where_the_state_is();
	move(box.paths[0], box.paths[2]);
	cr_assert_eq(mkdir(box.paths[0], 0700), 0);
	box.n_dirs = 3;
	create();
	cr_expect(opens(a) && opens(b));
	cr_expect_eq(n_failed(), 0);
	cr_expect_eq(ssd_box_disk(&box, 0).number, 2);
	cr_expect_eq(ssd_box_disk(&box, 2).number, 0);
}

Test(disk_place, a_disk_may_be_added_and_left_out)
{
	box.n_dirs = 1;
	create();
	uint64_t a = make_frame(0);
	ssd_box_destroy(&box);
	box.n_dirs = 2;
	create();
	uint64_t b = make_frame(1);
	cr_expect(opens(a));
	ssd_box_destroy(&box);
	box.n_dirs = 1;
	create();
	cr_expect(opens(a));
	cr_expect(tier_call(box.t, is_lost, b));
	cr_expect_not(tier_call(box.t, is_lost, a));
	ssd_box_destroy(&box);
	box.n_dirs = 2;
	create();
	cr_expect(opens(b), "it is back");
}

Test(disk_place, frames_of_an_earlier_version_are_disk_0)
{
	create();
	uint64_t a = make_frame(0);
	ssd_box_destroy(&box);
	char list[128];
	snprintf(list, sizeof(list), "%s/" DISK_LIST_NAME, box.state);
	cr_assert_eq(unlink(list), 0);
	remove_marker(0);
	remove_marker(1);
	/* The new one comes first, and still leaves number 0 alone. */
	box.dirs[0].path = box.paths[3];
	box.dirs[1].path = box.paths[0];
	create();
	cr_expect(opens(a));
	cr_expect_eq(ssd_box_disk(&box, 0).number, 1);
	cr_expect_eq(ssd_box_disk(&box, 1).number, 0);
}

Test(disk_place, a_lost_marker_is_written_anew)
{
	struct disk_identity marker;

	create();
	uint64_t b = make_frame(1);
	ssd_box_destroy(&box);
	remove_marker(1);
	create();
	cr_expect(opens(b));
	cr_expect_eq(n_failed(), 0);
	cr_expect_eq(disk_marker_read(box.paths[1], &marker), 0);
	cr_expect_eq(marker.number, 1);
}

Test(disk_place, markers_bring_a_lost_list_back)
{
	char list[128];

	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	ssd_box_destroy(&box);
	snprintf(list, sizeof(list), "%s/" DISK_LIST_NAME, box.state);
	cr_assert_eq(unlink(list), 0);
	create();
	cr_expect(opens(a) && opens(b));
	cr_expect_eq(access(list, F_OK), 0);
}

/* ---- a disk is missing ---- */

Test(disk_place, the_node_starts_without_a_disk_that_is_missing)
{
	create();
	uint64_t a = make_frame(0), b = make_frame(1);
	ssd_box_destroy(&box);
	forget_where_the_state_is();
	move(box.paths[1], box.paths[2]);
	create();
	cr_expect_eq(n_failed(), 1);
	cr_expect_eq(access(box.paths[1], F_OK), -1, "not made where a mount is missing");
	cr_expect(opens(a));
	cr_expect_not(opens(b));
	cr_expect(tier_call(box.t, is_lost, b));
	struct ssd_disk_stats stats = ssd_box_disk(&box, 1);
	cr_expect(stats.is_failed);
	cr_expect_eq(stats.number, 1);
	cr_expect_not_null(strstr(stats.failed_reason, "mounted"), "%s", stats.failed_reason);
	/* An empty mount point is no better. */
	ssd_box_destroy(&box);
	cr_assert_eq(mkdir(box.paths[1], 0700), 0);
	create();
	cr_expect_eq(n_failed(), 1);
	ssd_box_destroy(&box);
	cr_assert_eq(rmdir(box.paths[1]), 0);
	move(box.paths[2], box.paths[1]);
	create();
	cr_expect(opens(a) && opens(b), "it is back");
	cr_expect_eq(n_failed(), 0);
}

Test(disk_place, the_node_starts_without_any_disk)
{
	struct frame f = FRAME_NONE;

	create();
	uint64_t a = make_frame(0);
	ssd_box_destroy(&box);
	forget_where_the_state_is();
	move(box.paths[0], box.paths[2]);
	move(box.paths[1], box.paths[3]);
	create();
	cr_expect_eq(n_failed(), 2);
	cr_expect_eq(tier_call(box.t, take, 4096, &f), -EIO);
	cr_expect_eq(tier_call(box.t, open, a), -ENOENT);
	tier_call(box.t, drop, a, 0, 0);
	tier_call(box.t, adopt, a, 4096);
	cr_expect_eq(tier_call(box.t, reclaim, 0), 0);
	cr_expect_eq(*scan(), 0);
}

Test(disk_place, a_directory_beside_the_state_may_be_emptied)
{
	create();
	make_frame(0);
	ssd_box_destroy(&box);
	move(box.paths[0], box.paths[2]);
	create();
	cr_expect_eq(n_failed(), 0);
	cr_expect_eq(ssd_box_disk(&box, 0).number, 0);
	make_frame(0);
}

Test(disk_place, one_that_cannot_be_made_counts_as_failed)
{
	box.dirs[1].path = "/proc/frames";
	create();
	cr_expect_eq(n_failed(), 1);
	cr_expect_not(ssd_box_disk(&box, 1).is_known);
	make_frame(0);
}

/* ---- the wrong disk ---- */

Test(disk_place, another_disk_at_a_known_place_is_refused)
{
	struct disk_identity other = {.number = 1};

	create();
	make_frame(1);
	ssd_box_destroy(&box);
	cr_assert_eq(disk_identity_make(&other), 0);
	cr_assert_eq(disk_marker_write(box.paths[1], &other), 0);
	cr_expect_eq(ssd_box_create(&box), -EINVAL);
}

Test(disk_place, frames_of_another_node_are_refused)
{
	struct disk_identity other = {.number = 1};

	create();
	ssd_box_destroy(&box);
	cr_assert_eq(disk_identity_make(&other), 0);
	cr_assert_eq(mkdir(box.paths[2], 0700), 0);
	cr_assert_eq(disk_marker_write(box.paths[2], &other), 0);
	box.n_dirs = 3;
	create();
	cr_expect_eq(ssd_box_disk(&box, 2).number, 2, "an empty one is taken, with a new number");
	ssd_box_destroy(&box);
	char frames[128];
	snprintf(frames, sizeof(frames), "%s/0a", box.paths[3]);
	cr_assert_eq(mkdir(box.paths[3], 0700), 0);
	cr_assert_eq(mkdir(frames, 0700), 0);
	cr_assert_eq(disk_marker_write(box.paths[3], &other), 0);
	box.n_dirs = 4;
	cr_expect_eq(ssd_box_create(&box), -EINVAL);
	remove_marker(3);
	cr_expect_eq(ssd_box_create(&box), -EINVAL, "without a marker, but 0 is taken");
}

Test(disk_place, one_directory_under_two_names_is_refused)
{
	create();
	ssd_box_destroy(&box);
	cr_assert_eq(symlink(box.paths[0], box.paths[2]), 0);
	box.n_dirs = 3;
	cr_expect_eq(ssd_box_create(&box), -EINVAL);
}

Test(disk_place, damaged_files_are_refused)
{
	static const char *const bad[] = {
		"",
		"{",
		"[]",
		"{\"format\": 2, \"number\": 0, \"id\": \"00112233445566778899aabbccddeeff\"}",
		"{\"format\": 1, \"number\": 128, \"id\": \"00112233445566778899aabbccddeeff\"}",
		"{\"format\": 1, \"number\": 0, \"id\": \"00112233445566778899aabbccddeef\"}",
		"{\"format\": 1, \"number\": 0, \"id\": \"00112233445566778899aabbccddeefff\"}",
	};

	create();
	ssd_box_destroy(&box);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		write_file(box.paths[0], DISK_MARKER_NAME, bad[k]);
		cr_expect_eq(ssd_box_create(&box), -EINVAL, "marker %s", bad[k]);
	}
	remove_marker(0);
	create();
	ssd_box_destroy(&box);
	write_file(box.state, DISK_LIST_NAME, "[{\"number\": 0}]");
	cr_expect_eq(ssd_box_create(&box), -EINVAL);
	write_file(box.state, DISK_LIST_NAME, "nonsense");
	cr_expect_eq(ssd_box_create(&box), -EINVAL);
}
