/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_fastpath: stands for the daemon's side of the ioctl ABI, under libmooncakefs.
 *
 * A plain directory is the mount: objects are its files, buffers are files below .mooncake/buffers. The
 * system calls that would reach the daemon (ioctl, and read and poll of a session) come here instead.
 * Publishing is no more atomic than a plain file. One fake per process.
 *
 *   up --die--> dead --restart--> up, another incarnation: sessions, handles and buffers of before are void
 *
 * Thread safe.
 */
#ifndef MCFS_FAKE_FASTPATH_H
#define MCFS_FAKE_FASTPATH_H

#include <stdbool.h>
#include <stdint.h>

#include "mooncakefs.h"

/* Makes the directory and takes the place of the system calls. */
void fake_fastpath_start(uint32_t max_items);
void fake_fastpath_stop(void);
const char *fake_fastpath_root(void);

void fake_fastpath_die(void);
void fake_fastpath_restart(void);

/* Asynchronous submissions wait: true; are done, now and from now on: false. */
void fake_fastpath_hold(bool is_held);
/* The next submission fails as a whole, before any item is looked at. */
void fake_fastpath_fail_next(int error);
/* Unregistering is answered EBUSY. */
void fake_fastpath_keep_busy(bool is_busy);
/* Tickets at once; beyond: EAGAIN. */
void fake_fastpath_max_tickets(uint32_t n);

unsigned fake_fastpath_submissions(void); /* so far */
unsigned fake_fastpath_registered(void);  /* buffers now */
struct mcfs_submit fake_fastpath_last(void);

#endif
