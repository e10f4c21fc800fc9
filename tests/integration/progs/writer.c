// SPDX-License-Identifier: Apache-2.0
/*
 * writer - opens a file, writes to it and ends in one of many ways, without closing it
 *
 * usage: writer [-o] [-s] PATH BYTES HOW
 *
 *   -o  open an existing file with O_RDWR and write from its start (else O_CREAT | O_TRUNC)
 *   -s  fsync after the first half
 *
 * Writes BYTES times 'w', in two halves. HOW it ends:
 *   exit        exit(0), file still open
 *   sigkill sigterm sigsegv sigabrt sigquit sigint   by that signal, raised by itself
 *   threads-exit          exit(0) while four threads sleep in the kernel
 *   threads-sigkill       SIGKILL while four threads sleep
 *   threads-sigsegv       a thread other than the first dies of SIGSEGV
 *   leader-gone-exit      the first thread has ended; another one calls exit(0)
 *   leader-gone-sigkill   the first thread has ended; another one raises SIGKILL
 *   writer-thread-sigterm another thread opens and writes, the first raises SIGTERM
 *   exec-cloexec          exec of /bin/true; the file is close-on-exec
 *   exec-inherit          exec of /bin/true; the file stays open and ends with it
 *   exec-sigkill          exec of sh, which inherits the file and kills itself with SIGKILL
 *   threads-exec-cloexec  as exec-cloexec, from a thread other than the first
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *path;
static size_t n_bytes;
static bool overwrite, sync_half;
static const char *how;

static void die(const char *what)
{
	fprintf(stderr, "writer: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static void write_half(int fd, size_t n)
{
	static char block[65536];

	memset(block, 'w', sizeof(block));
	while (n) {
		size_t step = n < sizeof(block) ? n : sizeof(block);
		ssize_t done = write(fd, block, step);
		if (done < 0)
			die("write");
		n -= (size_t)done;
	}
}

static bool is(const char *name)
{
	return !strcmp(how, name);
}

static void open_and_write(void)
{
	bool cloexec = is("exec-cloexec") || is("threads-exec-cloexec");
	int flags = (overwrite ? O_RDWR : O_RDWR | O_CREAT | O_TRUNC) | (cloexec ? O_CLOEXEC : 0);
	int fd = open(path, flags, 0644);

	if (fd < 0)
		die(path);
	write_half(fd, n_bytes / 2);
	if (sync_half && fsync(fd))
		die("fsync");
	write_half(fd, n_bytes - n_bytes / 2);
}

static void *sleep_for_ever(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static void start_sleepers(void)
{
	pthread_t t;

	for (int i = 0; i < 4; i++)
		if (pthread_create(&t, NULL, sleep_for_ever, NULL))
			die("pthread_create");
	usleep(20000);
}

/* Not the null pointer itself, which a sanitizer would stop before the store. */
static void *store_to_null(void *arg)
{
	*(volatile int *)((char *)arg + 64) = 1;
	return NULL;
}

static void *write_it(void *arg)
{
	(void)arg;
	open_and_write();
	return NULL;
}

static void *end_after_leader(void *arg)
{
	(void)arg;
	usleep(50000); /* by then the first thread is a zombie */
	open_and_write();
	if (is("leader-gone-sigkill"))
		raise(SIGKILL);
	exit(0);
}

static void *exec_true(void *arg)
{
	(void)arg;
	execl("/bin/true", "true", (char *)NULL);
	die("exec");
	return NULL;
}

static void run_in_thread(void *(*fn)(void *), bool wait)
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, NULL))
		die("pthread_create");
	if (wait)
		pthread_join(t, NULL);
}

static void end_by_signal(void)
{
	static const struct { const char *name; int signo; } signals[] = {
		{ "sigkill", SIGKILL }, { "sigterm", SIGTERM }, { "sigabrt", SIGABRT },
		{ "sigquit", SIGQUIT }, { "sigint", SIGINT },
	};

	if (is("sigsegv"))
		store_to_null(NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (is(signals[i].name))
			raise(signals[i].signo);
}

static void end(void)
{
	if (is("exit"))
		exit(0);
	if (is("exec-cloexec") || is("exec-inherit"))
		exec_true(NULL);
	if (is("exec-sigkill")) {
		execl("/bin/sh", "sh", "-c", "kill -9 $$", (char *)NULL);
		die("exec");
	}
	if (is("writer-thread-sigterm"))
		raise(SIGTERM);
	if (!strncmp(how, "threads-", 8)) {
		start_sleepers();
		if (is("threads-exit"))
			exit(0);
		if (is("threads-sigkill"))
			raise(SIGKILL);
		run_in_thread(is("threads-sigsegv") ? store_to_null : exec_true, false);
		sleep_for_ever(NULL);
	}
	end_by_signal();
	fprintf(stderr, "writer: unknown way to end: %s\n", how);
	_exit(99);
}

/* A segmentation fault is a death by signal here, also in a build that would report it. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "handle_segv=0:handle_abort=0";
}

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "os")) != -1) {
		if (opt == 'o')
			overwrite = true;
		else if (opt == 's')
			sync_half = true;
		else
			return 99;
	}
	if (argc - optind != 3) {
		fprintf(stderr, "usage: writer [-o] [-s] PATH BYTES HOW\n");
		return 99;
	}
	path = argv[optind];
	n_bytes = strtoull(argv[optind + 1], NULL, 0);
	how = argv[optind + 2];
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	if (!strncmp(how, "leader-gone-", 12)) {
		run_in_thread(end_after_leader, false);
		pthread_exit(NULL);
	}
	if (is("writer-thread-sigterm"))
		run_in_thread(write_it, true);
	else
		open_and_write();
	end();
}
