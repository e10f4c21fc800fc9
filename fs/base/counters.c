/* SPDX-License-Identifier: Apache-2.0 */
#include "base/counters.h"

#include <stdatomic.h>

static _Atomic uint64_t values[N_COUNTERS];

static const struct {
	const char *name, *help;
} texts[N_COUNTERS] = {
#define X(name, help) { #name, help },
	COUNTERS(X)
#undef X
};

void counter_add_id(enum counter_id id, uint64_t n)
{
	atomic_fetch_add_explicit(&values[id], n, memory_order_relaxed);
}

uint64_t counter_get(enum counter_id id)
{
	return atomic_load_explicit(&values[id], memory_order_relaxed);
}

const char *counter_name(enum counter_id id)
{
	return texts[id].name;
}

const char *counter_help(enum counter_id id)
{
	return texts[id].help;
}
