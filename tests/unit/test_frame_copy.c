/* SPDX-License-Identifier: Apache-2.0 */
/* frame_copy: every byte, exact sizes, checksums, limits, errors; with io_uring and without. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/crc.h"
#include "tier/copy_ring.h"
#include "tier/frame_copy.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* ---- helpers ---- */

enum place {
	MEMORY,
	DISK
};

/* A file without a name, so that nothing is left behind. */
static int make_file(enum place place)
{
	const char *dir = place == MEMORY ? "/dev/shm" : "/var/tmp";
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0, "%m");
	return fd;
}

/* No two blocks of it are alike. */
static char *make_bytes(uint64_t size)
{
	char *bytes = malloc(size + 8);
	uint64_t x = size;

	for (uint64_t off = 0; off < size; off += 8) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		memcpy(bytes + off, &x, 8);
	}
	return bytes;
}

static int make_source(enum place place, const char *bytes, uint64_t size)
{
	int fd = make_file(place);

	for (uint64_t done = 0; done < size;) {
		ssize_t n = pwrite(fd, bytes + done, size - done, (off_t)done);
		cr_assert_gt(n, 0, "%m");
		done += (uint64_t)n;
	}
	if (place == DISK) {
		fdatasync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return fd;
}

static void expect_bytes(int fd, const char *bytes, uint64_t size)
{
	char *found = malloc(size + 1);
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	cr_expect_eq((uint64_t)st.st_size, size, "%lld bytes instead of %llu",
		     (long long)st.st_size, (unsigned long long)size);
	uint64_t done = 0;
	for (ssize_t n = 1; n > 0 && done<size; done += n> 0 ? (uint64_t)n : 0)
		n = pread(fd, found + done, size - done, (off_t)done);
	cr_expect_eq(done, size);
	cr_expect_eq(memcmp(found, bytes, size), 0, "%llu bytes", (unsigned long long)size);
	free(found);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

static const uint64_t sizes[] = {
	0,
	1,
	4096,
	KIB(16),
	KIB(64),
	KIB(64) + 1,
	KIB(256),
	KIB(256) + 5,
	MIB(1) - 1,
	MIB(1),
	MIB(1) + 1,
	MIB(3) + KIB(512),
	MIB(4),
	MIB(9) + 123,
	MIB(9) + 4096,
};

static void copy_and_check(enum place from, enum place to, uint64_t size)
{
	char *bytes = make_bytes(size);
	int src = make_source(from, bytes, size), dst = make_file(to);
	uint32_t crc[16] = {0};

	/* A recycled frame: longer, and full of something else. */
	cr_assert_eq(pwrite(dst, "stale", 5, (off_t)size + 7), 5);
	cr_expect_eq(frame_copy(dst, src, size, crc, NULL), 0);
	expect_bytes(dst, bytes, size);
	for (uint64_t off = 0; off < size; off += MIB(1)) {
		uint64_t len = size - off < MIB(1) ? size - off : MIB(1);
		cr_expect_eq(crc[off / MIB(1)], crc32c(0, bytes + off, len), "piece at %llu",
			     (unsigned long long)off);
	}
	close(src);
	close(dst);
	free(bytes);
}

static void copy_all_sizes(void)
{
	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++)
		for (int way = 0; way < 4; way++)
			copy_and_check(way & 1 ? DISK : MEMORY, way & 2 ? DISK : MEMORY, sizes[k]);
}

/* ---- success ---- */

Test(frame_copy, copies_any_size_between_any_two)
{
	copy_all_sizes();
}

Test(frame_copy, does_without_io_uring)
{
	copy_ring_refuse(ENOSYS);
	copy_all_sizes();
}

/* As a container's seccomp profile does. */
Test(frame_copy, does_where_io_uring_is_forbidden)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		cr_skip_test("needs seccomp filters: %s", strerror(errno));
	copy_and_check(MEMORY, DISK, MIB(5) + 17);
	copy_and_check(DISK, MEMORY, MIB(5) + 17);
}

Test(frame_copy, uses_one_ring_again_and_again)
{
	for (int k = 0; k < 20; k++)
		copy_and_check(MEMORY, DISK, MIB(1) + 1);
	struct copy_ring *r = copy_ring_get();
	if (!r->has_uring)
		cr_skip_test("needs io_uring");
	int fd = r->uring.ring_fd;
	copy_ring_put(r);
	r = copy_ring_get();
	cr_expect_eq(r->uring.ring_fd, fd);
	copy_ring_put(r);
}

static void *copy_some(void *arg)
{
	for (int k = 0; k < 3; k++) {
		copy_and_check(MEMORY, DISK, MIB(3) + 1);
		copy_and_check(DISK, MEMORY, MIB(3) + 1);
	}
	return NULL;
}

