/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_list: frames whose bytes nobody needs, kept with their pages for the next writer of that size.
 *
 * KV blocks of one model are equal-sized, so the lookup is by exact size; the newest of a size leaves
 * first (its pages are warm in the CPU's caches), the oldest of all is what a trim removes.
 *
 * Thread safety: none; the owner's lock guards it. Only free_list_init allocates.
 */
#ifndef MCFS_FREE_LIST_H
#define MCFS_FREE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#define FREE_LIST_N_BUCKETS 256

struct recycled {
	uint64_t id;
	uint64_t size_bytes;
	uint64_t charged_bytes;
	int fd;
};

struct free_node;

struct free_list {
	struct free_node *nodes; /* capacity of them, plus one that anchors the age list */
	uint32_t capacity, n;
	uint64_t bytes;	 /* sum of charged_bytes */
	uint32_t unused; /* first unused node */
	uint32_t buckets[FREE_LIST_N_BUCKETS];
};

/* 0 or -ENOMEM. capacity may be 0: nothing ever fits. */
int free_list_init(struct free_list *l, uint32_t capacity);
/* The list must be empty: fds are its owner's. */
void free_list_fini(struct free_list *l);

static inline bool free_list_is_full(const struct free_list *l)
{
	return l->n == l->capacity;
}

/* Takes ownership of r->fd. Must not be full. */
void free_list_push(struct free_list *l, const struct recycled *r);
/* False, and nothing written: there is none of that size (none at all). The fd is the caller's. */
bool free_list_take(struct free_list *l, uint64_t size_bytes, struct recycled *out);
bool free_list_take_oldest(struct free_list *l, struct recycled *out);

#endif
