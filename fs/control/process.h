/* SPDX-License-Identifier: Apache-2.0 */
/* process: what the daemon takes of the machine, from /proc/self. Thread safe; never blocks. */
#ifndef MCFS_PROCESS_H
#define MCFS_PROCESS_H

#include <stdint.h>

/* A figure that cannot be read is 0. */
struct process_stats {
	double cpu_s;             /* user and system time of all threads */
	double start_time_s;      /* since the epoch */
	uint64_t rss_bytes, virtual_bytes;
	uint64_t n_threads;
	uint64_t n_fds, max_fds;  /* open descriptors and their limit */
};

void process_get_stats(struct process_stats *out);

#endif
