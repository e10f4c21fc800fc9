/* SPDX-License-Identifier: Apache-2.0 */
#include "fs.h"

#include <errno.h>
#include <time.h>

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

int64_t now_mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

int64_t now_real_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}

bool fs_wait_changed(struct fs *fs, int64_t deadline_ns)
{
	struct timespec ts = { .tv_sec = deadline_ns / 1000000000,
			       .tv_nsec = deadline_ns % 1000000000 };

	return pthread_cond_timedwait(&fs->changed, &fs->lock, &ts) != ETIMEDOUT;
}
