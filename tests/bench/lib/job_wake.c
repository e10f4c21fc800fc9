/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine takes to hand a byte to a sleeping process and back: two pipes, two processes. Every
 * request that the daemon answers costs such a round trip before it does any work, and on a virtual
 * machine it can be most of the time. Printed only, to read the other rows by.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_util.h"
#include "job.h"

#define ROUNDS 4000

static void echo(int from_fd, int to_fd)
{
	char byte;

	while (read(from_fd, &byte, 1) == 1 && write(to_fd, &byte, 1) == 1)
		;
	_exit(0);
}

static int ping(int to_fd, int from_fd, struct samples *latency)
{
	char byte = 'x';

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t begin_ns = bench_now_ns();
		if (write(to_fd, &byte, 1) != 1 || read(from_fd, &byte, 1) != 1)
			return bench_fail(errno ? -errno : -EPIPE, "pipe round trip");
		samples_add(latency, (double)(bench_now_ns() - begin_ns));
	}
	return 0;
}

int job_wake(const struct job_spec *job, struct bench_env *env, struct row *row)
{
	struct samples latency = {0};
	int there[2], back[2];

	(void)job;
	(void)env;
	if (pipe(there) || pipe(back))
		return bench_fail(-errno, "pipe");
	pid_t pid = fork();
	if (pid < 0)
		return bench_fail(-errno, "fork");
	if (pid == 0) {
		close(there[1]);
		echo(there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	int rc = ping(there[1], back[0], &latency);
	close(there[1]);
	close(back[0]);
	waitpid(pid, NULL, 0);
	if (!rc)
		row->ours_p50_us = samples_quantile(&latency, 0.5) / 1e3;
	samples_fini(&latency);
	return rc;
}
