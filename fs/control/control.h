/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control: the files under .mooncake/ in the root of the mount. Hidden from listings of the root.
 *   status.json  state of tiers, paths and counters      (read)
 *   metrics      the same numbers as Prometheus text     (read)
 *   control      "stop", "stop free", "scrub [RATE]", "scrub stop"  (write, owner only)
 *   session      the fast path, see mooncakefs.h          (open, ioctl, read, poll)
 *   buffers/     memory shared with sessions              (create, ftruncate, mmap, unlink)
 * A file's text is made when it is opened. Thread safety: all functions.
 */
#ifndef MCFS_CONTROL_H
#define MCFS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs;
struct inode;
struct handle;

enum control_id {
	CONTROL_DIR, CONTROL_STATUS, CONTROL_METRICS, CONTROL_CONTROL, CONTROL_SESSION, CONTROL_BUFFERS,
	N_CONTROL
};

/* st_ino of a control file. */
uint64_t control_ino(int control_id);
/* Makes the inodes; once, before the mount. */
void control_init(struct fs *fs);
/* The control inode that name leads to, with one more ref, or NULL. */
struct inode *control_lookup(struct fs *fs, struct inode *dir, const char *name);
/* Users cannot make, remove or rename this name. */
bool control_is_reserved(const struct inode *dir, const char *name);
/* The text of a readable file, malloc'd. NULL: it has none. */
char *control_text(struct fs *fs, int control_id, size_t *len_out);
/* A line written to the control file: 0, -EINVAL unknown command, -EBUSY a scrub is running. */
int control_command(struct fs *fs, const char *text, size_t len);
/* Name of the k-th entry of the control directory and its inode; NULL: no more. */
const char *control_dir_entry(struct fs *fs, unsigned int k, struct inode **inode_out);

/* status.c */
char *status_json(struct fs *fs, size_t *len_out);
/* metrics.c */
char *metrics_text(struct fs *fs, size_t *len_out);

#endif
