/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notifier: the one thread that tells the kernel about names that changed behind its back.
 *
 * A notification takes the directory's inode lock in the kernel, which a request that waits for one of
 * our workers may hold: so no worker ever sends one. Where a reply has to come after the notification
 * (close() of an overwrite), the job carries the request and this thread replies.
 * Thread safety: all functions. Queueing never blocks; notifier_expire_locked wants fs->lock held.
 */
#ifndef MCFS_NOTIFIER_H
#define MCFS_NOTIFIER_H

#include <stdint.h>

struct fs;
struct inode;
struct notifier;

typedef void (*notifier_done_fn)(void *request);

int notifier_start(struct fs *fs, struct notifier **out);
/* Finishes the queue (replies are sent, notifications no longer) and joins the thread. */
void notifier_stop(struct notifier *n);

/* The name shows another version now: its dentry goes. Then done(request), when given. */
void notifier_inval(struct fs *fs, struct inode *dir, const char *name, notifier_done_fn done,
		    void *request);
/* done(request) after everything that was queued before. */
void notifier_after(struct fs *fs, notifier_done_fn done, void *request);
/* The version behind i is gone (evicted, lost): its dentry is looked up again at the next use. */
void notifier_expire_locked(struct fs *fs, struct inode *i);

#endif
