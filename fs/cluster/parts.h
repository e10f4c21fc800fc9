/* SPDX-License-Identifier: Apache-2.0 */
/* parts: what the files of fs/cluster need of each other. */
#ifndef MCFS_CLUSTER_PARTS_H
#define MCFS_CLUSTER_PARTS_H

#include "cluster/cluster.h"

/* ---- announce.c, follow.c, resync.c ---- */

int changes_create(struct cluster *c, struct change_queue **out);
/* Its threads end; what is done from now on is thrown away by destroy, which comes after the directory's end. */
void changes_stop(struct change_queue *q);
void changes_destroy(struct change_queue *q);
/* The directory is there (again): everything this node holds is announced, on a thread of its own. */
void changes_resync(struct cluster *c);
/* How many times that, or a part of it, has begun. */
uint64_t changes_resyncs(struct cluster *c);
/* The lease is about to be renewed. */
void changes_renewed(struct cluster *c);
/* The version by which the directory compares what a name shows here. */
uint64_t name_version(const struct entry *e);
/* As the directory has it; target is borrowed. */
void value_of_entry(const struct entry *e, struct directory_value *v);
/* What this node has under a name; nobody waits. */
void announce_entry(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, const struct entry *e);
/* A removal that this node remembers; nobody waits. */
void announce_removed(struct cluster *c, const char *dir, const char *name, uint64_t version);
/* A fetched copy: 0 once this node is known as a holder, *before_out (may be NULL) what was there before, without target;
 * -ESTALE: there is something newer. Waits. */
int announce_copy(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, const struct entry *e,
		  int64_t deadline_ns, struct directory_value *before_out);

/* ---- tombstone.c ---- */

/* The version of a removal that this node remembers, 0: none. */
uint64_t tombstone_of(struct fs *fs, const char *dir, const char *name);
/* All of them; returns how many. */
uint64_t tombstones_announce(struct cluster *c);

/* ---- remote.c ---- */

void entry_of_value(const struct directory_value *v, struct entry *e_out);

/* Where the transport reads memory by itself, frames from this size on are registered: for less it does not pay. */
#define CLUSTER_PULL_BYTES (256ull << 10)

/* ---- fetch.c ---- */

int fetcher_create(struct cluster *c, struct fetcher **out);
/* Nobody waits for a fetch any more, and none goes on; does not wait itself. */
void fetcher_stop(struct fetcher *f);
/* Then, once the endpoint has stopped, its threads end. */
void fetcher_join(struct fetcher *f);
void fetcher_destroy(struct fetcher *f);
/* The name has another version, or none: a fetch of an older one must not be committed. */
void fetch_cancel_older(struct fetcher *f, uint64_t dir_ino, const char *name, uint64_t version);
/* The directory hears that this node does not have that object (0: nothing of the name), unless it does, or fetches it. */
void fetch_disown(struct cluster *c, uint64_t dir_ino, const char *dir, const char *name, uint64_t object);

/* ---- fetch_read.c ---- */

/* What a peer may read of a fetch that is under way. */
struct fetch_piece_source {
	struct fetch *fetch;    /* held until fetch_serve_end */
	int fd;                 /* of its frame; as long */
	uint64_t size, version;
	uint32_t *crc, n_crc;   /* per chunk, the caller's to free; NULL: not known */
};
/* version 0: whichever. -ENOENT: no such fetch; -ESTALE: of another version; -EAGAIN: it knows too little yet. */
int fetch_serve(struct cluster *c, uint64_t dir_ino, const char *name, uint64_t version, int64_t deadline_ns,
		struct fetch_piece_source *out);
void fetch_serve_end(struct fs *fs, struct fetch *f);
/* Until the chunk that off is in is here. -EAGAIN: it does not come soon; -ESTALE: the fetch has failed. */
int fetch_serve_await(struct fetch *f, uint64_t off, int64_t deadline_ns);

/* ---- serve.c ---- */

struct grant_table *grants_create(struct cluster *c);
void grants_destroy(struct grant_table *t);
/* Ends what has run out. Called about once a second. */
void grants_expire(struct grant_table *t);
int grants_give(void *arg, const struct peer_grant_ask *ask, struct peer_grant *out, int64_t deadline_ns);
int grants_read(void *arg, const struct peer_id *from, uint64_t grant, uint64_t off, uint32_t len,
		struct peer_piece *out, int64_t deadline_ns);
void grants_release(void *arg, const struct peer_id *from, uint64_t grant);
void grants_gone(void *arg, const struct peer_id *from);

/* ---- invalidate.c ---- */

int invalidate_names(void *arg, const struct peer_id *from, const struct peer_invalidation *v, size_t n,
		     int64_t deadline_ns);
/* The same, as a letter of the directory. */
void invalidate_letter(void *arg, const void *bytes, size_t len);
/* What the catalog shows under that name goes if it is older than version. True: something went. */
bool invalidate_name(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t version);

#endif
