/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every field of every struct that comes from a client, out of range: the whole submission is refused,
 * or that one item, while its neighbours go through, as mooncakefs.h says.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fp_client.h"

#define BYTES (UINT64_C(1) << 20)
#define FIELD(type, f) offsetof(struct type, f), sizeof(((struct type *)0)->f)

/* ---- fixture ---- */

static struct fs_box box;
static struct fp_client c;
static struct fp_buffer small; /* 64 KiB, of which [8192, 24576) is registered */
static uint64_t dir_id;

static void setup(void)
{
	fs_box_open(&box);
	struct inode *dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	fp_open(&c, &box, fp_root(), BYTES);
	fp_open_dir(&box, dir, 0, &dir_id);
	fp_buffer_open(&box, "small", 0, 65536, &small);
	cr_assert_eq(fp_register(&c, &small, 8192, 16384), 0);
	cr_assert_eq(fp_put(&c, dir_id, "f", "0123456789", 10), 0);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_check, .init = setup, .fini = teardown);

/* ---- helpers ---- */

struct row {
	size_t at, size; /* of the field */
	uint64_t value;
	int error;
};

static void set(void *of, const struct row *r)
{
	memcpy((char *)of + r->at, &r->value, r->size);
}

/* ---- struct mcfs_submit ---- */

static const struct row submits[] = {
	{FIELD(mcfs_submit, op), 0, -EINVAL},
	{FIELD(mcfs_submit, op), 5, -EINVAL},
	{FIELD(mcfs_submit, op), UINT32_MAX, -EINVAL},
	{FIELD(mcfs_submit, flags), MCFS_GROUP, -EINVAL}, /* of a READ */
	{FIELD(mcfs_submit, flags), 4, -EINVAL},
	{FIELD(mcfs_submit, flags), 1u << 31, -EINVAL},
	{FIELD(mcfs_submit, buffer), 0, -ENOENT},
	{FIELD(mcfs_submit, buffer), 3, -ENOENT},
	{FIELD(mcfs_submit, buffer), 257, -ENOENT},
	{FIELD(mcfs_submit, buffer), UINT32_MAX, -ENOENT},
	{FIELD(mcfs_submit, n_items), 0, -EINVAL},
	{FIELD(mcfs_submit, n_items), SESSION_MAX_ITEMS + 1, -EMFILE},
	{FIELD(mcfs_submit, n_items), UINT32_MAX, -EMFILE},
	{FIELD(mcfs_submit, n_items), SESSION_MAX_ITEMS, -EFAULT}, /* the buffer is too small */
	{FIELD(mcfs_submit, items), 4, -EINVAL},
	{FIELD(mcfs_submit, items), BYTES, -EFAULT},
	{FIELD(mcfs_submit, items), BYTES - 96, -EFAULT},
	{FIELD(mcfs_submit, items), UINT64_MAX - 7, -EFAULT},
	{FIELD(mcfs_submit, items), UINT64_C(1) << 63, -EFAULT},
	{FIELD(mcfs_submit, deadline_us), UINT64_MAX, -EINVAL},
	{FIELD(mcfs_submit, deadline_us), UINT64_C(86400000001), -EINVAL},
	{FIELD(mcfs_submit, directory), 1, -EINVAL}, /* LOOKUP's alone, as what follows */
	{FIELD(mcfs_submit, names), 1, -EINVAL},
	{FIELD(mcfs_submit, names_bytes), 1, -EINVAL},
	{FIELD(mcfs_submit, name_kind), 1, -EINVAL},
	{FIELD(mcfs_submit, name_bytes), 1, -EINVAL},
	{FIELD(mcfs_submit, suffix_bytes), 65, -EINVAL},
	{FIELD(mcfs_submit, suffix_bytes), UINT32_MAX, -EINVAL},
	{FIELD(mcfs_submit, reserved), 1, -EINVAL},
	{FIELD(mcfs_submit, reserved2[0]), 1, -EINVAL},
	{FIELD(mcfs_submit, reserved2[1]), UINT64_C(1) << 63, -EINVAL},
};

Test(fastpath_check, a_submission_out_of_range_is_refused_whole)
{
	for (size_t k = 0; k < sizeof(submits) / sizeof(*submits); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 2, &io);
		for (int m = 0; m < 2; m++) {
			fp_name(&c, &i[m], dir_id, "f");
			fp_dense(&c, &i[m], 10);
		}
		i->status = 77;
		set(&io, &submits[k]);
		cr_expect_eq(fp_submit(&c, &io), submits[k].error, "row %zu", k);
		cr_expect_eq(i->status, 77, "row %zu", k);
		cr_expect_eq(*fp_at(&c, i->base), 0, "row %zu", k);
	}
	cr_expect_eq(box.fs.batch_bytes, 0);
}

