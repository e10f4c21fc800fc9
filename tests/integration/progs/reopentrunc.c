// SPDX-License-Identifier: Apache-2.0
/*
 * reopentrunc - opens a file with O_TRUNC again and again while the last descriptor of its previous open goes
 * away, and looks from another process for versions that nobody closed
 *
 * usage: reopentrunc PATH ROUNDS
 *
 * Each round opens PATH with O_TRUNC, writes SIZE bytes, keeps the open file by a mapping and closes the
 * descriptor, which publishes. Then one thread unmaps it (the kernel sends RELEASE) while another opens PATH
 * with O_TRUNC for the next round. A child process asks for the size all the while: it must be SIZE each time.
 *
 * Exit status: 0 all right (prints the looks of the child), 1 a wrong size, 99 cannot run.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64 * 1024 };

static const char *path;
static char bytes[SIZE];
static pthread_barrier_t both;
static void *mapped;
static unsigned long delay; /* turns of an empty loop */

static void die(const char *what)
{
	fprintf(stderr, "reopentrunc: %s: %s\n", what, strerror(errno));
	exit(99);
}

static int open_empty(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		die("open");
	return fd;
}

static void fill_and_close(int fd)
{
	if (pwrite(fd, bytes, SIZE, 0) != SIZE)
		die("write");
	mapped = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
	if (mapped == MAP_FAILED)
		die("mmap");
	if (close(fd))
		die("close");
}

static void *unmap_each_round(void *arg)
{
	for (long rounds = *(long *)arg; rounds; rounds--) {
		pthread_barrier_wait(&both);
		for (volatile unsigned long k = 0; k < delay; k++)
			continue;
		munmap(mapped, SIZE);
		pthread_barrier_wait(&both);
	}
	return NULL;
}

static void write_rounds(long rounds)
{
	pthread_t unmapper;
	long left = rounds;

	pthread_barrier_init(&both, NULL, 2);
	if (pthread_create(&unmapper, NULL, unmap_each_round, &left))
		die("pthread_create");
	for (long round = 0; round < rounds; round++) {
		delay = (unsigned long)(round % 500) * 1000;
		pthread_barrier_wait(&both);
		int fd = open_empty();
		pthread_barrier_wait(&both);
		fill_and_close(fd);
	}
	pthread_join(unmapper, NULL);
}

/* Until it is killed, or finds a wrong size. */
static void look(atomic_ulong *n_looks)
{
	struct stat st;

	munmap(mapped, SIZE); /* it would keep the file open */
	for (;; atomic_fetch_add(n_looks, 1)) {
		int fd = open(path, O_RDONLY);
		if (fd < 0 || fstat(fd, &st))
			die("open by the looking process");
		close(fd);
		if (st.st_size != SIZE) {
			fprintf(stderr, "reopentrunc: look %lu found %ld bytes instead of %d\n",
				atomic_load(n_looks), (long)st.st_size, SIZE);
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	int wstatus;

	if (argc != 3) {
		fprintf(stderr, "usage: reopentrunc PATH ROUNDS\n");
		return 99;
	}
	path = argv[1];
	atomic_ulong *n_looks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n_looks == MAP_FAILED)
		die("mmap");
	fill_and_close(open_empty());
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (!child)
		look(n_looks);
	write_rounds(atol(argv[2]));
	kill(child, SIGKILL);
	if (waitpid(child, &wstatus, 0) != child)
		die("waitpid");
	if (WIFEXITED(wstatus))
		return WEXITSTATUS(wstatus);
	printf("%lu looks\n", atomic_load(n_looks));
	return 0;
}
