/* SPDX-License-Identifier: Apache-2.0 */
#include "many.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define N_STATS 100000
#define LIST_BUFFER_BYTES (32 * KIB) /* as readdir(3) of glibc */
#define FIRST_READ_LIMIT_S 60
/* Bars are for a million objects: beyond, there are none. */
#define BARS_MAX_OBJECTS 1000000
#define RSS_BAR_MB 400
#define RESTART_BAR_S 5
/* Less than the names alone would take; more than what the allocator's arenas pick up by chance. */
#define LIST_GROWTH_BAR_MB 32
#define MB 1e6

/* ---- what phases share ---- */

void many_name(uint32_t k, char out[16])
{
	snprintf(out, 16, "%07u", k);
}

void many_path(const struct many *m, uint32_t k, char out[JOB_PATH_MAX])
{
	snprintf(out, JOB_PATH_MAX, "%s/%07u", m->dir, k);
}

void many_payload(const struct many *m, uint32_t k, char *out)
{
	uint64_t word = k;

	memset(out, 0, m->object_bytes);
	memcpy(out, &word, m->object_bytes < sizeof(word) ? m->object_bytes : sizeof(word));
}

static void add_row(struct many *m, struct row row)
{
	if (m->n_rows == MANY_ROWS)
		abort();
	row.mode = m->mode;
	row.raw_p50_us = row.cpu_s_per_gb = NAN;
	m->rows[m->n_rows++] = row;
	report_print_value(&row);
}

void many_add(struct many *m, const char *job, double value, const char *unit, double p50_us,
	      double bar)
{
	add_row(m, (struct row){.job = job,
				.against = "-",
				.value = value,
				.unit = unit,
				.ratio = NAN,
				.bar_kind = bar > 0 && m->n_objects <= BARS_MAX_OBJECTS ?
						    BAR_VALUE_MAX :
						    BAR_NONE,
				.bar = bar,
				.ours_p50_us = p50_us});
}

void many_add_against(struct many *m, const char *job, double value, const char *unit,
		      double p50_us, const char *against, double ratio)
{
	add_row(m, (struct row){.job = job,
				.against = against,
				.value = value,
				.unit = unit,
				.ratio = ratio,
				.bar_kind = BAR_NONE,
				.ours_p50_us = p50_us});
}

uint64_t many_daemon_rss(const struct many *m)
{
	unsigned long long total, resident = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)m->daemon_pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	int n = fscanf(file, "%llu %llu", &total, &resident);
	fclose(file);
	return n == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

double many_metric(const struct many *m, const char *key)
{
	char path[JOB_PATH_MAX], line[512], *slash;
	size_t len = strlen(key);
	double value = NAN;

	/* m->dir is a directory in the root of the mount. */
	snprintf(path, sizeof(path) - 32, "%s", m->dir);
	slash = strrchr(path, '/');
	strcpy(slash ? slash : path, "/.mooncake/metrics");
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, len) && line[len] == ' ')
			value = strtod(line + len, NULL);
	if (file)
		fclose(file);
	return value;
}

/* ---- list ---- */