Test(fastpath_check, a_suffix_outside_of_the_buffer_is_refused)
{
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);

	fp_name(&c, i, dir_id, "f");
	fp_dense(&c, i, 10);
	io.suffix_bytes = 64;
	io.suffix = BYTES - 63;
	cr_expect_eq(fp_submit(&c, &io), -EFAULT);
	io.suffix = UINT64_MAX;
	cr_expect_eq(fp_submit(&c, &io), -EFAULT);
	io.suffix = BYTES - 64;
	cr_expect_eq(fp_submit(&c, &io), 0);
}

static const struct row lookups[] = {
	{FIELD(mcfs_submit, names), BYTES, -EFAULT},
	{FIELD(mcfs_submit, names), UINT64_MAX, -EFAULT},
	{FIELD(mcfs_submit, names_bytes), (16u << 20) + 1, -EINVAL},
	{FIELD(mcfs_submit, names_bytes), 16u << 20, -EFAULT},
	{FIELD(mcfs_submit, names_bytes), UINT32_MAX, -EINVAL},
	{FIELD(mcfs_submit, name_kind), 2, -EINVAL},
	{FIELD(mcfs_submit, name_kind), MCFS_NAME_BINARY, -EINVAL}, /* of 0 bytes */
	{FIELD(mcfs_submit, name_bytes), 2, -EINVAL},		    /* of text */
	{FIELD(mcfs_submit, items), BYTES - 24, -EFAULT},
	{FIELD(mcfs_submit, flags), MCFS_GROUP, -EINVAL},
};

Test(fastpath_check, a_lookup_out_of_range_is_refused)
{
	static const char *const names[] = {"f", "g"};

	for (size_t k = 0; k < sizeof(lookups) / sizeof(*lookups); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		fp_lookup(&c, dir_id, names, 2, &io);
		set(&io, &lookups[k]);
		cr_expect_eq(fp_submit(&c, &io), lookups[k].error, "row %zu", k);
	}
}

Test(fastpath_check, binary_names_must_add_up)
{
	static const struct {
		uint32_t name_bytes, names_bytes;
		int error;
	} rows[] = {{32, 64, 0},	{32, 63, -EINVAL}, {32, 65, -EINVAL},	    {64, 128, 0},
		    {65, 130, -EINVAL}, {0, 0, -EINVAL},   {65535, 131070, -EINVAL}};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io = {.op = MCFS_OP_LOOKUP,
					 .buffer = c.main.number,
					 .n_items = 2,
					 .directory = dir_id,
					 .name_kind = MCFS_NAME_BINARY,
					 .name_bytes = (uint16_t)rows[k].name_bytes,
					 .names_bytes = rows[k].names_bytes};
		cr_expect_eq(fp_submit(&c, &io), rows[k].error, "row %zu", k);
	}
}

/* ---- struct mcfs_item ---- */

static const struct row read_items[] = {
	{FIELD(mcfs_item, object), 0, -ENOENT},
	{FIELD(mcfs_item, object), UINT64_MAX, -ENOENT},
	{FIELD(mcfs_item, name), BYTES, -EFAULT},
	{FIELD(mcfs_item, name), UINT64_MAX, -EFAULT},
	{FIELD(mcfs_item, name), BYTES - 1, -EINVAL}, /* one byte, a NUL */
	{FIELD(mcfs_item, name_bytes), 0, -EISDIR},   /* the handle alone */
	{FIELD(mcfs_item, name_bytes), 256, -ENAMETOOLONG},
	{FIELD(mcfs_item, name_bytes), 65535, -ENAMETOOLONG},
	{FIELD(mcfs_item, name_kind), 2, -EINVAL},
	{FIELD(mcfs_item, name_kind), 65535, -EINVAL},
	{FIELD(mcfs_item, mode), 0644, -EINVAL},
	{FIELD(mcfs_item, file_offset), UINT64_MAX, -EINVAL},
	{FIELD(mcfs_item, file_offset), UINT64_C(1) << 63, -EINVAL},
	{FIELD(mcfs_item, base), BYTES - 9, -EFAULT},
	{FIELD(mcfs_item, base), BYTES, -EFAULT},
	{FIELD(mcfs_item, base), UINT64_MAX, -EFAULT},
	{FIELD(mcfs_item, base), UINT64_MAX - 9, -EFAULT}, /* its end is 0 */
	{FIELD(mcfs_item, buffer), 3, -ENOENT},
	{FIELD(mcfs_item, buffer), 256, -ENOENT},
	{FIELD(mcfs_item, buffer), UINT32_MAX, -ENOENT},
	{FIELD(mcfs_item, buffer), 2, -EFAULT}, /* the small one, not registered there */
	{FIELD(mcfs_item, segment_bytes), 0, -EINVAL},
	{FIELD(mcfs_item, segment_bytes), UINT32_MAX, -EFAULT},
	{FIELD(mcfs_item, segment_bytes), BYTES, -EFAULT},
	{FIELD(mcfs_item, segment_count), 0, -EINVAL},
	{FIELD(mcfs_item, segment_count), 2, -EINVAL}, /* stride 0 */
	{FIELD(mcfs_item, segment_count), SESSION_MAX_SEGMENTS + 1, -EINVAL},
	{FIELD(mcfs_item, segment_count), UINT32_MAX, -EINVAL},
	{FIELD(mcfs_item, reserved), 1, -EINVAL},
};

