/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_writer: processes that change the names of a crash_ledger in every way, and readers that check
 * them on the live mount.
 *
 * Every choice comes from the seed. A call that fails because the mount has died ends the process
 * quietly; one that fails otherwise is a defect: it is told, all others stop. On a mount that may evict
 * names (can_vanish) a name of class cache may be gone, and ENOSPC may come.
 */
#ifndef CRASH_WRITER_H
#define CRASH_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/crash_ledger.h"

struct crash_run {
	struct crash_ledger *ledger;
	const char *dir;
	uint64_t seed;
	bool can_vanish;
};

/* Run until the mount dies or ledger->stop; in processes of their own. They do not return. */
void crash_write(const struct crash_run *run, unsigned writer) __attribute__((noreturn));
void crash_churn(const struct crash_run *run) __attribute__((noreturn));
void crash_read(const struct crash_run *run, unsigned reader) __attribute__((noreturn));

#endif
