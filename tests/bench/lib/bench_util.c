/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_util.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define FILL_BYTES (4 * MIB)

static uint64_t timespec_ns(const struct timespec *ts)
{
	return (uint64_t)ts->tv_sec * NS_PER_S + (uint64_t)ts->tv_nsec;
}

uint64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return timespec_ns(&ts);
}

int bench_fail(int err, const char *format, ...)
{
	va_list args;

	fputs("bench: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(-err));
	return err;
}

/* ---- samples ---- */

void samples_add(struct samples *s, double value)
{
	if (s->n == s->n_alloc) {
		s->n_alloc = s->n_alloc ? 2 * s->n_alloc : 256;
		s->values = realloc(s->values, s->n_alloc * sizeof(*s->values));
		if (!s->values)
			abort();
	}
	s->values[s->n++] = value;
}

void samples_append(struct samples *s, const struct samples *more)
{
	for (size_t i = 0; i < more->n; i++)
		samples_add(s, more->values[i]);
}

void samples_clear(struct samples *s)
{
	s->n = 0;
}

void samples_fini(struct samples *s)
{
	free(s->values);
	*s = (struct samples){0};
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double samples_quantile(struct samples *s, double q)
{
	if (!s->n)
		return NAN;
	qsort(s->values, s->n, sizeof(*s->values), compare_doubles);
	return s->values[(size_t)(q * (double)(s->n - 1) + 0.5)];
}

/* ---- buffers and content ---- */

char *bench_buffer_create(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* As numpy asks for its arrays. Where it is refused there are small pages, for both sides. */
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0x5a, bytes);
	return p;
}

void bench_buffer_destroy(char *buffer, size_t bytes)
{
	if (buffer)
		munmap(buffer, bytes);
}

/* Odd factors, so that every word of a file differs from every other. */
static uint64_t pattern_word(uint64_t i, uint64_t seed)
{
	return (i + (seed << 40) + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

void pattern_fill(char *buffer, size_t bytes, uint64_t off, uint64_t seed)
{
	uint64_t *words = (uint64_t *)(void *)buffer;

	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = pattern_word(off / 8 + i, seed);
}

int pattern_check(const char *buffer, size_t bytes, uint64_t off, uint64_t seed, const char *name)
{
	const uint64_t *words = (const uint64_t *)(const void *)buffer;

	for (size_t i = 0; i < bytes / 8; i++)
		if (words[i] != pattern_word(off / 8 + i, seed))
			return bench_fail(-EBADMSG, "%s: wrong bytes at offset %llu", name,
					  (unsigned long long)(off + i * 8));
	return 0;
}

uint64_t pattern_sum(uint64_t bytes, uint64_t seed)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < bytes / 8; i++)
		sum += pattern_word(i, seed);
	return sum;
}

static int fill(int fd, uint64_t bytes, uint64_t seed)
{
	char *buffer = bench_buffer_create(FILL_BYTES);
	int rc = buffer ? 0 : -ENOMEM;

	for (uint64_t off = 0; !rc && off < bytes; off += FILL_BYTES) {
		size_t len = bytes - off < FILL_BYTES ? (size_t)(bytes - off) : FILL_BYTES;

		pattern_fill(buffer, len, off, seed);
		rc = bench_write_fully(fd, buffer, len);
	}
	bench_buffer_destroy(buffer, FILL_BYTES);
	return rc;
}

int bench_file_create(const char *path, uint64_t bytes, uint64_t seed, int set_size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = 0;

	if (fd < 0)
		return bench_fail(-errno, "create %s", path);
	if (set_size && ftruncate(fd, (off_t)bytes))
		rc = bench_fail(-errno, "ftruncate %s to %llu", path, (unsigned long long)bytes);
	if (!rc) {
		rc = fill(fd, bytes, seed);
		if (rc)
			bench_fail(rc, "write %s", path);
	}
	if (close(fd) && !rc)
		rc = bench_fail(-errno, "close %s", path);
	return rc;
}

int bench_read_fully(int fd, char *buffer, size_t bytes, uint64_t off)
{
	ssize_t n = pread(fd, buffer, bytes, (off_t)off);

	if (n < 0)
		return -errno;
	/* A regular file is never read short except at its end. */
	return (size_t)n == bytes ? 0 : -EIO;
}

int bench_write_fully(int fd, const char *buffer, size_t bytes)
{
	ssize_t n = write(fd, buffer, bytes);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EIO;
}

/* ---- CPU ---- */

static uint64_t rusage_ns(int who)
{
	struct rusage ru;

	getrusage(who, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1000;
}

uint64_t bench_own_cpu_ns(void)
{
	return rusage_ns(RUSAGE_SELF) + rusage_ns(RUSAGE_CHILDREN);
}

/*
 * The process's CPU clock counts what /proc/PID/stat counts, threads that ended
 * included, in nanoseconds instead of ticks of 10 ms.
 */
int bench_process_cpu_ns(pid_t pid, uint64_t *cpu_ns_out)
{
	clockid_t clock;
	struct timespec ts;
	int err = clock_getcpuclockid(pid, &clock);

	if (err || clock_gettime(clock, &ts))
		return bench_fail(-ESRCH, "CPU time of process %d", (int)pid);
	*cpu_ns_out = timespec_ns(&ts);
	return 0;
}
