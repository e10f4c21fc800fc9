/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_change: one announce, retract or remove, from the call to its done. All but our slot is encoded when
 * it is made. Thread safety: none; a change has one owner.
 */
#ifndef MCFS_DIRECTORY_CHANGE_H
#define MCFS_DIRECTORY_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "directory_key.h"
#include "directory_script.h"
#include "mcfs/directory.h"
#include "redis.h"

struct directory_change {
	struct directory_change *next;
	uint64_t seq;
	size_t bytes; /* of memory */
	int64_t due_ns;
	enum directory_script script;
	struct directory_hash hash;
	unsigned bucket;
	uint8_t slot[2];
	bool is_copy;
	unsigned n_sent;
	directory_done_fn done;
	void *arg;
	/* What came of it. */
	bool is_done;
	int rc;
	struct directory_value before;
	size_t field_len, body_len;
	uint8_t data[]; /* field, then a value with one holder, a version, or an object; 0 is nothing */
};

/* value: of DIRECTORY_ANNOUNCE. A change that cannot be is made all the same: is_done, with its rc. NULL: ENOMEM. */
struct directory_change *directory_change_create(enum directory_script script, const char *dir, const char *name,
						 uint64_t version, const struct directory_value *value,
						 directory_done_fn done, void *arg);
/* Calls done and frees it. */
void directory_change_finish(struct directory_change *c);

/* Before each time that it is sent: how; call points into c and key. */
void directory_change_call(struct directory_change *c, const char *prefix, uint16_t slot,
			   char key[DIRECTORY_KEY_BYTES], struct redis_call *call);
/*
 * What the server said. It stays undone, and its rc is returned, where the server does not serve now; -EIO, done:
 * the answer makes no sense.
 */
int directory_change_reply(struct directory_change *c, const struct redis_reply *reply);

#endif
