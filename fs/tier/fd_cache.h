/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd_cache: descriptors of sealed frames, kept open for the next reader of many small ones: opening and
 * closing a 64 KiB frame takes half as long as copying it.
 *
 * A frame that is given up must be forgotten first: our own descriptor would look like a user of it. If
 * somebody reads it at that moment (a copy that was found bad), the last reader closes it.
 * Thread safety: all functions.
 */
#ifndef MCFS_FD_CACHE_H
#define MCFS_FD_CACHE_H

#include <stdint.h>

struct fd_cache;

/* capacity: descriptors kept while nobody uses them. NULL: no memory. */
struct fd_cache *fd_cache_create(uint32_t capacity);
void fd_cache_destroy(struct fd_cache *c);

typedef int (*fd_cache_open_fn)(void *arg, uint64_t id);

/* A descriptor of frame id, opened by open(arg, id) if there is none (its negative errno is returned). */
int fd_cache_borrow(struct fd_cache *c, uint64_t id, fd_cache_open_fn open, void *arg);
/* After use; each borrow has one. */
void fd_cache_give_back(struct fd_cache *c, uint64_t id, int fd);
void fd_cache_forget(struct fd_cache *c, uint64_t id);
/* Closes what nobody uses; returns how many. */
uint32_t fd_cache_trim(struct fd_cache *c);

#endif
