/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: whether a frame holds the bytes its object's record tells of.
 *
 * Checked at every open of a frame: its size, and for an ssd frame the stamp (an mtime that depends on
 * the frame's id, which any write by others changes, and which a file put in its place has not). An ssd
 * frame found at the start, or without its stamp, is read whole and compared with the checksums of the
 * record first. dram frames live in memory of this boot and are trusted otherwise.
 *
 * A copy that fails is a bad copy: counted (corrupt: wrong; lost: missing or unreadable), logged with
 * its tier, frame and name, and given up by verify_drop_bad, which the housekeeper calls. The object
 * lives on by its other copy, else its name goes.
 *
 * Lock: a leaf of its own for the list of bad copies. Thread safety: all functions. Reading blocks.
 */
#ifndef MCFS_VERIFY_H
#define MCFS_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fs;
struct object;
struct object_record;
struct space_wait;
struct tier;
struct verifier;

struct verifier *verifier_create(void);
void verifier_destroy(struct verifier *v);

/* Marks a frame of which this daemon has just written, or checked, every byte. */
void verify_stamp(int fd, uint64_t frame_id);

/*
 * A read-only fd of the copy on t, checked as above. w: who may interrupt it (its deadline does not
 * count); NULL: nobody. -ENOENT: a bad copy; -EINTR; -EMFILE, -ENFILE, -ENOMEM: try again later.
 * The caller holds the object open; locks as for object_open_frame.
 */
int verify_open(struct fs *fs, struct object *o, struct tier *t, const struct space_wait *w);
/*
 * Does the reading that an open of o would have to do, once for all who wait for it. 0, or -EINTR; what
 * the open itself then finds, it says. No lock may be held.
 */
int verify_before_open(struct fs *fs, struct object *o, const struct space_wait *w);
/* Whether n_crc checksums are those of the record; one without any agrees. */
bool verify_agrees(const struct object_record *r, const uint32_t *crc, size_t n_crc);
/* Tells of a bad copy met elsewhere; err: positive errno, 0: its bytes are wrong. */
void verify_report_bad(struct fs *fs, const struct object *o, const struct tier *t, uint64_t frame,
		       int err);
/* Gives up the bad copies reported since. No lock may be held. */
void verify_drop_bad(struct fs *fs);

#endif
