/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_list: which disk is which. Two kinds of small JSON files say so:
 *
 *   DIR/disk.json     {"format": 1, "number": N, "id": "32 hex digits"}, in each directory of frames
 *   STATE/disks.json  [{"number": N, "id": "...", "path": "DIR", "is_beside_state": BOOL}, ...]
 *
 * A file is replaced as a whole and synced, so it is never half a file. Unknown members are ignored.
 *
 * Thread safety: none needed; used at start.
 */
#ifndef MCFS_DISK_LIST_H
#define MCFS_DISK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISK_MAX_NUMBER 127 /* keeps frame ids below 2^63, as JSON's numbers are */
#define DISK_ID_DIGITS 32
#define DISK_MARKER_NAME "disk.json"
#define DISK_LIST_NAME "disks.json"

struct disk_identity {
	uint32_t number;
	char id[DISK_ID_DIGITS + 1];
};

struct disk_entry {
	struct disk_identity identity;
	char *path;
	bool is_beside_state; /* on the state directory's file system: it cannot be missing alone */
};

struct disk_list {
	struct disk_entry *v;
	uint32_t n;
	bool is_new; /* there was no file: nothing is known about any disk */
};

/* Fills id with random digits; number is the caller's. 0 or a negative errno. */
int disk_identity_make(struct disk_identity *out);

/* -ENOENT: dir has no marker; -EINVAL: one that is damaged (logged); or another errno (logged). */
int disk_marker_read(const char *dir, struct disk_identity *out);
/* The same from a text in memory; -EINVAL. */
int disk_marker_parse(const char *text, size_t len, struct disk_identity *out);
/* 0 or a negative errno (logged). */
int disk_marker_write(const char *dir, const struct disk_identity *identity);
void disk_marker_remove(const char *dir);

/* state_dir NULL: an empty list. -EINVAL: damaged (logged); -ENOMEM; or the errno of reading (logged). */
int disk_list_load(const char *state_dir, struct disk_list *out);
/* The same from a text in memory; -EINVAL, or -ENOMEM. */
int disk_list_parse(const char *text, size_t len, struct disk_list *out);
int disk_list_save(const char *state_dir, const struct disk_list *list);
void disk_list_fini(struct disk_list *list);

/* NULL: not in the list. Valid until the next add. */
struct disk_entry *disk_list_by_path(struct disk_list *list, const char *path);
struct disk_entry *disk_list_by_id(struct disk_list *list, const char *id);
bool disk_list_has_number(const struct disk_list *list, uint32_t number);
/* NULL: no memory. path is copied. */
struct disk_entry *disk_list_add(struct disk_list *list, const struct disk_identity *identity,
				 const char *path);
/* 0 or -ENOMEM. */
int disk_entry_set_path(struct disk_entry *e, const char *path);

#endif