Test(fastpath_check, an_item_out_of_range_says_so_and_its_neighbours_go_through)
{
	for (size_t k = 0; k < sizeof(read_items) / sizeof(*read_items); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 3, &io);
		for (int m = 0; m < 3; m++) {
			fp_name(&c, &i[m], dir_id, "f");
			fp_dense(&c, &i[m], 10);
		}
		i[1].bytes = i[1].size = i[1].version = 99;
		i[1].tier = 9;
		set(&i[1], &read_items[k]);
		cr_assert_eq(fp_submit(&c, &io), 0, "row %zu", k);
		cr_expect_eq(i[1].status, read_items[k].error, "row %zu: %d", k, i[1].status);
		cr_expect_eq(i[1].bytes, 0, "row %zu", k);
		cr_expect_eq(i[1].version, 0, "row %zu", k);
		cr_expect_eq(i[1].tier, 0, "row %zu", k);
		cr_expect_eq(io.n_ok, 2, "row %zu", k);
		for (int m = 0; m < 3; m += 2) {
			cr_expect_eq(i[m].status, 0, "row %zu item %d", k, m);
			cr_expect_eq(memcmp(fp_at(&c, i[m].base), "0123456789", 10), 0, "row %zu",
				     k);
		}
	}
}

/* The shapes of an item's memory in a buffer of 1 MiB. */
static const struct {
	uint64_t base, stride;
	uint32_t segment_bytes, segment_count;
	uint32_t buffer; /* 2: the small one */
	int error;
} shapes[] = {
	{0, 100, 100, 10, 0, 0},
	{0, 99, 100, 10, 0, -EINVAL}, /* overlapping */
	{0, UINT64_MAX, 100, 2, 0, -EFAULT},
	{100, UINT64_MAX - 99, 100, 2, 0, -EFAULT},
	{0, UINT64_C(1) << 63, 100, 3, 0, -EFAULT},
	{UINT64_MAX - 4095, 4096, 4096, 3, 0, -EFAULT},
	{0, UINT64_MAX / 65535, 100, 65536, 0, -EFAULT},
	{BYTES - 110, 100, 10, 2, 0, 0},
	{BYTES - 109, 100, 10, 2, 0, -EFAULT},
	{0, BYTES - 1, 1, 2, 0, 0},
	{0, BYTES, 1, 2, 0, -EFAULT},
	{8192, 0, 16384, 1, 2, 0},
	{8192, 0, 16385, 1, 2, -EFAULT},
	{8191, 0, 1, 1, 2, -EFAULT},
	{0, 8192, 1, 2, 2, -EFAULT},
	{24575, 0, 1, 1, 2, 0},
	{24576, 0, 1, 1, 2, -EFAULT},
	{8192, 8192, 8192, 2, 2, 0},
	{8192, 8193, 8192, 2, 2, -EFAULT},
};

Test(fastpath_check, memory_lies_within_what_is_registered)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		c.used = 65536;
		struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 1, &io);
		fp_name(&c, i, dir_id, "f");
		i->file_offset = 10; /* its end: nothing is moved */
		i->base = shapes[k].base;
		i->stride = shapes[k].stride;
		i->segment_bytes = shapes[k].segment_bytes;
		i->segment_count = shapes[k].segment_count;
		i->buffer = shapes[k].buffer ? small.number : 0;
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, shapes[k].error, "row %zu: %d", k, i->status);
	}
}

