/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECOVER_MS 10000
#define RETRY_MS 50

/* A new session of the mount; its descriptor or a negative errno. */
static int session_file(const char *mount, struct mcfs_hello *hello_out)
{
	struct mcfs_hello hello = {.abi_version = MCFS_ABI_VERSION};
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/.mooncake/session", mount) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		int error = errno;
		return lib_fail(lib_errno(error), "%s%s", path,
				error == ENOENT || error == ENOTDIR ?
					": not a mount of mooncakefs with sessions" :
					"");
	}
	int rc = lib_ioctl(fd, MCFS_IOC_HELLO, &hello);
	if (!rc && !hello.max_items)
		rc = -EPROTO;
	if (rc) {
		close(fd);
		return lib_fail(rc, "%s: MCFS_IOC_HELLO with version %d", path, MCFS_ABI_VERSION);
	}
	*hello_out = hello;
	return fd;
}

/* A writer that waits goes first: readers come again and again. */
static int life_init(pthread_rwlock_t *life)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	int rc = pthread_rwlock_init(life, &attr);
	pthread_rwlockattr_destroy(&attr);
	return -rc;
}

/* The absolute path, so that a later chdir does not matter. */
static int mount_path(const char *mount, char **path_out)
{
	*path_out = realpath(mount, NULL);
	return *path_out ? 0 : lib_fail(lib_errno(errno), "%s", mount);
}

LIB_PUBLIC int mcfs_session_open(const char *mount, unsigned flags,
				 struct mcfs_session **session_out)
{
	lib_forget_error();
	if (!mount || flags & ~(unsigned)MCFS_RECONNECT)
		return lib_fail(-EINVAL, "a session with flags 0x%x", flags);
	struct mcfs_session *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->flags = flags;
	s->generation = 1;
	int rc = mount_path(mount, &s->mount);
	if (rc)
		goto err_session;
	rc = life_init(&s->life);
	if (rc)
		goto err_mount;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->dirs_lock, NULL);
	rc = lib_tickets_create(&s->tickets);
	if (rc)
		goto err_life;
	s->fd = rc = session_file(s->mount, &s->hello);
	if (rc < 0)
		goto err_tickets;
	*session_out = s;
	return 0;

err_tickets:
	lib_tickets_destroy(s);
err_life:
	pthread_rwlock_destroy(&s->life);
err_mount:
	free(s->mount);
err_session:
	free(s);
	return rc;
}

LIB_PUBLIC void mcfs_session_close(struct mcfs_session *s)
{
	if (!s)
		return;
	/* First: the daemon lets go of all that the session has. */
	close(s->fd);
	s->fd = -1;
	lib_tickets_destroy(s);
	lib_areas_destroy(s);
	for (size_t i = 0; i < s->n_buffers; i++) {
		lib_memory_destroy(s, &s->buffers[i]->m);
		free(s->buffers[i]);
	}
	free(s->buffers);
	lib_dirs_destroy(s);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->dirs_lock);
	pthread_rwlock_destroy(&s->life);
	free(s->mount);
	free(s);
}

LIB_PUBLIC void mcfs_session_hello(struct mcfs_session *s, struct mcfs_hello *hello_out)
{
	pthread_rwlock_rdlock(&s->life);
	*hello_out = s->hello;
	pthread_rwlock_unlock(&s->life);
}

LIB_PUBLIC int mcfs_session_fd(const struct mcfs_session *s)
{
	return s->fd;
}

/* ---- a daemon that was restarted ---- */

static bool session_is_alive(struct mcfs_session *s)
{
	struct mcfs_cancel nothing = {0};

	return lib_ioctl(s->fd, MCFS_IOC_CANCEL, &nothing) != -ENOTCONN;
}

/* life is held for writing. */
static int buffers_revive(struct mcfs_session *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->n_buffers && !rc; i++)
		rc = lib_memory_revive(s, &s->buffers[i]->m);
	return rc;
}

/* One try. life is held for writing. On failure the session is dead as before. */
static int session_reopen(struct mcfs_session *s)
{
	struct mcfs_hello hello;
	int dead = s->fd, fd = session_file(s->mount, &hello);

	if (fd < 0)
		return fd;
	lib_tickets_abandon(s);
	lib_areas_destroy(s);
	s->fd = fd;
	int rc = buffers_revive(s);
	if (!rc && dup3(fd, dead, O_CLOEXEC) < 0)
		rc = -errno;
	s->fd = dead;
	close(fd);
	if (rc)
		return rc;
	s->hello = hello;
	s->generation++;
	return 0;
}

/* What a mount says while its daemon is being replaced. */
static bool error_may_pass(int error)
{
	return error == -ENOENT || error == -ENOTDIR || error == -ENOTCONN;
}

/* Unless the session is no longer the one of that generation. */
static int session_replace(struct mcfs_session *s, uint64_t generation, int timeout_ms)
{
	uint64_t end_us = lib_now_us() + (uint64_t)timeout_ms * 1000;
	int rc;

	/* Most of the threads that come here find that another has done it. */
	pthread_rwlock_rdlock(&s->life);
	bool is_done = s->generation != generation;
	pthread_rwlock_unlock(&s->life);
	if (is_done)
		return 0;
	pthread_rwlock_wrlock(&s->life);
	for (;;) {
		rc = s->generation == generation ? session_reopen(s) : 0;
		if (!error_may_pass(rc) || lib_now_us() >= end_us)
			break;
		nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
	}
	pthread_rwlock_unlock(&s->life);
	return error_may_pass(rc) && timeout_ms ? -ETIMEDOUT : rc;
}

LIB_PUBLIC int mcfs_session_reconnect(struct mcfs_session *s, int timeout_ms)
{
	lib_forget_error();
	pthread_rwlock_rdlock(&s->life);
	uint64_t generation = s->generation;
	bool is_alive = session_is_alive(s);
	pthread_rwlock_unlock(&s->life);
	if (is_alive)
		return 0;
	int rc = session_replace(s, generation, timeout_ms > 0 ? timeout_ms : 0);
	if (rc == -ETIMEDOUT)
		lib_fail(rc, "%s: no daemon within %d ms", s->mount, timeout_ms);
	return rc;
}

bool lib_session_recover(struct mcfs_session *s, uint64_t generation, bool *tried)
{
	if (!(s->flags & MCFS_RECONNECT) || *tried)
		return false;
	*tried = true;
	return !session_replace(s, generation, RECOVER_MS);
}
