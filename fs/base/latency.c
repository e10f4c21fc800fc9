/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latency.h"

#include <linux/fuse.h>
#include <stdatomic.h>

/* More threads than this share shards, which costs time, never a count. */
#define N_SHARDS 16

#define SUB_COUNT (UINT64_C(1) << LATENCY_SUB_BITS)

struct shard {
	_Alignas(64) _Atomic uint64_t sum_ns;
	_Atomic uint64_t buckets[LATENCY_BUCKETS];
};

/* Untouched pages of an operation that is never asked for take no memory. */
static struct shard shards[N_LATENCY_OPS][N_SHARDS];
static atomic_uint next_shard;
static _Thread_local unsigned my_shard; /* + 1; 0: not chosen yet */

static const char *const names[N_LATENCY_OPS] = {
#define X(name, help) #name,
	LATENCY_OPS(X)
#undef X
};

/* + 1, so that what is not listed is 0. */
static const uint8_t op_of_opcode[] = {
	[FUSE_LOOKUP] = LATENCY_lookup + 1,
	[FUSE_FORGET] = LATENCY_forget + 1,
	[FUSE_BATCH_FORGET] = LATENCY_forget + 1,
	[FUSE_GETATTR] = LATENCY_getattr + 1,
	[FUSE_SETATTR] = LATENCY_setattr + 1,
	[FUSE_READLINK] = LATENCY_readlink + 1,
	[FUSE_SYMLINK] = LATENCY_symlink + 1,
	[FUSE_MKNOD] = LATENCY_mknod + 1,
	[FUSE_MKDIR] = LATENCY_mkdir + 1,
	[FUSE_UNLINK] = LATENCY_unlink + 1,
	[FUSE_RMDIR] = LATENCY_rmdir + 1,
	[FUSE_RENAME] = LATENCY_rename + 1,
	[FUSE_RENAME2] = LATENCY_rename + 1,
	[FUSE_LINK] = LATENCY_link + 1,
	[FUSE_OPEN] = LATENCY_open + 1,
	[FUSE_READ] = LATENCY_read + 1,
	[FUSE_WRITE] = LATENCY_write + 1,
	[FUSE_STATFS] = LATENCY_statfs + 1,
	[FUSE_RELEASE] = LATENCY_release + 1,
	[FUSE_FLUSH] = LATENCY_flush + 1,
	[FUSE_FSYNC] = LATENCY_fsync + 1,
	[FUSE_FSYNCDIR] = LATENCY_fsyncdir + 1,
	[FUSE_SETXATTR] = LATENCY_setxattr + 1,
	[FUSE_GETXATTR] = LATENCY_getxattr + 1,
	[FUSE_LISTXATTR] = LATENCY_listxattr + 1,
	[FUSE_REMOVEXATTR] = LATENCY_removexattr + 1,
	[FUSE_OPENDIR] = LATENCY_opendir + 1,
	[FUSE_READDIR] = LATENCY_readdir + 1,
	[FUSE_READDIRPLUS] = LATENCY_readdirplus + 1,
	[FUSE_RELEASEDIR] = LATENCY_releasedir + 1,
	[FUSE_CREATE] = LATENCY_create + 1,
	[FUSE_FALLOCATE] = LATENCY_fallocate + 1,
	[FUSE_COPY_FILE_RANGE] = LATENCY_copy_file_range + 1,
	[FUSE_IOCTL] = LATENCY_ioctl + 1,
	[FUSE_SETLK] = LATENCY_flock + 1,
	[FUSE_SETLKW] = LATENCY_flock + 1,
};

enum latency_op latency_op_of(uint32_t fuse_opcode)
{
	if (fuse_opcode >= sizeof(op_of_opcode) || !op_of_opcode[fuse_opcode])
		return LATENCY_other;
	return op_of_opcode[fuse_opcode] - 1;
}

const char *latency_name(enum latency_op op)
{
	return names[op];
}

unsigned latency_bucket_of(uint64_t ns)
{
	/* One less, so that a bucket's upper bound is in it. */
	uint64_t v = ns ? ns - 1 : 0;

	if (!(v >> LATENCY_FIRST_BITS))
		return 0;
	if (v >> LATENCY_LAST_BITS)
		return LATENCY_BUCKETS - 1;
	unsigned top = 63U - (unsigned)__builtin_clzll(v);
	unsigned sub = (unsigned)(v >> (top - LATENCY_SUB_BITS)) & (SUB_COUNT - 1);
	return ((top - LATENCY_FIRST_BITS) << LATENCY_SUB_BITS) + sub + 1;
}

uint64_t latency_bucket_end_ns(unsigned bucket)
{
	if (bucket == 0)
		return UINT64_C(1) << LATENCY_FIRST_BITS;
	if (bucket >= LATENCY_BUCKETS - 1)
		return UINT64_MAX;
	unsigned top = LATENCY_FIRST_BITS + ((bucket - 1) >> LATENCY_SUB_BITS);
	uint64_t sub = (bucket - 1) & (SUB_COUNT - 1);
	return (SUB_COUNT + sub + 1) << (top - LATENCY_SUB_BITS);
}

void latency_record(uint32_t fuse_opcode, int64_t ns)
{
	uint64_t took = ns > 0 ? (uint64_t)ns : 0;

	if (!my_shard)
		my_shard =
			atomic_fetch_add_explicit(&next_shard, 1, memory_order_relaxed) % N_SHARDS +
			1;
	struct shard *s = &shards[latency_op_of(fuse_opcode)][my_shard - 1];
	atomic_fetch_add_explicit(&s->sum_ns, took, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->buckets[latency_bucket_of(took)], 1, memory_order_relaxed);
}

void latency_read(enum latency_op op, struct latency *out)
{
	*out = (struct latency){0};
	for (int k = 0; k < N_SHARDS; k++) {
		const struct shard *s = &shards[op][k];
		out->sum_ns += atomic_load_explicit(&s->sum_ns, memory_order_relaxed);
		for (int b = 0; b < LATENCY_BUCKETS; b++) {
			uint64_t n = atomic_load_explicit(&s->buckets[b], memory_order_relaxed);
			out->buckets[b] += n;
			out->count += n;
		}
	}
}

double latency_quantile_ns(const struct latency *l, double share)
{
	double rank = share * (double)l->count, seen = 0;

	if (!l->count)
		return 0;
	for (unsigned b = 0; b < LATENCY_BUCKETS - 1; b++) {
		double n = (double)l->buckets[b];
		if (n > 0 && seen + n >= rank) {
			double low = b ? (double)latency_bucket_end_ns(b - 1) : 0;
			double high = (double)latency_bucket_end_ns(b);
			double part = rank > seen ? (rank - seen) / n : 0;
			return low + (high - low) * part;
		}
		seen += n;
	}
	return (double)latency_bucket_end_ns(LATENCY_BUCKETS - 2);
}
