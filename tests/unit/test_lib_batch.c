/* SPDX-License-Identifier: Apache-2.0 */
/* lib/batch.c, lib/call.c: requests become items and their outcomes come back, on the fake of the ioctls. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/fake_fastpath.h"

#define MAX_ITEMS 8
#define BLOCK 1000u

/* ---- fixture ---- */

static struct mcfs_session *s;
static struct mcfs_dir *dir;
static struct mcfs_buffer *buffer;
static char *memory;

static void setup(void)
{
	fake_fastpath_start(MAX_ITEMS);
	cr_assert_eq(mcfs_session_open(fake_fastpath_root(), 0, &s), 0);
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	cr_assert_eq(mcfs_buffer_alloc(s, 64 * 1024, &buffer), 0);
	memory = mcfs_buffer_memory(buffer);
}

static void teardown(void)
{
	mcfs_session_close(s);
	fake_fastpath_stop();
}

TestSuite(lib_batch, .init = setup, .fini = teardown);

/* ---- helpers ---- */

/* The file "b<i>" holds BLOCK bytes of value i + 1. */
static void put_block(int i)
{
	char path[128], bytes[BLOCK];

	memset(bytes, i + 1, sizeof(bytes));
	snprintf(path, sizeof(path), "%s/b%d", fake_fastpath_root(), i);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	cr_assert_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

static size_t file_read(const char *name, char *bytes, size_t len)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", fake_fastpath_root(), name);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, bytes, len);
	close(fd);
	return n < 0 ? 0 : (size_t)n;
}

static bool is_filled(const char *p, int value, size_t len)
{
	while (len && *p == value)
		p++, len--;
	return !len;
}

static struct mcfs_request request(const char *name, size_t at, uint32_t bytes)
{
	return (struct mcfs_request){
		.dir = dir, .name = name, .memory = memory + at, .segment_bytes = bytes};
}

/* ---- success ---- */

Test(lib_batch, reads_each_object_to_its_place)
{
	struct mcfs_request r[2] = {request("b0", 0, BLOCK), request("b1", 2 * BLOCK, BLOCK)};

	put_block(0);
	put_block(1);
	cr_assert_eq(mcfs_read_batch(s, r, 2, NULL), 2);
	cr_assert(is_filled(memory, 1, BLOCK) && is_filled(memory + 2 * BLOCK, 2, BLOCK));
	cr_assert_eq(r[1].bytes, BLOCK);
	cr_assert_eq(r[1].size, BLOCK);
	cr_assert_eq(r[1].tier, MCFS_TIER_DRAM);
	cr_assert_eq(r[1].version, 7);
}

