/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: an immutable version of a file's bytes, as this node holds it.
 *
 *   LIVE      the catalog names it; ordered by the eviction policy while evictable
 *   REPLACED  a newer version has the name; openable for the grace time, first to go under pressure
 *   DROPPED   no name; its bytes live until the last handle closes, then the frame goes back
 *
 * The dram frame is unlinked or recycled only after n_open fell to 0 (and the tier has checked that no
 * mapping is left). Empty objects have no frame.
 * All fields are guarded by fs->lock except those marked constant.
 */
#ifndef MCFS_OBJECT_H
#define MCFS_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/catalog.h"
#include "mcfs/tier.h"
#include "object/name_index.h"
#include "tier/policy.h"

struct fs;
struct inode;
struct space_wait;

enum object_state { OBJECT_LIVE, OBJECT_REPLACED, OBJECT_DROPPED };

struct object {
	uint64_t id;              /* constant */
	uint64_t size;            /* constant, bytes */
	struct policy_node node;  /* in the dram order or the reserve of object/residency.h */
	struct policy_node ssd_node; /* in its ssd order */
	struct object *hash_next;
	union {
		struct { struct object *grace_prev, *grace_next; }; /* REPLACED: in order of time */
		struct { struct object *queue_prev, *queue_next; }; /* LIVE: waiting to be copied */
	};
	union {
		struct { struct object *name_next; struct name_key name_key; }; /* while is_named */
		int64_t replaced_ns;                                           /* REPLACED */
	};
	struct inode *inode;      /* NULL: the kernel does not know it */
	_Atomic uint64_t dram_frame, ssd_frame; /* 0: not on that tier; holders read them unlocked */
	uint64_t charged_bytes;   /* of the dram frame */
	struct backing *backing;  /* NULL: no handle has it open, and no passthrough id is kept */
	uint32_t n_open;          /* handles, and drafts based on it */
	uint32_t ttl_s;
	uint32_t used_s;          /* last use, seconds since the daemon's start */
	uint8_t state;            /* enum object_state */
	uint8_t class, pin;
	uint8_t queue;            /* enum residency_queue */
	_Atomic bool is_ssd_checked; /* this daemon wrote or has checked the ssd frame's bytes */
	bool is_evicting;         /* an evictor is removing its name; opens answer ESTALE */
	bool in_table;
	bool is_ssd_synced : 1;   /* the ssd frame survives a power failure */
	bool is_verifying : 1;    /* somebody checks the ssd frame; others wait for fs->changed */
	bool is_copying : 1;      /* a worker copies it to another tier and holds it open */
	bool is_in_reserve : 1;   /* node is in the reserve */
	bool goes_without : 1;    /* no copy is made before its dram frame goes: none could be made, or
				   * the ssd gave it up for others; until its next use */
	bool was_used : 1;        /* opened since it came to the tier that serves it */
	bool is_named;            /* in the name index */
	uint16_t mode;            /* of the name that shows it, with uid and gid; 0: not known */
	uint32_t uid, gid;
};

struct object_table;

struct object_table *object_table_create(void);
void object_table_destroy(struct object_table *t);

void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *s);

/* ---- fs->lock held ---- */

struct object *object_find_locked(struct fs *fs, uint64_t id);
/* A LIVE object; caller is who used it (thread id). Counts towards max_objects. */
struct object *object_add_locked(struct fs *fs, const struct object_record *r, uint64_t caller);
void object_attach_inode_locked(struct fs *fs, struct inode *i);
void object_detach_inode_locked(struct fs *fs, struct inode *i);
/* It has been used: moves in the eviction orders, and may be queued to change tiers. */
void object_touch_locked(struct fs *fs, struct object *o, uint64_t caller);
void object_set_policy_locked(struct fs *fs, struct object *o, const struct policy_attr *p);
/* Seconds from publish to removal, 0: none. */
void object_set_ttl_locked(struct fs *fs, struct object *o, uint32_t ttl_s);
bool object_is_expired(const struct object *o);
bool object_any_ttl_locked(struct fs *fs);
/* What its name's owner and mode are now; they save readers of many objects a look at the catalog. */
void object_set_owner_locked(struct object *o, const struct entry *e);
/* A tier's copy came or went (0). What becomes of the frame itself is the caller's. */
void object_set_frames_locked(struct fs *fs, struct object *o, uint64_t dram_frame,
			      uint64_t ssd_frame);
