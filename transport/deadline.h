/* SPDX-License-Identifier: Apache-2.0 */
/* deadline: points of CLOCK_MONOTONIC in nanoseconds, and waits that end there. Thread safe. */
#ifndef TRANSPORT_DEADLINE_H
#define TRANSPORT_DEADLINE_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)
#define DEADLINE_NEVER INT64_MAX

static inline int64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static inline int64_t deadline_in_ms(int64_t ms)
{
	return clock_now_ns() + ms * NS_PER_MS;
}

static inline int64_t deadline_earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* What is left until then, for poll(2): rounded up, 0 when it passed. */
static inline int deadline_poll_ms(int64_t deadline_ns)
{
	int64_t left = deadline_ns - clock_now_ns();

	if (left <= 0)
		return 0;
	left = (left - 1) / NS_PER_MS + 1;
	return left > INT_MAX ? INT_MAX : (int)left;
}

/* What is left until then as a peer is told it: at least 1. */
static inline uint32_t deadline_budget_ms(int64_t deadline_ns)
{
	int ms = deadline_poll_ms(deadline_ns);

	return ms ? (uint32_t)ms : 1;
}

static inline void deadline_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

/* c of deadline_cond_init. -ETIMEDOUT: the deadline passed. */
static inline int deadline_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts = { .tv_sec = deadline_ns > 0 ? deadline_ns / NS_PER_S : 0,
			       .tv_nsec = deadline_ns > 0 ? deadline_ns % NS_PER_S : 0 };

	return -pthread_cond_timedwait(c, lock, &ts);
}

#endif
