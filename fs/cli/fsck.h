/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck: compares the catalog of a state directory with the frames on its tiers, and repairs it.
 *
 *   frames (fsck_frames.c)  what files there are, and of which size
 *   objects, names (fsck_check.c)  each record is judged; the verdicts stay in the tables below
 *   bytes (fsck_data.c)  checksums of the ssd frames, with --data
 *   repair (fsck_repair.c)  the same judgement again, this time carried out
 *
 * The daemon is not running: its lock on the state directory is held throughout. Every table is sorted,
 * 64 bytes per object and 24 per frame, so a million objects take 100 MB and some seconds.
 * Thread safety: none; one thread checks one state directory. Errors: negative errno, said on stderr.
 */
#ifndef MCFS_CLI_FSCK_H
#define MCFS_CLI_FSCK_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/bar.h"
#include "mcfs/catalog.h"
#include "mcfs/catalog_repair.h"

/* X(id, JSON name, words, is a leftover that the next start of the daemon clears as well) */
#define FSCK_FINDINGS(X)                                                                           \
	X(DATABASE, "database", "the catalog's database is damaged", false)                        \
	X(DAMAGED, "damaged_records", "records that are damaged", false)                           \
	X(NEWER, "newer_records", "records of a newer version, left alone", false)                 \
	X(NO_OBJECT, "names_without_object", "names without an object", false)                     \
	X(NO_BYTES, "names_without_bytes", "objects whose bytes are on no tier", false)            \
	X(NAME_TWICE, "names_of_one_object", "names that show another name's object", false)       \
	X(WRONG_SIZE, "wrong_sizes", "names that tell another size than their object", false)      \
	X(WRONG_BACK, "wrong_back_names", "objects that tell another name than theirs", false)     \
	X(NO_NAME, "objects_without_name", "objects without a name", false)                        \
	X(UNREACHABLE, "unreachable", "names in directories that are not there", false)            \
	X(DIR_TWICE, "directories_twice", "directories with a second name", false)                 \
	X(FRAME_MISSING, "missing_frames", "copies that are missing, the other tier has one",      \
	  false)                                                                                   \
	X(FRAME_SIZE, "wrong_frame_sizes", "frames of a wrong size", false)                        \
	X(FRAME_BYTES, "wrong_frame_bytes", "frames with wrong bytes", false)                      \
	X(FRAME_SHARED, "shared_frames", "frames that two objects claim", false)                   \
	X(CONTROL, "control_values", "control values that are missing or behind", false)           \
	X(DISK_ABSENT, "absent_disks", "ssd directories that are not there, not checked", false)   \
	X(ORPHAN, "orphan_frames", "frames that no object needs", true)                            \
	X(LOST_DRAM, "lost_with_dram", "objects that were in DRAM alone, which is gone", true)

enum fsck_finding {
#define X(id, json, words, leftover) FSCK_##id,
	FSCK_FINDINGS(X)
#undef X
		FSCK_N_FINDINGS
};

#define FSCK_EXAMPLES 10

struct fsck_tally {
	uint64_t n, n_repaired;
	json_t *examples; /* array of strings, the first few */
};

struct fsck_frame {
	uint64_t id, size; /* id: with the number of its directory */
	uint32_t dir;	 /* of fsck_tier.dirs */
	uint16_t n_users;
	bool is_bad;	 /* must go: wrong size or bytes, or claimed twice */
};

struct fsck_tier {
	const char *name;
	char **dirs;
	uint8_t *numbers; /* of the dirs */
	size_t n_dirs;
	bool has_fan_out;
	bool is_there; /* dram: a tmpfs is mounted; its frames can be judged */
	struct fsck_frame *v; /* by id */
	size_t n, cap;
	uint64_t bytes;
};

enum fsck_bytes { FSCK_BYTES_OK, FSCK_BYTES_LOST_DRAM, FSCK_BYTES_GONE, FSCK_BYTES_UNKNOWN };

struct fsck_object {
	uint64_t id, size, parent, cookie; /* cookie: of the name in its record, 0: none */
	uint64_t dram_frame, ssd_frame;
	uint8_t bytes;			   /* enum fsck_bytes */
	bool is_promise, is_named;
	bool drops_dram, drops_ssd;	   /* the record tells of a copy that is not there */
};

struct fsck_dir {
	uint64_t ino, parent;
	bool is_reachable, is_known; /* known: settled */
	bool is_seen_again;
};

struct fsck {
	const char *state_dir;
	bool repairs, checks_data;
	char **ssd_dirs; /* --ssd; n 0: those of disks.json */
	size_t n_ssd_dirs;

	struct bar bar;
	int lock_fd;
	char catalog_path[PATH_MAX];
	char copy_path[PATH_MAX]; /* of the database before its repair, "" none */
	struct catalog *catalog;
	bool is_complete;	  /* everything was looked at */

	struct fsck_tier dram, ssd;
	bool disk_is_absent[256]; /* by its number */
	struct fsck_object *objects; /* by id */
	size_t n_objects, cap_objects;
	struct fsck_dir *dirs; /* by ino */
	size_t n_dirs, cap_dirs;

	uint64_t n_names, n_files, n_symlinks, n_promises, object_bytes, checked_bytes;
	uint64_t max_number; /* the highest id and inode number met */
	struct fsck_tally tallies[FSCK_N_FINDINGS];
};

/* ---- fsck.c ---- */
/* All of it. 0: f says what was found; else it could not be done (said). */
int fsck_run(struct fsck *f);
void fsck_fini(struct fsck *f);
/* Counts a finding; fmt describes it for the report. */
void fsck_found(struct fsck *f, enum fsck_finding what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
uint64_t fsck_n_left(const struct fsck *f); /* found and not repaired */
/* Grows an array to hold one more. 0 or -ENOMEM (said). */
int fsck_grow(void **v, size_t n, size_t *cap, size_t item_bytes);
struct fsck_object *fsck_object(const struct fsck *f, uint64_t id);
struct fsck_dir *fsck_dir(const struct fsck *f, uint64_t ino);

/* ---- fsck_frames.c ---- */
int fsck_frames_load(struct fsck *f);
struct fsck_frame *fsck_frame(const struct fsck_tier *t, uint64_t id);
/* fd of a frame's file, or a negative errno. */
int fsck_frame_open(const struct fsck_tier *t, const struct fsck_frame *frame);
int fsck_frame_remove(const struct fsck_tier *t, const struct fsck_frame *frame);
void fsck_tier_fini(struct fsck_tier *t);

/* ---- fsck_check.c ---- */
int fsck_check_objects(struct fsck *f);
int fsck_check_names(struct fsck *f);

enum fsck_action {
	FSCK_KEEP,
	FSCK_DELETE,   /* the name goes */
	FSCK_FIX_SIZE, /* the entry gets the object's size */
	FSCK_FIX_BACK, /* the object's record gets this name */
	FSCK_MOVE,     /* to lost+found */
};
/* What has to be done about a name; marks what it has seen. tells: it is counted as a finding. */
enum fsck_action fsck_judge_name(struct fsck *f, uint64_t parent, const char *name,
				 const struct entry *e, bool tells);
/* Before names are judged once more. */
void fsck_forget_names(struct fsck *f);

/* ---- fsck_data.c ---- */
int fsck_check_data(struct fsck *f);

/* ---- fsck_repair.c ---- */
int fsck_repair(struct fsck *f);

/* ---- fsck_report.c ---- */
void fsck_print(const struct fsck *f);
json_t *fsck_json(const struct fsck *f);

#endif
