/* SPDX-License-Identifier: Apache-2.0 */
/* LOOKUP: what thousands of names of one directory are, from memory, in the order of the names. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/counters.h"
#include "cluster/cluster.h"
#include "fastpath/batch.h"
#include "fs.h"
#include "object/draft.h"
#include "object/object.h"

/* Names looked up while the lock is held: some 20 us. */
#define CHUNK 128

struct chunk {
	struct name_key keys[CHUNK];
	const char *names[CHUNK]; /* NUL-terminated; NULL: not a name, so nothing has it */
	char spelled[CHUNK][2 * 64 + 64 + 1];
	uint32_t n;
};

/* The next n names from *at on; b->names ends with a NUL of ours. */
static void spell_chunk(const struct batch *b, uint64_t dir_ino, const char **at, uint32_t n, struct chunk *c)
{
	const char *end = b->names + b->io.names_bytes;

	c->n = n;
	for (uint32_t k = 0; k < n; k++) {
		size_t len;
		if (b->io.name_kind == MCFS_NAME_BINARY) {
			len = batch_spell_name(b, MCFS_NAME_BINARY, *at, b->io.name_bytes, c->spelled[k]);
			c->names[k] = c->spelled[k];
			*at += b->io.name_bytes;
		} else {
			len = *at < end ? strlen(*at) : 0;
			c->names[k] = len ? *at : NULL;
			*at += *at < end ? len + 1 : 0;
		}
		if (c->names[k])
			c->keys[k] = name_key_of(b->session->fs, dir_ino, c->names[k], len);
	}
}

static void look(struct fs *fs, uint64_t dir_ino, struct chunk *c, struct mcfs_state *out)
{
	guard_lock(&fs->lock);
	bool has_drafts = draft_count_locked(fs) > 0;

	for (uint32_t k = 0; k < c->n; k++) {
		if (!c->names[k])
			continue;
		struct object *o = name_index_find_locked(fs, c->keys[k]);
		if (o && !o->is_evicting && !object_is_expired(o))
			out[k] = (struct mcfs_state){
				.state = MCFS_READY,
				.tier = o->dram_frame || !o->size ? MCFS_TIER_DRAM : MCFS_TIER_SSD,
				.size = o->size,
			};
		else if (has_drafts && draft_name_is_busy_locked(fs, dir_ino, c->names[k]))
			out[k] = (struct mcfs_state){ .state = MCFS_IN_FLIGHT, .eta_us = UINT32_MAX };
	}
}

/* What this node does not have, in one question to the others. */
static void look_elsewhere(struct batch *b, uint64_t dir_ino)
{
	uint32_t n_items = b->io.n_items, n = 0;
	autofree const char **names = xcalloc(n_items, sizeof(*names));
	autofree uint32_t *items = xcalloc(n_items, sizeof(*items));
	autofree int64_t *sizes = xcalloc(n_items, sizeof(*sizes));
	autofree bool *is_coming = xcalloc(n_items, sizeof(*is_coming));
	autofree struct chunk *chunks = xcalloc(n_items / CHUNK + 1, sizeof(*chunks));
	const char *at = b->names;

	for (uint32_t k = 0; k < n_items; k++) {
		struct chunk *c = &chunks[k / CHUNK];
		if (k % CHUNK == 0)
			spell_chunk(b, dir_ino, &at, n_items - k < CHUNK ? n_items - k : CHUNK, c);
		if (b->states[k].state != MCFS_MISS || !c->names[k % CHUNK])
			continue;
		names[n] = c->names[k % CHUNK];
		items[n++] = k;
	}
	if (!n)
		return;
	remote_sizes(b->session->fs, dir_ino, names, n, sizes);
	fetch_mark(b->session->fs, dir_ino, names, n, is_coming);
	for (uint32_t k = 0; k < n; k++)
		if (sizes[k] >= 0)
			b->states[items[k]] = (struct mcfs_state){ .state = is_coming[k] ? MCFS_IN_FLIGHT : MCFS_REMOTE,
								   .tier = MCFS_TIER_REMOTE,
								   .size = (uint64_t)sizes[k],
								   .eta_us = UINT32_MAX };
}

void batch_lookup(struct batch *b)
{
	uint64_t dir_ino;
	struct chunk c;
	const char *at = b->names;

	b->names[b->io.names_bytes] = '\0';
	b->stopped = batch_directory(b, b->io.directory, X_OK, &dir_ino);
	for (uint32_t k = 0; k < b->io.n_items && !batch_stopped(b); k += c.n) {
		uint32_t left = b->io.n_items - k;
		spell_chunk(b, dir_ino, &at, left < CHUNK ? left : CHUNK, &c);
		look(b->session->fs, dir_ino, &c, b->states + k);
	}
	if (b->session->fs->cluster && !batch_stopped(b))
		look_elsewhere(b, dir_ino);
	counter_add(fastpath_lookups, b->io.n_items);
}
