/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change: of a name, from the catalog to the directory and to those who hold what it replaced.
 *
 *   queued    the directory has it in its queue (in the order of the name's changes: under its stripe)     announce.c
 *   done      it answered: our change stands, with what was there before; or something newer is there
 *   told      holders of the older version have acknowledged, to us or, where we do not reach them, by     follow.c
 *             way of the directory, or their leases have run out; or, where something newer is there,
 *             our own older copy is gone
 *
 * The thread that made the change takes it from done to told in cluster_settle. Where nobody waits (kv/, a resync, a
 * directory that is away until later) the follower thread does.
 *
 * Lock: change_queue->lock guards the queue and what becomes of a change. No call goes outward under it but
 * directory_state.
 */
#ifndef MCFS_CLUSTER_CHANGE_H
#define MCFS_CLUSTER_CHANGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cluster/parts.h"

struct change {
	struct change *next;
	struct cluster *c;
	uint64_t dir_ino, version, object, size;
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
	bool is_removed, is_kv;
	bool is_done, is_followed; /* nobody waits: the follower goes on */
	int rc;
	struct directory_value before; /* without target */
	char *dir, *name;
};

struct change_queue {
	struct cluster *c;
	pthread_mutex_t lock;
	pthread_cond_t cond;          /* CLOCK_MONOTONIC: a change is done, work for the follower, the end */
	struct change *head, *tail;   /* done, for the follower */
	bool is_stopping, is_stopped;
	bool must_resync;             /* everything that this node holds */
	bool must_revalidate;         /* what others may have changed */
	uint64_t n_resyncs;           /* begun */
	bool was_away;                /* longer than a lease, since the last resync */
	int64_t renewed_ns;           /* the lease, last */
	uint64_t *incarnations;       /* of the node in each slot, 0: none; of the thread that renews */
	pthread_t follower, resyncer;
};

/* ---- announce.c ---- */

void change_free(struct change *x);

/* ---- follow.c ---- */

/* A list of done changes; frees them. No lock held: may wait for holders. */
void changes_finish(struct cluster *c, struct change *list);
void *changes_follow(void *queue);

/* ---- resync.c ---- */

void *changes_resync_main(void *queue);

#endif
