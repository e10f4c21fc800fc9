// SPDX-License-Identifier: Apache-2.0
/*
 * storm - processes that replace one file over and over while others read it
 *
 * usage: storm PATH HOW WRITERS READERS ROUNDS BYTES
 *
 *   rename   each writer writes a name of its own and renames it over PATH
 *   trunc    each writer opens PATH with O_TRUNC and writes it in four pieces
 *   shared-tmp  all writers write the same PATH.tmp and rename it over PATH; a writer whose rename
 *            finds nothing (another one's rename took its file along) writes again
 *   mixed    half of the writers rename, half truncate
 *
 * Each of ROUNDS versions per writer is one 64-bit word (writer, round), repeated, BYTES long. Readers
 * read it with one read(2) call, or through a mapping, or with O_DIRECT, in turns. The first of these
 * ends the program with status 1: any errno, a short read, a wrong size, a mixture, an older round of
 * a writer than one this reader has seen already (a version that came back), and at the end a file
 * that is none of the last versions. PATH exists from start to end, so ENOENT is wrong too.
 * Status 0 prints "ok WRITES READS".
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WRITERS 16

static struct shared {
	atomic_bool stop;
	atomic_ulong n_writes, n_reads;
	uint64_t last[MAX_WRITERS];
} *shared;

static const char *path, *how;
static char tmp_path[4096];
static size_t n_bytes;
static int n_rounds;
static uint64_t *buffer;

static void fail(const char *who, const char *fmt, uint64_t a, uint64_t b)
{
	int saved = errno;
	char text[256];

	snprintf(text, sizeof(text), fmt, a, b);
	fprintf(stderr, "storm: %s: %s (errno %d: %s)\n", who, text, saved, strerror(saved));
	atomic_store(&shared->stop, true);
	_exit(1);
}

static uint64_t word_of(int writer, int round)
{
	return (uint64_t)(writer + 1) << 48 | (uint64_t)round;
}

static void write_version(const char *to, uint64_t word, bool pieces)
{
	for (size_t i = 0; i < n_bytes / 8; i++)
		buffer[i] = word;
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		fail("writer", "open for write of version %#lx", word, 0);
	size_t step = pieces ? n_bytes / 4 : n_bytes;
	for (size_t off = 0; off < n_bytes; off += step) {
		ssize_t n = write(fd, (char *)buffer + off, step);
		if (n != (ssize_t)step)
			fail("writer", "write returned %ld for %lu bytes", (uint64_t)n, step);
	}
	if (close(fd))
		fail("writer", "close of version %#lx", word, 0);
}

/* Returns false when another writer's rename has moved the shared temporary file. */
static bool write_once(int writer, uint64_t word)
{
	bool by_rename = !strcmp(how, "rename") || !strcmp(how, "shared-tmp") ||
			 (!strcmp(how, "mixed") && writer % 2);

	if (!by_rename) {
		write_version(path, word, true);
		return true;
	}
	write_version(tmp_path, word, false);
	if (!rename(tmp_path, path))
		return true;
	if (errno == ENOENT && !strcmp(how, "shared-tmp"))
		return false;
	fail("writer", "rename of version %#lx", word, 0);
	return false;
}

static int run_writer(int writer)
{
	if (!strcmp(how, "shared-tmp"))
		snprintf(tmp_path, sizeof(tmp_path), "%s.tmp", path);
	else
		snprintf(tmp_path, sizeof(tmp_path), "%s.tmp.%d", path, writer);
	for (int round = 1; round <= n_rounds && !atomic_load(&shared->stop); round++) {
		while (!write_once(writer, word_of(writer, round)) && !atomic_load(&shared->stop))
			;
		shared->last[writer] = word_of(writer, round);
		atomic_fetch_add(&shared->n_writes, 1);
	}
	return 0;
}

static const uint64_t *read_by_mapping(int fd, size_t size)
{
	const uint64_t *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (map == MAP_FAILED)
		fail("reader", "mmap", 0, 0);
	return map;
}

