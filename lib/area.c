/* SPDX-License-Identifier: Apache-2.0 */
/*
 * area: memory for the descriptors of submissions, cut out of registered buffers of the library's own.
 *
 * A chunk is a buffer of pages with a byte per page that says whether it is taken. Areas are runs of
 * pages, first fit. The first chunk stays; others go when their last area does.
 */
#include "lib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MIN_BYTES ((size_t)1 << 20)

struct area_chunk {
	struct area_chunk *next;
	struct lib_memory m;
	uint32_t n_pages, n_taken;
	unsigned char taken[]; /* n_pages */
};

static bool chunk_take(struct area_chunk *c, uint32_t n_pages, uint32_t *first_out)
{
	uint32_t run = 0;

	if (n_pages > c->n_pages - c->n_taken)
		return false;
	for (uint32_t at = 0; at < c->n_pages; at++) {
		run = c->taken[at] ? 0 : run + 1;
		if (run < n_pages)
			continue;
		*first_out = at + 1 - n_pages;
		memset(c->taken + *first_out, 1, n_pages);
		c->n_taken += n_pages;
		return true;
	}
	return false;
}

static void area_set(struct lib_area *a, struct area_chunk *c, uint32_t first, uint32_t n_pages)
{
	a->chunk = c;
	a->first_page = first;
	a->n_pages = n_pages;
	a->offset = (uint64_t)first * LIB_PAGE;
	a->memory = c->m.memory + a->offset;
	a->buffer = c->m.number;
}

static int chunk_create(struct mcfs_session *s, size_t bytes, struct area_chunk **out)
{
	size_t size = bytes > CHUNK_MIN_BYTES ? bytes : CHUNK_MIN_BYTES;
	struct area_chunk *c = calloc(1, sizeof(*c) + size / LIB_PAGE);

	if (!c)
		return -ENOMEM;
	int rc = lib_memory_create(s, size, &c->m);
	if (rc) {
		free(c);
		return rc;
	}
	c->n_pages = (uint32_t)(c->m.bytes / LIB_PAGE);
	*out = c;
	return 0;
}

static bool area_find(struct mcfs_session *s, uint32_t n_pages, struct lib_area *out)
{
	uint32_t first;

	pthread_mutex_lock(&s->lock);
	struct area_chunk *c = s->chunks;
	while (c && !chunk_take(c, n_pages, &first))
		c = c->next;
	if (c)
		area_set(out, c, first, n_pages);
	pthread_mutex_unlock(&s->lock);
	return c;
}

int lib_area_take(struct mcfs_session *s, size_t bytes, struct lib_area *out)
{
	uint32_t n_pages = (uint32_t)((bytes + LIB_PAGE - 1) / LIB_PAGE), first = 0;
	struct area_chunk *c;

	if (area_find(s, n_pages, out))
		return 0;
	int rc = chunk_create(s, (size_t)n_pages * LIB_PAGE, &c);
	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	chunk_take(c, n_pages, &first);
	area_set(out, c, first, n_pages);
	struct area_chunk **last = &s->chunks;
	while (*last)
		last = &(*last)->next;
	*last = c;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

void lib_area_drop(struct mcfs_session *s, struct lib_area *a)
{
	struct area_chunk *c = a->chunk;

	pthread_mutex_lock(&s->lock);
	memset(c->taken + a->first_page, 0, a->n_pages);
	c->n_taken -= a->n_pages;
	struct area_chunk **at = &s->chunks;
	while (*at != c)
		at = &(*at)->next;
	bool is_spare = !c->n_taken && c != s->chunks;
	if (is_spare)
		*at = c->next;
	pthread_mutex_unlock(&s->lock);
	a->chunk = NULL;
	if (!is_spare)
		return;
	/* No area, no submission: it cannot be busy. */
	lib_memory_destroy(s, &c->m);
	free(c);
}

void lib_areas_destroy(struct mcfs_session *s)
{
	while (s->chunks) {
		struct area_chunk *c = s->chunks;
		s->chunks = c->next;
		lib_memory_destroy(s, &c->m);
		free(c);
	}
}
