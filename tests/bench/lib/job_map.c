/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has never seen the object opens it, maps it and adds up all
 * its words. Timed from spawn to exit, as whoever starts such a process sees it.
 * Without passthrough a second process finds pages that the first one left in
 * the page cache; only the process is cold then.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.h"

#define OBJECT_NAME "map.bin"
#define OBJECT_SEED 2

extern char **environ;

struct mapper {
	char path[N_SIDES][JOB_PATH_MAX];
	char expected_hex[20];
};

static uint64_t sum_words(const uint64_t *words, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += words[i];
	return sum;
}

int map_sum_main(const char *path, const char *expected_hex)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		bench_fail(-errno, "open %s", path);
		return 1;
	}
	void *mapping = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (mapping == MAP_FAILED) {
		bench_fail(-errno, "mmap %s", path);
		return 1;
	}
	uint64_t sum = sum_words(mapping, (size_t)st.st_size / 8);
	if (sum != strtoull(expected_hex, NULL, 16)) {
		bench_fail(-EBADMSG, "%s: sum is %" PRIx64 ", not %s", path, sum, expected_hex);
		return 1;
	}
	return 0;
}

static int spawn_and_wait(char *const argv[])
{
	pid_t pid;
	int status;
	int err = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);

	if (err)
		return bench_fail(-err, "start the mapping process");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return bench_fail(-errno, "wait for the mapping process");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return bench_fail(-EIO, "the mapping process ended with status 0x%x", status);
	return 0;
}

static int map_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct mapper *mapper = arg;
	char name[] = "bench_single", option[] = "--map-sum";
	char *argv[] = {name, option, mapper->path[side], mapper->expected_hex, NULL};
	uint64_t begin_ns = bench_now_ns();
	int rc = spawn_and_wait(argv);

	*batch_ns_out = bench_now_ns() - begin_ns;
	samples_add(latency, (double)*batch_ns_out);
	return rc;
}

/* Every run checks its sum, so there is no separate check of the bytes. */
int job_map_sum(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct mapper mapper;
	int rc = job_files_create(env, OBJECT_NAME, job->io_bytes, OBJECT_SEED);

	snprintf(mapper.expected_hex, sizeof(mapper.expected_hex), "%" PRIx64,
		 pattern_sum(job->io_bytes, OBJECT_SEED));
	for (int side = 0; side < N_SIDES; side++)
		job_path(env, side, OBJECT_NAME, mapper.path[side]);
	job_settle();
	if (!rc)
		rc = job_run_pair(job, env, map_batch, &mapper, job->io_bytes, row);
	for (int side = 0; side < N_SIDES; side++)
		unlink(mapper.path[side]);
	return rc;
}
