/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_dir: a directory of frame files with a budget; what the dram and the ssd tier share.
 *
 * A tier embeds a struct frame_dir first and points its tier_ops at the functions below, which have
 * the very contracts of tier.h. Sealed frames are counted, not listed: a million of them cost nothing
 * here. What a tier adds is how its directory comes to be, how it syncs, and how it ends.
 *
 * Thread safety: as tier.h says; init, scan, adopt, remove_orphan and fini belong to one thread.
 */
#ifndef MCFS_FRAME_DIR_H
#define MCFS_FRAME_DIR_H

#include <mcfs/tier.h>
#include <pthread.h>

#include "tier/fd_cache.h"
#include "tier/free_list.h"

/*
 * Kernel memory of one tmpfs file: inode, dentry and its share of the page tree. Measured at about
 * 1.1 KiB; it is not part of st_blocks, so every dram frame is charged this on top of its pages.
 */
#define FRAME_KERNEL_BYTES UINT64_C(1152)
#define FRAME_NUMBER_SHIFT 56
#define FRAME_PAGE_BYTES UINT64_C(4096)
#define FRAME_HUGE_BYTES (UINT64_C(2) << 20)

/* Parts of the budget where making room ahead of need begins and ends. */
#define FRAME_HIGH_PERCENT 95
#define FRAME_LOW_PERCENT 90

/* The free list never holds more than this part of the budget, nor more files than this. */
#define FREE_LIST_BUDGET_PART 8
#define FREE_LIST_MAX_FRAMES 1024
/* Descriptors of sealed frames that are kept between reads. */
#define FD_CACHE_MAX_FRAMES 8192
/* Mappings that are kept while nobody uses them: each has a descriptor, too. */
#define FRAME_MAPS_MAX (1u << 20)

struct frame_dir_conf {
	const char *name; /* for messages; outlives the frame_dir */
	const char *path; /* an existing directory; copied */
	uint8_t number;	  /* top 8 bits of the ids of its frames; not part of their names */
	uint64_t budget_bytes;
	uint64_t overhead_bytes; /* charged for each frame besides its pages */
	bool has_fan_out;	 /* two levels of directories between path and the frames */
	bool recycles;		 /* dropped frames go to the free list */
	bool grows_ahead;	 /* writes past 2 MiB size the file ahead, for huge pages */
	bool is_durable;	 /* directories are synced when they are made */
};

struct frame_maps;
struct zombie;

struct frame_dir {
	struct tier tier;
	struct frame_dir_conf conf; /* conf.path is ours */
	int fd;			    /* of the directory */
	uint64_t next_id;	    /* atomic */

	struct fd_cache *fds;	    /* of sealed frames; NULL: none are kept */
	struct frame_maps *maps;    /* NULL: frames are not mapped */

	pthread_mutex_t space_lock; /* guards what follows; no system call is made under it */
	struct tier_stats space;
	struct free_list free_list;
	struct zombie *zombies; /* newest first */

	pthread_mutex_t grow_lock; /* one thread at a time moves a file's end ahead; taken alone */
};

/*
 * conf->path must exist. Also sets SIGIO to be ignored if nobody handles it: the kernel sends it when
 * somebody opens a frame in the instant in which the write lease of a test is held, and its default
 * action ends the process. Returns 0, -ENOMEM, or the errno of opening the directory (logged).
 */
int frame_dir_init(struct frame_dir *d, const struct tier_ops *ops,
		   const struct frame_dir_conf *conf);
/* Closes everything; the free list's files go, sealed frames stay unless removes_frames. */
void frame_dir_fini(struct frame_dir *d, bool removes_frames);

/* ---- operations of struct tier_ops (frame_dir.c) ---- */
int frame_dir_take(struct tier *t, uint64_t size_hint_bytes, struct frame *out);
int frame_dir_resize(struct tier *t, struct frame *f, uint64_t bytes);
int frame_dir_seal(struct tier *t, struct frame *f, uint64_t *charged_out);
void frame_dir_discard(struct tier *t, struct frame *f);
int frame_dir_open(struct tier *t, uint64_t frame_id);
int frame_dir_borrow(struct tier *t, uint64_t frame_id);
void frame_dir_give_back(struct tier *t, uint64_t frame_id, int fd);
int frame_dir_map(struct tier *t, uint64_t frame_id, uint64_t bytes, int fd, struct frame_map **out);
void frame_dir_unmap(struct tier *t, struct frame_map *map);
void frame_dir_set_registrar(struct tier *t, const struct tier_registrar *r);
void frame_dir_get_map_stats(struct tier *t, struct tier_map_stats *out);
void frame_dir_drop(struct tier *t, uint64_t frame_id, uint64_t size_bytes, uint64_t charged_bytes);
void frame_dir_adopt(struct tier *t, uint64_t frame_id, uint64_t charged_bytes);
bool frame_dir_is_lost(struct tier *t, uint64_t frame_id);
bool frame_dir_may_return(struct tier *t, uint64_t frame_id);
int frame_dir_report_error(struct tier *t, uint64_t frame_id, int err);

