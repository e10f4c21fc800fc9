/* SPDX-License-Identifier: Apache-2.0 */
/*
 * housekeeper: one thread for what time alone brings: redirects nobody came for, grace times of
 * replaced versions, times of directories, zombies, names whose ttl_s ran out.
 */
#ifndef MCFS_HOUSEKEEPER_H
#define MCFS_HOUSEKEEPER_H

struct fs;
struct housekeeper;

int housekeeper_start(struct fs *fs, struct housekeeper **out);
/* Joins the thread after one last round for what must reach the catalog. */
void housekeeper_stop(struct housekeeper *h);

#endif
