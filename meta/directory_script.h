/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_script: what the server runs to change something, each script on one key. All may be repeated.
 * Versions are compared as two 32-bit halves: a number of Lua is a double, and its strings compare by locale.
 *
 *   ANNOUNCE  key of a bucket; field, value with our slot as its one holder
 *   RETRACT   key of a bucket; field, version, slot
 *   REMOVE    key of a bucket; field, version
 *             -> {outcome, what was there or nil}; DIRECTORY_OUTCOME_STALE: nothing changed, that is newer
 *   CLAIM     key of slots; slot, id, the claim that may be replaced ("": none) -> 1: it is ours, 0
 *   TAKE      key of a lease; node, milliseconds -> nil: it is ours, or whose it is. From an incarnation before
 *             ours, too
 *   RENEW     key of a lease; node, milliseconds -> 1, 0 there is none, or whose it is; {1, why}: the lease is
 *             longer, but what it says of the node is what it was
 *   RELEASE   key of a lease; node -> 1, 0 it was not ours
 *   LETTER    key of a box; node id, letter id, bytes, "LETTERS MS": how many it may have and for how long -> 1,
 *             0 it is full
 */
#ifndef MCFS_DIRECTORY_SCRIPT_H
#define MCFS_DIRECTORY_SCRIPT_H

#define DIRECTORY_OUTCOME_STALE 1
#define DIRECTORY_TOMBSTONE_S 604800 /* what is older may be dropped */

enum directory_script {
	DIRECTORY_ANNOUNCE,
	DIRECTORY_RETRACT,
	DIRECTORY_REMOVE,
	DIRECTORY_CLAIM,
	DIRECTORY_TAKE,
	DIRECTORY_RENEW,
	DIRECTORY_RELEASE,
	DIRECTORY_LETTER,
	DIRECTORY_N_SCRIPTS
};

extern const char *const directory_scripts[DIRECTORY_N_SCRIPTS];

#endif
