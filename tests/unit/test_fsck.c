/* SPDX-License-Identifier: Apache-2.0 */
/* fsck on hand-made states: each kind of finding, what its repair leaves, and that a second run is clean. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "base/crc.h"
#include "catalog_fixture.h"
#include "catalog_internal.h"
#include "cli/fsck.h"

#define DIR_INO 100
#define SIZE 10

/* ---- fixture: a state with root/dir/{a,b}, both in dram, a on the ssd too ---- */

static struct catalog *catalog;
static struct fsck f;

static void path_of(char *path, bool is_ssd, uint64_t id)
{
	if (is_ssd)
		sprintf(path, "%s/ssd/%02x/%02x/%016llx", scratch, (int)(id >> 18 & 0xff),
			(int)(id >> 10 & 0xff), (unsigned long long)id);
	else
		sprintf(path, "%s/dram/%016llx", scratch, (unsigned long long)id);
}

static void make_frame(bool is_ssd, uint64_t id, const char *bytes)
{
	char path[256], dir[256];

	path_of(path, is_ssd, id);
	for (char *slash = path; is_ssd && (slash = strchr(slash + 1, '/'));) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
		mkdir(dir, 0700);
	}
	FILE *file = fopen(path, "w");
	cr_assert_not_null(file, "%s", path);
	fputs(bytes, file);
	fclose(file);
}

static bool has_frame(bool is_ssd, uint64_t id)
{
	char path[256];

	path_of(path, is_ssd, id);
	return !access(path, F_OK);
}

