/* SPDX-License-Identifier: Apache-2.0 */
/* deadline: points of CLOCK_MONOTONIC in nanoseconds at which calls of the transport give up. Thread safe. */
#ifndef TRANSPORT_DEADLINE_H
#define TRANSPORT_DEADLINE_H

#include <limits.h>
#include <stdint.h>

#include "base/monotonic.h"

#define DEADLINE_NEVER INT64_MAX

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

#endif
