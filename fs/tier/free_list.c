/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_list: nodes in one array, each on two lists at once.
 *
 * Node 0 anchors the age list (a ring: its newer is the oldest node, its older the newest). Buckets hold the
 * nodes whose size hashes alike, newest first. Index 0 ends a bucket and the chain of unused nodes.
 */
#include "tier/free_list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct free_node {
	struct recycled frame;
	uint32_t older, newer;	       /* the ring */
	uint32_t same_prev, same_next; /* the bucket; same_next also chains unused nodes */
};

static uint32_t *bucket_of(struct free_list *l, uint64_t size_bytes)
{
	/* Sizes are often multiples of a power of two: the product's high bits spread them. */
	return &l->buckets[(size_bytes * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

_Static_assert(FREE_LIST_N_BUCKETS == 256, "bucket_of takes 8 bits");

int free_list_init(struct free_list *l, uint32_t capacity)
{
	*l = (struct free_list){.capacity = capacity};
	l->nodes = calloc((size_t)capacity + 1, sizeof(*l->nodes));
	if (!l->nodes)
		return -ENOMEM;
	for (uint32_t i = capacity; i > 0; i--) {
		l->nodes[i].same_next = l->unused;
		l->unused = i;
	}
	return 0;
}

void free_list_fini(struct free_list *l)
{
	assert(l->n == 0);
	free(l->nodes);
	l->nodes = NULL;
}

void free_list_push(struct free_list *l, const struct recycled *r)
{
	uint32_t *bucket = bucket_of(l, r->size_bytes);
	uint32_t i = l->unused;

	assert(i != 0);
	struct free_node *node = &l->nodes[i];
	l->unused = node->same_next;
	node->frame = *r;
	node->same_prev = 0;
	node->same_next = *bucket;
	if (*bucket)
		l->nodes[*bucket].same_prev = i;
	*bucket = i;
	node->newer = 0;
	node->older = l->nodes[0].older;
	l->nodes[node->older].newer = i;
	l->nodes[0].older = i;
	l->n++;
	l->bytes += r->charged_bytes;
}

static void unlink_node(struct free_list *l, uint32_t i, struct recycled *out)
{
	struct free_node *node = &l->nodes[i];

	if (node->same_prev)
		l->nodes[node->same_prev].same_next = node->same_next;
	else
		*bucket_of(l, node->frame.size_bytes) = node->same_next;
	if (node->same_next)
		l->nodes[node->same_next].same_prev = node->same_prev;
	l->nodes[node->older].newer = node->newer;
	l->nodes[node->newer].older = node->older;
	*out = node->frame;
	l->n--;
	l->bytes -= out->charged_bytes;
	node->same_next = l->unused;
	l->unused = i;
}

bool free_list_take(struct free_list *l, uint64_t size_bytes, struct recycled *out)
{
	for (uint32_t i = *bucket_of(l, size_bytes); i; i = l->nodes[i].same_next) {
		if (l->nodes[i].frame.size_bytes == size_bytes) {
			unlink_node(l, i, out);
			return true;
		}
	}
	return false;
}

bool free_list_take_oldest(struct free_list *l, struct recycled *out)
{
	if (l->n == 0)
		return false;
	unlink_node(l, l->nodes[0].newer, out);
	return true;
}
