/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier: keeps frames, the files that back objects, within a budget of bytes.
 *
 * A frame is private to its writer from tier_take until tier_seal; then its bytes never change until
 * tier_drop. A tier knows nothing of names, objects or eviction: when a charge does not fit, it says
 * -ENOSPC and its caller makes room.
 *
 *   free list --take--> open (fd, charged) --seal--> sealed (no fd) --drop--> free list | gone | zombie
 *
 * A dropped frame is recycled only if nobody else has it open or mapped (asked with a write lease,
 * which the kernel refuses while another file description of the inode exists); else it is unlinked
 * and waits as a zombie, charged until its last user is gone. A recycled frame has a new id, so an id
 * never names other bytes than those it was sealed with. The ssd tier does not recycle.
 *
 * Charges are whole pages of 4 KiB; dram adds the kernel memory of a file (1,152 bytes) for each frame.
 *
 * Thread safety: any function from any thread; one frame is used by one thread at a time, except
 * tier_read and tier_write, which may overlap each other.
 * Errors: negative errno; outputs written on success only.
 */
#ifndef MCFS_TIER_H
#define MCFS_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An open frame. Embedded by value in its owner; id 0 means none. */
struct frame {
	uint64_t id;            /* file name on the tier (16 hex digits) */
	int fd;                 /* O_RDWR, O_CLOEXEC */
	uint64_t size_bytes;    /* size of the file */
	uint64_t stale_bytes;   /* [0, stale_bytes) may hold bytes of an earlier object; 0: fresh, all zero */
	uint64_t charged_bytes; /* counted against the budget */
	bool is_name_synced;    /* ssd: its directory entry survives a power failure */
};

#define FRAME_NONE ((struct frame){ .fd = -1 })

struct tier_stats {
	uint64_t budget_bytes;  /* limit of used_bytes */
	uint64_t used_bytes;    /* open + sealed + free list + zombies */
	uint64_t free_list_bytes, zombie_bytes;
	uint64_t n_sealed, n_open, n_free_list, n_zombies;
	uint64_t n_recycled;    /* frames taken from the free list since start */
	uint64_t n_created;     /* frames made anew since start */
	uint64_t high_watermark_bytes; /* used_bytes above this: begin to make room ahead of need */
	uint64_t low_watermark_bytes;  /* ... until used_bytes is no more than this */
	uint32_t n_disks;        /* directories of the tier, failed ones too; dram: 1 */
	uint32_t n_failed_disks; /* their frames are lost, their budgets not in budget_bytes */
};

/* A frame in this process's memory. */
struct frame_map {
	void *addr;             /* page aligned, readable and writable */
	uint64_t bytes;         /* the frame's size */
	void *registration;     /* what the registrar gave for it; NULL: none */
};

/* Makes mapped frames known to devices. */
struct tier_registrar {
	/* -ENOMEM: a limit is met. Others that are not used give way, and it is tried again. */
	int (*reg)(void *arg, void *addr, size_t bytes, void **registration_out);
	void (*deregister)(void *arg, void *registration);
	void *arg;
};

struct tier_map_stats {
	uint32_t n_mapped, n_registered; /* frames, held ones and idle ones */
	uint32_t max_idle;      /* that are kept while nobody holds them */
	uint64_t mapped_bytes, registered_bytes;
	uint64_t n_registrations, n_failures; /* since start; failures: it stayed unregistered */
};

struct tier;

typedef int (*tier_scan_fn)(void *arg, uint64_t frame_id);

struct tier_ops {
	const char *name;       /* "dram", "ssd" */

