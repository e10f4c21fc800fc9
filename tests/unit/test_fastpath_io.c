/* SPDX-License-Identifier: Apache-2.0 */
/* READ and WRITE of the fast path: bytes there and back, however they are cut up and named. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "lib/fp_client.h"
#include "object/durable.h"

#define KIB(n) ((uint32_t)(n) << 10)
#define A fs_box_who(1)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *root, *dir;
static struct fp_client c;
static uint64_t dir_id;

static void setup(void)
{
	fs_box_open(&box);
	root = fs_box_root(&box);
	dir = fs_box_mkdir(&box, root, "kv");
	fp_open(&c, &box, fp_root(), 16 << 20);
	fp_open_dir(&box, dir, 0, &dir_id);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_io, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static char *pattern(unsigned int seed, size_t len)
{
	char *p = malloc(len + 1);
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t k = 0; k < len; k++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		p[k] = (char)x;
	}
	return p;
}

static uint64_t open_file(const char *name)
{
	uint64_t id;

	cr_assert_not_null(fp_open_file(&box, dir, name, 0, &id));
	return id;
}

/* ---- READ ---- */

Test(fastpath_io, a_write_is_read_by_name_and_by_handle)
{
	char *bytes = pattern(1, KIB(64));
	struct mcfs_submit io;

	cr_assert_eq(fp_put(&c, dir_id, "block", bytes, KIB(64)), 0);
	cr_expect(fp_shows(&c, dir_id, "block", bytes, KIB(64)));
	cr_expect(fs_box_shows(&box, dir, "block", A, bytes, KIB(64)));

	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
	i->object = open_file("block");
	char *at = fp_dense(&c, i, KIB(64));
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 1);
	cr_expect_eq(i->status, 0);
	cr_expect_eq(i->tier, MCFS_TIER_DRAM);
	cr_expect_eq(i->bytes, KIB(64));
	cr_expect_eq(i->size, KIB(64));
	cr_expect_neq(i->version, 0);
	cr_expect_eq(memcmp(at, bytes, KIB(64)), 0);
	free(bytes);
}

Test(fastpath_io, a_plain_file_is_read_by_name)
{
	cr_assert_eq(fs_box_put_file(&box, dir, "plain", "hello", 5, A), 0);
	cr_expect(fp_shows(&c, dir_id, "plain", "hello", 5));
}

Test(fastpath_io, what_was_written_has_right_checksums)
{
	uint32_t len = (1 << 20) + 5000;
	char *bytes = pattern(3, len);
	struct object_record r;
	struct entry e;

	cr_assert_eq(fp_put(&c, dir_id, "f", bytes, len), 0);
	cr_assert_eq(catalog_lookup(box.fs.catalog, dir->key, "f", &e), 0);
	cr_assert_eq(catalog_object_get(box.fs.catalog, e.object_id, &r), 0);
	cr_assert_eq(r.n_crc, 2);
	cr_expect_eq(r.crc[0], crc32c(0, bytes, 1 << 20));
	cr_expect_eq(r.crc[1], crc32c(0, bytes + (1 << 20), 5000));
	cr_expect_eq(e.size, len);
	object_record_fini(&r);
	entry_fini(&e);
	free(bytes);
}

/* ranges of a READ of an object of 100,000 bytes, and what it gives */
static const struct {
	uint64_t file_offset;
	uint32_t segment_bytes, segment_count;
	uint64_t stride, bytes;
} reads[] = {
	{0, 100000, 1, 0, 100000},	{0, 4096, 3, 4096, 12288}, {1, 999, 10, 1000, 9990},
	{99999, 10, 1, 0, 1},		{100000, 10, 1, 0, 0},	   {UINT64_C(1) << 62, 10, 1, 0, 0},
	{50000, 7000, 10, 8192, 50000}, /* its last piece is cut short, two are not reached */
	{0, 100, 2000, 128, 100000},	/* more pieces than one system call takes */
	{0, 1, 1, UINT64_MAX, 1},	/* the stride of one piece does not matter */
};

