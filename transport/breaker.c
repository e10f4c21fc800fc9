/* SPDX-License-Identifier: Apache-2.0 */
#include "breaker.h"

enum breaker_verdict breaker_ask(struct breaker *b, int64_t now)
{
	if (b->state == BREAKER_CLOSED)
		return BREAKER_ASK;
	if (b->state == BREAKER_HALF_OPEN || now < b->until_ns)
		return BREAKER_REFUSE;
	b->state = BREAKER_HALF_OPEN;
	return BREAKER_PROBE;
}

void breaker_succeed(struct breaker *b, int is_probe)
{
	if (!is_probe || b->state != BREAKER_HALF_OPEN)
		return;
	b->state = BREAKER_CLOSED;
	b->back_off_ns = 0;
}

void breaker_fail(struct breaker *b, int64_t now)
{
	if (b->state == BREAKER_OPEN)
		return;
	int64_t wait = b->back_off_ns ? b->back_off_ns : BREAKER_MIN_NS;
	b->state = BREAKER_OPEN;
	b->until_ns = now + wait;
	int64_t max = b->max_ns ? b->max_ns : BREAKER_MAX_NS;
	b->back_off_ns = 2 * wait > max ? max : 2 * wait;
}

void breaker_abandon(struct breaker *b, int64_t now)
{
	if (b->state != BREAKER_HALF_OPEN)
		return;
	b->state = BREAKER_OPEN;
	b->until_ns = now;
}
