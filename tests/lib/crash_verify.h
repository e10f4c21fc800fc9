/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_verify: compares a mount that came back with the ledger of what was done to it.
 *
 * After the death of the daemon nothing that a call returned may be missing. After a power failure
 * nothing that was synced may be missing, by the ledger as it was before the failure; what came later may
 * be there or not, and bytes that were in memory alone may take their name with them. Never: torn or
 * foreign bytes, a version that was replaced for good, a rename that left its file under neither name.
 */
#ifndef CRASH_VERIFY_H
#define CRASH_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/crash_ledger.h"

struct crash_found {
	uint64_t n_files, n_bytes;
	uint64_t n_older;  /* files that show an earlier change than the last (power failure) */
	uint64_t n_absent; /* of files that might have been there */
	uint64_t n_wrong;  /* each was told on standard output */
};

/*
 * before: the ledger before the power failure, NULL: the daemon died. can_vanish: names of class cache
 * may have been evicted.
 */
void crash_verify(const char *dir, const struct crash_ledger *l, const struct crash_ledger *before,
		  bool can_vanish, struct crash_found *out);
/* What is there now is the first change of each name. */
void crash_settle(const char *dir, struct crash_ledger *l);

#endif
