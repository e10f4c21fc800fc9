// SPDX-License-Identifier: Apache-2.0
/*
 * racecreate - processes that create one name at the same moment, round after round
 *
 * usage: racecreate DIR plain|excl CREATORS READERS ROUNDS BYTES
 *
 * Each round has a name of its own, which all creators create at once and write in two pieces with
 * one 64-bit word (creator, round) repeated. Readers look at the name all the while: until it exists
 * ENOENT, from then on always one creator's whole version. With excl (O_CREAT | O_EXCL) exactly one
 * creator of a round succeeds and all others get EEXIST. Status 1 names the first difference; status 0
 * prints "ok READS-OF-A-VERSION".
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
	pthread_barrier_t barrier;
	atomic_int round, winners, n_removed; /* names that are removed, or about to be */
	atomic_bool stop, failed;
	atomic_ulong n_seen;
} *shared;

static const char *dir;
static bool excl;
static int n_rounds;
static size_t n_bytes;
static uint64_t *buffer;

static void fail(const char *what, uint64_t a, uint64_t b)
{
	fprintf(stderr, "racecreate: round %d: %s %#lx %#lx (%s)\n", atomic_load(&shared->round), what, a,
		b, strerror(errno));
	atomic_store(&shared->failed, true);
	atomic_store(&shared->stop, true);
}

static const char *name_of(int round)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/round-%06d", dir, round);
	return path;
}

static void create_once(int creator, int round)
{
	uint64_t word = (uint64_t)(creator + 1) << 32 | (uint64_t)round;
	int fd = open(name_of(round), O_WRONLY | O_CREAT | (excl ? O_EXCL : O_TRUNC), 0644);

	if (fd < 0) {
		if (!excl || errno != EEXIST)
			fail("open for create", word, 0);
		return;
	}
	atomic_fetch_add(&shared->winners, 1);
	for (size_t i = 0; i < n_bytes / 8; i++)
		buffer[i] = word;
	if (write(fd, buffer, n_bytes / 2) != (ssize_t)(n_bytes / 2) ||
	    write(fd, (char *)buffer + n_bytes / 2, n_bytes / 2) != (ssize_t)(n_bytes / 2))
		fail("write", word, 0);
	if (close(fd))
		fail("close", word, 0);
}

/* Returns whether the name exists. */
static bool read_once(int round, bool must_exist)
{
	int fd = open(name_of(round), O_RDONLY);

	if (fd < 0) {
		if (errno != ENOENT || must_exist)
			fail(must_exist ? "a published name is gone" : "open", 0, 0);
		return false;
	}
	ssize_t n = read(fd, buffer, n_bytes + 8);
	errno = 0;
	close(fd);
	if (n != (ssize_t)n_bytes) {
		fail("bytes read, expected", (uint64_t)n, n_bytes);
		return true;
	}
	if ((uint32_t)buffer[0] != (uint32_t)round)
		fail("word of another round", buffer[0], 0);
	for (size_t i = 1; i < n_bytes / 8; i++)
		if (buffer[i] != buffer[0]) {
			fail("mixture", buffer[0], buffer[i]);
			break;
		}
	atomic_fetch_add(&shared->n_seen, 1);
	return true;
}

/* The barrier's one chosen process looks at the outcome of a round. */
static void judge(int round)
{
	int winners = atomic_exchange(&shared->winners, 0);

	if (excl && winners != 1)
		fail("creators succeeded with O_EXCL, not 1 but", (uint64_t)winners, 0);
	read_once(round, true);
	atomic_store(&shared->n_removed, round + 1);
	if (unlink(name_of(round)))
		fail("unlink", 0, 0);
	atomic_store(&shared->round, round + 1);
}

static int run_creator(int creator)
{
	for (int round = 0; round < n_rounds; round++) {
		pthread_barrier_wait(&shared->barrier);
		if (!atomic_load(&shared->failed))
			create_once(creator, round);
		if (pthread_barrier_wait(&shared->barrier) == PTHREAD_BARRIER_SERIAL_THREAD &&
		    !atomic_load(&shared->failed))
			judge(round);
	}
	return 0;
}

static int run_reader(int reader)
{
	bool exists = false;
	int round = -1;

	(void)reader;
	while (!atomic_load(&shared->stop)) {
		int now = atomic_load(&shared->round);
		if (now != round)
			exists = false;
		round = now;
		bool found = read_once(round, false);
		if (exists && !found && atomic_load(&shared->n_removed) <= round)
			fail("a published name is gone", 0, 0);
		exists = found;
	}
	return 0;
}

static bool make_barrier(int n)
{
	pthread_barrierattr_t attr;

	return !pthread_barrierattr_init(&attr) &&
	       !pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) &&
	       !pthread_barrier_init(&shared->barrier, &attr, (unsigned)n);
}

static pid_t spawn(int (*fn)(int), int arg)
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn(arg));
	return pid;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: racecreate DIR plain|excl CREATORS READERS ROUNDS BYTES\n");
		return 99;
	}
	dir = argv[1];
	excl = !strcmp(argv[2], "excl");
	int n_creators = atoi(argv[3]), n_readers = atoi(argv[4]);
	n_rounds = atoi(argv[5]);
	n_bytes = strtoull(argv[6], NULL, 0) / 16 * 16;
	buffer = malloc(n_bytes + 8);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !buffer || n_creators < 1 || !make_barrier(n_creators))
		return 99;
	for (int i = 0; i < n_readers; i++)
		spawn(run_reader, i);
	pid_t creators[64];
	for (int i = 0; i < n_creators && i < 64; i++)
		creators[i] = spawn(run_creator, i);
	for (int i = 0; i < n_creators && i < 64; i++)
		waitpid(creators[i], NULL, 0);
	atomic_store(&shared->stop, true);
	while (wait(NULL) > 0)
		;
	if (atomic_load(&shared->failed))
		return 1;
	printf("ok %lu\n", atomic_load(&shared->n_seen));
	return 0;
}