static void put_dir(uint64_t parent, const char *name, uint64_t ino)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry e = {.ino = ino, .mode = S_IFDIR | 0755};

	catalog_batch_put_entry(b, parent, name, &e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static const char bytes_of[] = "0123456789";

static struct object_record record_of(uint64_t id, const char *name)
{
	static uint32_t crc;
	struct object_record r = {.object_id = id, .size = SIZE, .dram_frame = id, .parent = DIR_INO,
				  .ino = id, .n_crc = 1, .crc = &crc};

	crc = crc32c(0, bytes_of, SIZE);
	r.name_len = (uint8_t)strlen(name);
	strcpy(r.name, name);
	return r;
}

static void put_record(const struct object_record *r)
{
	struct catalog_batch *b = catalog_batch_create(catalog);

	catalog_batch_put_object(b, r);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static void put_name(uint64_t parent, const char *name, uint64_t id, uint64_t size)
{
	struct catalog_batch *b = catalog_batch_create(catalog);
	struct entry e = {.ino = id, .object_id = id, .size = size, .mode = S_IFREG | 0644};

	catalog_batch_put_entry(b, parent, name, &e);
	cr_assert_eq(catalog_batch_commit(b, false), 0);
}

static void put_file(const char *name, uint64_t id, bool is_on_ssd)
{
	struct object_record r = record_of(id, name);

	r.ssd_frame = is_on_ssd ? id : 0;
	put_record(&r);
	put_name(DIR_INO, name, id, SIZE);
	make_frame(false, id, bytes_of);
	if (is_on_ssd)
		make_frame(true, id, bytes_of);
}

static void setup(void)
{
	char path[128];

	scratch_create();
	snprintf(path, sizeof(path), "%s/lock", scratch);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	snprintf(path, sizeof(path), "%s/dram", scratch);
	mkdir(path, 0700);
	catalog = catalog_must_open();
	put_dir(0, "root", CATALOG_ROOT_INO);
	put_dir(CATALOG_ROOT_INO, "dir", DIR_INO);
	put_file("a", 1000, true);
	put_file("b", 2000, false);
	cr_assert_eq(catalog_control_put(catalog, "version_ceiling", 1000000, true), 0);
}

static void teardown(void)
{
	fsck_fini(&f);
	scratch_remove();
}

TestSuite(fsck, .init = setup, .fini = teardown, .timeout = 60);

/* ---- helpers ---- */

static int run(bool repairs, bool checks_data)
{
	if (catalog)
		catalog_close(catalog);
	catalog = NULL;
	fsck_fini(&f);
	f = (struct fsck){
		.lock_fd = -1, .state_dir = scratch, .repairs = repairs, .checks_data = checks_data};
	return fsck_run(&f);
}

/* This and nothing else, n times. */
static void expect_found(enum fsck_finding what, uint64_t n)
{
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		cr_expect_eq(f.tallies[k].n, (int)what == k ? n : 0, "finding %d: %llu", k,
			     (unsigned long long)f.tallies[k].n);
}

static void expect_clean(void)
{
	cr_assert_eq(run(false, true), 0);
	for (int k = 0; k < FSCK_N_FINDINGS; k++)
		cr_expect_eq(f.tallies[k].n, 0, "finding %d: %llu", k,
			     (unsigned long long)f.tallies[k].n);
	cr_expect(f.is_complete);
}

/* Found without a change, repaired, and clean from then on. The catalog is open again afterwards. */
static void expect_repaired(enum fsck_finding what, uint64_t n, bool checks_data)
{
	cr_assert_eq(run(false, checks_data), 0);
	expect_found(what, n);
	cr_expect_eq(fsck_n_left(&f), n);
	cr_assert_eq(run(true, checks_data), 0);
	expect_found(what, n);
	cr_expect_eq(fsck_n_left(&f), 0);
	expect_clean();
	catalog = catalog_must_open();
}

static bool is_shown(uint64_t parent, const char *name)
{
	struct object_record r;
	struct entry e;

	if (catalog_lookup(catalog, parent, name, &e))
		return false;
	entry_fini(&e);
	if (S_ISREG(e.mode)) {
		cr_assert_eq(catalog_object_get(catalog, e.object_id, &r), 0);
		cr_expect(r.parent == parent && !strcmp(r.name, name), "%s", name);
		cr_expect_eq(r.size, e.size);
		object_record_fini(&r);
	}
	return true;
}

static uint64_t lost_found(void)
{
	struct entry e = {.ino = 0};

	catalog_lookup(catalog, CATALOG_ROOT_INO, "lost+found", &e);
	return e.ino;
}

/* ---- names and objects ---- */

Test(fsck, finds_nothing_where_nothing_is)
{
	expect_clean();
	cr_expect_eq(f.n_objects, 2);
	cr_expect_eq(f.n_files, 2);
	cr_expect_eq(f.object_bytes, 2 * SIZE);
	cr_expect_eq(f.dram.n, 2);
	cr_expect_eq(f.ssd.n, 1);
	cr_expect_eq(f.checked_bytes, SIZE);
}

Test(fsck, a_name_without_an_object_goes)
{
	put_name(DIR_INO, "c", 3000, SIZE);
	expect_repaired(FSCK_NO_OBJECT, 1, false);
	cr_expect(is_shown(DIR_INO, "a") && is_shown(DIR_INO, "b") && !is_shown(DIR_INO, "c"));
}

Test(fsck, an_object_without_bytes_goes_with_its_name)
{
	char path[256];

	path_of(path, false, 2000);
	cr_assert_eq(unlink(path), 0);
	expect_repaired(FSCK_NO_BYTES, 1, false);
	cr_expect(is_shown(DIR_INO, "a") && !is_shown(DIR_INO, "b"));
}

Test(fsck, an_object_without_a_name_gets_one_in_lost_and_found)
{
	struct object_record r = record_of(3000, "c");

	put_record(&r);
	make_frame(false, 3000, bytes_of);
	expect_repaired(FSCK_NO_NAME, 1, false);
	cr_expect(is_shown(lost_found(), "0000000000000bb8"));
	cr_expect_not(is_shown(DIR_INO, "c"), "not where it may have been");
}

Test(fsck, of_two_names_of_an_object_one_stays)
{
	put_name(DIR_INO, "z", 2000, SIZE);
	cr_assert_eq(run(true, false), 0);
	cr_expect_eq(f.tallies[FSCK_NAME_TWICE].n, 1);
	expect_clean();
	catalog = catalog_must_open();
	cr_expect(is_shown(DIR_INO, "b") != is_shown(DIR_INO, "z"));
}

Test(fsck, a_wrong_size_and_a_wrong_back_name_are_made_right)
{
	struct object_record r = record_of(2000, "other");

	put_name(DIR_INO, "b", 2000, SIZE + 1);
	expect_repaired(FSCK_WRONG_SIZE, 1, false);
	cr_expect(is_shown(DIR_INO, "b"));
	put_record(&r);
	expect_repaired(FSCK_WRONG_BACK, 1, false);
	cr_expect(is_shown(DIR_INO, "b"));
}

Test(fsck, damaged_records_go_and_newer_ones_stay)
{
	uint8_t newer[] = {9, 'n', 'e', 'w', 0, 0, 0, 0};
	uint32_t crc = crc32c(0, newer, 4);
	struct catalog_batch *b = catalog_batch_create(catalog);

	for (int i = 0; i < 4; i++)
		newer[4 + i] = (uint8_t)(crc >> 8 * i);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, "\0\0\0\0\0\0\7\xd0", 8, "bad", 3);
	catalog_batch_put_raw(b, CATALOG_OBJECTS, "\0\0\0\0\0\0\0\7", 8, newer, sizeof(newer));
	cr_assert_eq(catalog_batch_commit(b, false), 0);
	make_frame(true, 7, "its bytes");
	cr_assert_eq(run(true, false), 0);
	cr_expect_eq(f.tallies[FSCK_DAMAGED].n, 1);
	cr_expect_eq(f.tallies[FSCK_NO_OBJECT].n, 1, "the name of the damaged one");
	cr_expect_eq(f.tallies[FSCK_NEWER].n, 1);
	cr_expect_eq(fsck_n_left(&f), 1 + f.tallies[FSCK_ORPHAN].n);
	cr_expect(has_frame(true, 7), "a frame may be that of the newer record");
	catalog = catalog_must_open();
	cr_expect(is_shown(DIR_INO, "a") && !is_shown(DIR_INO, "b"));
}

/* ---- directories ---- */

Test(fsck, what_is_in_a_directory_that_is_not_there_moves_to_lost_and_found)
{
	struct object_record r = record_of(3000, "c");

	r.parent = 555;
	put_record(&r);
	put_name(555, "c", 3000, SIZE);
	make_frame(false, 3000, bytes_of);
	put_dir(555, "sub", 556);
	put_dir(556, "deep", 557);
	expect_repaired(FSCK_UNREACHABLE, 2, false);
	cr_expect(is_shown(lost_found(), "0000000000000bb8"));
	cr_expect(is_shown(lost_found(), "000000000000022c"), "the directory, with what is in it");
	cr_expect(is_shown(556, "deep"));
}

Test(fsck, a_ring_of_directories_is_cut_and_moved)
{
	put_dir(701, "two", 702);
	put_dir(702, "three", 703);
	put_dir(703, "one", 701);
	expect_repaired(FSCK_UNREACHABLE, 1, false);
	cr_expect_neq(lost_found(), 0);
}

Test(fsck, of_two_names_of_a_directory_one_stays)
{
	put_dir(CATALOG_ROOT_INO, "again", DIR_INO);
	expect_repaired(FSCK_DIR_TWICE, 1, false);
	cr_expect(is_shown(CATALOG_ROOT_INO, "dir") != is_shown(CATALOG_ROOT_INO, "again"));
	cr_expect(is_shown(DIR_INO, "a"));
}

/* ---- frames ---- */

Test(fsck, a_frame_that_nobody_needs_goes)
{
	make_frame(true, 77, "orphan");
	make_frame(false, 78, "orphan");
	expect_repaired(FSCK_ORPHAN, 2, false);
	cr_expect(!has_frame(true, 77) && !has_frame(false, 78) && has_frame(true, 1000));
}

Test(fsck, a_frame_of_a_wrong_size_goes_and_the_other_copy_stays)
{
	struct object_record r;

	make_frame(true, 1000, "short");
	expect_repaired(FSCK_FRAME_SIZE, 1, false);
	cr_expect(is_shown(DIR_INO, "a") && !has_frame(true, 1000) && has_frame(false, 1000));
	cr_assert_eq(catalog_object_get(catalog, 1000, &r), 0);
	cr_expect_eq(r.ssd_frame, 0);
	cr_expect_eq(r.dram_frame, 1000);
	object_record_fini(&r);
}

Test(fsck, a_missing_copy_is_forgotten)
{
	char path[256];

	path_of(path, true, 1000);
	cr_assert_eq(unlink(path), 0);
	expect_repaired(FSCK_FRAME_MISSING, 1, false);
	cr_expect(is_shown(DIR_INO, "a"));
}

Test(fsck, a_dram_frame_given_up_for_a_copy_is_no_finding)
{
	char path[256];

	path_of(path, false, 1000);
	cr_assert_eq(unlink(path), 0);
	expect_clean();
}

Test(fsck, wrong_bytes_are_found_when_asked_for)
{
	make_frame(true, 1000, "012345678X");
	cr_assert_eq(run(false, false), 0);
	cr_expect_eq(fsck_n_left(&f), 0);
	expect_repaired(FSCK_FRAME_BYTES, 1, true);
	cr_expect(is_shown(DIR_INO, "a") && !has_frame(true, 1000));
}

Test(fsck, a_frame_that_two_objects_claim_is_nobodys)
{
	struct object_record r = record_of(3000, "c");

	r.dram_frame = 2000;
	put_record(&r);
	put_name(DIR_INO, "c", 3000, SIZE);
	cr_assert_eq(run(true, false), 0);
	cr_expect_eq(f.tallies[FSCK_FRAME_SHARED].n, 1);
	cr_expect_eq(fsck_n_left(&f), 0);
	cr_expect_not(has_frame(false, 2000));
	expect_clean();
	catalog = catalog_must_open();
	cr_expect(is_shown(DIR_INO, "a") && !is_shown(DIR_INO, "b") && !is_shown(DIR_INO, "c"));
}

Test(fsck, what_was_in_dram_alone_is_a_leftover_once_the_dram_is_gone)
{
	char path[256];

	path_of(path, false, 1000);
	unlink(path);
	path_of(path, false, 2000);
	unlink(path);
	expect_repaired(FSCK_LOST_DRAM, 1, false);
	cr_expect(is_shown(DIR_INO, "a"), "it has a copy on the ssd");
}

/* ---- promises and control ---- */

Test(fsck, a_promise_is_no_finding_unless_it_has_no_place_or_bytes)
{
	struct entry e = {.ino = 3000, .object_id = 3000, .size = SIZE, .mode = S_IFREG | 0644};
	struct object_record r = record_of(3000, "p");
	char path[256];

	r.is_promise = 1;
	r.promise_entry = &e;
	r.dram_frame = 0;
	r.ssd_frame = 3000;
	put_record(&r);
	make_frame(true, 3000, bytes_of);
	expect_clean();
	cr_expect_eq(f.n_promises, 1);
	catalog = catalog_must_open();
	r.parent = 999;
	put_record(&r);
	expect_repaired(FSCK_UNREACHABLE, 1, false);
	cr_assert_eq(catalog_object_get(catalog, 3000, &r), 0);
	cr_expect_eq(r.parent, lost_found());
	object_record_fini(&r);
	path_of(path, true, 3000);
	unlink(path);
	expect_repaired(FSCK_NO_BYTES, 1, false);
	cr_expect_eq(catalog_object_get(catalog, 3000, &r), -ENOENT);
}

Test(fsck, numbers_that_were_given_are_not_given_again)
{
	uint64_t ceiling = 0;

	cr_assert_eq(catalog_control_put(catalog, "version_ceiling", 1500, true), 0);
	expect_repaired(FSCK_CONTROL, 1, false);
	cr_assert_eq(catalog_control_get(catalog, "version_ceiling", &ceiling), 0);
	cr_expect_gt(ceiling, 2000);
}

/* ---- who may ---- */

Test(fsck, refuses_while_a_daemon_has_the_state)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", scratch);
	int fd = open(path, O_RDWR);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_expect_eq(run(false, false), -EBUSY);
	cr_expect_eq(run(true, false), -EBUSY);
	close(fd);
	expect_clean();
}

Test(fsck, refuses_a_folder_that_is_no_state)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", scratch);
	unlink(path);
	cr_expect_eq(run(true, false), -ENOENT);
}
