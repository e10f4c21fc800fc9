/* SPDX-License-Identifier: Apache-2.0 */
/*
 * breaker: whether a peer is worth asking.
 *
 *   closed     ask
 *   open       refuse until the time is over; then the next one who asks is the probe
 *   half-open  a probe is under way, refuse the others
 *
 *   closed --failure--> open --time--> half-open --success--> closed
 *                                                --failure--> open, for twice as long, at most max_ns
 *
 * No clock and no lock of its own: now is CLOCK_MONOTONIC, the caller serialises.
 */
#ifndef TRANSPORT_BREAKER_H
#define TRANSPORT_BREAKER_H

#include <stdint.h>

#define BREAKER_MIN_NS (INT64_C(250) * 1000000)
#define BREAKER_MAX_NS (INT64_C(5000) * 1000000)

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };
enum breaker_verdict { BREAKER_ASK, BREAKER_PROBE, BREAKER_REFUSE };

struct breaker { /* zeros: closed */
	enum breaker_state state;
	int64_t until_ns;
	int64_t back_off_ns; /* of the next opening; 0: BREAKER_MIN_NS */
	int64_t max_ns;	     /* 0: BREAKER_MAX_NS */
};

/* PROBE: the caller is the one, and tells how it went. */
enum breaker_verdict breaker_ask(struct breaker *b, int64_t now);
/* Of a probe; of others it changes nothing. */
void breaker_succeed(struct breaker *b, int is_probe);
/* While it is open already: changes nothing. */
void breaker_fail(struct breaker *b, int64_t now);
/* The probe ended without an answer to the question: the next one who asks is the probe. */
void breaker_abandon(struct breaker *b, int64_t now);

#endif
