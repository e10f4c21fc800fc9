/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster: this node among the others. NULL in struct fs: it is alone, and every function here does nothing or
 * answers as if nobody else had anything.
 *
 *   announce.c    what changes here is told to the directory; follow.c: then to the holders of what it replaced
 *   resync.c      all of it again, after the directory was away, or a node that may not have told us
 *   tombstone.c   what was removed here stays removed
 *   remote.c      names that others have: lookup, listing
 *   fetch.c       their bytes: into a frame of our own, one fetch per object whoever waits for it; fetch.h lists more
 *   serve.c       our bytes for them: grants
 *   invalidate.c  what others changed
 *   letter.c      the same as bytes, for whom we reach through the directory alone
 *   move.c        a directory's new name
 *   paths.c       a directory's path
 *
 * Locks: the modules' own, after fs->lock in the order of fs.h. None of ours is held over a call of the directory or of
 * a peer, and no stripe is held while a peer is waited for: two nodes that change one name would wait for each other.
 */
#ifndef MCFS_CLUSTER_H
#define MCFS_CLUSTER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "mcfs/directory.h"
#include "mcfs/peer.h"

struct caller_id;
struct catalog_batch;
struct change_queue;
struct dir_paths;
struct entry;
struct fetcher;
struct fs;
struct grant_table;
struct inode;
struct space_wait;

struct cluster {
	struct fs *fs;
	struct dir_paths *paths;
	struct directory *directory;
	struct peer_endpoint *endpoint;
	struct fetcher *fetcher;
	struct grant_table *grants;
	struct change_queue *changes;
	struct peer_id self;
	pthread_mutex_t letter_lock; /* held while a letter is dealt with */
	bool takes_letters;          /* not once the notifier may have ended; letter_lock */
	pthread_mutex_t retry_lock;
	struct { pid_t tid; int64_t until_ns; } retries[64]; /* a ring: the oldest gives way */
	uint32_t next_retry;
};

/* After everything else of fs. Errors as of the parts, logged. */
int cluster_start(struct fs *fs);
/*
 * Nobody is asked or answered any more; who waits for others is told. Before the notifier ends, and the work behind
 * requests, which may go on.
 */
void cluster_stop(struct fs *fs);
/* Leaves the directory. After all work of fs has ended, before the catalog and the tiers do. */
void cluster_destroy(struct fs *fs);

/* The peer of a slot, with one reference. -ENOENT: nobody has it, or it is us; -ECANCELED: we end; else nobody can say. */
int cluster_peer(struct cluster *c, uint16_t slot, int64_t deadline_ns, struct peer **out);

/* ---- announce.c: changes of this node ---- */

/*
 * Under the name's stripe, after the catalog has it. What the calling thread has changed is remembered until its
 * cluster_settle. A new file below kv/ (not is_overwrite) is not waited for.
 */
void cluster_published(struct fs *fs, uint64_t dir_ino, const char *name, const struct entry *e, bool is_overwrite);
void cluster_removed(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t version);
/* Into the batch that removes the name: what keeps it removed. Returns the version for cluster_removed; 0: alone. */
uint64_t cluster_tombstone(struct fs *fs, struct catalog_batch *b, uint64_t dir_ino, const char *name);
/* Our copy is gone (evicted, lost), the name is not. Nobody waits. */
void cluster_dropped(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t object_id);
/*
 * No lock held, before the reply: returns when the holders of what this thread has replaced or removed know it, or
 * their leases have run out, or nobody can be asked.
 */
void cluster_settle(struct fs *fs);

/* ---- move.c ---- */

/* In a cluster, before any lock: 0, or -EXDEV where other nodes have the directory or something below it. */
int cluster_may_move_dir(struct fs *fs, uint64_t dir_ino, const char *name);
/* Under the stripes, once the catalog has it. */
void cluster_dir_moved(struct fs *fs, uint64_t ino, uint64_t to_dir, const char *to_name);

/* ---- remote.c ---- */

/*
 * A name that the catalog does not have. *inode_out gets one more ref. A directory is made here as well; a file is an
 * inode without an object, which its first open fetches; at once, if that open was stale. -ENOENT: nobody has it, or
 * nobody can be asked; -EAGAIN: this node alone, so the catalog has to be asked again.
 */