/* Its ssd frame was written and synced by this daemon. */
void object_trust_copy_locked(struct object *o);
/* Holds the bytes for a reader. The object must not be dropped or evicting. */
void object_open_locked(struct object *o);
/*
 * Between the two an evictor holds the object (n_open) and opens are refused, while its records are
 * removed without the lock. end returns as object_close_locked does.
 */
void object_begin_evict_locked(struct fs *fs, struct object *o);
bool object_end_evict_locked(struct fs *fs, struct object *o);
/*
 * Passthrough handles come and go. backed: id is a new one (or 0 to use what is there); returns the id
 * to use, 0: there is none, or direct_io handles are open, with which the kernel does not mix them.
 * unbacked: an id is kept for the next open; returns one that must be closed instead (the oldest of too
 * many), or 0.
 */
int32_t object_backed_locked(struct fs *fs, struct object *o, int32_t id);
int32_t object_unbacked_locked(struct fs *fs, struct object *o);
/* And direct_io handles; false: passthrough handles are open. */
bool object_direct_locked(struct object *o);
void object_undirect_locked(struct object *o);
/* Takes an unused id away before the frame goes; it must be closed. 0: none. */
int32_t object_take_backing_locked(struct fs *fs, struct object *o);
/* The next open shall use another frame: returns an id that must be closed, or 0. */
int32_t object_renew_backing_locked(struct fs *fs, struct object *o);
/* Last holder gone: returns true, and the caller must pass it to object_free_unlocked afterwards. */
bool object_close_locked(struct fs *fs, struct object *o);
/*
 * The name is gone. REPLACED starts its grace time when the kernel may be walking to it (grace true).
 * Returns true when nothing holds it any more: pass it to object_free_unlocked.
 */
bool object_retire_locked(struct fs *fs, struct object *o, bool grace);
/* Ends the grace time of the oldest replaced object, if it started before before_ns. NULL: none. */
struct object *object_grace_pop_locked(struct fs *fs, int64_t before_ns, bool *must_free_out);
uint64_t object_count_locked(struct fs *fs);

/* Visits every object of the table, in no order. */
typedef void (*object_visit_fn)(void *arg, struct object *o);
void object_visit_locked(struct fs *fs, object_visit_fn fn, void *arg);
/*
 * The same in portions, between which the lock may be released. *at begins at 0. False: that was the
 * last. What is there throughout is visited, some of it more than once.
 */
bool object_visit_some_locked(struct fs *fs, size_t *at, object_visit_fn fn, void *arg);

/* ---- fs->lock not held ---- */

/* object_close_locked, and object_free_unlocked when it was the last holder. */
void object_close(struct fs *fs, struct object *o);
/* Gives the frames back and frees the struct; no one else can reach it any more. */
void object_free_unlocked(struct fs *fs, struct object *o);
/*
 * A read-only fd of the bytes on the best tier, checked as object/verify.h says. *tier_out names it.
 * -ENOENT: lost (counted and logged). The caller holds the object open; of the locks it may hold
 * draft->bytes and what comes before fs->lock.
 */
int object_open_frame(struct fs *fs, struct object *o, const char **tier_out);
/*
 * The same for one of many short reads: dram frames come from a cache of descriptors. w: who may interrupt
 * the check of an ssd frame. 0, -ENOENT, -EINTR, -EMFILE.
 */
struct borrowed_frame {
	struct tier *tier;
	uint64_t id;
	int fd;
};
int object_borrow_frame(struct fs *fs, struct object *o, const struct space_wait *w,
			struct borrowed_frame *out);
void object_give_back_frame(struct fs *fs, const struct borrowed_frame *f);

#endif
