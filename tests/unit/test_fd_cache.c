/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "tier/fd_cache.h"

static int n_opened;

static int open_null(void *arg, uint64_t id)
{
	if (arg && id == *(uint64_t *)arg)
		return -ENOENT;
	__atomic_add_fetch(&n_opened, 1, __ATOMIC_RELAXED);
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

Test(fd_cache, a_frame_is_opened_once)
{
	struct fd_cache *c = fd_cache_create(4);
	int a = fd_cache_borrow(c, 7, open_null, NULL), b = fd_cache_borrow(c, 7, open_null, NULL);

	cr_assert_geq(a, 0);
	cr_expect_eq(a, b);
	fd_cache_give_back(c, 7, a);
	fd_cache_give_back(c, 7, b);
	cr_expect_eq(fd_cache_borrow(c, 7, open_null, NULL), a);
	cr_expect_eq(n_opened, 1);
	fd_cache_give_back(c, 7, a);
	fd_cache_destroy(c);
	cr_expect_not(is_open(a));
}

Test(fd_cache, the_oldest_idle_one_gives_way)
{
	struct fd_cache *c = fd_cache_create(2);
	int fds[3];

	for (uint64_t id = 0; id < 3; id++)
		fds[id] = fd_cache_borrow(c, id, open_null, NULL);
	fd_cache_give_back(c, 1, fds[1]);
	fd_cache_give_back(c, 0, fds[0]);
	cr_expect(is_open(fds[1]));
	fd_cache_give_back(c, 2, fds[2]);
	cr_expect_not(is_open(fds[1]));
	cr_expect(is_open(fds[0]) && is_open(fds[2]));
	cr_expect_eq(fd_cache_trim(c), 2);
	cr_expect_not(is_open(fds[0]) || is_open(fds[2]));
	fd_cache_destroy(c);
}

Test(fd_cache, what_is_forgotten_is_closed_by_its_last_reader)
{
	struct fd_cache *c = fd_cache_create(4);
	int fd = fd_cache_borrow(c, 1, open_null, NULL);

	fd_cache_borrow(c, 1, open_null, NULL);
	fd_cache_forget(c, 1);
	fd_cache_give_back(c, 1, fd);
	cr_expect(is_open(fd), "somebody still reads it");
	fd_cache_give_back(c, 1, fd);
	cr_expect_not(is_open(fd));
	fd = fd_cache_borrow(c, 2, open_null, NULL);
	fd_cache_give_back(c, 2, fd);
	fd_cache_forget(c, 2);
	cr_expect_not(is_open(fd));
	fd_cache_forget(c, 3);
	fd_cache_destroy(c);
}

Test(fd_cache, an_open_that_fails_leaves_nothing)
{
	struct fd_cache *c = fd_cache_create(4);
	uint64_t bad = 5;

	cr_expect_eq(fd_cache_borrow(c, 5, open_null, &bad), -ENOENT);
	cr_expect_eq(fd_cache_trim(c), 0);
	int fd = fd_cache_borrow(c, 5, open_null, NULL);
	cr_expect_geq(fd, 0);
	fd_cache_give_back(c, 5, fd);
	fd_cache_destroy(c);
}

static void *use(void *arg)
{
	for (int k = 0; k < 20000; k++) {
		uint64_t id = (uint64_t)(k * 7 % 13);
		int fd = fd_cache_borrow(arg, id, open_null, NULL);
		cr_assert(is_open(fd));
		if (k % 5 == 0)
			fd_cache_forget(arg, id);
		cr_assert(is_open(fd), "its own use is not over");
		fd_cache_give_back(arg, id, fd);
	}
	return NULL;
}

Test(fd_cache, threads_use_and_forget_at_once)
{
	struct fd_cache *c = fd_cache_create(3);
	pthread_t t[4];

	for (int k = 0; k < 4; k++)
		pthread_create(&t[k], NULL, use, c);
	for (int k = 0; k < 4; k++)
		pthread_join(t[k], NULL);
	cr_expect_leq(fd_cache_trim(c), 3);
	fd_cache_destroy(c);
}
