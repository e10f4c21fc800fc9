/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_set: objects that are on the ssd alone, and stay there while they are measured, beside raw files of
 * the same content on the same file system.
 *
 * Objects are written, then DRAM is filled with objects of class pinned, to the last 64 KiB: whatever may
 * go has gone to the ssd by then, and no object that is read again finds room to be promoted. Both are
 * checked by user.mooncake.tier.
 *
 * Member functions return 0 or a negative errno, logged. Single-threaded.
 */
#ifndef BENCH_SSD_SET_H
#define BENCH_SSD_SET_H

#include "job.h"

#define SSD_SET_MAX 256

struct ssd_set {
	const struct bench_env *env;
	size_t object_bytes; /* at least 64 KiB */
	uint32_t n_objects;
	uint32_t n_pinned;
	int fd[N_SIDES][SSD_SET_MAX]; /* O_RDONLY and what else was asked for; -1 */
	int frame_fd[SSD_SET_MAX];    /* ssd_set_find_frames */
	uint32_t n_frames;
};

/* Content of object k, and of raw file k: the pattern of seed SSD_SET_SEED + k. */
#define SSD_SET_SEED 700

void ssd_set_name(uint32_t k, char out[32]);
int ssd_set_create(struct ssd_set *s, const struct bench_env *env, size_t object_bytes,
		   uint32_t n_objects);
/* Opens all of them with O_RDONLY | flags. */
int ssd_set_open(struct ssd_set *s, int flags);
/* That all are still on the ssd alone. */
int ssd_set_check(const struct ssd_set *s);
/* Opens the frames, found in the ssd's directory by their size: their page cache is what a read fills. */
int ssd_set_find_frames(struct ssd_set *s);
void ssd_set_destroy(struct ssd_set *s);

#endif