static void check_words(const uint64_t *words, uint64_t *seen)
{
	uint64_t first = words[0];
	uint64_t writer = (first >> 48) - 1;

	errno = 0;
	for (size_t i = 1; i < n_bytes / 8; i++)
		if (words[i] != first)
			fail("reader", "mixture: the first word is %#lx, another %#lx", first, words[i]);
	if (writer >= MAX_WRITERS)
		fail("reader", "word %#lx is nobody's", first, 0);
	if (first < seen[writer])
		fail("reader", "version %#lx came back after %#lx", first, seen[writer]);
	seen[writer] = first;
}

static void read_once(int turn, uint64_t *seen)
{
	int fd = open(path, O_RDONLY | (turn % 3 == 2 ? O_DIRECT : 0));
	struct stat st;

	if (fd < 0)
		fail("reader", "open", 0, 0);
	if (fstat(fd, &st))
		fail("reader", "fstat", 0, 0);
	if ((size_t)st.st_size != n_bytes)
		fail("reader", "size is %lu, should be %lu", (uint64_t)st.st_size, n_bytes);
	if (turn % 3 == 1) {
		const uint64_t *map = read_by_mapping(fd, n_bytes);
		close(fd);
		check_words(map, seen);
		munmap((void *)(uintptr_t)map, n_bytes);
		return;
	}
	ssize_t n = read(fd, buffer, n_bytes);
	if (n != (ssize_t)n_bytes)
		fail("reader", "read returned %ld for %lu bytes", (uint64_t)n, n_bytes);
	close(fd);
	check_words(buffer, seen);
}

static int run_reader(int reader)
{
	uint64_t seen[MAX_WRITERS] = { 0 };

	for (int turn = reader; !atomic_load(&shared->stop); turn++) {
		read_once(turn, seen);
		atomic_fetch_add(&shared->n_reads, 1);
	}
	return 0;
}

static pid_t spawn(int (*fn)(int), int arg)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("parent", "fork", 0, 0);
	if (!pid)
		_exit(fn(arg));
	return pid;
}

static bool reap(pid_t pid)
{
	int wstatus;

	if (waitpid(pid, &wstatus, 0) != pid)
		fail("parent", "waitpid", 0, 0);
	if (WIFSIGNALED(wstatus))
		fprintf(stderr, "storm: a child died of signal %d\n", WTERMSIG(wstatus));
	return WIFEXITED(wstatus) && !WEXITSTATUS(wstatus);
}

static bool final_version_is_a_last_one(int n_writers)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || read(fd, buffer, n_bytes) != (ssize_t)n_bytes)
		fail("parent", "final read", 0, 0);
	for (int i = 0; i < n_writers; i++)
		if (buffer[0] == shared->last[i])
			return true;
	fprintf(stderr, "storm: the final version %#lx is no writer's last\n", buffer[0]);
	return false;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: storm PATH rename|trunc|shared-tmp|mixed WRITERS READERS ROUNDS "
				"BYTES\n");
		return 99;
	}
	path = argv[1];
	how = argv[2];
	int n_writers = atoi(argv[3]), n_readers = atoi(argv[4]);
	n_rounds = atoi(argv[5]);
	n_bytes = strtoull(argv[6], NULL, 0) / 4096 * 4096;
	pid_t pids[2 * MAX_WRITERS];
	bool ok = true;

	if (n_writers < 1 || n_writers > MAX_WRITERS || n_readers > MAX_WRITERS || !n_bytes)
		return 99;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || posix_memalign((void **)&buffer, 4096, n_bytes))
		return 99;
	write_version(path, word_of(0, 0), false);
	for (int i = 0; i < n_readers; i++)
		pids[n_writers + i] = spawn(run_reader, i);
	for (int i = 0; i < n_writers; i++)
		pids[i] = spawn(run_writer, i);
	for (int i = 0; i < n_writers; i++)
		ok &= reap(pids[i]);
	atomic_store(&shared->stop, true);
	for (int i = 0; i < n_readers; i++)
		ok &= reap(pids[n_writers + i]);
	/* With O_TRUNC or rename the last to publish wins, and that is some writer's last round. */
	ok = ok && final_version_is_a_last_one(n_writers);
	if (!ok)
		return 1;
	printf("ok %lu %lu\n", atomic_load(&shared->n_writes), atomic_load(&shared->n_reads));
	return 0;
}
