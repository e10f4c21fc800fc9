/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_box: an ssd tier over several directories with a state directory beside them, each disk under a
 * fault_tier; and small file systems of their own, on loop devices, where the machine lets us.
 * Thread safety: none. One box per process.
 */
#ifndef MCFS_SSD_BOX_H
#define MCFS_SSD_BOX_H

#include <mcfs/tier.h>

#define SSD_BOX_MAX 4

struct ssd_box {
	char top[64];	/* temporary directory, on a disk where there is one */
	char state[80]; /* below it */
	char paths[SSD_BOX_MAX][96];
	struct ssd_dir dirs[SSD_BOX_MAX];
	uint32_t n_dirs;
	struct tier *t;			  /* NULL: not created */
	struct tier *faults[SSD_BOX_MAX]; /* of the working disks, in order */
};

/* Names n directories DIR/disk0, ... that do not exist yet, and makes the state directory. */
void ssd_box_init(struct ssd_box *box, uint32_t n, uint64_t budget_bytes);
/* What ssd_tier_create returns. */
int ssd_box_create(struct ssd_box *box);
/* Ends the tier, its frames stay. */
void ssd_box_destroy(struct ssd_box *box);
/* Ends the tier and removes everything. */
void ssd_box_fini(struct ssd_box *box);

struct ssd_box_frame {
	uint64_t id, size, charge;
};

/* A whole frame: taken, charged, written, synced, sealed; a failure throws it away. 0 or an errno. */
int ssd_box_put(struct ssd_box *box, uint64_t size, struct ssd_box_frame *out);
bool ssd_box_opens(struct ssd_box *box, uint64_t frame_id);
static inline uint32_t ssd_box_disk_of(uint64_t frame_id)
{
	return (uint32_t)(frame_id >> 56);
}

struct tier_stats ssd_box_stats(struct ssd_box *box);
struct ssd_disk_stats ssd_box_disk(struct ssd_box *box, uint32_t index);

/*
 * Mounts an ext4 of so many bytes at path (made), in a mount namespace of this process, so that it ends
 * with it. NULL, or why that cannot be.
 */
const char *ssd_box_mount(struct ssd_box *box, const char *path, uint64_t bytes);

#endif
