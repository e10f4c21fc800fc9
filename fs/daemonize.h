/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemonize: the fork, and the byte that tells the parent that the mount answers.
 * The parent returns to the shell only then, or with status 1 when the child ended before.
 */
#ifndef MCFS_DAEMONIZE_H
#define MCFS_DAEMONIZE_H

struct daemon_pipe {
	int ready_fd; /* -1: foreground */
};

/* In the parent: does not return. -errno when it cannot fork. foreground: only fills the struct. */
int daemonize(int foreground, struct daemon_pipe *p);
/* Sends the byte and lets go of the terminal. */
void daemon_ready(struct daemon_pipe *p);

#endif
