/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs: one mounted mooncakefs, the struct that everything else hangs on.
 *
 * Locks, in the order they are taken; a later one is never held when an earlier one is wanted:
 *   0. draft->promise_lock  one fsync, publish or rename of a draft's promise at a time
 *   1. draft->data      rwlock of one draft's bytes (writes share it, publish and resize own it)
 *   2. names->stripe    mutexes hashed by (parent, name): the logical lock of a name. The catalog is
 *                       read and written under it; two are taken in address order
 *                       (a batch of copies takes many, in address order, and holds nothing else)
 *   3. fs->lock         all tables in memory: inodes, objects, drafts and their members, the orders and
 *                       queues of residency, handle flags. Held for memory operations only
 * Leaf locks inside one module (draft->bytes, notifier, flocks, version clock, verify's list of bad
 * copies, tiers) come after all.
 * Kernel notifications are sent by the notifier thread, which holds none of them.
 */
#ifndef MCFS_FS_H
#define MCFS_FS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "mcfs/catalog.h"
#include "mcfs/tier.h"

struct fuse_session;
struct buffer;
struct cluster;
struct executor;
struct inode_table;
struct name_index;
struct object_table;
struct draft_table;
struct flock_table;
struct handle;
struct notifier;
struct options;
struct residency;
struct scrub;
struct sweep;
struct verifier;
struct version_clock;
struct writeback;

#define NAME_STRIPES 256
#define PUBLIC_BUCKETS 4096

struct fs {
	const struct options *opt;
	struct catalog *catalog;
	struct tier *dram, *ssd;
	struct version_clock *clock;
	struct notifier *notifier;
	struct verifier *verifier;
	struct sweep *sweep;          /* orphan frames to be removed; NULL: none */
	struct scrub *scrub;
	struct writeback *writeback;  /* NULL: no worker copies */
	struct flock_table *flocks;
	struct executor *executor;    /* asynchronous submissions */
	struct cluster *cluster;      /* NULL: this node is alone */
	_Atomic uint64_t batch_bytes; /* decoded submissions under way */
	struct fuse_session *se;

	dev_t mount_dev;              /* of the live mount; 0: none, or the user has unmounted it */

	/* Gives a passthrough id back to the kernel; set with the session. */
	void (*close_backing)(struct fs *fs, int32_t id);

	/* Written once in INIT. */
	bool passthrough;
	char passthrough_reason[160]; /* why not, when it is not live */

	pthread_mutex_t name_stripes[NAME_STRIPES];

	pthread_mutex_t lock;         /* guards everything below */
	pthread_cond_t changed;       /* a draft published or closed; space came free */
	struct inode_table *inodes;
	struct object_table *objects;
	struct name_index *names;     /* of objects */
	struct draft_table *drafts;
	struct residency *residency;
	struct handle *handles;       /* open files and directories of clients */
	struct handle *public_handles[PUBLIC_BUCKETS]; /* those that sessions may name, by public_id */
	struct buffer *buffers;       /* shared with clients, oldest first */
	uint32_t n_buffers, n_registered; /* n_registered: their mappings of ours */
	bool free_on_stop;            /* take the DRAM frames along when the daemon ends */

	int64_t start_ns;             /* CLOCK_MONOTONIC */
	uint64_t n_adopted;           /* objects found again at start */
};

/*
 * Everything below the FUSE session: catalog, tiers, tables, objects adopted, notifier running. Tests
 * run the whole file system on it without a mount. On failure (-errno, logged) fs_destroy undoes what
 * was done. frees_dram: the frames go, else they stay for the next start.
 */
int fs_create(struct fs *fs, const struct options *opt);
void fs_destroy(struct fs *fs, bool frees_dram);
/*
 * Sessions end, and what runs behind requests: what they still wait for is answered. The first part of
 * fs_destroy; apart, because answers need the FUSE session. No request is served any more.
 */
void fs_stop_work(struct fs *fs);
/* After that: all other threads, and the handles that are left. Of fs_destroy too. */
void fs_quiesce(struct fs *fs);
/* mkdir -p; the last directory gets mode 0700. */
int fs_make_dirs(const char *path);

/* CLOCK_MONOTONIC and CLOCK_REALTIME in nanoseconds. */
int64_t now_mono_ns(void);
int64_t now_real_ns(void);

/* fs->changed waits on CLOCK_MONOTONIC; fs->lock is held. Returns false once deadline_ns passed. */
bool fs_wait_changed(struct fs *fs, int64_t deadline_ns);

#endif
