/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_box: a server and up to DIRECTORY_BOX_NODES directories, as of so many nodes, in one test. Changes are
 * made one at a time, waiting for each. Thread safety: directory_box_lookup and what only reads; else none.
 */
#ifndef MCFS_TEST_DIRECTORY_BOX_H
#define MCFS_TEST_DIRECTORY_BOX_H

#include <stdatomic.h>

#include "lib/redis_server.h"
#include "mcfs/directory.h"

#define DIRECTORY_BOX_NODES 3
#define DIRECTORY_BOX_PREFIX "box"

struct directory_box {
	struct redis_server server;
	struct directory *nodes[DIRECTORY_BOX_NODES];
	atomic_int n_resyncs[DIRECTORY_BOX_NODES];
};
extern struct directory_box directory_box;

/* Skips the test where there is no server. */
void directory_box_init(void);
void directory_box_fini(void);

/* on_resync counts; id 1000 + node, a lease of 2 s, lookups 3 s. */
struct directory_conf directory_box_conf(int node);
/* Starts one; directory_box_node waits until it has a slot, too. */
struct directory *directory_box_open(int node, const struct directory_conf *conf);
struct directory *directory_box_node(int node);
void directory_box_close(int node);

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t directory_box_in_ms(int64_t ms);
/* Whether condition(d) came true in time. */
bool directory_box_wait(bool (*condition)(struct directory *d), struct directory *d, int64_t ms);
bool directory_box_is_usable(struct directory *d);
int directory_box_state(struct directory *d);

/* Its object has the version's number. */
struct directory_value directory_box_file(uint64_t version, uint64_t size);
/* before: NULL, or what it was, without a target. */
int directory_box_announce(struct directory *d, const char *dir, const char *name, const struct directory_value *v,
			   struct directory_value *before);
int directory_box_retract(struct directory *d, const char *dir, const char *name, struct directory_value *before);
int directory_box_remove(struct directory *d, const char *dir, const char *name, uint64_t version,
			 struct directory_value *before);
int directory_box_lookup(struct directory *d, const char *dir, const char *name, struct directory_value *v);

/* The bytes at the server. */
size_t directory_box_raw_get(const char *dir, const char *name, void *buf, size_t size);
void directory_box_raw_set(const char *dir, const char *name, const void *bytes, size_t len);
/* A field of the bucket that name is in. */
void directory_box_raw_set_beside(const char *dir, const char *name, const char *field, const void *bytes,
				  size_t len);
int64_t directory_box_raw_count(const char *dir, const char *name);

#endif
