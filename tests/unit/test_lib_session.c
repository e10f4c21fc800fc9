/* SPDX-License-Identifier: Apache-2.0 */
/* lib/session.c, lib/memory.c, lib/area.c: life of a session and its memory, on the fake of the ioctls. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fakes/fake_fastpath.h"

/* ---- fixture ---- */

static struct mcfs_session *s;

static void setup(void)
{
	fake_fastpath_start(64);
}

static void teardown(void)
{
	mcfs_session_close(s);
	fake_fastpath_stop();
}

TestSuite(lib_session, .init = setup, .fini = teardown, .timeout = 30);

/* ---- helpers ---- */

static void open_session(unsigned flags)
{
	cr_assert_eq(mcfs_session_open(fake_fastpath_root(), flags, &s), 0);
}

static struct mcfs_buffer *alloc(size_t bytes, char fill)
{
	struct mcfs_buffer *b;

	cr_assert_eq(mcfs_buffer_alloc(s, bytes, &b), 0);
	memset(mcfs_buffer_memory(b), fill, mcfs_buffer_bytes(b));
	return b;
}

/* Writes name from the first 100 bytes of b. */
static long put(struct mcfs_dir *dir, const char *name, struct mcfs_buffer *b)
{
	struct mcfs_request r = {
		.dir = dir, .name = name, .memory = mcfs_buffer_memory(b), .segment_bytes = 100};

	return mcfs_write_batch(s, &r, 1, NULL);
}

/* ---- opening, memory ---- */

Test(lib_session, says_hello)
{
	struct mcfs_hello hello;

	open_session(0);
	mcfs_session_hello(s, &hello);
	cr_assert_eq(hello.max_items, 64);
	cr_assert_geq(mcfs_session_fd(s), 0);
}

Test(lib_session, a_place_that_is_no_mount_is_named)
{
	cr_assert_eq(mcfs_session_open("/usr", 0, &s), -ENOENT);
	cr_assert(strstr(mcfs_strerror(-ENOENT), "/usr/.mooncake/session"));
	cr_assert_eq(mcfs_session_open("/no/such", 0, &s), -ENOENT);
	cr_assert_eq(mcfs_session_open(fake_fastpath_root(), 64, &s), -EINVAL);
}

Test(lib_session, buffers_are_whole_pages_and_leave_no_name)
{
	char path[128];

	open_session(0);
	struct mcfs_buffer *b = alloc(5000, 'x');
	cr_assert_eq(mcfs_buffer_bytes(b), 8192);
	snprintf(path, sizeof(path), "%s/.mooncake/buffers", fake_fastpath_root());
	cr_assert_eq(rmdir(path), 0); /* it is empty */
	cr_assert_eq(mcfs_buffer_free(b), 0);
	cr_assert_eq(fake_fastpath_registered(), 0);
	cr_assert_eq(mcfs_buffer_alloc(s, 0, &b), -EINVAL);
}

Test(lib_session, a_busy_buffer_lives_on)
{
	struct mcfs_dir *dir;

	open_session(0);
	struct mcfs_buffer *b = alloc(4096, 'x');
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	fake_fastpath_keep_busy(true);
	cr_assert_eq(mcfs_buffer_free(b), -EBUSY);
	fake_fastpath_keep_busy(false);
	cr_assert_eq(put(dir, "f", b), 1);
	cr_assert_eq(mcfs_buffer_free(b), 0);
}

Test(lib_session, memory_is_found_among_many_buffers)
{
	struct mcfs_buffer *b[40];
	struct mcfs_dir *dir;

	open_session(0);
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	for (int i = 0; i < 40; i++)
		b[i] = alloc(4096 * (size_t)(1 + i % 5), 'x');
	for (int i = 0; i < 40; i += 3)
		cr_assert_eq(mcfs_buffer_free(b[i]), 0);
	for (int i = 0; i < 40; i++)
		if (i % 3)
			cr_assert_eq(put(dir, "f", b[i]), 1);
}

Test(lib_session, descriptors_find_room_whatever_their_number)
{
	static char names[64][256];
	const char *pointers[64];
	struct mcfs_dir *dir;

	open_session(0);
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	for (int i = 0; i < 64; i++) {
		memset(names[i], 'a' + i % 26, 255);
		pointers[i] = names[i];
	}
	for (size_t n = 1; n <= 64; n++)
		cr_assert_eq(mcfs_lookup_prefix(s, dir,
						&(struct mcfs_names){.strings = pointers, .n = n},
						NULL, NULL),
			     0);
	cr_assert_eq(fake_fastpath_registered(), 1);
}

/* ---- a daemon that is restarted ---- */

Test(lib_session, a_dead_daemon_is_told)
{
	struct mcfs_dir *dir;

	open_session(0);
	struct mcfs_buffer *b = alloc(4096, 'x');
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	fake_fastpath_die();
	cr_assert_eq(put(dir, "f", b), -ENOTCONN);
	cr_assert_eq(mcfs_session_reconnect(s, 0), -ENOTCONN);
	cr_assert_eq(mcfs_session_reconnect(s, 60), -ETIMEDOUT);
	cr_assert_eq(((char *)mcfs_buffer_memory(b))[4095], 'x');
	cr_assert_eq(mcfs_buffer_free(b), 0);
}