/* ---- space (frame_space.c) ---- */
int frame_dir_charge(struct tier *t, struct frame *f, uint64_t bytes);
uint64_t frame_dir_reclaim(struct tier *t, uint64_t keep_bytes);
void frame_dir_get_stats(struct tier *t, struct tier_stats *out);

/* What a frame is charged that takes so many bytes. */
uint64_t frame_space_charge(const struct frame_dir *d, uint64_t bytes);
/* Counts bytes against the budget, at the expense of the free list if need be. 0 or -ENOSPC. */
int frame_space_reserve(struct frame_dir *d, uint64_t bytes);
void frame_space_uncharge(struct frame_dir *d, uint64_t bytes);
void frame_space_set_budget(struct frame_dir *d, uint64_t bytes);
void frame_space_uncharge_locked(struct frame_dir *d, uint64_t bytes);
/* Trims the free list to keep_bytes and keep_frames; returns the bytes given back. */
uint64_t frame_space_trim(struct frame_dir *d, uint64_t keep_bytes, uint32_t keep_frames);
/* Whether another try is worth it: rc is -EMFILE or -ENFILE and the free list gave up half its fds. */
bool frame_space_free_fds(struct frame_dir *d, int rc);
/* Decides what becomes of a frame that no object needs; takes its fd and its charge. */
void frame_space_retire(struct frame_dir *d, const struct recycled *r);
void frame_space_fini(struct frame_dir *d);

/* ---- bytes (frame_io.c) ---- */
int frame_dir_write(struct tier *t, struct frame *f, const void *buf, size_t len, uint64_t off);
int frame_dir_read(struct tier *t, struct frame *f, void *buf, size_t len, uint64_t off);
int frame_dir_zero(struct tier *t, struct frame *f, uint64_t off, uint64_t len);

/* ---- names (frame_name.c) ---- */
int frame_dir_scan(struct tier *t, tier_scan_fn fn, void *arg);
int frame_dir_remove_orphan(struct tier *t, uint64_t frame_id);

/* A new file with an id nobody has: its fd (O_RDWR), or a negative errno. */
int frame_name_create(struct frame_dir *d, uint64_t *id_out);
/* Gives a file another id nobody has, so that what still knows the old one finds nothing. */
int frame_name_renew(struct frame_dir *d, uint64_t id, uint64_t *id_out);
/* fd of the frame's file, or a negative errno. */
int frame_name_open(struct frame_dir *d, uint64_t id, int flags);
int frame_name_unlink(struct frame_dir *d, uint64_t id);
/* Makes the name survive a power failure: fsync of its directory. */
int frame_name_sync(struct frame_dir *d, uint64_t id);
/* Later ids are above this one, if it is one of this directory. */
void frame_name_seen(struct frame_dir *d, uint64_t id);
/* Every frame and every fan-out directory; other files stay. */
void frame_name_remove_all(struct frame_dir *d);

static inline struct frame_dir *frame_dir_of(struct tier *t)
{
	return (struct frame_dir *)t; /* the tier is its first member */
}

/* What the operations of a tier have in common; the tier adds name, sync, destroy. */
#define FRAME_DIR_OPS                                                                   \
	.take = frame_dir_take, .charge = frame_dir_charge, .resize = frame_dir_resize, \
	.write = frame_dir_write, .read = frame_dir_read, .zero = frame_dir_zero,       \
	.seal = frame_dir_seal, .discard = frame_dir_discard, .open = frame_dir_open,   \
	.drop = frame_dir_drop, .is_lost = frame_dir_is_lost,                           \
	.may_return = frame_dir_may_return, .report_error = frame_dir_report_error,     \
	.borrow = frame_dir_borrow, .give_back = frame_dir_give_back,                   \
	.scan = frame_dir_scan, .remove_orphan = frame_dir_remove_orphan,               \
	.reclaim = frame_dir_reclaim, .get_stats = frame_dir_get_stats

#endif