Test(lib_batch, writes_what_a_read_gives_back)
{
	struct mcfs_request r[2] = {request("x", 0, 10), request("y", 10, 20)};
	char bytes[64];

	memset(memory, 'a', 10);
	memset(memory + 10, 'b', 20);
	r[1].mode = 0600;
	cr_assert_eq(mcfs_write_batch(s, r, 2, NULL), 2);
	cr_assert_eq(file_read("x", bytes, 64), 10);
	cr_assert_eq(file_read("y", bytes, 64), 20);
	cr_assert(is_filled(bytes, 'b', 20));
	struct stat st;
	snprintf(bytes, sizeof(bytes), "%s/y", fake_fastpath_root());
	cr_assert_eq(stat(bytes, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0600);
}

Test(lib_batch, strides_spread_an_object)
{
	struct mcfs_request r = request("b3", 0, 250);

	put_block(3);
	r.segment_count = 4;
	r.stride = 400;
	cr_assert_eq(mcfs_read_batch(s, &r, 1, NULL), 1);
	for (int i = 0; i < 4; i++)
		cr_assert(is_filled(memory + 400 * i, 4, 250));
	cr_assert_eq(memory[250], 0);
}

Test(lib_batch, binary_names_take_a_suffix)
{
	struct mcfs_request r = {.dir = dir,
				 .name = "\x01\xab",
				 .name_bytes = 2,
				 .name_kind = MCFS_NAME_BINARY,
				 .memory = memory,
				 .segment_bytes = 5};
	const struct mcfs_call call = {.suffix = ".bin"};
	char bytes[8];

	cr_assert_eq(mcfs_write_batch(s, &r, 1, &call), 1);
	cr_assert_eq(file_read("01ab.bin", bytes, 8), 5);
}

Test(lib_batch, more_than_max_items_go_in_parts)
{
	struct mcfs_request r[3 * MAX_ITEMS - 1];
	char names[3 * MAX_ITEMS][8];
	int n = 3 * MAX_ITEMS - 1;
	unsigned before = fake_fastpath_submissions();

	for (int i = 0; i < n; i++) {
		put_block(i);
		snprintf(names[i], sizeof(names[i]), "b%d", i);
		r[i] = request(names[i], (size_t)i * BLOCK, BLOCK);
	}
	cr_assert_eq(mcfs_read_batch(s, r, (size_t)n, NULL), n);
	cr_assert_eq(fake_fastpath_submissions() - before, 3);
	for (int i = 0; i < n; i++)
		cr_assert(is_filled(memory + (size_t)i * BLOCK, i + 1, BLOCK));
}

Test(lib_batch, an_open_file_is_read_by_its_handle)
{
	struct mcfs_request r = {.memory = memory, .segment_bytes = 100, .file_offset = 900};
	char path[128];

	put_block(5);
	snprintf(path, sizeof(path), "%s/b5", fake_fastpath_root());
	int fd = open(path, O_RDONLY);
	cr_assert_eq(mcfs_file_handle(fd, &r.file), 0);
	cr_assert_eq(mcfs_read_batch(s, &r, 1, NULL), 1);
	cr_assert_eq(r.bytes, 100);
	close(fd);
}

Test(lib_batch, nothing_is_done_with_ease)
{
	unsigned before = fake_fastpath_submissions();

	cr_assert_eq(mcfs_read_batch(s, NULL, 0, NULL), 0);
	cr_assert_eq(fake_fastpath_submissions(), before);
}

Test(lib_batch, a_list_grows)
{
	struct mcfs_batch b = {0};

	for (int i = 0; i < 200; i++)
		cr_assert(mcfs_batch_add(&b, dir, "b0", memory, BLOCK));
	put_block(0);
	cr_assert_eq(mcfs_read_batch(s, b.requests, b.n, NULL), 200);
	mcfs_batch_free(&b);
	cr_assert_eq(b.n, 0);
}

/* ---- failure ---- */

Test(lib_batch, one_bad_request_fails_alone)
{
	char elsewhere[BLOCK], long_name[300];
	struct mcfs_request r[7];

	memset(long_name, 'n', sizeof(long_name));
	put_block(0);
	for (int i = 0; i < 7; i++)
		r[i] = request("b0", (size_t)i * BLOCK, BLOCK);
	r[0].name = "none";
	r[1].memory = elsewhere;
	r[2].memory = memory + 64 * 1024 - BLOCK + 1;
	r[3].name = long_name;
	r[3].name_bytes = sizeof(long_name);
	r[4].stride = UINT64_MAX / 2;
	r[4].segment_count = 4;
	r[5].name = NULL;
	cr_assert_eq(mcfs_read_batch(s, r, 7, NULL), 1);
	cr_assert_eq(r[0].status, -ENOENT);
	cr_assert_eq(r[1].status, -EFAULT);
	cr_assert_eq(r[2].status, -EFAULT);
	cr_assert_eq(r[3].status, -ENAMETOOLONG);
	cr_assert_eq(r[4].status, -EFAULT);
	cr_assert_eq(r[5].status, -EINVAL);
	cr_assert_eq(r[6].status, 0);
}

Test(lib_batch, memory_right_behind_a_buffer_is_in_none)
{
	struct mcfs_request r = request("b0", 64 * 1024, 1);

	cr_assert_eq(mcfs_read_batch(s, &r, 1, NULL), 0);
	cr_assert_eq(r.status, -EFAULT);
}

Test(lib_batch, a_group_with_a_bad_request_is_not_sent)
{
	struct mcfs_request r[2] = {request("g0", 0, 10), request("g1", 0, 10)};
	const struct mcfs_call call = {.flags = MCFS_GROUP};
	char bytes[16];

	r[1].memory = bytes;
	cr_assert_eq(mcfs_write_batch(s, r, 2, &call), 0);
	cr_assert_eq(r[0].status, -ECANCELED);
	cr_assert_eq(r[1].status, -EFAULT);
	cr_assert_eq(file_read("g0", bytes, 16), 0);
	r[1].memory = memory;
	cr_assert_eq(mcfs_write_batch(s, r, 2, &call), 2);
	cr_assert(fake_fastpath_last().flags & MCFS_GROUP);
}

Test(lib_batch, a_group_is_never_cut)
{
	struct mcfs_request r[MAX_ITEMS + 1];
	const struct mcfs_call call = {.flags = MCFS_GROUP};

	for (int i = 0; i <= MAX_ITEMS; i++)
		r[i] = request("g", 0, 1);
	cr_assert_eq(mcfs_write_batch(s, r, MAX_ITEMS + 1, &call), -E2BIG);
	cr_assert_eq(r[0].status, -E2BIG);
}

Test(lib_batch, a_refused_submission_marks_all_that_follows)
{
	struct mcfs_request r[MAX_ITEMS + 1];

	put_block(0);
	for (int i = 0; i <= MAX_ITEMS; i++)
		r[i] = request("b0", 0, BLOCK);
	fake_fastpath_fail_next(EINTR);
	cr_assert_eq(mcfs_read_batch(s, r, MAX_ITEMS + 1, NULL), -EINTR);
	cr_assert_eq(r[0].status, -EINTR);
	cr_assert_eq(r[MAX_ITEMS].status, -EINTR);
	cr_assert(strstr(mcfs_strerror(-EINTR), "submission"));
}

Test(lib_batch, flags_that_do_not_fit_are_refused)
{
	struct mcfs_request r = request("b0", 0, 1);

	cr_assert_eq(mcfs_read_batch(s, &r, 1, &(struct mcfs_call){.flags = MCFS_GROUP}), -EINVAL);
	cr_assert_eq(mcfs_write_batch(s, &r, 1, &(struct mcfs_call){.flags = MCFS_ASYNC}), -EINVAL);
	cr_assert_eq(mcfs_read_batch(s, &r, 1, &(struct mcfs_call){.reserved = 1}), -EINVAL);
}

Test(lib_batch, the_deadline_is_passed_on)
{
	struct mcfs_request r = request("b0", 0, BLOCK);

	put_block(0);
	cr_assert_eq(mcfs_read_batch(s, &r, 1, &(struct mcfs_call){.deadline_us = 5000000}), 1);
	uint64_t us = fake_fastpath_last().deadline_us;
	cr_assert(us > 4000000 && us <= 5000000);
	cr_assert_eq(mcfs_read_batch(s, &r, 1, NULL), 1);
	cr_assert_eq(fake_fastpath_last().deadline_us, 0);
}
