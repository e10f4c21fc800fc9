// SPDX-License-Identifier: Apache-2.0
/*
 * forkdraft - a file that a process and its forked child both hold open for writing
 *
 * usage: forkdraft PATH SCENARIO
 *
 * The whole content is "first-second-". Prints a word where the test may look at the file and then
 * reads a line from stdin before it goes on; the test knows that all is over at the end of stdout.
 *
 *   child-exits          parent writes first; child _exit(0)s; [child-gone]; parent writes second, closes
 *   child-closes         the same, the child closes the file and then exits
 *   child-killed         the same, the child, which wrote nothing, is killed by SIGKILL
 *   child-killed-writing parent writes first; child writes second and is killed; parent closes
 *   child-writes         parent writes first; child writes second, exits; [child-gone]; parent closes
 *   parent-closes-first  parent opens and closes; child writes both, [before-close] then exits
 *   parent-killed        parent writes first and is killed; child writes second and exits
 *   parent-exits         parent writes first and exits; child writes second and exits
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "forkdraft: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static void put(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die("write");
}

static void checkpoint(const char *word)
{
	char line[16];

	dprintf(STDOUT_FILENO, "%s\n", word);
	if (read(STDIN_FILENO, line, sizeof(line)) < 0)
		die("read");
}

/* The parent goes on after its child has ended; the child ends in the way of the scenario. */
static int parent_survives(int fd, const char *scenario)
{
	int wstatus;

	put(fd, "first-");
	pid_t child = fork();
	if (!child) {
		if (!strcmp(scenario, "child-closes"))
			close(fd);
		if (!strcmp(scenario, "child-killed"))
			raise(SIGKILL);
		if (!strcmp(scenario, "child-writes") || !strcmp(scenario, "child-killed-writing"))
			put(fd, "second-");
		if (!strcmp(scenario, "child-killed-writing"))
			raise(SIGKILL);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &wstatus, 0) < 0)
		die("fork");
	checkpoint("child-gone");
	if (strcmp(scenario, "child-writes") && strcmp(scenario, "child-killed-writing"))
		put(fd, "second-");
	if (close(fd)) {
		dprintf(STDOUT_FILENO, "close: %s\n", strerror(errno));
		return 1;
	}
	return 0;
}

static int child_survives(int fd, const char *scenario)
{
	int to_child[2];
	char c;

	if (pipe(to_child))
		die("pipe");
	if (strcmp(scenario, "parent-closes-first"))
		put(fd, "first-");
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		close(to_child[1]);
		/* End of file: the parent has closed the file, or is gone. */
		if (read(to_child[0], &c, 1) < 0)
			die("read");
		usleep(20000);
		if (!strcmp(scenario, "parent-closes-first")) {
			put(fd, "first-");
			put(fd, "second-");
			checkpoint("before-close");
		} else {
			put(fd, "second-");
		}
		_exit(0);
	}
	if (!strcmp(scenario, "parent-killed"))
		raise(SIGKILL);
	if (!strcmp(scenario, "parent-exits"))
		exit(0);
	if (close(fd))
		die("close");
	close(to_child[0]);
	close(to_child[1]);
	if (waitpid(child, NULL, 0) < 0)
		die("waitpid");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: forkdraft PATH SCENARIO\n");
		return 99;
	}
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		die(argv[1]);
	return !strncmp(argv[2], "child-", 6) ? parent_survives(fd, argv[2])
					      : child_survives(fd, argv[2]);
}