	/*
	 * A frame to write. size_hint_bytes is the expected final size (0: unknown): a free frame of
	 * that very size is preferred, else a fresh one is made and sized to the hint before any byte
	 * is written, so that the kernel can back it by huge pages. Never blocks on space. A fresh frame
	 * is charged for the file alone, a recycled one for the pages it has; the rest is for charge.
	 * -ENOSPC, -EMFILE, -ENFILE, -EFBIG (hint above 2^63 - 1), -EIO.
	 */
	int (*take)(struct tier *t, uint64_t size_hint_bytes, struct frame *out);
	/*
	 * Charge f for at least bytes in all, before they are written; the free list gives way.
	 * -ENOSPC when that passes the budget: nothing changed. -EFBIG above 2^63 - 1.
	 */
	int (*charge)(struct tier *t, struct frame *f, uint64_t bytes);
	/*
	 * Sets the file size. Growing leaves zeros and the charge, shrinking forgets bytes (and stale
	 * ones) and lowers the charge. 0 at once when the size is right. -EFBIG, -EIO.
	 */
	int (*resize)(struct tier *t, struct frame *f, uint64_t bytes);
	/*
	 * All of it or an errno. -ENOSPC when the medium is full: the caller makes room and repeats.
	 * Charges nothing. A write past the end grows the file: below 2 MiB to its own end, above by
	 * more than that (dram), so the owner resizes to the exact size before seal.
	 */
	int (*write)(struct tier *t, struct frame *f, const void *buf, size_t len, uint64_t off);
	/* All of it or an errno; past the end of file is -EIO (a frame is never shorter than asked). */
	int (*read)(struct tier *t, struct frame *f, void *buf, size_t len, uint64_t off);
	/*
	 * Writes zeros over [off, off + len) where that range may be stale or written; what lies past
	 * the end of the file, and holes, are left alone (they are zero), so it takes no new page.
	 */
	int (*zero)(struct tier *t, struct frame *f, uint64_t off, uint64_t len);
	/* Bytes are on the medium (dram: nothing to do, 0). */
	int (*sync)(struct tier *t, struct frame *f);
	/*
	 * The frame becomes immutable: the charge is trued up to what the file really takes
	 * (st_blocks), the fd is closed, *f becomes FRAME_NONE. charged_out gets the charge.
	 * -EIO: the file is not as long as f says; the frame is still open and the caller's.
	 */
	int (*seal)(struct tier *t, struct frame *f, uint64_t *charged_out);
	/* Throws away an unsealed frame: free list, or unlinked. *f becomes FRAME_NONE. */
	void (*discard)(struct tier *t, struct frame *f);
	/* fd of a sealed frame, O_RDONLY|O_CLOEXEC; the caller closes it. -ENOENT: lost. */
	int (*open)(struct tier *t, uint64_t frame_id);
	/*
	 * The frame was on a disk that has failed: no open will succeed, a drop touches no disk. Never
	 * blocks. False says nothing about a single frame that is missing or unreadable.
	 */
	bool (*is_lost)(struct tier *t, uint64_t frame_id);
	/*
	 * The frame is lost as is_lost says, but its disk is one that was asked for and may be there again at
	 * the next start: what it holds is not to be forgotten.
	 */
	bool (*may_return)(struct tier *t, uint64_t frame_id);
	/*
	 * Tells of an error (a negative errno) met by who used the frame's fd without these operations,
	 * with frame_copy for one. Errors that are a disk's count against the disk, others do nothing. Returns what to
	 * tell others: -EIO for whatever says that the disk is bad, else err.
	 */
	int (*report_error)(struct tier *t, uint64_t frame_id, int err);
	/*
	 * The same for a short while, from and for a cache of descriptors (dram only): each borrow is
	 * given back.
	 */
	int (*borrow)(struct tier *t, uint64_t frame_id);
	void (*give_back)(struct tier *t, uint64_t frame_id, int fd);
	/*
	 * A frame's bytes in memory, registered if there is a registrar and no limit is met, until unmap (dram only). A
	 * mapping is kept for the next caller and over recycling. bytes: its size, not 0. fd: of an open frame, which
	 * has its final size and all its pages; -1: it is sealed, and only read. Not to be held when it is dropped or
	 * discarded: it is then not recycled. -ENOENT: lost; -ENOMEM, -EMFILE, -EIO.
	 */
	int (*map)(struct tier *t, uint64_t frame_id, uint64_t bytes, int fd, struct frame_map **out);
	void (*unmap)(struct tier *t, struct frame_map *map);
	/* NULL: none; nothing may be mapped then. What is registered with the one before is deregistered. */
	void (*set_registrar)(struct tier *t, const struct tier_registrar *r);
	void (*get_map_stats)(struct tier *t, struct tier_map_stats *out);
	/* Gives up a sealed frame with its charge; see the states above. size_bytes: its file size. */
	void (*drop)(struct tier *t, uint64_t frame_id, uint64_t size_bytes, uint64_t charged_bytes);

