/* SPDX-License-Identifier: Apache-2.0 */
#include "lifecycle.h"

#include <errno.h>
#include <malloc.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "cluster/cluster.h"
#include "control/metrics_http.h"
#include "daemonize.h"
#include "fs.h"
#include "guardian.h"
#include "housekeeper.h"
#include "object/sweep.h"
#include "object/writeback.h"
#include "options.h"
#include "session.h"

/* ---- state directory ---- */

/* Takes the state directory for this process. Returns the lock's fd or -errno (logged). */
static int lock_state(const struct options *opt)
{
	autofree char *path = NULL;
	char pid[32] = "";

	int rc = fs_make_dirs(opt->state_dir);
	if (rc) {
		log_error("state directory %s: %s", opt->state_dir, strerror(-rc));
		return rc;
	}
	if (asprintf(&path, "%s/lock", opt->state_dir) < 0)
		return -ENOMEM;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = -errno;
		log_error("state directory %s: cannot write %s: %s", opt->state_dir, path, strerror(-rc));
		return rc;
	}
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
		if (n > 0)
			pid[strcspn(pid, "\n")] = '\0';
		log_error("state directory %s is in use by another mooncakefs (pid %s)", opt->state_dir,
			  *pid ? pid : "unknown");
		close(fd);
		return -EBUSY;
	}
	int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) || pwrite(fd, pid, (size_t)len, 0) != len) {
		rc = errno ? -errno : -EIO;
		log_error("state directory %s: cannot write %s: %s", opt->state_dir, path, strerror(-rc));
		close(fd);
		return rc;
	}
	return fd;
}

/* ---- parts, each with its undoing in fs_destroy ---- */

static void raise_fd_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r))
		log_warn("cannot raise the limit of open files to %llu: %m",
			 (unsigned long long)r.rlim_max);
}

/* ---- ready ---- */

struct ready {
	struct fs *fs;
	const struct options *opt;
	struct daemon_pipe *pipe;
};

/* Asks the mount as any client would; the loop in the main thread answers. */
static void *tell_when_ready(void *arg)
{
	struct ready *r = arg;
	struct statvfs st;

	if (statvfs(r->opt->mountpoint, &st)) {
		/* Told to stop before it began: nothing is wrong. */
		if (errno == ECONNABORTED || errno == ENOTCONN)
			return NULL;
		log_error("mount point %s does not answer: %m", r->opt->mountpoint);
		return NULL;
	}
	log_info("mooncakefs %s ready at %s", MCFS_VERSION, r->opt->mountpoint);
	log_tee_stderr(0);
	daemon_ready(r->pipe);
	sweep_start(r->fs);
	return NULL;
}

static enum session_end serve(struct fs *fs, struct daemon_pipe *pipe, struct guardian *guardian)
{
	struct ready ready = { fs, fs->opt, pipe };
	struct housekeeper *h = NULL;
	pthread_t thread;

	int rc = housekeeper_start(fs, &h);
	if (!rc)
		rc = -pthread_create(&thread, NULL, tell_when_ready, &ready);
	if (rc) {
		log_error("cannot start a thread: %s", strerror(-rc));
		housekeeper_stop(h);
		return SESSION_FAILED;
	}
	guardian_watch(guardian, fs->mount_dev);
	enum session_end end = session_run(fs);
	if (end == SESSION_UNMOUNTED)
		fs->mount_dev = 0;
	housekeeper_stop(h);
	guardian_stop(guardian);
	writeback_stop(fs); /* what it does to passthrough ids needs the session */
	cluster_stop(fs);
	session_unmount(fs);
	pthread_join(thread, NULL);
	return end;
}

static volatile sig_atomic_t is_hurried;

static void hurry(int signo)
{
	(void)signo;
	is_hurried = 1;
}

/* What would be lost otherwise goes to the ssd; another signal ends that. */
static void finish_writeback(struct fs *fs, bool frees_dram)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction action = { .sa_handler = hurry };

	for (size_t k = 0; k < sizeof(signals) / sizeof(*signals); k++)
		sigaction(signals[k], &action, NULL);
	writeback_drain(fs, frees_dram, &is_hurried);
}

static void say_what_stays(const struct fs *fs)
{
	struct tier_stats s;
	char size[16];

	tier_call(fs->dram, get_stats, &s);
	log_info("stopped; %s stay in DRAM at %s/dram for the next start (mooncakectl stop --free, or "
		 "umount %s/dram, frees them)", format_size(s.used_bytes, size, sizeof(size)),
		 fs->opt->state_dir, fs->opt->state_dir);
}

/* One heap per CPU, not eight: each keeps what it once needed. */
static void bound_heaps(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	mallopt(M_ARENA_MAX, n > 0 ? (int)n : 1);
}

int lifecycle_run(const struct options *opt, struct daemon_pipe *pipe)
{
	struct guardian guardian;
	struct metrics_http *http = NULL;
	struct fs fs;
	bool frees_dram = false;

	int rc = log_init(opt->log_target, "mooncakefs");
	if (rc) {
		fprintf(stderr, "mooncakefs: option log=%s: %s\n", opt->log_target, strerror(-rc));
		return rc == -EINVAL ? EXIT_USAGE : EXIT_RUNTIME;
	}
	log_tee_stderr(1);
	umask(0);
	bound_heaps();
	raise_fd_limit();
	int lock_fd = lock_state(opt);
	if (lock_fd < 0)
		return EXIT_RUNTIME;
	rc = guardian_start(&guardian, opt->mountpoint);
	if (rc)
		log_error("cannot start the guardian process: %s", strerror(-rc));
	fs = (struct fs){ .opt = opt };
	if (!rc)
		rc = fs_create(&fs, opt);
	if (!rc)
		rc = cluster_start(&fs);
	if (!rc && opt->metrics_address)
		rc = metrics_http_start(&fs, opt->metrics_address, &http);
	if (!rc)
		rc = session_mount(&fs);
	if (!rc) {
		enum session_end end = serve(&fs, pipe, &guardian);
		rc = end == SESSION_FAILED ? -EIO : 0;
		/* Only an operator who takes the mount away, or says so, gives the cache up. */
		frees_dram = end == SESSION_UNMOUNTED || fs.free_on_stop;
		if (!rc)
			finish_writeback(&fs, frees_dram);
		if (!frees_dram)
			say_what_stays(&fs);
	}
	guardian_stop(&guardian);
	metrics_http_stop(http);
	cluster_stop(&fs); /* it may never have been mounted */
	fs_quiesce(&fs);
	cluster_destroy(&fs);
	fs_destroy(&fs, frees_dram);
	close(lock_fd);
	if (!rc && frees_dram)
		log_info("stopped; DRAM is freed");
	log_fini();
	return rc ? EXIT_RUNTIME : EXIT_OK;
}