struct dirent_head {
	uint64_t ino, off;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

struct listing {
	uint64_t n_names;
	uint64_t peak_rss;
	double seconds;
};

static void count_names(const char *buffer, long bytes, struct listing *l)
{
	for (long at = 0; at < bytes;) {
		const struct dirent_head *d = (const void *)(buffer + at);
		l->n_names += d->name[0] != '.';
		at += d->bytes;
	}
}

/* The block cache of the catalog fills up to its bound, whoever reads: that is no growth. */
static double growth_mb(const struct many *m, const struct listing *l, uint64_t rss_before,
			double cache_before)
{
	double bytes = (double)l->peak_rss - (double)rss_before -
		       (many_metric(m, "mooncakefs_catalog_cache_bytes") - cache_before);

	return bytes > 0 ? bytes / MB : 0;
}

static int list_once(const struct many *m, struct listing *l)
{
	_Alignas(8) static char buffer[LIST_BUFFER_BYTES];
	int fd = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n = -1;

	*l = (struct listing){0};
	uint64_t begin_ns = bench_now_ns();
	for (uint64_t calls = 0; fd >= 0; calls++) {
		n = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
		if (n <= 0)
			break;
		count_names(buffer, n, l);
		uint64_t rss = calls % 64 ? 0 : many_daemon_rss(m);
		l->peak_rss = rss > l->peak_rss ? rss : l->peak_rss;
	}
	int err = errno;
	l->seconds = (double)(bench_now_ns() - begin_ns) / 1e9;
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return bench_fail(-err, "list %s", m->dir);
	if (l->n_names != m->n_objects)
		return bench_fail(-EBADMSG, "%s has %llu names, not %u", m->dir,
				  (unsigned long long)l->n_names, m->n_objects);
	return 0;
}

int many_list(struct many *m)
{
	static const char *const rates[] = {"list_first", "list_again"};
	static const char *const growths[] = {"list_first_growth", "list_again_growth"};
	struct listing l;
	int rc = 0;

	for (int k = 0; !rc && k < 2; k++) {
		uint64_t rss = many_daemon_rss(m);
		double cache = many_metric(m, "mooncakefs_catalog_cache_bytes");
		rc = list_once(m, &l);
		if (rc)
			break;
		many_add(m, rates[k], (double)l.n_names / l.seconds, "names/s", NAN, 0);
		many_add(m, growths[k], growth_mb(m, &l, rss, cache), "MB", NAN,
			 LIST_GROWTH_BAR_MB);
	}
	return rc;
}

/* ---- stat ---- */

/* A step that meets all numbers once if it has no divisor in common with how many there are. */
static uint32_t nth_name(const struct many *m, uint32_t n)
{
	return (uint32_t)((n * UINT64_C(7919) * 104729 + 12345) % m->n_objects);
}

static int stat_all(struct many *m, struct samples *latency)
{
	char path[JOB_PATH_MAX];
	struct stat st;
	uint32_t n = m->n_objects < N_STATS ? m->n_objects : N_STATS;

	for (uint32_t k = 0; k < n; k++) {
		many_path(m, nth_name(m, k), path);
		uint64_t begin_ns = bench_now_ns();
		if (lstat(path, &st))
			return bench_fail(-errno, "stat %s", path);
		samples_add(latency, (double)(bench_now_ns() - begin_ns) / 1e3);
		if ((uint64_t)st.st_size != m->object_bytes)
			return bench_fail(-EBADMSG, "%s has %lld bytes", path,
					  (long long)st.st_size);
	}
	return 0;
}

int many_stat(struct many *m)
{
	static const char *const jobs[] = {"stat_cold_p99", "stat_cached_p99"};
	int rc = 0;

	for (int k = 0; !rc && k < 2; k++) {
		struct samples latency = {0};
		rc = stat_all(m, &latency);
		if (!rc)
			many_add(m, jobs[k], samples_quantile(&latency, 0.99), "us",
				 samples_quantile(&latency, 0.5), 0);
		samples_fini(&latency);
	}
	return rc;
}

/* ---- after a start ---- */

static uint64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* 1: read and right; 0: not yet; -EBADMSG. */
static int try_read(const struct many *m, uint32_t k)
{
	char path[JOB_PATH_MAX], found[4096], expected[4096];

	many_path(m, k, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, found, sizeof(found));
	close(fd);
	if (n < 0)
		return 0;
	many_payload(m, k, expected);
	if (n != (ssize_t)m->object_bytes || memcmp(found, expected, (size_t)n))
		return bench_fail(-EBADMSG, "%s: %zd bytes, or wrong ones", path, n);
	return 1;
}

int many_first_read(struct many *m)
{
	uint32_t k = nth_name(m, 77);

	for (;;) {
		int rc = try_read(m, k);
		uint64_t ns = wall_ns() - m->since_ns;
		if (rc > 0)
			many_add(m, "restart", (double)ns / 1e9, "s", NAN, RESTART_BAR_S);
		if (rc)
			return rc < 0 ? rc : 0;
		if (ns > FIRST_READ_LIMIT_S * UINT64_C(1000000000))
			return bench_fail(-ETIMEDOUT, "no object can be read %u s after the start",
					  FIRST_READ_LIMIT_S);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

/* ---- figures ---- */

static uint64_t walked_bytes; /* nftw has no argument for it */

static int add_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (type == FTW_F)
		walked_bytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

int many_figures(struct many *m)
{
	uint64_t rss = many_daemon_rss(m);

	if (!rss)
		return bench_fail(-ESRCH, "memory of process %d", (int)m->daemon_pid);
	many_add(m, "daemon_rss", (double)rss / MB, "MB", NAN, RSS_BAR_MB);
	many_add(m, "daemon_rss_per_object", (double)rss / m->n_objects, "bytes", NAN, 0);
	walked_bytes = 0;
	if (nftw(m->catalog, add_file, 16, FTW_PHYS))
		return bench_fail(-errno, "size of %s", m->catalog);
	many_add(m, "catalog_per_object", (double)walked_bytes / m->n_objects, "bytes", NAN, 0);
	return 0;
}
