/* SPDX-License-Identifier: Apache-2.0 */
/* The replay against a plain directory: what it counts, at any number of threads. */
#include "cli/content.h"
#include "cli/crew.h"
#include "cli/replay.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 5000

/* ---- fixture ---- */

static char mount[] = "/tmp/test_replay.XXXXXX";
static struct replay_options options;
static struct replay_result *result;
static struct trace trace;

static void setup(void)
{
	cr_assert(mkdtemp(mount));
	options = (struct replay_options){
		.store = {.block_bytes = BLOCK}, .n_threads = 1, .progress = PROGRESS_OFF};
	cr_assert_eq(block_store_open(mount, "m", &options.store.dir_fd), 0);
	result = calloc(1, sizeof(*result));
	cr_assert(result);
}

static void teardown(void)
{
	char path[64];

	block_store_clear(options.store.dir_fd);
	close(options.store.dir_fd);
	snprintf(path, sizeof(path), "%s/kv/m", mount);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/kv", mount);
	rmdir(path);
	rmdir(mount);
	free(result);
	trace_free(&trace);
}

TestSuite(replay, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static void load(const char *text)
{
	struct trace_error error;
	FILE *file = fmemopen((void *)text, strlen(text), "r");

	cr_assert(file);
	trace_free(&trace);
	cr_assert_eq(trace_load(file, 0, &trace, &error), 0);
	fclose(file);
}

static void run(void)
{
	*result = (struct replay_result){0};
	cr_assert_eq(replay_run(&trace, &options, result), 0);
}

static uint64_t count(enum block_outcome outcome)
{
	return result->n_outcomes[outcome];
}

static int open_block(uint64_t id, int flags)
{
	char name[CONTENT_NAME_BYTES];

	content_name(id, name);
	return openat(options.store.dir_fd, name, flags);
}

/* ---- success ---- */

Test(replay, hits_what_earlier_requests_wrote)
{
	load("{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1,2,4]}\n{\"hash_ids\":[9,1]}\n");
	run();

	cr_assert_eq(result->n_requests, 3);
	cr_assert_eq(result->n_references, 8);
	cr_assert_eq(count(BLOCK_HIT), 3);
	cr_assert_eq(count(BLOCK_MISS), 5);
	cr_assert_eq(result->n_prefix_hits, 2, "a hit behind a miss is no prefix hit");
	cr_assert_eq(result->stats.bytes_read, 3 * BLOCK);
	cr_assert_eq(result->stats.bytes_written, 5 * BLOCK);
	cr_assert_eq(result->stats.ops[BLOCK_OP_WRITE].n, 5);
}

Test(replay, a_second_run_hits_everything)
{
	load("{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[4]}\n");
	run();
	run();

	cr_assert_eq(count(BLOCK_HIT), 4);
	cr_assert_eq(result->n_prefix_hits, 4);
	cr_assert_eq(result->stats.bytes_written, 0);
}

Test(replay, counts_the_same_at_any_number_of_threads)
{
	char text[16384];
	size_t len = 0;

	/* Repeats within a chain would race if they were visited side by side. */
	for (int request = 0; request < 40; request++) {
		len += (size_t)sprintf(text + len, "{\"hash_ids\":[0");
		for (int i = 1; i < 50; i++)
			len += (size_t)sprintf(text + len, ",%d", (request * i * 7) % 400);
		len += (size_t)sprintf(text + len, "]}\n");
	}
	load(text);
	run();
	uint64_t hits = count(BLOCK_HIT), prefix_hits = result->n_prefix_hits;
	for (unsigned n_threads = 2; n_threads <= 16; n_threads *= 2) {
		cr_assert_eq(block_store_clear(options.store.dir_fd), 0);
		options.n_threads = n_threads;
		run();
		cr_assert_eq(count(BLOCK_HIT), hits, "%u threads", n_threads);
		cr_assert_eq(result->n_prefix_hits, prefix_hits, "%u threads", n_threads);
		cr_assert_eq(result->n_references, 40 * 50);
	}
}

Test(replay, rename_leaves_no_temporary)
{
	struct stat st;
	char name[CONTENT_NAME_BYTES + 32];

	options.store.publish = BLOCK_PUBLISH_RENAME;
	load("{\"hash_ids\":[1]}\n");
	run();

	content_name(1, name);
	cr_assert_eq(fstatat(options.store.dir_fd, name, &st, 0), 0);
	cr_assert_eq(st.st_size, BLOCK);
	snprintf(name + CONTENT_NAME_BYTES - 1, 32, ".tmp.%d.0", (int)getpid());
	cr_assert_eq(fstatat(options.store.dir_fd, name, &st, 0), -1);
}

Test(replay, clear_removes_blocks_and_nothing_else)
{
	load("{\"hash_ids\":[1,2]}\n");
	run();
	int fd = openat(options.store.dir_fd, "notes", O_CREAT | O_WRONLY, 0644);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(block_store_clear(options.store.dir_fd), 0);

	cr_assert_eq(open_block(1, O_RDONLY), -1);
	cr_assert_eq(faccessat(options.store.dir_fd, "notes", F_OK, 0), 0);
	unlinkat(options.store.dir_fd, "notes", 0);
}

/* ---- failure ---- */

Test(replay, a_wrong_byte_is_corrupt_not_a_hit)
{
	load("{\"hash_ids\":[1,2,3]}\n");
	run();
	int fd = open_block(2, O_WRONLY);
	cr_assert_eq(pwrite(fd, "\x55\x55", 2, BLOCK - 2), 2);
	close(fd);
	run();

	cr_assert_eq(count(BLOCK_CORRUPT), 1);
	cr_assert_eq(count(BLOCK_HIT), 2);
	cr_assert_eq(result->n_prefix_hits, 1);
}

Test(replay, a_short_block_is_corrupt)
{
	load("{\"hash_ids\":[1]}\n");
	run();
	int fd = open_block(1, O_WRONLY);
	cr_assert_eq(ftruncate(fd, BLOCK - 1), 0);
	close(fd);
	run();

	cr_assert_eq(count(BLOCK_CORRUPT), 1);
}

Test(replay, a_failed_write_is_counted_and_leaves_no_part_of_a_block)
{
	struct rlimit before, half = {.rlim_cur = BLOCK / 2};

	/* A limit of the file size stands for a full disk: the write stops half way. */
	load("{\"hash_ids\":[1,2]}\n");
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	half.rlim_max = before.rlim_max;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &half), 0);
	run();
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);

	cr_assert_eq(count(BLOCK_WRITE_FAILED), 2);
	cr_assert_eq(result->n_references, 2);
	cr_assert_eq(result->stats.bytes_written, 0);
	cr_assert_eq(open_block(1, O_RDONLY), -1);
	cr_assert_eq(errno, ENOENT);
}

