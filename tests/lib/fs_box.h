/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_box: the whole file system without a mount, in a temporary directory, and the few steps in
 * which the FUSE operations use it (create, write, close, die), so that tests speak of processes
 * and files.
 *
 * As root the dram tier is a real tmpfs, in a mount namespace of this process: it goes with it.
 * Thread safety: the box itself none; calls on files as the file system promises.
 * Set-up that fails aborts. Calls under test return 0 or a negative errno.
 */
#ifndef MCFS_FS_BOX_H
#define MCFS_FS_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs.h"
#include "handle.h"
#include "inode_table.h"
#include "object/draft.h"
#include "object/namespace.h"
#include "object/object.h"
#include "object/publish.h"
#include "object/space.h"
#include "options.h"

struct fs_box {
	struct fs fs;
	struct options opt;
	char top[96];
	char ssd[112];
	struct catalog *writable; /* while fs.catalog is read only */
	bool is_running;
};

/* ---- the box ---- */

/* Options with defaults (64 MiB of dram, no wait for space) that a test may change before start. */
void fs_box_init(struct fs_box *b);
void fs_box_start(struct fs_box *b);
/* init and start. */
void fs_box_open(struct fs_box *b);
/* The daemon ends (the frames stay, or go as in a reboot) and starts again, without fault tiers. */
void fs_box_restart(struct fs_box *b, bool loses_dram);
void fs_box_stop(struct fs_box *b, bool loses_dram);
/* Stops and removes everything. */
void fs_box_close(struct fs_box *b);
/* Puts a fault_tier over the tier. */
void fs_box_fault_dram(struct fs_box *b);
void fs_box_fault_ssd(struct fs_box *b);
/*
 * From here until true is given the catalog answers reads alone: every commit is -EROFS. Nests not.
 * It shows what was written before.
 */
void fs_box_catalog_writable(struct fs_box *b, bool is_writable);

struct inode *fs_box_root(struct fs_box *b);
/* A new directory; its inode stays referenced until the box stops. */
struct inode *fs_box_mkdir(struct fs_box *b, struct inode *dir, const char *name);
/* A directory by name after a restart. */
struct inode *fs_box_dir(struct fs_box *b, struct inode *dir, const char *name);

struct tier_stats fs_box_dram(struct fs_box *b);
struct tier_stats fs_box_ssd(struct fs_box *b);
uint32_t fs_box_n_drafts(struct fs_box *b);
uint64_t fs_box_n_objects(struct fs_box *b);
/* Whether the objects' charges agree with the dram tier's books, all drafts being closed. */
bool fs_box_books_balance(struct fs_box *b);

/* ---- processes ---- */

/* A process with one thread; pid is any number above 0. */
struct caller_id fs_box_who(int pid);

/* ---- names ---- */

/* Gives the ref back. */
void fs_box_put(struct fs_box *b, struct inode *i);
/* What the name shows, known to the kernel from now on (referenced). NULL: nothing. */
struct inode *fs_box_look(struct fs_box *b, struct inode *dir, const char *name,
			  struct caller_id who);
int fs_box_unlink(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who);

/* ---- drafts ---- */

enum { BOX_EXCL = 1, BOX_TRUNC = 2 };

/* CREATE. The handle is released by fs_box_release (or fs_box_shut). */
int fs_box_create(struct fs_box *b, struct inode *dir, const char *name, int flags,
		  struct caller_id who, struct handle **out);
/* OPEN for writing of a published name: ESTALE, LOOKUP, OPEN of the draft. */
int fs_box_reopen(struct fs_box *b, struct inode *dir, const char *name, int flags,
		  struct caller_id who, struct handle **out);
int fs_box_write(struct fs_box *b, struct handle *h, const void *buf, size_t len, uint64_t off);
/* FLUSH by the opener. *out (may be NULL) says where this very call published; out->dir NULL: nowhere. */
int fs_box_flush(struct fs_box *b, struct handle *h, struct published *out);
/* FLUSH of an opener killed by a signal. */
int fs_box_kill(struct fs_box *b, struct handle *h);
void fs_box_release(struct fs_box *b, struct handle *h);
/* FLUSH and RELEASE: close(2) of the only descriptor. */
int fs_box_shut(struct fs_box *b, struct handle *h);

/* create, write, close. */
int fs_box_put_file(struct fs_box *b, struct inode *dir, const char *name, const void *buf,
		    size_t len, struct caller_id who);

/* ---- objects ---- */

/* OPEN for reading of what the inode shows, as ops/open.c has it. -ESTALE. */
int fs_box_hold(struct fs_box *b, struct inode *i, struct caller_id who, struct object **out);
int fs_box_pread(struct fs_box *b, struct object *o, void *buf, size_t len, uint64_t off);
void fs_box_drop(struct fs_box *b, struct inode *i, struct object *o);

/* fsync(2) of what the name shows. */
int fs_box_sync(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who);
/* Frames on a tier's medium, those that no record names included. */
int fs_box_n_files(struct tier *t);

/* Reads a file whole (published or the caller's draft); free() the bytes. */
int fs_box_read(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who,
		char **bytes_out, size_t *len_out);
/* Whether the name shows exactly these bytes to who. */
bool fs_box_shows(struct fs_box *b, struct inode *dir, const char *name, struct caller_id who,
		  const void *buf, size_t len);

#endif
