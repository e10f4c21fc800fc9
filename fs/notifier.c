/* SPDX-License-Identifier: Apache-2.0 */
#include "notifier.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "base/log.h"
#include "fs.h"
#include "fuse_compat.h"
#include "inode_table.h"
#include "object/object.h"

struct job {
	struct job *next;
	struct inode *dir; /* one ref; NULL: there is nothing to notify */
	char *name;
	notifier_done_fn done;
	void *request;
	bool is_expire;
};

struct notifier {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *head, **tail;
	bool is_stopping;
};

static void notify(struct fs *fs, const struct job *j)
{
	uint64_t parent = inode_nodeid(fs, j->dir);
	size_t len = strlen(j->name);
	int rc;

	if (!fs->se)
		return;
	if (j->is_expire)
		rc = notify_expire(fs->se, parent, j->name, len);
	else
		rc = fuse_lowlevel_notify_inval_entry(fs->se, parent, j->name, len);
	if (rc == -ENOSYS && j->is_expire)
		rc = fuse_lowlevel_notify_inval_entry(fs->se, parent, j->name, len);
	/* ENOENT: the kernel did not have that name; ENODEV, EBADF: it is being unmounted. */
	if (rc && rc != -ENOENT && rc != -ENODEV && rc != -EBADF && rc != -ENOTDIR) {
		counter_inc(notify_failures);
		errno = -rc;
		log_warn("notification for \"%s\" failed: %m", j->name);
	}
}

static void *run(void *arg)
{
	struct notifier *n = arg;

	pthread_mutex_lock(&n->lock);
	for (;;) {
		while (!n->head && !n->is_stopping)
			pthread_cond_wait(&n->wake, &n->lock);
		struct job *j = n->head;
		if (!j)
			break;
		n->head = j->next;
		if (!n->head)
			n->tail = &n->head;
		bool is_stopping = n->is_stopping;
		pthread_mutex_unlock(&n->lock);
		if (!is_stopping && j->dir)
			notify(n->fs, j);
		if (j->done)
			j->done(j->request);
		if (j->dir) {
			pthread_mutex_lock(&n->fs->lock);
			inode_put_locked(n->fs, j->dir);
			pthread_mutex_unlock(&n->fs->lock);
		}
		free(j->name);
		free(j);
		pthread_mutex_lock(&n->lock);
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

int notifier_start(struct fs *fs, struct notifier **out)
{
	struct notifier *n = xcalloc(1, sizeof(*n));

	n->fs = fs;
	n->tail = &n->head;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->wake, NULL);
	int rc = pthread_create(&n->thread, NULL, run, n);
	if (rc) {
		free(n);
		return -rc;
	}
	*out = n;
	return 0;
}

void notifier_stop(struct notifier *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->is_stopping = true;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	pthread_mutex_destroy(&n->lock);
	pthread_cond_destroy(&n->wake);
	free(n);
}

static void queue(struct notifier *n, struct job *j)
{
	pthread_mutex_lock(&n->lock);
	*n->tail = j;
	n->tail = &j->next;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->lock);
}

static struct job *make_job(struct inode *dir, const char *name)
{
	struct job *j = xcalloc(1, sizeof(*j));

	inode_get_locked(dir);
	j->dir = dir;
	j->name = xstrdup(name);
	return j;
}

void notifier_inval(struct fs *fs, struct inode *dir, const char *name, notifier_done_fn done,
		    void *request)
{
	pthread_mutex_lock(&fs->lock);
	struct job *j = make_job(dir, name);
	pthread_mutex_unlock(&fs->lock);
	j->done = done;
	j->request = request;
	queue(fs->notifier, j);
}

void notifier_after(struct fs *fs, notifier_done_fn done, void *request)
{
	struct job *j = xcalloc(1, sizeof(*j));

	j->done = done;
	j->request = request;
	queue(fs->notifier, j);
}

void notifier_expire_locked(struct fs *fs, struct inode *i)
{
	struct inode *dir = inode_find(fs, i->parent);

	if (!dir || !i->nlookup || !i->name || !fs->notifier)
		return;
	struct job *j = make_job(dir, i->name);
	j->is_expire = true;
	queue(fs->notifier, j);
}
