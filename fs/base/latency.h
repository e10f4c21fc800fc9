/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latency: how long the requests of the kernel took, one logarithmic histogram per operation.
 *
 * Bucket 0 holds what took at most 256 ns; every power of two above, up to 2^36 ns (69 s), is split
 * in four equal buckets, so a bucket is at most a fourth of its lower bound wide; the last holds the
 * rest. A bucket includes its upper bound, as Prometheus' `le` does.
 *
 * Counts only grow. Each thread counts in one of a few shards, so that workers do not pull on the
 * same cache lines; a reader adds the shards up. What is recorded while a reader adds may be in or
 * not, and count is always the sum of the buckets read with it.
 * Thread safety: all functions (relaxed atomics, no lock).
 */
#ifndef MCFS_LATENCY_H
#define MCFS_LATENCY_H

#include <stdint.h>

/* X(name, help) - one histogram each; "other" is every request not named here. */
#define LATENCY_OPS(X)                                                                             \
	X(lookup, "find a name")                                                                   \
	X(forget, "the kernel drops inodes")                                                       \
	X(getattr, "stat")                                                                         \
	X(setattr, "chmod, chown, utimens, truncate")                                              \
	X(readlink, "read a symlink")                                                              \
	X(symlink, "make a symlink")                                                               \
	X(mknod, "make a file without opening it")                                                 \
	X(mkdir, "make a directory")                                                               \
	X(unlink, "remove a file")                                                                 \
	X(rmdir, "remove a directory")                                                             \
	X(rename, "rename")                                                                        \
	X(link, "make a hard link")                                                                \
	X(open, "open")                                                                            \
	X(read, "read through the daemon")                                                         \
	X(write, "write")                                                                          \
	X(statfs, "df")                                                                            \
	X(release, "last close")                                                                   \
	X(flush, "close, which publishes")                                                         \
	X(fsync, "fsync and fdatasync")                                                            \
	X(fsyncdir, "fsync of a directory")                                                        \
	X(setxattr, "set an extended attribute")                                                   \
	X(getxattr, "get an extended attribute")                                                   \
	X(listxattr, "list extended attributes")                                                   \
	X(removexattr, "remove an extended attribute")                                             \
	X(opendir, "open a directory")                                                             \
	X(readdir, "list a directory")                                                             \
	X(readdirplus, "list a directory with attributes")                                         \
	X(releasedir, "close a directory")                                                         \
	X(create, "create and open")                                                               \
	X(fallocate, "fallocate")                                                                  \
	X(copy_file_range, "copy_file_range")                                                      \
	X(ioctl, "ioctl")                                                                          \
	X(flock, "flock, without the wait for its turn")                                           \
	X(other, "any other request")

enum latency_op {
#define X(name, help) LATENCY_##name,
	LATENCY_OPS(X)
#undef X
	N_LATENCY_OPS
};

#define LATENCY_FIRST_BITS 8 /* bucket 0 ends at 2^8 ns */
#define LATENCY_LAST_BITS 36 /* the last but one bucket ends at 2^36 ns */
#define LATENCY_SUB_BITS 2   /* buckets per power of two, as a power of two */
#define LATENCY_BUCKETS (((LATENCY_LAST_BITS - LATENCY_FIRST_BITS) << LATENCY_SUB_BITS) + 2)

/* What one operation took so far. All zero: nothing. */
struct latency {
	uint64_t count, sum_ns;
	uint64_t buckets[LATENCY_BUCKETS];
};

/* One request of this FUSE opcode (enum fuse_opcode of linux/fuse.h) took ns; below 0 counts as 0. */
void latency_record(uint32_t fuse_opcode, int64_t ns);

const char *latency_name(enum latency_op op);
enum latency_op latency_op_of(uint32_t fuse_opcode);
void latency_read(enum latency_op op, struct latency *out);

/* The bucket a duration falls in, and the largest duration in a bucket; UINT64_MAX for the last. */
unsigned latency_bucket_of(uint64_t ns);
uint64_t latency_bucket_end_ns(unsigned bucket);

/*
 * The duration in ns that a share (0..1) of the requests did not exceed, interpolated in its bucket;
 * 0 when there were none. What fell in the last bucket reads as its lower end.
 */
double latency_quantile_ns(const struct latency *l, double share);

#endif