int remote_lookup(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
		  struct inode **inode_out);
/* The catalog does not have what the directory says that we do: it hears so. */
void remote_disown(struct fs *fs, uint64_t dir_ino, const char *name);
/* An open by this thread is answered ESTALE: the kernel's next walk is its last, so its LOOKUP makes sure. */
void remote_retry_follows(struct fs *fs, pid_t tid);
/* That walk is over: what it was for is done, or there is no such name. */
void remote_retry_ends(struct fs *fs, pid_t tid);
/*
 * That walk is under way (its LOOKUPs: the kernel looks at the name it had, then anew): what it finds is promised to be
 * openable for a moment (fs->lock held). Not alone.
 */
bool remote_is_retrying(struct fs *fs, pid_t tid);
void remote_promise_locked(struct inode *i);
/* The same as an entry alone, for who changes names: nothing is made. entry_fini it. */
int remote_entry(struct fs *fs, uint64_t dir_ino, const char *name, struct entry *e_out);
/*
 * A file or symlink that others have is in our catalog when it returns 0: what gets another name. -ENOENT: nobody has
 * it, or it is neither; else as fetch_name.
 */
int remote_bring(struct fs *fs, struct inode *dir, const char *name, struct space_wait *w);
/* Names of the nodes that have a file, comma-separated: the length, -ENODATA nobody can say, -ERANGE. Like an xattr. */
ssize_t remote_holders(struct fs *fs, uint64_t dir_ino, const char *name, char *buf, size_t size);
/* Many names of one directory in one question; sizes_out[k] is -1 for what nobody has, or is no file. */
void remote_sizes(struct fs *fs, uint64_t dir_ino, const char *const *names, size_t n, int64_t *sizes_out);
/* Names of a directory that others have, in the order of cookies, each with entry (valid for the call). */
typedef int (*remote_list_fn)(void *arg, uint64_t cookie, const char *name, const struct entry *e);
int remote_list(struct fs *fs, uint64_t dir_ino, uint64_t after, remote_list_fn fn, void *arg);
/* Others have something in it. */
bool remote_has_entries(struct fs *fs, uint64_t dir_ino);

/* ---- fetch.c ---- */

/*
 * The bytes behind a remote inode are here and in the catalog when it returns 0 (at once, if i is not remote). -ENOENT:
 * no holder gives them; -ESTALE: the name has another version by now; -EINTR; -ENOSPC.
 */
int fetch_object(struct fs *fs, struct inode *i, struct space_wait *w);
/*
 * For a file that is opened. *out NULL: it is here, as after fetch_object. Else it is large and arrives; fetch_await
 * waits for the range alone. -EIO: it will not come; -EINTR.
 */
struct fetch;
int fetch_open(struct fs *fs, struct inode *i, struct space_wait *w, struct fetch **out);
void fetch_close(struct fs *fs, struct fetch *f);
uint64_t fetch_size(const struct fetch *f);
/* Waits for [off, off + len), which lies within its size; *bytes_out: where they are, until fetch_close. len > 0. */
int fetch_await(struct fetch *f, size_t len, uint64_t off, struct space_wait *w, const void **bytes_out);
/* The same by name, and again where a newer version comes meanwhile. */
int fetch_name(struct fs *fs, uint64_t dir_ino, const char *name, struct space_wait *w);
#define FETCH_WANTS_MAX 64
struct fetch_want {
	uint64_t dir_ino;
	const char *name;       /* which this node does not have */
	struct fetch *fetch;    /* on its way; fetch_wait gives it up. NULL: it cannot be had */
};
/* Many names in two steps, so that they are on their way together. One question for those of one directory in a row. */
void fetch_begin_all(struct fs *fs, struct fetch_want *wants, size_t n, struct space_wait *w);
/* Which of these names of one directory are being fetched. */
void fetch_mark(struct fs *fs, uint64_t dir_ino, const char *const *names, size_t n, bool *is_under_way_out);
/* Gives f up; if it was interrupted and nobody else waits, the fetch ends. *bytes_out (may be NULL): how much has come. */
int fetch_wait(struct fetch *f, struct space_wait *w, uint64_t *bytes_out);

#endif
