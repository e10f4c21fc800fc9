/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: processes and threads as /proc shows them. A zombie stands for a process in the middle of
 * its exit: its file table is gone, its exit code is set.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/caller.h"

/* ---- helpers ---- */

struct sleeper {
	pthread_t thread;
	sem_t is_up, may_end;
	pid_t tid;
};

static void *sleep_until_told(void *arg)
{
	struct sleeper *s = arg;

	s->tid = gettid();
	sem_post(&s->is_up);
	while (sem_wait(&s->may_end))
		;
	return NULL;
}

static void start_thread(struct sleeper *s)
{
	sem_init(&s->is_up, 0, 0);
	sem_init(&s->may_end, 0, 0);
	cr_assert_eq(pthread_create(&s->thread, NULL, sleep_until_told, s), 0);
	while (sem_wait(&s->is_up))
		;
}

static void end_thread(struct sleeper *s)
{
	sem_post(&s->may_end);
	pthread_join(s->thread, NULL);
	sem_destroy(&s->is_up);
	sem_destroy(&s->may_end);
}

/* A dead child that is not yet waited for. */
static pid_t make_zombie(int sig, int status)
{
	siginfo_t info;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!sig)
			_exit(status);
		signal(sig, SIG_DFL);
		for (;;)
			pause();
	}
	if (sig) {
		usleep(20000); /* past its signal() */
		kill(pid, sig);
	}
	cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	return pid;
}

static void reap(pid_t pid)
{
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

/* ---- caller_tgid ---- */

Test(caller, a_process_is_its_own_thread_group)
{
	cr_expect_eq(caller_tgid(getpid()), getpid());
}

Test(caller, a_thread_belongs_to_its_process)
{
	struct sleeper s;

	start_thread(&s);
	cr_assert_neq(s.tid, getpid());
	cr_expect_eq(caller_tgid(s.tid), getpid());
	end_thread(&s);
}

Test(caller, a_thread_that_is_gone_stands_for_itself)
{
	pid_t pid = make_zombie(0, 0);

	reap(pid);
	cr_expect_eq(caller_tgid(pid), pid);
	cr_expect_eq(caller_tgid(1 << 23), 1 << 23);
}

Test(caller, nobody_is_nobody)
{
	cr_expect_eq(caller_tgid(0), 0);
}

/* ---- caller_inspect ---- */

static void expect_state(pid_t tid, pid_t tgid, bool is_killed)
{
	struct caller_state state = { .tgid = -1, .is_killed = !is_killed };

	caller_inspect(tid, 0, &state);
	cr_expect_eq(state.tgid, tgid, "group %d instead of %d", state.tgid, tgid);
	cr_expect_eq(state.is_killed, is_killed);
}

Test(caller, the_living_are_not_killed)
{
	struct sleeper s;

	struct caller_state state;

	expect_state(getpid(), getpid(), false);
	caller_inspect(getpid(), 4711, &state);
	cr_expect_eq(state.tgid, 4711, "a process that the caller knows is not looked up");
	start_thread(&s);
	expect_state(s.tid, getpid(), false);
	end_thread(&s);
	expect_state(0, 0, false);
	expect_state(1 << 23, 1 << 23, false);
}

Test(caller, deaths_by_signal_are_told_from_exits)
{
	static const struct { int sig, status; } cases[] = {
		{ SIGKILL, 0 }, { SIGTERM, 0 }, { SIGSEGV, 0 }, { SIGABRT, 0 },
		{ 0, 0 }, { 0, 1 }, { 0, 127 }, { 0, 137 }, { 0, 255 },
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
		pid_t pid = make_zombie(cases[k].sig, cases[k].status);
		struct caller_state state;
		caller_inspect(pid, 0, &state);
		cr_expect_eq(state.is_killed, cases[k].sig != 0, "signal %d, status %d",
			     cases[k].sig, cases[k].status);
		cr_expect_eq(state.tgid, pid);
		reap(pid);
	}
}

Test(caller, a_name_that_looks_like_fields_confuses_nobody)
{
	siginfo_t info;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_NAME, ") Z 1 9 9 9 9");
		_exit(0);
	}
	cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	expect_state(pid, pid, false);
	reap(pid);
}

/* ---- caller_has_open_ino ---- */

Test(caller, sees_an_open_inode_and_no_closed_one)
{
	char path[] = "/tmp/mcfs-caller-XXXXXX";
	struct stat st;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_expect(caller_has_open_ino(getpid(), st.st_ino));
	cr_expect_not(caller_has_open_ino(getpid(), st.st_ino * 10), "a longer number");
	cr_expect_not(caller_has_open_ino(getpid(), st.st_ino / 10), "a shorter number");
	int copy = dup(fd);
	close(fd);
	cr_expect(caller_has_open_ino(getpid(), st.st_ino), "the duplicate is enough");
	close(copy);
	cr_expect_not(caller_has_open_ino(getpid(), st.st_ino));
	unlink(path);
}

Test(caller, the_dead_have_nothing_open)
{
	struct stat st;

	cr_assert_eq(stat("/proc/self/exe", &st), 0);
	pid_t pid = make_zombie(SIGKILL, 0);
	cr_expect_not(caller_has_open_ino(pid, st.st_ino));
	reap(pid);
	cr_expect_not(caller_has_open_ino(1 << 23, st.st_ino));
}