Test(fastpath_io, reads_in_pieces_of_any_shape)
{
	char *bytes = pattern(4, 100000);

	cr_assert_eq(fp_put(&c, dir_id, "f", bytes, 100000), 0);
	for (size_t k = 0; k < sizeof(reads) / sizeof(*reads); k++) {
		uint32_t n = reads[k].segment_count, len = reads[k].segment_bytes;
		uint64_t step = n > 1 ? reads[k].stride : 0, span = step * (n - 1) + len, at = 0;
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
		fp_name(&c, i, dir_id, "f");
		i->base = fp_alloc(&c, span + 64);
		memset(fp_at(&c, i->base), 0x55, span + 64);
		i->file_offset = reads[k].file_offset;
		i->segment_bytes = len;
		i->segment_count = n;
		i->stride = reads[k].stride;
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, 0, "row %zu: %d", k, i->status);
		cr_expect_eq(i->bytes, reads[k].bytes, "row %zu", k);
		cr_expect_eq(i->size, 100000, "row %zu", k);
		char *to = fp_at(&c, i->base);
		uint64_t wrong = 0, off = reads[k].file_offset;
		for (uint64_t b = 0; b < span + 64; b++) {
			bool is_hole = b >= span || (step && b % step >= len) || at >= i->bytes;
			wrong += to[b] != (is_hole ? 0x55 : bytes[off + at]);
			at += !is_hole;
		}
		cr_expect_eq(wrong, 0, "row %zu: %llu bytes are wrong", k,
			     (unsigned long long)wrong);
	}
	free(bytes);
}

Test(fastpath_io, items_use_several_buffers)
{
	struct fp_buffer other;
	struct mcfs_submit io;

	fp_buffer_open(&box, "other", 0, 1 << 20, &other);
	cr_assert_eq(fp_register(&c, &other, 8192, 65536), 0);
	cr_assert_neq(other.number, c.main.number);
	memcpy(other.mem + 8192, "from the other", 14);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 2, &io);
	for (int k = 0; k < 2; k++) {
		fp_name(&c, &i[k], dir_id, k ? "b" : "a");
		memcpy(fp_dense(&c, &i[k], 14), "from the first", 14);
	}
	i[1].buffer = other.number;
	i[1].base = 8192;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 2);
	cr_expect(fp_shows(&c, dir_id, "a", "from the first", 14));
	cr_expect(fp_shows(&c, dir_id, "b", "from the other", 14));

	/* The item array may lie in it as well, and only inside of what is registered. */
	memcpy(other.mem + 8192, i, 2 * sizeof(*i));
	io = (struct mcfs_submit){
		.op = MCFS_OP_WRITE, .buffer = other.number, .n_items = 1, .items = 8192};
	((struct mcfs_item *)(void *)(other.mem + 8192))->name = 8192 + 4096;
	((struct mcfs_item *)(void *)(other.mem + 8192))->buffer = c.main.number;
	memcpy(other.mem + 8192 + 4096, "c", 1);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 1);
	cr_expect(fp_shows(&c, dir_id, "c", "from the first", 14));
	io.items = 8192 + 65536 - 88;
	cr_expect_eq(fp_submit(&c, &io), -EFAULT);
	io.items = 8192 - 8;
	cr_expect_eq(fp_submit(&c, &io), -EFAULT);
	fp_buffer_close(&box, &other);
}

Test(fastpath_io, an_empty_object_has_no_bytes)
{
	struct mcfs_submit io;

	cr_assert_eq(fp_put(&c, dir_id, "empty", NULL, 0), 0);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
	fp_name(&c, i, dir_id, "empty");
	fp_dense(&c, i, 16);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_expect_eq(i->bytes, 0);
	cr_expect_eq(i->size, 0);
	cr_expect(fs_box_shows(&box, dir, "empty", A, "", 0));
}

Test(fastpath_io, pieces_of_a_write_are_joined)
{
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
	enum {
		N = 3000,
		LEN = 100,
		STEP = 160
	};
	char *joined = malloc(N * LEN), *all = pattern(5, N * STEP);

	fp_name(&c, i, dir_id, "f");
	i->base = fp_alloc(&c, N * STEP);
	memcpy(fp_at(&c, i->base), all, N * STEP);
	i->segment_bytes = LEN;
	i->segment_count = N;
	i->stride = STEP;
	for (int k = 0; k < N; k++)
		memcpy(joined + k * LEN, all + k * STEP, LEN);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_expect_eq(i->bytes, N * LEN);
	cr_expect(fp_shows(&c, dir_id, "f", joined, N * LEN));
	free(joined);
	free(all);
}