Test(replay, an_unreadable_block_is_a_read_failure)
{
	char name[CONTENT_NAME_BYTES];

	/* A link to itself: open says ELOOP, to root as well. */
	content_name(1, name);
	cr_assert_eq(symlinkat(name, options.store.dir_fd, name), 0);
	load("{\"hash_ids\":[1,2]}\n");
	run();

	cr_assert_eq(count(BLOCK_READ_FAILED), 1);
	cr_assert_eq(count(BLOCK_MISS), 1);
}

/* ---- crew ---- */

static atomic_uint visits[1000];

static void visit(void *arg, unsigned worker, size_t item)
{
	cr_assert_lt(worker, *(const unsigned *)arg);
	atomic_fetch_add(&visits[item], 1);
}

Test(crew, visits_every_item_of_every_batch_once)
{
	for (unsigned n_threads = 1; n_threads <= 8; n_threads *= 2) {
		struct crew *crew;

		memset(visits, 0, sizeof(visits));
		cr_assert_eq(crew_start(n_threads, visit, &n_threads, &crew), 0);
		for (size_t batch = 0; batch < 500; batch++) {
			crew_begin(crew, 2 * batch, 2 * batch + 2);
			while (!crew_wait(crew, 1000))
				;
			cr_assert_eq(visits[2 * batch] + visits[2 * batch + 1], 2);
		}
		crew_stop(crew);
		for (size_t i = 0; i < 1000; i++)
			cr_assert_eq(visits[i], 1);
	}
}

Test(crew, ends_without_any_batch)
{
	unsigned n_threads = 4;
	struct crew *crew;

	cr_assert_eq(crew_start(n_threads, visit, &n_threads, &crew), 0);
	cr_assert(crew_wait(crew, 0));
	crew_stop(crew);
	crew_stop(NULL);
}
