/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steady state of a store of equal-sized blocks: a window of names, each write
 * makes a new name. An operation is create, write, close; between two of them
 * the oldest name goes, untimed and on both sides, so that both take memory
 * that was given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

#define WINDOW 64

struct writer {
	const struct bench_env *env;
	char *buffer;
	size_t bytes;
	unsigned n_ops;
	uint64_t next[N_SIDES]; /* number of the next name; the window is what comes before */
};

static void block_path(const struct writer *wr, enum side side, uint64_t number,
		       char path_out[JOB_PATH_MAX])
{
	char name[32];

	snprintf(name, sizeof(name), "block-%08llu", (unsigned long long)number);
	job_path(wr->env, side, name, path_out);
}

/* Each block says at both ends which it is: one that was mistaken for another is found. */
static void tag_block(struct writer *wr, uint64_t number)
{
	memcpy(wr->buffer, &number, sizeof(number));
	memcpy(wr->buffer + wr->bytes - sizeof(number), &number, sizeof(number));
}

static int write_block(const struct writer *wr, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return bench_fail(-errno, "create %s", path);
	int rc = bench_write_fully(fd, wr->buffer, wr->bytes);
	if (rc)
		bench_fail(rc, "write %zu bytes to %s", wr->bytes, path);
	if (close(fd) && !rc)
		rc = bench_fail(-errno, "close %s", path);
	return rc;
}

static int write_next(struct writer *wr, enum side side, uint64_t *elapsed_ns_out)
{
	char path[JOB_PATH_MAX], oldest[JOB_PATH_MAX];
	uint64_t number = wr->next[side]++;

	tag_block(wr, number);
	block_path(wr, side, number, path);
	block_path(wr, side, number - WINDOW, oldest);
	uint64_t begin_ns = bench_now_ns();
	int rc = write_block(wr, path);
	*elapsed_ns_out = bench_now_ns() - begin_ns;
	if (!rc && number >= WINDOW && unlink(oldest))
		rc = bench_fail(-errno, "unlink %s", oldest);
	return rc;
}

static int write_batch(void *arg, enum side side, struct samples *latency, uint64_t *batch_ns_out)
{
	struct writer *wr = arg;

	*batch_ns_out = 0;
	for (unsigned i = 0; i < wr->n_ops; i++) {
		uint64_t elapsed_ns;
		int rc = write_next(wr, side, &elapsed_ns);
		if (rc)
			return rc;
		samples_add(latency, (double)elapsed_ns);
		*batch_ns_out += elapsed_ns;
	}
	return 0;
}

/* Fills the window and turns it over once: from then on memory is used again. */
static int reach_steady_state(struct writer *wr)
{
	uint64_t elapsed_ns;

	for (int side = 0; side < N_SIDES; side++)
		for (int i = 0; i < 2 * WINDOW; i++) {
			int rc = write_next(wr, side, &elapsed_ns);
			if (rc)
				return rc;
		}
	return 0;
}

static int verify_block(struct writer *wr, enum side side, uint64_t number, char *readback)
{
	char path[JOB_PATH_MAX];

	block_path(wr, side, number, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bench_fail(-errno, "open %s", path);
	int rc = bench_read_fully(fd, readback, wr->bytes, 0);
	close(fd);
	tag_block(wr, number);
	if (!rc && memcmp(readback, wr->buffer, wr->bytes))
		rc = -EBADMSG;
	return rc ? bench_fail(rc, "read back %s", path) : 0;
}

/* All that is in the window after the rounds. */
static int verify_window(struct writer *wr)
{
	char *readback = bench_buffer_create(wr->bytes);
	int rc = readback ? 0 : bench_fail(-ENOMEM, "buffer of %zu bytes", wr->bytes);

	for (int side = 0; side < N_SIDES; side++)
		for (uint64_t i = 1; !rc && i <= WINDOW; i++)
			rc = verify_block(wr, side, wr->next[side] - i, readback);
	bench_buffer_destroy(readback, wr->bytes);
	return rc;
}

static void remove_window(struct writer *wr)
{
	char path[JOB_PATH_MAX];

	for (int side = 0; side < N_SIDES; side++)
		for (uint64_t i = 1; i <= WINDOW + 1 && i <= wr->next[side]; i++) {
			block_path(wr, side, wr->next[side] - i, path);
			unlink(path);
		}
}

int job_write(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct writer wr = {.env = env, .bytes = job->io_bytes, .n_ops = job->n_ops};

	wr.buffer = bench_buffer_create(wr.bytes);
	if (!wr.buffer)
		return bench_fail(-ENOMEM, "buffer of %zu bytes", wr.bytes);
	pattern_fill(wr.buffer, wr.bytes, 0, 3);
	int rc = reach_steady_state(&wr);
	if (!rc)
		rc = job_run_pair(job, env, write_batch, &wr, wr.bytes, row);
	if (!rc)
		rc = verify_window(&wr);
	remove_window(&wr);
	bench_buffer_destroy(wr.buffer, wr.bytes);
	return rc;
}
