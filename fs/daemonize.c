/* SPDX-License-Identifier: Apache-2.0 */
#include "daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"

static void wait_for_child(int fd, pid_t pid)
{
	char byte;
	ssize_t n;
	int status;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(EXIT_OK);
	/* It ended; it has said why. */
	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
	_exit(EXIT_RUNTIME);
}

int daemonize(int foreground, struct daemon_pipe *p)
{
	int fds[2];

	p->ready_fd = -1;
	if (foreground)
		return 0;
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid) {
		close(fds[1]);
		wait_for_child(fds[0], pid);
	}
	close(fds[0]);
	p->ready_fd = fds[1];
	if (setsid() < 0 || chdir("/"))
		return -errno;
	return 0;
}

void daemon_ready(struct daemon_pipe *p)
{
	if (p->ready_fd < 0)
		return;
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd >= 0) {
		dup2(null_fd, STDIN_FILENO);
		dup2(null_fd, STDOUT_FILENO);
		dup2(null_fd, STDERR_FILENO);
		close(null_fd);
	}
	/* A parent that was killed meanwhile needs no byte. */
	ssize_t ignored = write(p->ready_fd, "r", 1);
	(void)ignored;
	close(p->ready_fd);
	p->ready_fd = -1;
}