static const struct row write_items[] = {
	{FIELD(mcfs_item, name_bytes), 0, -EINVAL}, /* a WRITE needs a name */
	{FIELD(mcfs_item, mode), 010000, -EINVAL},
	{FIELD(mcfs_item, mode), UINT32_MAX, -EINVAL},
	{FIELD(mcfs_item, file_offset), 1, -EINVAL},
	{FIELD(mcfs_item, segment_bytes), 0, -EINVAL},
	{FIELD(mcfs_item, segment_count), 0, -EINVAL},
	{FIELD(mcfs_item, reserved), UINT32_C(1) << 31, -EINVAL},
};

Test(fastpath_check, an_item_of_a_write_is_checked_too)
{
	for (size_t k = 0; k < sizeof(write_items) / sizeof(*write_items); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 2, &io);
		for (int m = 0; m < 2; m++) {
			fp_name(&c, &i[m], dir_id, m ? "good" : "bad");
			fp_dense(&c, &i[m], 10);
		}
		set(&i[0], &write_items[k]);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i[0].status, write_items[k].error, "row %zu: %d", k, i[0].status);
		cr_expect_eq(i[1].status, 0, "row %zu", k);
	}
}

Test(fastpath_check, an_empty_write_has_no_memory)
{
	static const struct row rows[] = {
		{FIELD(mcfs_item, base), 8, -EINVAL},
		{FIELD(mcfs_item, stride), 8, -EINVAL},
		{FIELD(mcfs_item, segment_bytes), 8, -EINVAL},
		{FIELD(mcfs_item, buffer), 9, -ENOENT},
		{FIELD(mcfs_item, buffer), 1, 0},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io;
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		fp_name(&c, i, dir_id, "empty");
		set(i, &rows[k]);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].error, "row %zu: %d", k, i->status);
	}
}

Test(fastpath_check, a_prefetch_has_no_memory)
{
	static const struct row rows[] = {
		{FIELD(mcfs_item, base), 8, -EINVAL},
		{FIELD(mcfs_item, stride), 8, -EINVAL},
		{FIELD(mcfs_item, segment_bytes), 8, -EINVAL},
		{FIELD(mcfs_item, segment_count), 1, -EINVAL},
		{FIELD(mcfs_item, buffer), 1, -EINVAL},
		{FIELD(mcfs_item, file_offset), 1, -EINVAL},
		{FIELD(mcfs_item, mode), 1, -EINVAL},
		{FIELD(mcfs_item, reserved), 1, -EINVAL},
		{FIELD(mcfs_item, status), 1, 0},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_PREFETCH, 1, &io);
		fp_name(&c, i, dir_id, "f");
		set(i, &rows[k]);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].error, "row %zu: %d", k, i->status);
	}
}

/* ---- names ---- */

Test(fastpath_check, names_hold_what_a_file_name_may)
{
	static const struct {
		char name[8];
		uint16_t bytes;
		int error;
	} rows[] = {
		{"a/b", 3, -EINVAL},  {"/", 1, -EINVAL},  {"..", 2, -EINVAL}, {".", 1, -EINVAL},
		{"a\0b", 3, -EINVAL}, {"\0", 1, -EINVAL}, {"...", 3, 0},      {".a", 2, 0},
		{"\xff\x80\n", 3, 0}, {" ", 1, 0},	  {"\\", 1, 0},	      {"*?\"'", 4, 0},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		i->object = dir_id;
		i->name = fp_alloc(&c, 8);
		i->name_bytes = rows[k].bytes;
		memcpy(fp_at(&c, i->name), rows[k].name, 8);
		fp_dense(&c, i, 4);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].error, "row %zu: %d", k, i->status);
	}
}

Test(fastpath_check, a_suffix_is_part_of_the_name)
{
	static const struct {
		const char *suffix;
		int error;
	} rows[] = {{"/x", -EINVAL}, {".ok", 0}, {"", 0}};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io;
		fp_reset(&c);
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		fp_suffix(&c, &io, rows[k].suffix);
		fp_binary_name(&c, i, dir_id, "\x01", 1);
		fp_dense(&c, i, 4);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].error, "row %zu: %d", k, i->status);
	}
}

Test(fastpath_check, binary_names_are_1_to_64_bytes)
{
	static const struct {
		uint16_t bytes;
		int error;
	} rows[] = {{1, 0}, {64, 0}, {65, -EINVAL}, {128, -EINVAL}, {65535, -EINVAL}};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_submit io;
		struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
		fp_binary_name(&c, i, dir_id, fp_at(&c, fp_alloc(&c, 65536)), 64);
		i->name_bytes = rows[k].bytes;
		fp_dense(&c, i, 4);
		cr_assert_eq(fp_submit(&c, &io), 0);
		cr_expect_eq(i->status, rows[k].error, "row %zu: %d", k, i->status);
		fp_reset(&c);
	}
}

