/* SPDX-License-Identifier: Apache-2.0 */
#include "handle.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs.h"
#include "inode_table.h"
#include "object/object.h"

struct handle *handle_create(struct fs *fs, enum handle_kind kind, struct inode *i)
{
	struct handle *h = xcalloc(1, sizeof(*h));

	h->kind = kind;
	h->inode = i;
	h->fd = -1;
	pthread_mutex_init(&h->map_lock, NULL);
	guard_lock(&fs->lock);
	h->next = fs->handles;
	if (h->next)
		h->next->prev = h;
	fs->handles = h;
	return h;
}

static void release_memory(struct handle *h)
{
	if (h->map)
		munmap(h->map, h->object->size);
	if (h->fd >= 0)
		close(h->fd);
	pthread_mutex_destroy(&h->map_lock);
	free(h->text);
	free(h);
}

void handle_free(struct fs *fs, struct handle *h)
{
	pthread_mutex_lock(&fs->lock);
	if (h->prev)
		h->prev->next = h->next;
	else
		fs->handles = h->next;
	if (h->next)
		h->next->prev = h->prev;
	inode_put_locked(fs, h->inode);
	pthread_mutex_unlock(&fs->lock);
	release_memory(h);
}

void handle_abandon_all(struct fs *fs)
{
	for (struct handle *h = fs->handles, *next; h; h = next) {
		next = h->next;
		release_memory(h);
	}
	fs->handles = NULL;
}