	/* Start: every frame found on the medium. fn returns 0 to go on, else scan returns that. */
	int (*scan)(struct tier *t, tier_scan_fn fn, void *arg);
	/* Start: counts a found frame as sealed with this charge. */
	void (*adopt)(struct tier *t, uint64_t frame_id, uint64_t charged_bytes);
	/* Start: removes a found frame that nothing refers to. */
	int (*remove_orphan)(struct tier *t, uint64_t frame_id);

	/* Looks again at zombies; trims the free list to at most keep_bytes. Called about once a second
	 * and under pressure (keep_bytes 0). Returns the bytes given back to the budget. */
	uint64_t (*reclaim)(struct tier *t, uint64_t keep_bytes);
	void (*get_stats)(struct tier *t, struct tier_stats *out);
	/* Stops using the medium. free: also removes all frames (and the tmpfs). */
	void (*destroy)(struct tier *t, bool free);
};

/* Every implementation embeds this first. */
struct tier {
	const struct tier_ops *ops;
};

/* One checked call site per operation. */
#define tier_call(t, op, ...) ((t)->ops->op((t), ##__VA_ARGS__))

struct dram_conf {
	const char *path;       /* mount point of the tmpfs, made with mode 0700 */
	uint64_t budget_bytes;
	bool allow_plain_dir;   /* use the directory as it is when a tmpfs cannot be mounted (tests) */
};

/*
 * The dram tier: a private tmpfs (huge=within_size, noswap, nr_inodes=0). A tmpfs that is already
 * mounted there is used again with its frames (and resized). Errors, each logged: -EPERM mount
 * refused (needs CAP_SYS_ADMIN), -ENOMEM budget above what dram_budget_check allows.
 */
int dram_tier_create(const struct dram_conf *conf, struct tier **out);
/*
 * 0 when bytes fit in MemAvailable (plus what the tmpfs at path already holds) and in the cgroup's
 * memory limit (v1 and v2, every ancestor); else -ENOMEM, both numbers named in why (NUL-terminated).
 */
int dram_budget_check(const char *path, uint64_t bytes, char *why, size_t why_len);
/* A default budget: a quarter of the smaller of MemAvailable and the cgroup's room, whole MiB. */
uint64_t dram_budget_default(void);

#define SSD_MAX_DIRS 16

struct ssd_dir {
	const char *path;       /* directory, made with mode 0700; frames in two-level fan-out below it */
	uint64_t budget_bytes;  /* 0: nine tenths of what the file system has free at start */
};

struct ssd_conf {
	const struct ssd_dir *dirs;
	uint32_t n_dirs;        /* 1 .. SSD_MAX_DIRS */
	const char *state_dir;  /* existing directory of disks.json; NULL: none, and no disk is known */
	struct tier *(*wrap)(struct tier *frames); /* tests: a fake over each disk's frames; NULL */
};

/*
 * The ssd tier: one directory on each of several disks. The number of a frame's disk is the top 8 bits
 * of its id. A directory that is missing or unusable counts as a failed disk, with an error in the log;
 * the tier then works without it, even without any disk (take: -EIO).
 * Errors, each logged: -EINVAL a directory holds another disk than disks.json says, is given twice, or
 * its identity cannot be told; the errno of a directory when none is usable and none was ever known;
 * the errno of writing disks.json; -ENOMEM.
 */
int ssd_tier_create(const struct ssd_conf *conf, struct tier **out);

struct ssd_disk_stats {
	const char *path;       /* valid as long as the tier */
	uint32_t number;        /* top 8 bits of its frames' ids; only of a disk that is known */
	bool is_known;          /* has a number; false: it never worked */
	char id[33];            /* of its disk.json; "" when not known */
	uint64_t budget_bytes;  /* 0 when failed, as what follows */
	uint64_t wanted_bytes;  /* above budget_bytes: shrunk, the file system had no more room */
	uint64_t used_bytes, n_sealed;
	uint64_t n_errors;      /* I/O errors since start */
	bool is_failed;
	char failed_reason[128];
};

/* index from 0, in the order given. t is what ssd_tier_create made. -ENOENT: there are no more. */
int ssd_get_disk_stats(struct tier *t, uint32_t index, struct ssd_disk_stats *out);

#endif
