/* SPDX-License-Identifier: Apache-2.0 */
#include "object/crc_track.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/crc.h"
#include "mcfs/catalog.h"

#define CHUNK ((uint64_t)CATALOG_CRC_CHUNK)

void crc_track_fini(struct crc_track *t)
{
	free(t->chunks);
	*t = (struct crc_track){ 0 };
}

static void need(struct crc_track *t, size_t n)
{
	if (n > t->cap) {
		size_t cap = t->cap ? t->cap : 2;
		while (cap < n)
			cap *= 2;
		t->chunks = realloc(t->chunks, cap * sizeof(*t->chunks));
		if (!t->chunks)
			abort();
		t->cap = cap;
	}
	for (; t->n < n; t->n++)
		t->chunks[t->n] = (struct crc_chunk){ 0 };
}

void crc_track_write(struct crc_track *t, const void *buf, size_t len, uint64_t off)
{
	const char *p = buf;

	if (!len)
		return;
	need(t, (size_t)((off + len - 1) / CHUNK) + 1);
	while (len) {
		struct crc_chunk *c = &t->chunks[off / CHUNK];
		uint32_t at = (uint32_t)(off % CHUNK);
		size_t n = CHUNK - at < len ? (size_t)(CHUNK - at) : len;
		if (c->len == at) {
			c->crc = crc32c(at ? c->crc : 0, p, n);
			c->len = at + (uint32_t)n;
		} else if (at == 0 && n >= c->len) {
			c->crc = crc32c(0, p, n); /* the whole known part is written over */
			c->len = (uint32_t)n;
		} else {
			c->len = CRC_CHUNK_UNKNOWN;
		}
		p += n;
		off += n;
		len -= n;
	}
}

void crc_track_cut(struct crc_track *t, uint64_t size)
{
	size_t keep = (size_t)((size + CHUNK - 1) / CHUNK);

	if (keep < t->n)
		t->n = keep;
	uint32_t tail = (uint32_t)(size % CHUNK);
	if (tail && t->n == keep && t->chunks[keep - 1].len > tail)
		t->chunks[keep - 1].len = CRC_CHUNK_UNKNOWN;
}

void crc_track_forget(struct crc_track *t, uint64_t off, uint64_t len)
{
	if (!len)
		return;
	for (uint64_t k = off / CHUNK; k <= (off + len - 1) / CHUNK && k < t->n; k++)
		t->chunks[k].len = CRC_CHUNK_UNKNOWN;
}

void crc_track_load(struct crc_track *t, const uint32_t *crc, size_t n, uint64_t size)
{
	t->n = 0;
	need(t, n);
	for (size_t k = 0; k < n; k++) {
		uint64_t left = size - k * CHUNK;
		t->chunks[k] = (struct crc_chunk){ crc[k], (uint32_t)(left < CHUNK ? left : CHUNK) };
	}
}

int crc_track_finish(struct crc_track *t, uint64_t size, crc_read_fn read, void *arg,
		     uint32_t **crc_out, uint32_t *n_out)
{
	size_t n = (size_t)((size + CHUNK - 1) / CHUNK);
	autofree char *buf = NULL;

	if (!n) {
		*crc_out = NULL;
		*n_out = 0;
		return 0;
	}
	need(t, n);
	uint32_t *crc = malloc(n * sizeof(*crc));
	if (!crc)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++) {
		struct crc_chunk *c = &t->chunks[k];
		uint64_t left = size - k * CHUNK;
		uint32_t want = (uint32_t)(left < CHUNK ? left : CHUNK);
		if (c->len != want) {
			int rc = buf || (buf = malloc(CHUNK)) ? 0 : -ENOMEM;
			rc = rc ? rc : read(arg, buf, want, k * CHUNK);
			if (rc) {
				free(crc);
				return rc;
			}
			*c = (struct crc_chunk){ crc32c(0, buf, want), want };
		}
		crc[k] = c->crc;
	}
	*crc_out = crc;
	*n_out = (uint32_t)n;
	return 0;
}
