/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inode: what the kernel knows by a nodeid, one per directory, symlink, version of a file, draft and
 * control file. The nodeid is the inode's address (FUSE_ROOT_ID for the root); the key, unique for
 * ever, is its generation.
 *
 *   nlookup  references the kernel holds (LOOKUP and friends, until FORGET)
 *   refs     references this daemon holds (handles, drafts' directories, queued notifications)
 *
 * States of an object's inode: LIVE - REPLACED (a newer version has the name, or it was unlinked while
 * somebody else was about to open it; openable read-only for a grace time) - GONE (unlinked, evicted or
 * lost; opens answer ESTALE).
 * All fields are guarded by fs->lock except those marked constant.
 */
#ifndef MCFS_INODE_TABLE_H
#define MCFS_INODE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/catalog.h"

struct buffer;
struct fs;
struct draft;
struct object;

enum inode_kind { INODE_DIR, INODE_SYMLINK, INODE_OBJECT, INODE_DRAFT, INODE_CONTROL, INODE_BUFFER };
enum inode_state { INODE_LIVE, INODE_REPLACED, INODE_GONE };

/* How long a replaced version may still be opened and looked at. */
#define REPLACED_GRACE_NS (2ll * 1000 * 1000 * 1000)

struct inode {
	uint64_t key;            /* constant; directory, symlink: ino; object: its id; draft: its id */
	struct inode *hash_next;
	uint64_t nlookup;
	uint32_t refs;
	enum inode_kind kind;    /* constant */
	enum inode_state state;
	int64_t replaced_ns;     /* CLOCK_MONOTONIC */
	uint32_t looker;         /* thread that looked it up last */
	uint32_t looked_s, others_looked_s; /* when; when another thread than that did. CLOCK_MONOTONIC */
	uint64_t parent;         /* ino of the directory that shows it */
	char *name;              /* its name there; NULL for the root and unlinked drafts */
	struct entry e;          /* attributes; target is owned (symlink) */
	struct object *object;   /* INODE_OBJECT: the bytes; NULL once dropped and closed */
	struct draft *draft;     /* INODE_DRAFT: NULL once dropped */
	uint64_t dropped_id;     /* INODE_DRAFT, dropped: the version it showed last, 0: none */
	struct draft *drafts;    /* INODE_DIR: drafts that will publish here (draft->dir_next) */
	uint32_t n_drafts;
	uint32_t n_publishing;   /* INODE_DIR: objects without a draft that are about to get a name here */
	uint64_t last_size_bytes; /* INODE_DIR: of the object published last; sizes the next frame */
	int64_t promised_ns;     /* a change on another node leaves it openable until then */
	bool is_remote;          /* of another node: its bytes are not here (INODE_OBJECT), nobody tells us of changes */
	bool is_dead;            /* INODE_DIR: being removed, takes no new names */
	bool is_dirty;           /* INODE_DIR: times not yet in the catalog */
	bool is_listed;          /* among those that inode_flush_dirty looks at */
	struct inode *dirty_next;
	int control_id;          /* INODE_CONTROL, constant */
	struct buffer *buffer;   /* INODE_BUFFER: NULL once gone */
};

struct inode_table;

struct inode_table *inode_table_create(void);
/* Frees every inode left; the kernel is gone. */
void inode_table_destroy(struct inode_table *t);

/* The inode behind a nodeid the kernel sent. */
struct inode *inode_of(struct fs *fs, uint64_t nodeid);
uint64_t inode_nodeid(struct fs *fs, const struct inode *i);

/* ---- fs->lock held ---- */

struct inode *inode_find(struct fs *fs, uint64_t key);
/*
 * A new inode with refs = 1 in the table. Takes over e->target. Aborts on memory exhaustion (as all
 * small allocations here do).
 */
struct inode *inode_create_locked(struct fs *fs, uint64_t key, enum inode_kind kind, uint64_t parent,
				  const char *name, struct entry *e);
/* The inode of a catalog entry, made if need be, with one more ref. Takes over e->target. */
struct inode *inode_get_entry_locked(struct fs *fs, uint64_t parent, const char *name,
				     struct entry *e);
void inode_get_locked(struct inode *i);
/* Drops a ref; frees the inode when nothing holds it. */
void inode_put_locked(struct fs *fs, struct inode *i);
void inode_forget_locked(struct fs *fs, struct inode *i, uint64_t nlookup);
void inode_looked_up_locked(struct inode *i, uint32_t tid);
/* Another thread than tid looked it up within the grace time: its OPEN may be on its way. */
bool inode_is_awaited_locked(const struct inode *i, uint32_t tid);
void inode_set_name_locked(struct inode *i, uint64_t parent, const char *name);
/* Directory times move on; written to the catalog by inode_flush_dirty or when it is forgotten. */
void inode_dir_changed_locked(struct fs *fs, uint64_t dir_ino);
uint64_t inode_count_locked(struct fs *fs);

/* ---- fs->lock not held ---- */

/* Writes the times of changed directories to the catalog. Returns how many. */
int inode_flush_dirty(struct fs *fs);

#endif
