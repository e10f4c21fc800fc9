/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every benchmark needs: a clock, samples and their quantiles, buffers,
 * files of known content, CPU time of a process.
 *
 * Errors are negative errno, logged to stderr where they arise. Not thread-safe,
 * except that different threads may fill different samples.
 */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
/* CPU seconds are given per 10^9 bytes. */
#define GB 1e9

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Monotonic nanoseconds. */
uint64_t bench_now_ns(void);

/* Logs "bench: WHAT: strerror" to stderr and returns err (negative errno) as it came. */
int bench_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- samples ---- */

struct samples {
	double *values;
	size_t n;
	size_t n_alloc;
};

/* Aborts when memory runs out: a benchmark with lost samples means nothing. */
void samples_add(struct samples *s, double value);
void samples_append(struct samples *s, const struct samples *more);
void samples_clear(struct samples *s);
void samples_fini(struct samples *s);

/* Quantile q of [0, 1], nearest rank; NaN when there are none. Sorts the samples. */
double samples_quantile(struct samples *s, double q);

/* ---- buffers and content ---- */

/* Page-aligned, every page touched; NULL when there is no memory. Free with bench_buffer_destroy. */
char *bench_buffer_create(size_t bytes);
void bench_buffer_destroy(char *buffer, size_t bytes);

/*
 * The content that all test files have: word i of file `seed` is a function of
 * both. off and bytes are multiples of 8.
 */
void pattern_fill(char *buffer, size_t bytes, uint64_t off, uint64_t seed);

/* Returns 0, or -EBADMSG with the first wrong offset logged under `name`. */
int pattern_check(const char *buffer, size_t bytes, uint64_t off, uint64_t seed, const char *name);

/* What the words of such a file add up to, modulo 2^64. */
uint64_t pattern_sum(uint64_t bytes, uint64_t seed);

/*
 * Makes the file `path` of that content. With set_size it gets its size before
 * its bytes, as the daemon does it with its frames: both then have huge pages.
 */
int bench_file_create(const char *path, uint64_t bytes, uint64_t seed, int set_size);

/* All or nothing: a short transfer is -EIO. */
int bench_read_fully(int fd, char *buffer, size_t bytes, uint64_t off);
int bench_write_fully(int fd, const char *buffer, size_t bytes);

/* ---- CPU ---- */

/* User and system time of this process and of its children that were waited for. */
uint64_t bench_own_cpu_ns(void);

/* The same of a running process, all threads; -ESRCH when there is none. */
int bench_process_cpu_ns(pid_t pid, uint64_t *cpu_ns_out);

#endif
