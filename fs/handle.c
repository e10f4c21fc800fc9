/* SPDX-License-Identifier: Apache-2.0 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
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
	pthread_rwlock_init(&h->map_lock, NULL);
	guard_lock(&fs->lock);
	h->next = fs->handles;
	if (h->next)
		h->next->prev = h;
	fs->handles = h;
	return h;
}

void handle_close_frame(struct handle *h)
{
	pthread_rwlock_wrlock(&h->map_lock);
	if (h->map)
		munmap(h->map, h->object->size);
	h->map = NULL;
	pthread_rwlock_unlock(&h->map_lock);
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}

static void release_memory(struct handle *h)
{
	handle_close_frame(h);
	pthread_rwlock_destroy(&h->map_lock);
	free(h->text);
	free(h);
}

/* ---- public ids ---- */

static struct handle **public_bucket(struct fs *fs, uint64_t public_id)
{
	return &fs->public_handles[public_id % PUBLIC_BUCKETS];
}

struct handle *handle_find_locked(struct fs *fs, uint64_t public_id)
{
	struct handle *h = public_id ? *public_bucket(fs, public_id) : NULL;

	while (h && h->public_id != public_id)
		h = h->public_next;
	return h;
}

int handle_make_public(struct fs *fs, struct handle *h, uid_t uid, uint64_t *id_out)
{
	uint64_t id;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -EAGAIN;
	guard_lock(&fs->lock);
	if (!h->public_id) {
		if (!id || handle_find_locked(fs, id))
			return -EAGAIN;
		h->public_id = id;
		h->public_uid = uid;
		h->public_next = *public_bucket(fs, id);
		*public_bucket(fs, id) = h;
	}
	if (uid && h->public_uid != uid)
		return -EPERM;
	*id_out = h->public_id;
	return 0;
}

static void forget_public_locked(struct fs *fs, struct handle *h)
{
	if (!h->public_id)
		return;
	for (struct handle **p = public_bucket(fs, h->public_id); *p; p = &(*p)->public_next)
		if (*p == h) {
			*p = h->public_next;
			break;
		}
	h->public_id = 0;
}

void handle_revoke(struct fs *fs, struct handle *h)
{
	if (!h->public_id) /* every ioctl on it has returned: it gets none any more */
		return;
	guard_lock(&fs->lock);
	forget_public_locked(fs, h);
}

void handle_free(struct fs *fs, struct handle *h)
{
	pthread_mutex_lock(&fs->lock);
	forget_public_locked(fs, h);
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
