/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/fs_box.h"
#include "object/durable.h"
#include "object/scrub.h"

#define A fs_box_who(1)
#define B fs_box_who(2)
#define PIECE (1u << 20)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root;

static void setup(void)
{
	fs_box_open(&box);
	root = fs_box_root(&box);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(scrub, .init = setup, .fini = teardown, .timeout = 60);

/* ---- helpers ---- */

static char content[3 * PIECE];

/* A file with a copy on the ssd; returns the frame. */
static uint64_t put_synced(const char *name, size_t len)
{
	struct object *o;

	memset(content, name[0], sizeof(content));
	cr_assert_eq(fs_box_put_file(&box, root, name, content, len, A), 0);
	struct inode *i = fs_box_look(&box, root, name, B);
	cr_assert_not_null(i);
	cr_assert_eq(fs_box_hold(&box, i, B, &o), 0);
	cr_assert_eq(durable_object(&box.fs, o), 0);
	uint64_t frame = o->ssd_frame;
	fs_box_drop(&box, i, o);
	fs_box_put(&box, i);
	return frame;
}

static void frame_path(uint64_t id, char path[256])
{
	snprintf(path, 256, "%s/%02x/%02x/%016llx", box.ssd, (int)(id >> 18 & 0xff),
		 (int)(id >> 10 & 0xff), (unsigned long long)id);
}

static void flip_byte(uint64_t frame, off_t at)
{
	char path[256], byte;

	frame_path(frame, path);
	int fd = open(path, O_RDWR);
	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static struct scrub_status wait_end(void)
{
	struct scrub_status s;

	for (int k = 0; k < 2000; k++) {
		scrub_get_status(box.fs.scrub, &s);
		if (s.state != SCRUB_RUNNING)
			return s;
		usleep(5000);
	}
	cr_assert_fail("it does not end");
	return s;
}

static struct scrub_status scrub(void)
{
	cr_assert_eq(scrub_start(box.fs.scrub, 0), 0);
	return wait_end();
}

static bool shows(const char *name, size_t len)
{
	memset(content, name[0], sizeof(content));
	return fs_box_shows(&box, root, name, B, content, len);
}

/* ---- tests ---- */

Test(scrub, finds_good_frames_good)
{
	struct scrub_status s;

	scrub_get_status(box.fs.scrub, &s);
	cr_expect_eq(s.state, SCRUB_IDLE);
	put_synced("a", 100);
	put_synced("b", 2 * PIECE + 5);
	cr_assert_eq(fs_box_put_file(&box, root, "in dram alone", "x", 1, A), 0);
	s = scrub();
	cr_expect_eq(s.state, SCRUB_FINISHED);
	cr_expect_eq(s.n_checked, 2);
	cr_expect_eq(s.n_bad, 0);
	cr_expect_eq(s.bytes_checked, 100 + 2 * PIECE + 5);
	cr_expect_eq(s.n_without_checksum, 0);
}

Test(scrub, drops_a_bad_copy_and_the_object_lives_on_in_dram)
{
	uint64_t frame = put_synced("a", 2 * PIECE);
	char path[256];

	put_synced("b", 10);
	flip_byte(frame, PIECE + 7);
	struct scrub_status s = scrub();
	cr_expect_eq(s.n_bad, 1);
	cr_expect_eq(s.n_checked, 2);
	frame_path(frame, path);
	cr_expect_neq(access(path, F_OK), 0, "the bad copy is gone");
	cr_expect(shows("a", 2 * PIECE));
	s = scrub();
	cr_expect_eq(s.n_bad, 0);
	cr_expect_eq(s.n_checked, 1);
}

Test(scrub, a_bad_last_copy_takes_its_name_along)
{
	struct entry e;
	uint64_t frame = put_synced("a", 1000);

	put_synced("b", 1000);
	fs_box_restart(&box, true);
	root = fs_box_root(&box);
	flip_byte(frame, 999);
	cr_expect_eq(scrub().n_bad, 1);
	cr_expect_eq(catalog_lookup(box.fs.catalog, CATALOG_ROOT_INO, "a", &e), -ENOENT);
	cr_expect(shows("b", 1000));
}

Test(scrub, finds_missing_and_short_frames)
{
	char path[256];

	frame_path(put_synced("a", 5000), path);
	cr_assert_eq(unlink(path), 0);
	frame_path(put_synced("b", 5000), path);
	cr_assert_eq(truncate(path, 4999), 0);
	put_synced("c", 5000);
	struct scrub_status s = scrub();
	cr_expect_eq(s.n_bad, 2);
	cr_expect_eq(s.n_checked, 3);
	cr_expect(shows("a", 5000) && shows("b", 5000) && shows("c", 5000));
}

Test(scrub, keeps_to_its_rate_runs_once_and_stops_when_told)
{
	struct scrub_status s;

	for (char name[2] = "a"; *name <= 'h'; ++*name)
		put_synced(name, 3 * PIECE);
	cr_assert_eq(scrub_start(box.fs.scrub, 4 * PIECE), 0);
	cr_expect_eq(scrub_start(box.fs.scrub, 0), -EBUSY);
	usleep(700000);
	scrub_get_status(box.fs.scrub, &s);
	cr_expect_eq(s.state, SCRUB_RUNNING);
	cr_expect(s.bytes_checked >= PIECE && s.bytes_checked <= 8 * PIECE, "%llu bytes in 0.7 s",
		  (unsigned long long)s.bytes_checked);
	scrub_stop(box.fs.scrub);
	s = wait_end();
	cr_expect_eq(s.state, SCRUB_STOPPED);
	cr_expect_lt(s.n_checked, 8);
	s = scrub();
	cr_expect_eq(s.state, SCRUB_FINISHED);
	cr_expect_eq(s.n_checked, 8);
}

Test(scrub, ends_with_the_daemon)
{
	put_synced("a", 3 * PIECE);
	cr_assert_eq(scrub_start(box.fs.scrub, 1), 0);
	int64_t begin = now_mono_ns();
	fs_box_stop(&box, false);
	cr_expect_lt(now_mono_ns() - begin, 5000000000ll);
}
