/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace: names in directories, as one process sees them: the catalog's entries plus its drafts.
 * Every change of a name happens under the stripe of that name (fs.h).
 * Errors: negative errno. Thread safety: all functions; no lock may be held except where said.
 */
#ifndef MCFS_NAMESPACE_H
#define MCFS_NAMESPACE_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "object/draft.h"

struct entry;
struct fs;
struct inode;
struct object_record;

/* Where the catalog keeps the attributes of the root itself. */
#define ROOT_PARENT 0
#define ROOT_NAME "root"

/* The stripe of a name. */
pthread_mutex_t *ns_stripe(struct fs *fs, uint64_t dir_ino, const char *name);
/* Which of fs->name_stripes guards a name. Several are locked in the order of their numbers. */
unsigned int ns_stripe_of(uint64_t dir_ino, const char *name);
/* Locks the stripe of a name; unlock with pthread_mutex_unlock. */
pthread_mutex_t *ns_lock_name(struct fs *fs, uint64_t dir_ino, const char *name);

/*
 * Locks the stripe of the name that shows an object; r gets its record, to be released by
 * object_record_fini. -ENOENT: no name shows it.
 */
int ns_lock_object(struct fs *fs, uint64_t object_id, struct object_record *r,
		   pthread_mutex_t **stripe_out);

/* Who calls; the process is looked up only when some draft has one of the names (name2 may be NULL). */
struct caller_id ns_caller(struct fs *fs, pid_t tid, uid_t uid, uint64_t dir_ino, const char *name,
			   uint64_t dir2_ino, const char *name2);
struct caller_id ns_caller_always(pid_t tid, uid_t uid);

/*
 * What name shows to who. *inode_out gets one more ref. *has_draft_out: the kernel must not cache the
 * name, since it shows different things to different processes.
 */
int ns_lookup(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who,
	      struct inode **inode_out, bool *has_draft_out);

/*
 * 0: something that can be opened has the name; -ENOENT: nothing has, or a file whose bytes are on a disk
 * that is not there, which a new one may replace. Under the name's stripe.
 */
int ns_exists(struct fs *fs, uint64_t dir_ino, const char *name);

struct ns_new {
	mode_t mode; /* with the file type */
	uid_t uid;
	gid_t gid;
	const char *target; /* symlink */
};
/* mkdir, symlink, mknod of an empty regular file. -EEXIST, -ENOENT (directory gone), -EPERM type. */
int ns_make(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
	    const struct caller_id *who, struct inode **inode_out);
int ns_unlink(struct fs *fs, struct inode *dir, const char *name, const struct caller_id *who);
/* The directory behind e takes no new names from now on, if it is empty; rmdir and rename over it. */
int ns_remove_empty_dir(struct fs *fs, const struct entry *e);
/* It stays after all: its removal failed. */
void ns_revive_dir(struct fs *fs, const struct entry *e);
int ns_rmdir(struct fs *fs, struct inode *dir, const char *name);
/* flags: 0 or RENAME_NOREPLACE; others are -EINVAL. */
int ns_rename(struct fs *fs, struct inode *dir, const char *name, struct inode *dir2,
	      const char *name2, unsigned int flags, const struct caller_id *who);
/*
 * The draft that a write open of name leads to: the caller's own, the shared one, or a new one based
 * on the published object. is_private: O_TRUNC. It is returned with one ref (under fs->lock until put)
 * and, when pin_for_retry, kept for the kernel's retry. -ENOENT: nothing has that name.
 */
int ns_open_for_write(struct fs *fs, uint64_t dir_ino, const char *name, bool is_private,
		      bool pin_for_retry, const struct caller_id *who, struct draft **out);
/*
 * CREATE: a new draft (or as ns_open_for_write when the name exists and !is_excl), one ref.
 * -EEXIST as design rule 1 says for O_EXCL.
 */
int ns_create(struct fs *fs, struct inode *dir, const char *name, const struct ns_new *n,
	      bool is_excl, bool is_trunc, const struct caller_id *who, struct draft **out);
/* Writes the attributes of an inode (or of what a draft published last) to the catalog. */
int ns_store_attr(struct fs *fs, struct inode *i);

/* ---- fs->lock held ---- */

/* Attributes of something new in dir: times now, group and policy inherited. */
void ns_init_entry_locked(struct inode *dir, const char *name, const struct ns_new *n,
			  struct entry *e);

#endif
