/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_maps: frames in this process's memory: mapped and, where peers read memory by themselves, registered for that.
 *
 *   none --get--> making --> held --put--> idle --get--> held
 *                               idle --too many, a limit is met, forget--> gone
 *
 * One record per frame has all three: a descriptor, the mapping through it, and what the registrar gave for it. It is
 * made when first wanted and stays while the frame is recycled: the file and its pages are the same then, so neither
 * page faults nor registrations are paid for again. The one that was idle for longest goes when there are more than the
 * capacity, and one after the other where registering meets a limit (-ENOMEM: locked memory, regions of a device).
 *
 * A mapping counts as a user of its file (frame_space.c), except to who asks through the same file description: so a
 * frame that is given up is opened with frame_maps_fd.
 *
 * Lock: frame_maps.lock, never over a system call or the registrar: records are made and freed outside of it.
 * Failure: a frame that cannot be registered is mapped all the same; another try is made a second later.
 * Thread safety: all functions.
 */
#ifndef MCFS_FRAME_MAP_H
#define MCFS_FRAME_MAP_H

#include <mcfs/tier.h>
#include <stdbool.h>
#include <stdint.h>

struct frame_maps;

/* capacity: records that are kept at most while nobody holds them. NULL: no memory. */
struct frame_maps *frame_maps_create(uint32_t capacity);
/* Nobody holds one any more. */
void frame_maps_destroy(struct frame_maps *m);

/* See set_registrar of struct tier_ops. */
void frame_maps_set_registrar(struct frame_maps *m, const struct tier_registrar *r);

/*
 * Frame id of so many bytes (not 0). fd: of its file, open for reading and writing, the caller's. Each has one put.
 * -ENOMEM, -EMFILE, -EIO the file is not that long.
 */
int frame_maps_get(struct frame_maps *m, uint64_t id, uint64_t bytes, int fd, struct frame_map **out);
/* The same of one that is there; NULL: there is none, or it is worth a get, which registers it. */
struct frame_map *frame_maps_find(struct frame_maps *m, uint64_t id, uint64_t bytes);
void frame_maps_put(struct frame_maps *m, struct frame_map *map);

/* A descriptor of that frame that shares the record's file description, the caller's; -1: there is no record. */
int frame_maps_fd(struct frame_maps *m, uint64_t id);
/* The frame has another id. False: it had a record that somebody holds, and so may not be recycled. */
bool frame_maps_renew(struct frame_maps *m, uint64_t id, uint64_t new_id);
/* The frame goes, or gets another size. What somebody holds is freed with its put. */
void frame_maps_forget(struct frame_maps *m, uint64_t id);
/* Frees up to n of the longest idle; how many. */
uint32_t frame_maps_trim(struct frame_maps *m, uint32_t n);

void frame_maps_get_stats(struct frame_maps *m, struct tier_map_stats *out);

#endif
