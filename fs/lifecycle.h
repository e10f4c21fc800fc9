/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifecycle: the one order in which a daemon starts and ends.
 *
 *   options parsed - mount point checked - [fork] - state directory locked - guardian forked - catalog -
 *   tiers - clock - objects adopted - notifier - cluster joined - mount - housekeeper - ready byte - loop - the same in
 *   reverse
 *
 * Threads and RocksDB exist only after the fork.
 */
#ifndef MCFS_LIFECYCLE_H
#define MCFS_LIFECYCLE_H

struct options;
struct daemon_pipe;

/* Everything after the fork. Returns an EXIT_ code; what went wrong has been logged. */
int lifecycle_run(const struct options *opt, struct daemon_pipe *pipe);

#endif
