/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_room: how much memory this process may still take.
 *
 * Sources: /proc/meminfo (MemAvailable), and the memory limit of every cgroup this process is in or
 * below, of version 1 and 2 (cgroups(7), Documentation/admin-guide/cgroup-v2.rst). Their places come
 * from /proc/self/cgroup and /proc/self/mountinfo, so cgroup namespaces and odd mount points work.
 *
 * Thread safety: all functions. They read files: not for a data path.
 */
#ifndef MCFS_MEM_ROOM_H
#define MCFS_MEM_ROOM_H

#include <stdint.h>

struct mem_room {
	uint64_t available_bytes; /* MemAvailable */
	uint64_t cgroup_bytes;	  /* room in the tightest cgroup; UINT64_MAX: no limit */
	uint64_t cgroup_limit_bytes;
	char cgroup[256]; /* the tightest cgroup's directory, "" without a limit */
};

/*
 * root is put before every path ("" for the machine itself, else a captured tree). held_bytes are
 * tmpfs pages that the caller counts as its own already: added to available_bytes, and to a cgroup's
 * room as far as its shmem allows. Page cache that is easily dropped (inactive_file) counts as room.
 * Returns 0 or a negative errno when /proc/meminfo cannot be read (logged); cgroup files that are
 * missing set no limit.
 */
int mem_room_read(const char *root, uint64_t held_bytes, struct mem_room *out);

#endif
