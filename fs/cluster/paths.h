/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths: between nodes a directory is its path, within one it is a number. This is the way from one to the other:
 * number -> parent and name, in memory, for every directory of the catalog.
 *
 * Lock: its own. Thread safety: all functions. No other lock is taken, except by the catalog.
 */
#ifndef MCFS_CLUSTER_PATHS_H
#define MCFS_CLUSTER_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/peer.h"

struct catalog;
struct dir_paths;

/* Reads every directory of the catalog. -ENOMEM, or as the catalog says. */
int dir_paths_create(struct catalog *c, struct dir_paths **out);
void dir_paths_destroy(struct dir_paths *p);
/* A directory was made, or found. */
void dir_paths_put(struct dir_paths *p, uint64_t ino, uint64_t parent, const char *name);
void dir_paths_remove(struct dir_paths *p, uint64_t ino);
/* -ENOENT: not known, or above it something is not; -ENAMETOOLONG: longer than peers take. */
int dir_paths_get(struct dir_paths *p, uint64_t ino, char path_out[PEER_PATH_MAX]);
/* The other way, by the catalog. -ENOENT, -ENOTDIR. */
int dir_paths_find(struct catalog *c, const char *path, uint64_t *ino_out);
/* Below kv/ a name is immutable by contract. */
bool dir_path_is_kv(const char *path);

#endif
