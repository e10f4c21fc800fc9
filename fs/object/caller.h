/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: what the kernel's process tables say about the thread behind a request.
 *
 * FUSE tells a thread id, or 0 for a thread of another PID namespace. Everything here reads /proc or
 * a pidfd and never waits for the thread.
 * Sources: proc(5), pidfd_open(2), and the kernel's fs/proc/array.c for when FDSize turns 0.
 * Thread safety: all functions.
 */
#ifndef MCFS_CALLER_H
#define MCFS_CALLER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Thread group (process) of a thread; tid itself when the thread is gone; 0 for 0. About 7 us. */
pid_t caller_tgid(pid_t tid);

/*
 * The thread's process and whether a FLUSH by it comes from a death by signal. Killed means: its file
 * table is already detached (FDSize 0 in /proc/TID/status) and the low bits of its exit code are a
 * signal. /proc/TID/stat is opened only when FDSize is 0, since it blocks while the thread is inside
 * an exec, which in turn waits for this very FLUSH.
 */
struct caller_state {
	pid_t tgid;
	bool is_killed;
};
/* known_tgid: the thread's process when the caller knows it, else 0; saves half of the time. */
void caller_inspect(pid_t tid, pid_t known_tgid, struct caller_state *out);

/* Another open file descriptor of the thread shows inode number ino (/proc/TID/fdinfo). */
bool caller_has_open_ino(pid_t tid, uint64_t ino);

#endif
