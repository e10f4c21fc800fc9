/* SPDX-License-Identifier: Apache-2.0 */
#include "object/frame_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 1024u

int frame_set_add(void *set, uint64_t id)
{
	struct frame_set *s = set;

	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : FIRST_CAP;
		uint64_t *ids = reallocarray(s->ids, cap, sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		s->ids = ids;
		s->cap = cap;
	}
	s->ids[s->n++] = id;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* A tmpfs lists its files from the newest to the oldest. */
static void reverse(uint64_t *ids, size_t n)
{
	for (size_t k = 0; k < n / 2; k++) {
		uint64_t id = ids[k];
		ids[k] = ids[n - 1 - k];
		ids[n - 1 - k] = id;
	}
}

int frame_set_sort(struct frame_set *s)
{
	size_t n_falls = 0, n = 0;

	s->taken = calloc(s->n / 64 + 1, sizeof(*s->taken));
	if (!s->taken)
		return -ENOMEM;
	for (size_t k = 1; k < s->n; k++)
		n_falls += s->ids[k] < s->ids[k - 1];
	if (n_falls > s->n / 2)
		reverse(s->ids, s->n);
	if (n_falls && s->n)
		qsort(s->ids, s->n, sizeof(*s->ids), by_id);
	for (size_t k = 0; k < s->n; k++)
		if (!n || s->ids[n - 1] != s->ids[k])
			s->ids[n++] = s->ids[k];
	s->n = n;
	return 0;
}

bool frame_set_take(struct frame_set *s, uint64_t id)
{
	size_t at = s->next;

	if (!id || !s->n)
		return false;
	if (at >= s->n || s->ids[at] != id) {
		const uint64_t *p = bsearch(&id, s->ids, s->n, sizeof(*s->ids), by_id);
		if (!p)
			return false;
		at = (size_t)(p - s->ids);
	}
	s->taken[at / 64] |= UINT64_C(1) << at % 64;
	s->next = at + 1;
	return true;
}

void frame_set_keep_untaken(struct frame_set *s)
{
	size_t n = 0;

	for (size_t k = 0; k < s->n; k++)
		if (!(s->taken[k / 64] >> k % 64 & 1))
			s->ids[n++] = s->ids[k];
	s->n = n;
	free(s->taken);
	s->taken = NULL;
	/* What stays is often little, and for long. */
	uint64_t *ids = n ? reallocarray(s->ids, n, sizeof(*ids)) : NULL;
	if (ids || !n) {
		if (!n)
			free(s->ids);
		s->ids = ids;
		s->cap = n;
	}
}

void frame_set_fini(struct frame_set *s)
{
	free(s->ids);
	free(s->taken);
	*s = (struct frame_set){.ids = NULL};
}
