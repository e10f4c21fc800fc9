// SPDX-License-Identifier: Apache-2.0
/*
 * crash_mount - changes files of a mount until it dies, and tells what may be there afterwards
 *
 * usage: crash_mount load DIR LEDGER SEED SECONDS [evicts]
 *        crash_mount check DIR LEDGER [evicts]
 *        crash_mount power DIR LEDGER LEDGER-BEFORE
 *        crash_mount settle DIR LEDGER
 *
 * load   four writers, one that fills DRAM and two readers, for SECONDS or until the mount is dead.
 *        LEDGER (lib/crash_ledger.h) goes on from where it was.
 * check  after the daemon was killed and started again: DIR against LEDGER.
 * power  after a power failure: against LEDGER, and a copy of it from before.
 * settle what DIR holds is LEDGER's new beginning.
 *
 * evicts: the mount is too small for all files, so those of class cache may be gone.
 *
 * load leaves in its process group nothing behind. Exit status: 0 all right (prints counts), 1 a
 * difference (named), 77 called without arguments, 99 cannot run.
 */
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/crash_ledger.h"
#include "lib/crash_verify.h"
#include "lib/crash_writer.h"

enum {
	N_READERS = 2,
	N_PROCESSES = CRASH_WRITERS + 1 + N_READERS
};

static void make_directories(const char *dir)
{
	char path[4200];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir,
			 (const char *[]){"c", "weights", "b"}[i]);
		if (mkdir(path, 0755) && errno != EEXIST)
			err(99, "mkdir %s", path);
	}
}

static pid_t start(const struct crash_run *run, unsigned i)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(99);
	if (i < CRASH_WRITERS)
		crash_write(run, i);
	if (i == CRASH_WRITERS)
		crash_churn(run);
	crash_read(run, i - CRASH_WRITERS - 1);
}

static bool all_have_ended(pid_t *pids, int *status_out)
{
	bool is_over = true;

	for (int i = 0; i < N_PROCESSES; i++) {
		int wstatus;
		if (pids[i] && waitpid(pids[i], &wstatus, WNOHANG) == pids[i]) {
			pids[i] = 0;
			if (wstatus)
				*status_out = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : 1;
		}
		is_over = is_over && !pids[i];
	}
	return is_over;
}

static int load(const char *dir, struct crash_ledger *l, uint64_t seed, double seconds, bool evicts)
{
	struct crash_run run = {.ledger = l, .dir = dir, .seed = seed, .can_vanish = evicts};
	double left_ms = seconds * 1000;
	pid_t pids[N_PROCESSES];
	int status = 0;

	make_directories(dir);
	l->stop = l->has_failed = false;
	for (unsigned i = 0; i < N_PROCESSES; i++)
		if ((pids[i] = start(&run, i)) < 0)
			err(99, "fork");
	puts("running");
	fflush(stdout);
	while (!all_have_ended(pids, &status)) {
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		left_ms -= 2;
		if (left_ms < 0)
			atomic_store(&l->stop, true);
	}
	printf("%lu changes, %lu reads, %lu writers killed, %lu times no space\n", l->n_changes,
	       l->n_reads, l->n_kills, l->n_no_space);
	return status;
}

static int check(const char *dir, const struct crash_ledger *l, const struct crash_ledger *before,
		 bool evicts)
{
	struct crash_found found;

	crash_verify(dir, l, before, evicts, &found);
	printf("%lu files, %lu bytes, %lu older, %lu absent, %lu wrong\n", found.n_files,
	       found.n_bytes, found.n_older, found.n_absent, found.n_wrong);
	return found.n_wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		puts("needs a command, a mount's folder and a ledger: run by integration tests");
		return 77;
	}
	struct crash_ledger *l = crash_ledger_map(argv[3]);
	bool evicts = strcmp(argv[argc - 1], "evicts") == 0;
	if (strcmp(argv[1], "load") == 0 && argc >= 6)
		return load(argv[2], l, strtoull(argv[4], NULL, 0), strtod(argv[5], NULL), evicts);
	if (strcmp(argv[1], "check") == 0)
		return check(argv[2], l, NULL, evicts);
	if (strcmp(argv[1], "power") == 0 && argc == 5)
		return check(argv[2], l, crash_ledger_map(argv[4]), false);
	if (strcmp(argv[1], "settle") == 0) {
		crash_settle(argv[2], l);
		return 0;
	}
	errx(99, "unknown command %s", argv[1]);
}