Test(lib_session, reconnecting_keeps_buffers_and_directories)
{
	struct mcfs_dir *dir;
	char path[128], bytes[128] = {0};

	open_session(0);
	struct mcfs_buffer *small = alloc(4096, 'x'), *large = alloc(3 << 20, 'y');
	char *memory = mcfs_buffer_memory(large);
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	cr_assert_eq(put(dir, "f", small), 1);
	fake_fastpath_restart();
	cr_assert_eq(put(dir, "f", small), -ENOTCONN);
	int fd = mcfs_session_fd(s);
	cr_assert_eq(mcfs_session_reconnect(s, 1000), 0);
	cr_assert_eq(mcfs_session_fd(s), fd);
	cr_assert_eq(mcfs_buffer_memory(large), memory);
	cr_assert(memory[0] == 'y' && memory[(3 << 20) - 1] == 'y');
	memset(memory, 'z', 100);
	cr_assert_eq(put(dir, "g", large), 1);
	snprintf(path, sizeof(path), "%s/g", fake_fastpath_root());
	fd = open(path, O_RDONLY);
	cr_assert_eq(read(fd, bytes, sizeof(bytes)), 100);
	close(fd);
	cr_assert_eq(bytes[99], 'z');
}

Test(lib_session, reconnecting_a_live_session_does_nothing)
{
	open_session(0);
	alloc(4096, 'x');
	cr_assert_eq(mcfs_session_reconnect(s, 1000), 0);
	cr_assert_eq(fake_fastpath_registered(), 1);
}

Test(lib_session, calls_reconnect_when_told_to)
{
	struct mcfs_dir *dir;

	open_session(MCFS_RECONNECT);
	struct mcfs_buffer *b = alloc(4096, 'x');
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	fake_fastpath_restart();
	cr_assert_eq(put(dir, "f", b), 1);
	fake_fastpath_restart();
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	fake_fastpath_restart();
	alloc(4096, 'x');
	cr_assert_eq(fake_fastpath_registered(), 2);
}

Test(lib_session, running_tickets_end_when_it_reconnects)
{
	struct mcfs_ticket *t, *after;
	struct mcfs_dir *dir;

	open_session(MCFS_RECONNECT);
	struct mcfs_buffer *b = alloc(4096, 'x');
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	struct mcfs_request r = {
		.dir = dir, .name = "f", .memory = mcfs_buffer_memory(b), .segment_bytes = 10};
	struct mcfs_request r2 = r;
	fake_fastpath_hold(true);
	cr_assert_eq(mcfs_write_batch_async(s, &r, 1, NULL, &t), 0);
	fake_fastpath_restart();
	fake_fastpath_hold(false);
	cr_assert_eq(mcfs_write_batch_async(s, &r2, 1, NULL, &after), 0);
	cr_assert_eq(mcfs_ticket_wait(t, 0), -ENOTCONN);
	cr_assert_eq(mcfs_ticket_wait(after, 1000), 1);
	mcfs_ticket_free(t);
	mcfs_ticket_free(after);
}

struct writer {
	pthread_t thread;
	struct mcfs_dir *dir;
	struct mcfs_buffer *b;
	int n_bad;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;

	for (int i = 0; i < 300; i++)
		w->n_bad += put(w->dir, "f", w->b) != 1;
	return NULL;
}

Test(lib_session, threads_get_over_a_restart_together)
{
	struct writer w[4] = {0};

	open_session(MCFS_RECONNECT);
	for (int i = 0; i < 4; i++) {
		w[i].b = alloc(4096, 'x');
		cr_assert_eq(mcfs_dir_open(s, "", &w[i].dir), 0);
		cr_assert_eq(pthread_create(&w[i].thread, NULL, write_on, &w[i]), 0);
	}
	usleep(2000);
	fake_fastpath_restart();
	for (int i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		cr_assert_eq(w[i].n_bad, 0);
	}
}

/* ---- maps ---- */

Test(lib_session, maps_an_object_without_a_session)
{
	struct mcfs_map map = {0};
	char path[128];

	snprintf(path, sizeof(path), "%s/o", fake_fastpath_root());
	int fd = open(path, O_CREAT | O_RDWR, 0644);
	cr_assert_eq(mcfs_map(NULL, path, 0, &map), 0);
	cr_assert(map.bytes == 0 && !map.data);
	mcfs_unmap(&map);
	cr_assert_eq(write(fd, "hello", 5), 5);
	close(fd);
	cr_assert_eq(mcfs_map(NULL, path, MCFS_MAP_POPULATE, &map), 0);
	cr_assert_eq(map.bytes, 5);
	cr_assert_arr_eq(map.data, "hello", 5);
	mcfs_unmap(&map);
	cr_assert_eq(mcfs_map(NULL, fake_fastpath_root(), 0, &map), -EISDIR);
	cr_assert_eq(mcfs_map(NULL, "/no/such", 0, &map), -ENOENT);
}

Test(lib_session, maps_by_name_in_a_directory)
{
	struct mcfs_map map;
	struct mcfs_dir *dir;

	open_session(0);
	struct mcfs_buffer *b = alloc(4096, 'q');
	cr_assert_eq(mcfs_dir_open(s, "", &dir), 0);
	cr_assert_eq(put(dir, "o", b), 1);
	cr_assert_eq(mcfs_map(dir, "o", 0, &map), 0);
	cr_assert(map.bytes == 100 && ((const char *)map.data)[99] == 'q');
	mcfs_unmap(&map);
}