Test(frame_copy, more_threads_than_rings_all_get_through)
{
	pthread_t threads[2 * COPY_RINGS_MAX];

	for (size_t k = 0; k < 2 * COPY_RINGS_MAX; k++)
		cr_assert_eq(pthread_create(&threads[k], NULL, copy_some, NULL), 0);
	for (size_t k = 0; k < 2 * COPY_RINGS_MAX; k++)
		pthread_join(threads[k], NULL);
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	cr_assert_not_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

Test(frame_copy, leaves_no_descriptor_open)
{
	copy_and_check(MEMORY, DISK, MIB(2));
	int before = count_fds();
	copy_and_check(MEMORY, DISK, MIB(2));
	copy_and_check(DISK, MEMORY, MIB(2) + 1);
	cr_expect_eq(count_fds(), before);
}

/* ---- limits ---- */

static bool cancel_at_nth(void *arg)
{
	return --*(int *)arg == 0;
}

Test(frame_copy, is_cancelled_at_any_piece)
{
	char *bytes = make_bytes(MIB(8));
	int src = make_source(MEMORY, bytes, MIB(8)), dst = make_file(DISK);

	for (int nth = 1; nth <= 8; nth++) {
		enum frame_copy_side side = FRAME_COPY_DST;
		int left = nth;
		struct frame_copy_limits limits = {
			.is_cancelled = cancel_at_nth, .arg = &left, .failed_out = &side};
		cr_expect_eq(frame_copy(dst, src, MIB(8), NULL, &limits), -ECANCELED);
		cr_expect_eq(left, 0);
		cr_expect_eq(side, FRAME_COPY_NONE);
	}
	int left = 1;
	struct frame_copy_limits limits = {.is_cancelled = cancel_at_nth, .arg = &left};
	cr_expect_eq(frame_copy(dst, src, KIB(16), NULL, &limits), -ECANCELED, "small");
	cr_expect_eq(frame_copy(dst, src, MIB(8), NULL, NULL), 0, "works as before");
	expect_bytes(dst, bytes, MIB(8));
	free(bytes);
}

Test(frame_copy, keeps_to_a_rate)
{
	char *bytes = make_bytes(MIB(4));
	int src = make_source(MEMORY, bytes, MIB(4)), dst = make_file(DISK);
	struct frame_copy_limits limits = {.bytes_per_second = MIB(16)};

	int64_t start = now_ms();
	cr_expect_eq(frame_copy(dst, src, MIB(4), NULL, &limits), 0);
	cr_expect_geq(now_ms() - start, 249);
	start = now_ms();
	limits.bytes_per_second = KIB(320);
	for (int k = 0; k < 2; k++)
		cr_expect_eq(frame_copy(dst, src, KIB(16), NULL, &limits), 0);
	cr_expect_geq(now_ms() - start, 99, "small ones count as well");
	free(bytes);
}

static bool cancel_after(void *arg)
{
	return now_ms() > *(int64_t *)arg;
}

Test(frame_copy, is_cancelled_while_it_waits)
{
	char *bytes = make_bytes(MIB(4));
	int src = make_source(MEMORY, bytes, MIB(4)), dst = make_file(DISK);
	int64_t start = now_ms(), until = start + 100;
	struct frame_copy_limits limits = {
		.is_cancelled = cancel_after, .arg = &until, .bytes_per_second = 1};

	cr_expect_eq(frame_copy(dst, src, MIB(4), NULL, &limits), -ECANCELED);
	cr_expect_lt(now_ms() - start, 2000);
	free(bytes);
}

/* ---- failure ---- */

static int copy_failing(int dst, int src, uint64_t size, enum frame_copy_side *side)
{
	struct frame_copy_limits limits = {.failed_out = side};

	return frame_copy(dst, src, size, NULL, &limits);
}

Test(frame_copy, a_source_too_short_is_no_medium_s_error)
{
	static const enum place places[] = {MEMORY, DISK};

	for (size_t k = 0; k < 2; k++) {
		char *bytes = make_bytes(MIB(2));
		int src = make_source(places[k], bytes, MIB(2)), dst = make_file(DISK);
		enum frame_copy_side side = FRAME_COPY_DST;
		cr_expect_eq(copy_failing(dst, src, MIB(2) + 1, &side), -EIO);
		cr_expect_eq(side, FRAME_COPY_NONE);
		cr_assert_eq(ftruncate(src, 100), 0);
		cr_expect_eq(copy_failing(dst, src, KIB(16), &side), -EIO);
		cr_expect_eq(side, FRAME_COPY_NONE);
		free(bytes);
	}
}

Test(frame_copy, names_the_side_that_failed)
{
	/* Nothing is mapped at the beginning: reading there is an I/O error. */
	int bad = open("/proc/self/mem", O_RDONLY), full = open("/dev/full", O_WRONLY);
	char *bytes = make_bytes(MIB(2));
	int src = make_source(MEMORY, bytes, MIB(2)), dst = make_file(DISK);
	enum frame_copy_side side = FRAME_COPY_NONE;

	cr_expect_eq(copy_failing(dst, bad, KIB(16), &side), -EIO);
	cr_expect_eq(side, FRAME_COPY_SRC);
	side = FRAME_COPY_NONE;
	cr_expect_eq(copy_failing(dst, bad, MIB(2), &side), -EIO);
	cr_expect_eq(side, FRAME_COPY_SRC);
	cr_expect_eq(copy_failing(full, src, KIB(16), &side), -ENOSPC);
	cr_expect_eq(side, FRAME_COPY_DST);
	side = FRAME_COPY_NONE;
	cr_expect_eq(copy_failing(full, src, MIB(2), &side), -ENOSPC);
	cr_expect_eq(side, FRAME_COPY_DST);
	cr_expect_eq(copy_failing(dst, src, UINT64_MAX, &side), -EFBIG);
	free(bytes);
}
