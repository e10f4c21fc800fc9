/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_ledger: what writers did to a mount that is about to die, kept outside of it.
 *
 * A file that all processes map. Every name has one owner, who appends its changes: a content (uid and
 * length) or nothing (uid 0). Three marks divide them, and only grow:
 *
 *   0 ... durable ... seen ... returned ... issued
 *         |           |        |            the change has begun; it may be there, or not
 *         |           |        survives the death of the daemon
 *         |           every open on the live mount shows this change or a later one
 *         survives a power failure: the name is as fsync said
 *
 * (durable may be beyond seen: an fsynced draft is promised, not published.)
 * After a crash a name must show one of the changes from its mark to issued. It may show nothing if one
 * of these could lose its bytes: neither SAFE nor SYNCED.
 *
 * Content: 64-bit words. Word 0 is the uid, word 1 the length in words, the rest are hashes of both and
 * of their place: each 8 bytes say to which content they belong. A uid is never used twice.
 *
 * Thread safety: a name's changes and marks are its owner's; anybody reads them.
 */
#ifndef CRASH_LEDGER_H
#define CRASH_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CRASH_WRITERS = 4,
	CRASH_PER_CLASS =
		5, /* names of a writer in c/ and in weights/; the last is for temporary files */
	CRASH_CHURN = 44, /* names in b/, of the owner CRASH_WRITERS */
	CRASH_NAMES = CRASH_WRITERS * 2 * CRASH_PER_CLASS + CRASH_CHURN,
	CRASH_CHANGES = 2048,
	CRASH_MAX_WORDS = 128 * 1024,
};

enum crash_flag {
	CRASH_SAFE = 1,	  /* its bytes are durable no later than its name */
	CRASH_SYNCED = 2, /* its bytes became durable later */
	CRASH_FAILED = 4, /* the call said so: it must not be seen */
};

struct crash_change {
	uint64_t uid; /* 0: no file */
	uint32_t words;
	atomic_uint flags;
	uint32_t from,
		from_change; /* a rename: the name it came from, and that one's change; else from is CRASH_NAMES */
};

struct crash_name {
	atomic_uint issued, returned, seen, durable;
	struct crash_change changes[CRASH_CHANGES];
};

struct crash_ledger {
	atomic_ulong next_uid, n_changes, n_reads, n_kills, n_no_space;
	atomic_bool stop, has_failed;
	struct crash_name names[CRASH_NAMES];
};

/* Maps the file, made anew if it is not one. Ends the program when it cannot. */
struct crash_ledger *crash_ledger_map(const char *path);
/* Drops the changes before each name's durable one, and makes that the first. */
void crash_ledger_compact(struct crash_ledger *l);

/* "c/0-3": where name n is below the mount. */
void crash_name_path(unsigned n, char out[32]);
bool crash_name_is_keep(unsigned n);
/* First name of a writer (of class keep or not). */
unsigned crash_name_first(unsigned writer, bool keep);

/* ---- content ---- */

struct crash_content {
	uint64_t uid;
	uint32_t words;
};

void crash_content_fill(struct crash_content c, uint64_t *words);
/*
 * Reads fd to its end. NULL and *out, or what is wrong with it (in a buffer of the caller's thread). An
 * empty file is wrong: none was written. buf: CRASH_MAX_WORDS + 1 words.
 */
const char *crash_content_read(int fd, uint64_t *buf, struct crash_content *out);

/* ---- changes ---- */

/* Change issued + 1 begins. Returns its number; 0: the ledger is full, do nothing. */
unsigned crash_issue(struct crash_ledger *l, unsigned name, struct crash_content c, unsigned flags);

/*
 * Whether content uid (0: none) may be there when changes lo ... hi may be. *at_out: the latest that it
 * can be (untouched if none).
 */
bool crash_is_possible(const struct crash_name *n, unsigned lo, unsigned hi, struct crash_content c,
		       unsigned *at_out);

/* ---- random numbers ---- */

uint64_t crash_mix(uint64_t x);
uint64_t crash_random(uint64_t *state);

#endif
