/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch: an object of other nodes becomes one of ours. One fetch per object, whoever waits for it.
 *
 *   begun      holders asked of the directory, a frame taken and charged for all of it; a large
 *              object is announced, so that peers that want it too get it from us               fetch.c
 *              a batch asks each holder once for all of its objects                          fetch_ask.c
 *   running    extents go to the fetch threads, which read them from the holder with the least   fetch_run.c
 *              to do; a holder that fails is not asked again by this fetch
 *   complete   every byte is here and agrees with its checksum: announced, so that nobody        fetch_commit.c
 *              changes the name without our hearing of it, then committed to the catalog
 *   over       with a result; waiters have it, the last of them frees the fetch
 *
 * fetch_read.c is for those who read from it meanwhile.
 *
 * A change of the name that we hear of between the announcement and the commit cancels the fetch, under the stripe.
 *
 * Lock: fetcher->lock guards fetches, extents and sources. No call goes outward under it but directory_retract, which
 * waits for nobody.
 */
#ifndef MCFS_CLUSTER_FETCH_H
#define MCFS_CLUSTER_FETCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cluster/parts.h"
#include "mcfs/catalog.h"
#include "mcfs/tier.h"

#define FETCH_THREADS 8
/* Of one peer_read; several lanes and holders work on one object. */
#define FETCH_EXTENT_BYTES (8ull << 20)

enum source_state { SOURCE_NEW, SOURCE_ASKED, SOURCE_GRANTED, SOURCE_BAD };

struct source {
	uint16_t slot;
	enum source_state state;
	struct peer *peer;
	struct peer_grant grant;
};

enum extent_state { EXTENT_FREE, EXTENT_TAKEN, EXTENT_DONE };

struct fetch {
	struct fetch *next;
	struct cluster *c;
	uint64_t id;             /* of the object */
	struct inode *dir;       /* one ref, and n_publishing */
	char path[PEER_PATH_MAX], name[PEER_NAME_MAX + 1];
	struct entry e;          /* what the catalog will have */
	struct frame frame;
	struct { uint64_t id, charged_bytes; } sealed; /* the frame then, unless an object has it; id 0 */
	struct frame_map *mapped; /* of the frame; NULL: small, nobody reads from it before it is over */
	char *map;               /* its bytes */
	char *early;             /* all of a small one, which came with its grant; NULL: they did not */
	struct source sources[DIRECTORY_HOLDERS_MAX];
	uint32_t n_sources;
	uint64_t granted_version; /* of the holders; all the same */
	uint32_t *crc, n_crc;    /* theirs, per chunk; NULL: not known */
	uint8_t *extents;        /* enum extent_state */
	uint32_t n_extents, n_done, n_taken;
	uint64_t wanted;         /* chunk that a reader waits for: the next one to be read */
	uint32_t n_waiting;      /* readers that wait */
	size_t step_bytes;       /* of one peer_read: grows while they are fast, so that little is on its way where
				  * the line is slow and a reader wants another range */
	uint8_t *chunks;         /* 1: readable; of PEER_CHUNK_BYTES each, where the frame is mapped */
	int64_t arrived_ns;      /* the last of them */
	int64_t left_ns;         /* nobody wants it since then; 0: somebody does */
	int fd;                  /* of the frame, where it is mapped: for peers; -1 */
	bool is_announced;       /* or is about to be */
	uint32_t refs;           /* waiters, and while it runs the threads */
	bool is_cancelled;       /* the name has changed, or nobody wants it any more */
	bool has_failed;         /* an extent found no source */
	bool has_moved_on;       /* a holder has another version by now */
	bool is_ending;          /* one thread has seen it come to its end, and ends it: no extent is taken any more */
	bool is_over;
	int rc;
	/* fs->lock */
	uint32_t n_handles;      /* open files that read from it */
	uint32_t n_served;       /* grants of peers */
	bool is_committed;
	struct object *object;   /* then: held open for each of both, and direct for files; NULL: there was none */
};

struct fetcher {
	struct cluster *c;
	pthread_mutex_t lock;
	pthread_cond_t work, changed; /* CLOCK_MONOTONIC */
	struct fetch *fetches;   /* not over, oldest first */
	bool is_stopping;
	pthread_t threads[FETCH_THREADS];
	uint32_t n_threads;
};

/* ---- fetch.c ---- */

void fetch_put(struct fetch *f);
/* Its result; gives up what the threads hold of it. */
void fetch_end(struct fetch *f, int rc);

/* Nobody but the caller, who has a ref, wants it. lock held. */
bool fetch_is_last_locked(const struct fetch *f);
/* The fetch behind an inode, with a ref. *out NULL: it is here. */
int fetch_begin_inode(struct fs *fs, struct inode *i, struct space_wait *w, struct fetch **out);
/* Returns rc. A holder was faster than the directory: by the time the kernel looks again it knows as well. */
int fetch_pause_if_stale(int rc);
/* A large one that peers know of, with a ref; NULL: none of that name. */
struct fetch *fetch_find_announced(struct fetcher *t, uint64_t dir_ino, const char *name);

/* ---- fetch_ask.c ---- */

/* Asks a holder, lock not held. Its state is ours to set. The bytes may come along into buf (NULL: not). */
int fetch_ask(struct fetch *f, struct source *s, void *buf);
/* Of one directory, in the list, not started, none of them announced: each asks its first holder. all becomes NULLs. */
void fetch_ask_all(struct cluster *c, struct fetch **all, size_t n);

/* ---- fetch_run.c ---- */

void *fetch_extents(void *fetcher);

/* ---- fetch_commit.c ---- */

/* Every byte is here. Ends it. */
void fetch_complete(struct fetch *f);
bool fetch_is_cancelled(struct fetch *f);

#endif
