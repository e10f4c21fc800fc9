/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_place: a directory of the command line, and which disk is found there at start.
 *
 *   found there                            known path              unknown path
 *   marker, id in the list                 that disk, wherever it was before
 *   marker, id not in the list             refused: another disk   new list: taken as it is; else refused
 *                                                                  with frames, made ours without
 *   no marker, frames                      marker written anew     number 0, or refused if that is taken
 *   no marker, no frames                   failed: not mounted?    a new disk
 *   nothing                                failed                  made, a new disk
 *   what cannot be read or written         failed                  failed
 *
 * A known path on the state directory's own file system is not missing for want of a mount: there an
 * empty or missing directory is made anew, as somebody has emptied it.
 *
 * Refused means the start: the frames of another disk would be taken for this node's orphans.
 */
#ifndef MCFS_DISK_PLACE_H
#define MCFS_DISK_PLACE_H

#include <mcfs/tier.h>
#include <sys/types.h>

#include "tier/disk_list.h"

struct disk_place {
	const char *path; /* the configuration's */
	struct disk_identity identity;
	bool is_known; /* identity is one; else the disk is new and has failed */
	int err;       /* negative errno: the disk counts as failed, why says what was tried */
	const char *why;
	dev_t dev; /* of the directory, if err is 0 */
	ino_t ino;
};

/*
 * Fills one place for each of conf->dirs, makes directories and markers, writes the list. 0 (places may
 * have failed), or the errors of ssd_tier_create. Blocks on the disks.
 */
int disk_places_find(const struct ssd_conf *conf, struct disk_place *places);

#endif
