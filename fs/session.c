/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs.h"
#include "guardian.h"
#include "ops/ops.h"
#include "options.h"

/*
 * A write that waits for space occupies its thread; this many may do so at once while others go on.
 * Threads are made on demand and end when idle.
 */
#define MAX_THREADS 1024
#define IDLE_THREADS 16

static void want(struct fuse_conn_info *conn, uint64_t flag, const char *what)
{
	if (!fuse_set_feature_flag(conn, flag))
		log_warn("the kernel has no %s", what);
}

static void init_passthrough(struct fs *fs, struct fuse_conn_info *conn)
{
	const char *reason = NULL;

	if (fs->opt->passthrough_off)
		reason = "switched off by passthrough=off";
	else if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH))
		reason = "not offered (needs Linux 6.9, libfuse 3.17 and CAP_SYS_ADMIN)";
	else
		set_backing_depth(conn);
	fs->passthrough = !reason;
	snprintf(fs->passthrough_reason, sizeof(fs->passthrough_reason), "%s", reason ? reason : "");
	if (reason)
		log_info("passthrough is off: %s; reads are served by direct_io", reason);
}

void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	want(conn, FUSE_CAP_ATOMIC_O_TRUNC, "atomic O_TRUNC");
	want(conn, FUSE_CAP_FLOCK_LOCKS, "flock");
	want(conn, FUSE_CAP_PARALLEL_DIROPS, "parallel directory operations");
	want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP, "shared mappings of direct_io files");
	want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2, "set-id handling by the file system");
	fuse_set_feature_flag(conn, FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
	fuse_set_feature_flag(conn, FUSE_CAP_EXPIRE_ONLY);
	/* Nothing of the data path goes through the page cache, and splice loses to a copy. */
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_READ);
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_WRITE);
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_MOVE);
	fuse_unset_feature_flag(conn, FUSE_CAP_WRITEBACK_CACHE);
	fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
	fuse_unset_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV);
	fuse_unset_feature_flag(conn, FUSE_CAP_POSIX_LOCKS);
	conn->max_write = 1 << 20;
	conn->time_gran = 1;
	init_passthrough(fs, conn);
}

static void close_backing(struct fs *fs, int32_t id)
{
	uint32_t arg = (uint32_t)id;

	if (fs->se && ioctl(fuse_session_fd(fs->se), BACKING_CLOSE_IOCTL, &arg) && errno != ENOTCONN)
		log_warn("closing passthrough id %d failed: %m", id);
}

static void forward_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_write(level <= FUSE_LOG_ERR ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "libfuse: %s", text);
}

int session_mount(struct fs *fs)
{
	autofree char *opts = NULL;

	if (asprintf(&opts, "fsname=mooncakefs,subtype=mooncakefs,default_permissions%s%s%s",
		     fs->opt->allow_other ? ",allow_other" : "", fs->opt->fuse_opts ? "," : "",
		     fs->opt->fuse_opts ? fs->opt->fuse_opts : "") < 0)
		return -ENOMEM;
	char *argv[] = { "mooncakefs", "-o", opts, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	fuse_set_log_func(forward_log);
	fs->close_backing = close_backing;
	fs->se = fuse_session_new(&args, &mooncakefs_ops, sizeof(mooncakefs_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se) {
		log_error("cannot create a FUSE session with options \"%s\"", opts);
		return -EINVAL;
	}
	if (fuse_session_mount(fs->se, fs->opt->mountpoint)) {
		log_error("cannot mount at %s (is /dev/fuse there, and are we root?)",
			  fs->opt->mountpoint);
		fuse_session_destroy(fs->se);
		fs->se = NULL;
		return -EIO;
	}
	fs->mount_dev = fuse_mount_dev(fs->opt->mountpoint);
	if (fuse_set_signal_handlers(fs->se)) {
		log_error("cannot set signal handlers: %m");
		session_unmount(fs);
		return -EIO;
	}
	return 0;
}

enum session_end session_run(struct fs *fs)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	fuse_loop_cfg_set_clone_fd(config, 0);
	fuse_loop_cfg_set_idle_threads(config, IDLE_THREADS);
	fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
	int rc = fuse_session_loop_mt(fs->se, config);
	fuse_loop_cfg_destroy(config);
	if (rc < 0) {
		log_error("FUSE session ended: %s", strerror(-rc));
		return SESSION_FAILED;
	}
	return rc > 0 ? SESSION_SIGNALLED : SESSION_UNMOUNTED;
}

void session_unmount(struct fs *fs)
{
	if (!fs->se)
		return;
	fuse_remove_signal_handlers(fs->se);
	/* Whoever waits for an answer gets none any more; the notifier may wait for one of them. */
	if (fs->mount_dev) {
		fuse_mount_abort(fs->opt->mountpoint, fs->mount_dev);
		/* libfuse leaves the mount of an aborted connection where it is. */
		if (umount2(fs->opt->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW))
			log_warn("cannot unmount %s: %m", fs->opt->mountpoint);
	}
	fuse_session_unmount(fs->se);
	fs_stop_work(fs); /* requests that wait have their end here */
	fuse_session_destroy(fs->se);
	fs->se = NULL;
}
