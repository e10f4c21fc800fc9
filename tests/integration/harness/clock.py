# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is wrong: a library to be preloaded, which tells another time to the daemon alone."""
import os
import subprocess

import pytest

from . import env

_SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void)
{
	const char *s = getenv("MCFS_TEST_CLOCK_SKEW");
	return s ? atol(s) : 0;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ts);
	if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ts->tv_sec += skew();
	return rc;
}

time_t time(time_t *out)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}

int gettimeofday(struct timeval *tv, void *tz)
{
	struct timespec ts;
	(void)tz;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
"""


def skewed(folder, seconds):
    """What to put before a program's arguments to have its wall clock go wrong by so many seconds."""
    env.require_tool("cc")
    if "asan" in os.path.basename(env.BUILD):
        pytest.skip("a sanitizer's runtime must be the first library")
    source, library = os.path.join(folder, "clock.c"), os.path.join(folder, "clock.so")
    with open(source, "w") as f:
        f.write(_SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return ["env", f"LD_PRELOAD={library}", f"MCFS_TEST_CLOCK_SKEW={seconds}"]