Test(fastpath_check, names_far_apart_are_all_read)
{
	struct fp_client wide;
	struct mcfs_submit io;

	fp_open(&wide, &box, fp_root(), 16 << 20);
	struct mcfs_item *i = fp_items(&wide, MCFS_OP_READ, 3, &io);
	for (int k = 0; k < 3; k++) {
		fp_name(&wide, &i[k], dir_id, k == 1 ? "none" : "f");
		fp_dense(&wide, &i[k], 10);
		fp_alloc(&wide, 4 << 20);
	}
	cr_assert_eq(fp_submit(&wide, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, -ENOENT);
	cr_expect_eq(i[2].status, 0);
}

Test(fastpath_check, an_item_array_may_be_overwritten_by_what_is_read)
{
	struct mcfs_submit io;
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, 2, &io);

	for (int k = 0; k < 2; k++) {
		fp_name(&c, &i[k], dir_id, "f");
		fp_dense(&c, &i[k], 10);
	}
	i[0].base = io.items + sizeof(*i); /* onto the second item: it was copied before */
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(io.n_ok, 2);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, 0); /* outcomes are written last */
}

/* ---- struct mcfs_hello, mcfs_register, mcfs_unregister ---- */

Test(fastpath_check, hello_tells_the_limits_to_its_own_version)
{
	struct mcfs_hello io = {.abi_version = MCFS_ABI_VERSION};

	cr_expect_eq(session_hello(c.session, &io), 0);
	cr_expect_eq(io.max_items, SESSION_MAX_ITEMS);
	cr_expect_eq(io.max_buffers, SESSION_MAX_BUFFERS);
	cr_expect_eq(io.max_tickets, SESSION_MAX_TICKETS);
	cr_expect_eq(io.max_segments, SESSION_MAX_SEGMENTS);
	cr_expect_eq(io.max_buffer_bytes, 32 << 20);
	cr_expect_neq(io.incarnation, 0);
	for (uint32_t v = 0; v < 4; v++) {
		io = (struct mcfs_hello){.abi_version = v};
		cr_expect_eq(session_hello(c.session, &io), v == MCFS_ABI_VERSION ? 0 : -EPROTO);
	}
	for (int k = 0; k < 3; k++) {
		io = (struct mcfs_hello){.abi_version = MCFS_ABI_VERSION};
		io.reserved[k] = 1;
		cr_expect_eq(session_hello(c.session, &io), -EINVAL);
	}
}

Test(fastpath_check, a_registration_out_of_range_is_refused)
{
	static const struct {
		struct mcfs_register io;
		int error;
	} rows[] = {
		{{.offset = 1, .length = 4096}, -EINVAL},
		{{.offset = 4096, .length = 1}, -EINVAL},
		{{.offset = 0, .length = 65536 + 4096}, -EFAULT},
		{{.offset = 65536, .length = 4096}, -EFAULT},
		{{.offset = 65536, .length = 0}, -EINVAL},
		{{.offset = UINT64_MAX - 4095, .length = 4096}, -EFAULT},
		{{.offset = UINT64_MAX - 4095, .length = 8192}, -EFAULT},
		{{.offset = 4096, .length = UINT64_MAX - 4095}, -EFAULT},
		{{.memory = 1}, -EINVAL},
		{{.memory = UINT32_MAX}, -EINVAL},
		{{.reserved = {[0] = 1}}, -EINVAL},
		{{.reserved = {[11] = 1}}, -EINVAL},
		{{.offset = 61440, .length = 0}, 0},
		{{.offset = 0, .length = 4096}, 0},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_register io = rows[k].io;
		io.buffer = 99;
		cr_expect_eq(session_register(c.session, &io, small.buffer), rows[k].error,
			     "row %zu", k);
		cr_expect_eq(io.buffer == 99, rows[k].error != 0, "row %zu", k);
	}
}

Test(fastpath_check, an_unregistration_out_of_range_is_refused)
{
	static const struct {
		uint32_t buffer, reserved;
		int error;
	} rows[] = {{0, 0, -ENOENT},	      {3, 0, -ENOENT}, {256, 0, -ENOENT}, {257, 0, -ENOENT},
		    {UINT32_MAX, 0, -ENOENT}, {1, 1, -EINVAL}, {1, 0, 0},	  {1, 0, -ENOENT}};

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct mcfs_unregister io = {rows[k].buffer, rows[k].reserved};
		cr_expect_eq(session_unregister(c.session, &io), rows[k].error, "row %zu", k);
	}
}
