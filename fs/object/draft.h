/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft: bytes being written under a name that they do not have yet.
 *
 * A draft has a nodeid of its own and members: the processes (thread groups) that opened it. Its name
 * resolves to it for its members alone. Kinds: private (made by CREATE or O_TRUNC, one process) and
 * shared (copy-on-write drafts of a published name, joined by every process that opens it for writing).
 *
 * Bytes: either its own frame, or a base object it has not diverged from (a copy-on-write draft before
 * its first change, or any draft right after a publish); neither: all zeros. [0, size) outside of the
 * written ranges reads as zeros whatever the frame holds.
 *
 *        CREATE, redirected OPEN            first change              publish (FLUSH, RELEASE)
 *   ------------------------> based on an object/empty ----> own frame, dirty ----> based on its object
 *   poisoned: a writer was killed; never publishes, its name is free, survivors' writes get EIO
 *   dropped:  no handle, no pending redirect; the inode stays until the kernel forgets it
 *
 * Locks: members, name, handles, flags: fs->lock. frame, ranges, crc, size: data and bytes as said.
 */
#ifndef MCFS_DRAFT_H
#define MCFS_DRAFT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/tier.h"
#include "object/crc_track.h"
#include "object/ranges.h"

struct entry;
struct fs;
struct handle;
struct inode;
struct object;

/* How long the draft made by a redirected OPEN waits for the kernel's retry. */
#define REDIRECT_PIN_NS (1000ll * 1000 * 1000)
/* How long LOOKUP by others waits for the RELEASE of a draft whose handles are all flushed; see below. */
#define SETTLE_WAIT_NS (250ll * 1000 * 1000)

struct member {
	pid_t tgid;
	uid_t uid;              /* tells callers of another PID namespace (tgid 0) apart */
	bool has_opened;        /* opened or wrote: its death by signal poisons a dirty draft */
};

/* LOOKUP gave the draft to a thread whose OPEN was answered ESTALE: its next OPEN must find it. */
struct redirect {
	pid_t tid;
	int64_t until_ns;
};

struct draft {
	struct inode *inode;    /* constant while the draft lives; one ref */
	struct inode *dir;      /* directory it will publish in; one ref; NULL: unlinked */
	struct draft *hash_next, *dir_next;
	struct member *members;
	uint32_t n_members;
	struct redirect *redirects;
	uint32_t n_redirects;
	struct handle *handles; /* draft_next */
	uint32_t n_handles;
	uint32_t refs;          /* operations in flight that hold no handle */
	bool is_private;
	bool is_excl;           /* made by O_EXCL */
	bool is_of_remote;      /* made by O_TRUNC of a file that other nodes have */
	bool is_opening;        /* made by CREATE, whose handle is on the way */
	_Atomic bool is_poisoned;
	bool is_dropped;
	pid_t last_writer_tid;
	_Atomic int64_t last_use_ns; /* of its last FLUSH or WRITE */

	/* Why it would publish. Set with data shared or owned, cleared with data owned, read anywhere. */
	_Atomic bool has_writes;       /* WRITE since the last publish */
	_Atomic bool has_resize;       /* ftruncate or fallocate since the last publish */
	_Atomic bool never_published;  /* made by CREATE or O_TRUNC and not published yet */
	_Atomic bool wrote_since_open; /* any WRITE since the last OPEN or CREATE */
	uint64_t published_id;  /* the version it published last, 0: none */
	uint64_t based_on_id;   /* the version it was opened on, 0: none */

	pthread_rwlock_t data;  /* reads and writes share it; publish, resize and copies own it */
	pthread_mutex_t bytes;  /* within shared data: ranges, crc, size, charge */
	struct frame frame;
	struct object *base;    /* its n_open counts us */
	int base_fd;            /* of the base's frame, -1 until the first read */
	uint64_t size;
	struct ranges written;
	struct crc_track crc;
	int write_error;        /* of a WRITE that failed and was not repeated: close returns it */
	uint64_t failed_off;    /* where that WRITE began */
	uint32_t n_writing;     /* WRITEs between start and end */
	uint32_t crowd;         /* counts WRITEs that began while another was under way */

	pthread_mutex_t promise_lock; /* guards the promise; one fsync at a time; before data */
	/* fsync: a durable snapshot that is published if the writer or the daemon dies */
	uint64_t promise_id;    /* object record in the catalog, 0: none */
	uint64_t promise_frame; /* its ssd frame */
	uint64_t promise_size;
};

struct space_wait; /* who waits for space: object/space.h */
struct draft_table;
struct draft_table *draft_table_create(void);
void draft_table_destroy(struct draft_table *t);
/* The daemon ends while clients have it open: memory and fds only, a promise stays in the catalog. */
void draft_abandon(struct draft *d);

struct caller_id {
	pid_t tid, tgid;
	uid_t uid;
	struct space_wait *wait; /* of a request that may wait for other nodes; NULL: it may not */
};

/* Drafts whose names a change has touched, each with a ref; see durable_follow_names. */
struct draft_list {
	struct draft **v;
	size_t n;
};

/* ---- fs->lock held ---- */

void draft_list_add_locked(struct draft_list *l, struct draft *d);
/*
 * A new draft of name in dir, with one ref (draft_put_locked), the caller as member. e: its first
 * attributes; e->ino 0 gives it a new inode number. base (may be NULL) must be open-able.
 */
struct draft *draft_create_locked(struct fs *fs, struct inode *dir, const char *name,
				  struct entry *e, uint64_t id, const struct caller_id *who,
				  struct object *base);
