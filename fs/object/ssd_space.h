/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_space: makes room on the ssd tier.
 *
 * Its least recently used cache objects go: the copy alone where the object is in dram too, else the
 * object with its name. Never what is open, pinned, or of class keep.
 *
 * Locks: none may be held. Thread safety: all functions.
 */
#ifndef MCFS_SSD_SPACE_H
#define MCFS_SSD_SPACE_H

#include <stdint.h>

struct fs;

/* 0: something went (bytes, or as much as may go); -ENOSPC: nothing may; -EIO, -EROFS: the catalog. */
int ssd_space_make(struct fs *fs, uint64_t bytes);
/* Ahead of need: above the tier's high watermark down to its low one. */
void ssd_space_trim(struct fs *fs);

#endif