Test(fastpath_io, binary_names_are_hexadecimal_with_a_suffix)
{
	const unsigned char hash[4] = {0x00, 0xab, 0x9f, 0xff};
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);

	fp_suffix(&c, &io, ".bin");
	fp_binary_name(&c, i, dir_id, hash, 4);
	memcpy(fp_dense(&c, i, 3), "abc", 3);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_expect(fp_shows(&c, dir_id, "00ab9fff.bin", "abc", 3));

	i = fp_items(&c, MCFS_OP_READ, 2, &io);
	fp_suffix(&c, &io, ".bin");
	for (int k = 0; k < 2; k++) {
		fp_binary_name(&c, &i[k], dir_id, hash, k ? 3 : 4);
		fp_dense(&c, &i[k], 3);
	}
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, -ENOENT);
	cr_expect_eq(memcmp(fp_at(&c, i[0].base), "abc", 3), 0);
}

Test(fastpath_io, names_of_255_bytes_work_and_longer_ones_are_refused)
{
	char name[300] = "";
	struct mcfs_submit io;

	memset(name, 'x', 255);
	cr_assert_eq(fp_put(&c, dir_id, name, "long", 4), 0);
	cr_expect(fp_shows(&c, dir_id, name, "long", 4));
	memset(name, 'x', 256);
	cr_expect_eq(fp_put(&c, dir_id, name, "long", 4), -ENAMETOOLONG);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
	fp_name(&c, i, dir_id, name);
	fp_dense(&c, i, 4);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, -ENAMETOOLONG);
}

Test(fastpath_io, an_open_version_is_read_by_handle_whatever_becomes_of_its_name)
{
	struct mcfs_submit io;
	uint64_t id;

	cr_assert_eq(fp_put(&c, dir_id, "f", "old", 3), 0);
	id = open_file("f");
	cr_assert_eq(fp_put(&c, dir_id, "f", "new", 3), 0);
	cr_assert_eq(fs_box_unlink(&box, dir, "f", A), 0);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 2, &io);
	i[0].object = id;
	fp_name(&c, &i[1], dir_id, "f");
	for (int k = 0; k < 2; k++)
		fp_dense(&c, &i[k], 8);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[0].bytes, 3);
	cr_expect_eq(memcmp(fp_at(&c, i[0].base), "old", 3), 0);
	cr_expect_eq(i[1].status, -ENOENT);
	cr_expect_eq(io.n_ok, 1);
}

Test(fastpath_io, drafts_expired_and_evicted_objects_are_not_read)
{
	struct handle *draft;
	struct mcfs_submit io;
	static const char *const names[] = {"draft", "expired", "evicted", "there"};

	cr_assert_eq(fs_box_create(&box, dir, "draft", 0, A, &draft), 0);
	cr_assert_eq(fs_box_write(&box, draft, "x", 1, 0), 0);
	for (int k = 1; k < 4; k++)
		cr_assert_eq(fp_put(&c, dir_id, names[k], "x", 1), 0);
	struct inode *i = fs_box_look(&box, dir, "expired", A);
	pthread_mutex_lock(&box.fs.lock);
	object_set_ttl_locked(&box.fs, i->object, 1);
	pthread_mutex_unlock(&box.fs.lock);
	i = fs_box_look(&box, dir, "evicted", A);
	cr_assert_eq(space_remove_by_id(&box.fs, i->object->id), 0);

	struct mcfs_item *items = fp_items(&c, MCFS_OP_READ, 4, &io);
	for (int k = 0; k < 4; k++) {
		fp_name(&c, &items[k], dir_id, names[k]);
		fp_dense(&c, &items[k], 1);
	}
	usleep(2100000); /* beyond a time to live of a second */
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(items[0].status, -ENOENT);
	cr_expect_eq(items[1].status, -ENOENT);
	cr_expect_eq(items[2].status, -ENOENT);
	cr_expect_eq(items[3].status, 0);
	fs_box_release(&box, draft);
}