/* The draft that name shows to who, or NULL. *has_active_out: some process has an active one. */
struct draft *draft_find_locked(struct fs *fs, uint64_t dir_ino, const char *name,
				const struct caller_id *who, bool *has_active_out);
/* Any draft of that name, to decide cheaply whether the caller's process must be looked up. */
bool draft_name_is_busy_locked(struct fs *fs, uint64_t dir_ino, const char *name);
/*
 * A draft that is the same file as what is published under that name: a live shared (copy-on-write)
 * one, or the still open one that published object_id (0: none). NULL: none.
 */
struct draft *draft_find_shared_locked(struct fs *fs, uint64_t dir_ino, const char *name,
				       uint64_t object_id);
/* The shared draft of that name that a write open of its version object_id joins, or NULL. */
struct draft *draft_find_joinable_locked(struct fs *fs, uint64_t dir_ino, const char *name,
					 uint64_t object_id);
/* A live draft of that name made with O_EXCL by another process. */
bool draft_excl_exists_locked(struct fs *fs, uint64_t dir_ino, const char *name,
			      const struct caller_id *who);
struct member *draft_join_locked(struct draft *d, const struct caller_id *who);
/* An open file's handle becomes one of the draft's; it was one: true when it was the last. */
void draft_attach_locked(struct draft *d, struct handle *h);
bool draft_detach_locked(struct draft *d, struct handle *h);
/*
 * An OPEN for writing of a published version is answered ESTALE and leaves an intent under the thread's
 * id: the kernel walks the path once more, and whatever file that walk's LOOKUP finds then becomes a
 * draft. The intent, not the nodeid's name, is what the retry goes by, since the name may have been
 * given to another version in between. It ends with the OPEN or CREATE it was left for.
 */
void draft_leave_intent_locked(struct fs *fs, const struct caller_id *who, bool is_private);
bool draft_has_intent_locked(struct fs *fs, const struct caller_id *who, bool *is_private_out);
/* The retry came: no intent and no pin of who is left. d may be NULL. */
void draft_end_intent_locked(struct fs *fs, struct draft *d, const struct caller_id *who);
/* Between that LOOKUP and its OPEN the draft stays. */
void draft_pin_redirect_locked(struct draft *d, const struct caller_id *who);
/* Made for an O_TRUNC that has not come: it has nothing to show to who reads. */
bool draft_is_hollow_locked(const struct draft *d);
/* The version a clean draft shows: what it published, else what it was opened on. 0: dirty, none. */
uint64_t draft_shown_id(const struct draft *d);
bool draft_is_visible_locked(const struct draft *d, const struct caller_id *who);
/* It has something to publish. */
bool draft_is_dirty(const struct draft *d);
/* Every writable handle has been flushed by its opener (also true when none is left). */
bool draft_is_flushed_locked(const struct draft *d);
void draft_get_locked(struct draft *d);
/* Drops a ref; a draft without refs, handles and pending redirects is dropped (frames go back). */
void draft_put_locked(struct fs *fs, struct draft *d);
/* Looks again at drafts whose redirect ran out. */
void draft_expire_locked(struct fs *fs, int64_t now_ns);
/* Takes the name away; it will never publish (unlink, poison). */
void draft_unlink_locked(struct fs *fs, struct draft *d);
void draft_rename_locked(struct fs *fs, struct draft *d, struct inode *dir, const char *name);
void draft_poison_locked(struct fs *fs, struct draft *d);
uint32_t draft_count_locked(struct fs *fs);
/*
 * A dirty draft of that name, not who's, whose handles are all flushed: RELEASE is on the way, unless a
 * mapping keeps it open, which SETTLE_WAIT_NS after its last FLUSH or WRITE is taken for granted. NULL:
 * none.
 */
struct draft *draft_find_settling_locked(struct fs *fs, uint64_t dir_ino, const char *name,
					 const struct caller_id *who);
/* Waits (releasing fs->lock) until it is published or that time is over. The caller holds a ref. */
void draft_settle_locked(struct fs *fs, struct draft *d);

/* ---- fs->lock not held ---- */

void draft_put(struct fs *fs, struct draft *d);

/* ---- bytes; fs->lock not held; all return 0 or a negative errno ---- */

int draft_write(struct fs *fs, struct draft *d, const void *buf, size_t len, uint64_t off,
		struct space_wait *w);
/* Reads [off, off + len) cut at size; *n_out gets the bytes. */
int draft_read(struct fs *fs, struct draft *d, void *buf, size_t len, uint64_t off, size_t *n_out);
int draft_resize(struct fs *fs, struct draft *d, uint64_t size, struct space_wait *w);
/* O_TRUNC, after its handle is attached: else an older one's end would publish the empty file. */
int draft_truncate_at_open(struct fs *fs, struct draft *d);
/* mode as fallocate(2); zero range and punch hole write zeros. -EOPNOTSUPP for the others. */
int draft_fallocate(struct fs *fs, struct draft *d, int mode, uint64_t off, uint64_t len,
		    struct space_wait *w);
uint64_t draft_size(struct draft *d);
/* data owned: the frame has exactly size bytes, no stale byte is left, crc is complete. */
int draft_finish_bytes_owned(struct fs *fs, struct draft *d, struct space_wait *w);
/* data owned: from now on the draft shows o (which is open for it). */
void draft_rebase_owned(struct draft *d, struct object *o);
/* Releases what the bytes hold. No lock: nobody else can reach the draft. Returns its base. */
struct object *draft_release_bytes(struct fs *fs, struct draft *d);

#endif
