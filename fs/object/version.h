/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version: the hybrid clock that numbers versions, objects and inodes.
 *
 * A number is (microseconds since 1970) << 12 | node bits, and always larger than any this node gave
 * before, also after a restart with the wall clock set back: a ceiling is kept in the catalog's control
 * values and raised ahead of use. Numbers fit 63 bits until the year 2043 and are far above the inode
 * numbers of disk file systems.
 * Thread safety: all functions.
 */
#ifndef MCFS_VERSION_H
#define MCFS_VERSION_H

#include <stdint.h>

struct catalog;
struct version_clock;

/* Reads (or draws) the node bits and the ceiling. -EIO when the catalog cannot be written. */
int version_clock_create(struct catalog *c, struct version_clock **out);
void version_clock_destroy(struct version_clock *v);
/* The next number, or 0 when the ceiling could not be stored (logged). */
uint64_t version_next(struct version_clock *v);
/* A version that another node gave: ours are higher from now on. One of the far future is not believed (logged). */
void version_observe(struct version_clock *v, uint64_t version);
/* The time of a version in nanoseconds since 1970. */
int64_t version_time_ns(uint64_t version);
/* Whole seconds since a version was numbered, by this node's wall clock. */
uint64_t version_age_s(uint64_t version);

#endif