Test(fastpath_io, one_bad_item_does_not_stop_its_neighbours)
{
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 200, &io);
	char name[16];

	for (int k = 0; k < 200; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		if (k % 3)
			cr_assert_eq(fp_put(&c, dir_id, name, name, (uint32_t)strlen(name)), 0);
	}
	c.used = (uint64_t)((char *)(i + 200) - c.main.mem);
	for (int k = 0; k < 200; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		memset(&i[k], 0, sizeof(*i));
		fp_name(&c, &i[k], dir_id, name);
		fp_dense(&c, &i[k], 8);
	}
	cr_assert_eq(fp_submit(&c, &io), 0);
	for (int k = 0; k < 200; k++) {
		snprintf(name, sizeof(name), "f%d", k);
		cr_expect_eq(i[k].status, k % 3 ? 0 : -ENOENT, "item %d: %d", k, i[k].status);
		cr_expect_eq(
			memcmp(fp_at(&c, i[k].base), k % 3 ? name : "", k % 3 ? strlen(name) : 0),
			0);
	}
	cr_expect_eq(io.n_ok, 133);
}

Test(fastpath_io, a_prefetch_says_where_objects_are)
{
	struct mcfs_submit io;

	cr_assert_eq(fp_put(&c, dir_id, "f", "abc", 3), 0);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_PREFETCH, 3, &io);
	fp_name(&c, &i[0], dir_id, "f");
	fp_name(&c, &i[1], dir_id, "none");
	i[2].object = open_file("f");
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[0].tier, MCFS_TIER_DRAM);
	cr_expect_eq(i[0].size, 3);
	cr_expect_eq(i[1].status, -ENOENT);
	cr_expect_eq(i[2].status, 0);
	cr_expect_eq(io.n_ok, 2);
}

Test(fastpath_io, an_object_that_lost_its_frame_is_gone)
{
	struct mcfs_submit io;

	cr_assert_eq(fp_put(&c, dir_id, "f", "abc", 3), 0);
	struct inode *i = fs_box_look(&box, dir, "f", A);
	cr_assert_eq(tier_call(box.fs.dram, remove_orphan, i->object->dram_frame), 0);
	tier_call(box.fs.dram, reclaim, 0);
	struct mcfs_item *item = fp_items(&c, MCFS_OP_READ, 1, &io);
	fp_name(&c, item, dir_id, "f");
	fp_dense(&c, item, 3);
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(item->status, -ENOENT);
	cr_expect_null(fs_box_look(&box, dir, "f", A));
}

Test(fastpath_io, adopted_objects_are_read_after_a_restart)
{
	struct fp_client again;
	uint64_t id;

	cr_assert_eq(fp_put(&c, dir_id, "f", "abc", 3), 0);
	fs_box_restart(&box, false);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	fp_open(&again, &box, fp_root(), 1 << 20);
	fp_open_dir(&box, dir, 0, &id);
	cr_expect(fp_shows(&again, id, "f", "abc", 3));
}

Test(fastpath_io, what_is_on_the_ssd_alone_is_read_from_there)
{
	struct mcfs_submit io;
	struct entry e;

	cr_assert_eq(fs_box_put_file(&box, dir, "f", "abc", 3, A), 0);
	struct inode *i = fs_box_look(&box, dir, "f", A);
	struct object *o = i->object;
	cr_assert_eq(durable_object(&box.fs, o), 0);
	cr_assert_neq(o->ssd_frame, 0);
	fs_box_restart(&box, true);
	dir = fs_box_dir(&box, fs_box_root(&box), "kv");
	cr_assert_eq(catalog_lookup(box.fs.catalog, dir->key, "f", &e), 0);
	entry_fini(&e);
	struct fp_client again;
	fp_open(&again, &box, fp_root(), 1 << 20);
	fp_open_dir(&box, dir, 0, &dir_id);
	struct mcfs_item *item = fp_items(&again, MCFS_OP_READ, 1, &io);
	fp_name(&again, item, dir_id, "f");
	fp_dense(&again, item, 3);
	cr_assert_eq(fp_submit(&again, &io), 0);
	cr_expect_eq(item->status, 0);
	cr_expect_eq(item->tier, MCFS_TIER_SSD);
	cr_expect_eq(memcmp(fp_at(&again, item->base), "abc", 3), 0);
}
