/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of the fast path: their size and budget, registrations, and clients that change them meanwhile. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fakes/fault_tier.h"
#include "lib/fp_client.h"

#define PAGE UINT64_C(4096)
#define A fs_box_who(1)

/* ---- fixture ---- */

static struct fs_box box;
static struct inode *dir;
static struct fp_client c;
static struct handle *dir_handle;
static uint64_t dir_id;
static struct fp_books books;

static void setup(void)
{
	fs_box_open(&box);
	dir = fs_box_mkdir(&box, fs_box_root(&box), "kv");
	books = fp_books(&box);
	fp_open(&c, &box, fp_root(), 8 << 20);
	dir_handle = fp_open_dir(&box, dir, 0, &dir_id);
}

static void teardown(void)
{
	fs_box_close(&box);
}

TestSuite(fastpath_buffer, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void close_client(void)
{
	fp_close_handle(&box, dir_handle);
	fp_close(&c);
}

static void put_f(void)
{
	cr_assert_eq(fp_put(&c, dir_id, "f", "0123456789", 10), 0);
}

/* A READ of n items of "f". */
static struct mcfs_item *reads(uint32_t n, struct mcfs_submit *io)
{
	struct mcfs_item *i = fp_items(&c, MCFS_OP_READ, n, io);

	for (uint32_t k = 0; k < n; k++) {
		fp_name(&c, &i[k], dir_id, "f");
		fp_dense(&c, &i[k], 16);
	}
	return i;
}

/* ---- registrations ---- */

Test(fastpath_buffer, as_many_buffers_as_promised_can_be_registered)
{
	struct fp_buffer b;

	fp_buffer_open(&box, "b", 0, PAGE, &b);
	for (int k = 1; k < SESSION_MAX_BUFFERS; k++) {
		cr_assert_eq(fp_register(&c, &b, 0, 0), 0);
		cr_assert_eq(b.number, (uint32_t)k + 1);
	}
	cr_expect_eq(fp_register(&c, &b, 0, 0), -EMFILE);
	cr_expect_eq(fp_unregister(&c, 100), 0);
	cr_expect_eq(fp_register(&c, &b, 0, 0), 0);
	cr_expect_eq(b.number, 100);
	fp_buffer_close(&box, &b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, all_sessions_together_have_a_limit_of_registrations)
{
	enum {
		N = REGISTRATIONS_MAX / SESSION_MAX_BUFFERS
	};
	static struct fp_client many[N + 1];
	struct fp_buffer b;
	int rc = 0, n = 1;

	fp_buffer_open(&box, "b", 0, PAGE, &b);
	for (int s = 0; s <= N && !rc; s++) {
		many[s] = (struct fp_client){.box = &box, .session = fp_session(&box, fp_root())};
		for (int k = 0; k < SESSION_MAX_BUFFERS && !rc; k++)
			n += !(rc = fp_register(&many[s], &b, 0, 0));
	}
	cr_expect_eq(rc, -EMFILE);
	cr_expect_eq(n, REGISTRATIONS_MAX);
	for (int s = 0; s <= N; s++)
		fp_close_session(&many[s]);
	cr_expect_eq(fp_register(&c, &b, 0, 0), 0);
	fp_buffer_close(&box, &b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, a_buffer_in_use_cannot_be_unregistered)
{
	struct registration *r;

	cr_assert_eq(session_use_buffer(c.session, c.main.number, &r), 0);
	cr_expect_eq(fp_unregister(&c, c.main.number), -EBUSY);
	session_release_buffer(c.session, r);
	cr_expect_eq(fp_unregister(&c, c.main.number), 0);
}

Test(fastpath_buffer, a_registered_buffer_grows_but_does_not_shrink)
{
	struct fp_buffer b;

	fp_buffer_open(&box, "b", 0, 2 * PAGE, &b);
	cr_expect_eq(fp_resize(&box, &b, PAGE), 0);
	cr_expect_eq(fp_resize(&box, &b, 2 * PAGE), 0);
	cr_assert_eq(fp_register(&c, &b, 0, PAGE), 0);
	uint32_t first = b.number;
	cr_expect_eq(fp_resize(&box, &b, 2 * PAGE - 1), -EBUSY);
	cr_expect_eq(fp_resize(&box, &b, 0), -EBUSY);
	cr_expect_eq(fp_resize(&box, &b, 4 * PAGE), 0);
	cr_expect_eq(b.buffer->inode->e.size, 4 * PAGE);
	cr_assert_eq(fp_register(&c, &b, 2 * PAGE, 0), 0);
	cr_expect_eq(fp_unregister(&c, first), 0);
	cr_expect_eq(fp_resize(&box, &b, PAGE), -EBUSY);
	cr_expect_eq(fp_unregister(&c, b.number), 0);
	cr_expect_eq(fp_resize(&box, &b, PAGE), 0);
	fp_buffer_close(&box, &b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, buffers_have_a_budget)
{
	struct fp_buffer a, b;

	fp_buffer_open(&box, "a", 0, 16 << 20, &a);
	fp_buffer_open(&box, "b", 0, PAGE, &b);
	cr_expect_eq(fp_resize(&box, &b, 9 << 20), -EFBIG); /* of 64 MiB half; 8 and 16 are taken */
	cr_expect_eq(b.buffer->inode->e.size, PAGE);
	cr_expect_eq(fp_resize(&box, &b, UINT64_C(1) << 62), -EFBIG);
	cr_expect_eq(fp_resize(&box, &b, UINT64_MAX), -EFBIG);
	cr_expect_eq(fp_resize(&box, &b, 8 << 20), 0);
	cr_expect_eq(fp_resize(&box, &b, (8 << 20) + 1), -EFBIG);
	cr_expect_eq(fp_resize(&box, &b, 0), 0);
	fp_buffer_close(&box, &a);
	fp_buffer_close(&box, &b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, a_buffer_that_cannot_grow_stays_as_it_was)
{
	struct fp_buffer b;

	fs_box_fault_dram(&box);
	fp_buffer_open(&box, "b", 0, PAGE, &b);
	for (int op = FAULT_charge; op <= FAULT_resize; op++) {
		fault_tier_fail(box.fs.dram, (enum fault_op)op, 1, EIO);
		cr_expect_eq(fp_resize(&box, &b, 1 << 20), -EIO);
		cr_expect_eq(b.buffer->inode->e.size, PAGE);
		cr_expect_eq(b.buffer->frame.size_bytes, PAGE);
	}
	cr_expect_eq(fp_resize(&box, &b, 1 << 20), 0);
	fp_buffer_close(&box, &b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, an_unlinked_buffer_serves_until_it_is_given_up)
{
	struct fp_buffer b, again;
	struct mcfs_submit io;

	put_f();
	fp_buffer_open(&box, "b", 0, PAGE, &b);
	cr_assert_eq(fp_register(&c, &b, 0, 0), 0);
	cr_expect_eq(buffer_unlink(&box.fs, "b"), 0);
	cr_expect_eq(buffer_unlink(&box.fs, "b"), -ENOENT);
	cr_expect_null(buffer_lookup(&box.fs, "b"));
	fp_buffer_open(&box, "b", 0, PAGE, &again); /* the name is free */
	fp_buffer_close(&box, &b); /* its descriptor goes, the registration stays */
	struct mcfs_item *i = reads(1, &io);
	i->buffer = 2;
	i->base = 0;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_expect_eq(i->bytes, 10);
	fp_buffer_close(&box, &again);
	cr_assert_eq(fs_box_unlink(&box, dir, "f", A), 0);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

Test(fastpath_buffer, buffers_have_names_of_their_own)
{
	struct buffer *b, *other;

	cr_assert_eq(buffer_create(&box.fs, "x", 0600, 0, 0, &b), 0);
	cr_expect_eq(buffer_create(&box.fs, "x", 0600, 0, 0, &other), -EEXIST);
	char name[300];
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	cr_expect_eq(buffer_create(&box.fs, name, 0600, 0, 0, &other), -ENAMETOOLONG);
	buffer_close(&box.fs, b);
	cr_expect_eq(buffer_create(&box.fs, "x", 0600, 0, 0, &b), 0);
	buffer_close(&box.fs, b);
	close_client();
	cr_expect(fp_books_are(&box, &books));
}

/* ---- a client that changes its memory ---- */

Test(fastpath_buffer, a_hole_in_the_buffer_reads_as_zeros_and_takes_what_is_read)
{
	struct fp_buffer b;
	struct mcfs_submit io;

	put_f();
	fp_buffer_open(&box, "b", 0, 4 * PAGE, &b);
	cr_assert_eq(fp_register(&c, &b, 0, 0), 0);
	memset(b.mem, 0x55, 4 * PAGE);
	cr_assert_eq(madvise(b.mem, 4 * PAGE, MADV_REMOVE), 0);
	struct mcfs_item *i = fp_items(&c, MCFS_OP_WRITE, 1, &io);
	fp_name(&c, i, dir_id, "zeros");
	i->buffer = b.number;
	i->segment_bytes = 4 * PAGE;
	i->segment_count = 1;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_assert_eq(madvise(b.mem, 4 * PAGE, MADV_REMOVE), 0);
	i = reads(1, &io);
	i->buffer = b.number;
	i->base = PAGE;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i->status, 0);
	cr_expect_eq(memcmp(b.mem + PAGE, "0123456789", 10), 0);
}

Test(fastpath_buffer, a_file_cut_behind_the_daemons_back_is_an_error_and_no_signal)
{
	struct fp_buffer b;
	struct mcfs_submit io;

	put_f();
	fp_buffer_open(&box, "b", 0, 4 * PAGE, &b);
	cr_assert_eq(fp_register(&c, &b, 0, 0), 0);
	cr_assert_eq(ftruncate(b.buffer->frame.fd, PAGE), 0);
	struct mcfs_item *i = reads(3, &io);
	i[0].buffer = i[1].buffer = b.number;
	i[0].base = 0;
	i[1].base = 2 * PAGE;
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, -EFAULT);
	cr_expect_eq(i[2].status, 0);
	i[1].name_bytes = 1;
	io.op = MCFS_OP_WRITE;
	io.n_items = 2;
	i[0].name = fp_alloc(&c, 1);
	*fp_at(&c, i[0].name) = 'w';
	cr_assert_eq(fp_submit(&c, &io), 0);
	cr_expect_eq(i[0].status, 0);
	cr_expect_eq(i[1].status, -EFAULT);
	io = (struct mcfs_submit){
		.op = MCFS_OP_READ, .buffer = b.number, .n_items = 1, .items = 2 * PAGE};
	cr_expect_eq(fp_submit(&c, &io), -EFAULT);
}
