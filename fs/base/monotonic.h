/* SPDX-License-Identifier: Apache-2.0 */
/* monotonic: points of CLOCK_MONOTONIC in nanoseconds, and conditions that are waited for until one. Thread safe. */
#ifndef MCFS_MONOTONIC_H
#define MCFS_MONOTONIC_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

static inline int64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static inline void clock_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

/* c of clock_cond_init. 0: woken, maybe for nothing; -ETIMEDOUT: the deadline passed. */
static inline int clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts = { .tv_sec = deadline_ns > 0 ? deadline_ns / NS_PER_S : 0,
			       .tv_nsec = deadline_ns > 0 ? deadline_ns % NS_PER_S : 0 };

	return -pthread_cond_timedwait(c, lock, &ts);
}

#endif
