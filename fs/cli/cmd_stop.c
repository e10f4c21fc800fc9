/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakectl stop: tells the daemon to end, through .mooncake/control, and waits until it has.
 *
 * The wait is on a pidfd opened before the order is given, so the pid cannot be another process by
 * then. Where the daemon's pid means nothing here (another PID namespace), the wait is for the mount
 * to be gone instead.
 */
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define DAEMON_NAME "mooncakefs"

const char stop_details[] =
	"Without --free the objects in DRAM stay there, and the next start adopts them.\n\n"
	"Options:\n"
	"  --free              free the DRAM as well\n"
	"  --timeout SECONDS   how long to wait for the daemon's end (default 30)\n"
	"  --mount DIR         mount point (default: the mount that holds PATH, else\n"
	"                      $MOONCAKE_MOUNT, else " CLI_DEFAULT_MOUNT ")\n";

struct stop {
	char mount[PATH_MAX];
	bool free_dram;
	uint64_t timeout_s;
	uint64_t pid;	 /* 0: unknown */
	char *dram_path; /* NULL: unknown */
	uint64_t dram_bytes;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* A pidfd of the daemon, or -1 when no process of this pid here is one. */
static int daemon_open(uint64_t pid)
{
	char path[64], name[32] = "";

	if (!pid || pid > INT_MAX)
		return -1;
	int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (pidfd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, name, sizeof(name) - 1) > 0 &&
	    !strncmp(name, DAEMON_NAME, strlen(DAEMON_NAME)))
		return pidfd;
	close(pidfd);
	return -1;
}

static int send_order(const struct stop *s)
{
	char path[PATH_MAX + 32];
	const char *order = s->free_dram ? "stop free\n" : "stop\n";

	snprintf(path, sizeof(path), "%s/.mooncake/control", s->mount);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? write(fd, order, strlen(order)) : -1;
	int error = errno;
	if (fd >= 0)
		close(fd);
	if (n >= 0 || error == ENOTCONN || error == ECONNABORTED)
		return 0; /* it may be gone before it could answer */
	if (error == EROFS && !s->free_dram && s->pid && !kill((pid_t)s->pid, SIGTERM))
		return 0; /* a read-only mount takes no orders, but the same signal */
	if (error == EACCES || error == EPERM)
		cli_error("%s: %s: stopping the daemon needs root", path, strerror(error));
	else
		cli_error("%s: %s", path, strerror(error));
	return -error;
}

/* Returns 0 or -ETIMEDOUT. */
static int wait_end(const struct stop *s, int pidfd)
{
	int64_t deadline = now_ms() + (int64_t)s->timeout_s * 1000;
	struct pollfd poller = {.fd = pidfd, .events = POLLIN};

	for (;;) {
		int64_t left = deadline - now_ms();
		if (left < 0)
			left = 0;
		/* Without a pidfd poll ignores the entry and this is a sleep. */
		int64_t step = pidfd >= 0 || left < 100 ? left : 100;
		int n = poll(&poller, 1, (int)(step > INT_MAX ? INT_MAX : step));
		if (n > 0 || (pidfd < 0 && !mount_is_live(s->mount)))
			return 0;
		if (!left)
			return -ETIMEDOUT;
	}
}

/* True when path is a mount of its own, as the DRAM tier's tmpfs is until it is freed. */
static bool is_mount_point(const char *path)
{
	char parent[PATH_MAX];
	struct stat own, above;

	snprintf(parent, sizeof(parent), "%s/..", path);
	return !stat(path, &own) && !stat(parent, &above) && own.st_dev != above.st_dev;
}

static int report(const struct stop *s, bool as_json)
{
	bool stays = s->dram_path && is_mount_point(s->dram_path);
	char size[TEXT_BYTES];

	if (s->free_dram && stays)
		cli_error("%s is still mounted and holds DRAM; free it with: umount %s",
			  s->dram_path, s->dram_path);
	int exit_code = s->free_dram && stays ? CLI_FAILED : CLI_OK;
	if (as_json)
		return print_json(json_pack("{s:b, s:o, s:I, s:b}", "stopped", 1, "dram_path",
					    s->dram_path ? text_json(s->dram_path) : json_null(),
					    "dram_bytes", stays ? (json_int_t)s->dram_bytes : 0,
					    "dram_freed", s->dram_path && !stays),
				  exit_code);
	printf("%s: stopped.\n", s->mount);
	if (stays && !s->free_dram)
		printf("%s stay in DRAM at %s for the next start.\nFree them with: umount %s\n",
		       format_size(s->dram_bytes, size, sizeof(size)), s->dram_path, s->dram_path);
	else if (s->dram_path && !stays)
		printf("Its DRAM is free.\n");
	return exit_code;
}

static int stop_parse(const struct command *cmd, int argc, char **argv, struct stop *s,
		      struct common_options *options)
{
	enum {
		OPTION_FREE = OPTION_OWN,
		OPTION_TIMEOUT
	};
	static const struct option known[] = {COMMON_OPTIONS,
					      MOUNT_OPTION,
					      {"free", no_argument, NULL, OPTION_FREE},
					      {"timeout", required_argument, NULL, OPTION_TIMEOUT},
					      {0}};
	int value, rc;

	while ((value = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (value == OPTION_FREE) {
			s->free_dram = true;
		} else if (value == OPTION_TIMEOUT) {
			if (parse_u64(optarg, 0, 86400 * 365, &s->timeout_s))
				return usage_error(
					cmd, "--timeout: '%s' is not a number of seconds", optarg);
		} else if ((rc = common_option(cmd, value, options)) >= 0) {
			return rc;
		}
	}
	return common_operands(cmd, argc, argv, 0, 1);
}

static int stop_prepare(struct stop *s, const struct common_options *options, const char *path)
{
	json_t *status;

	if (mount_find(options->mount, path, s->mount) || mount_status(s->mount, &status))
		return -1;
	const json_t *dram = status_tier(status, "dram");
	status_number(status, "pid", &s->pid);
	status_number(dram, "used_bytes", &s->dram_bytes);
	if (status_text(dram, "path"))
		s->dram_path = strdup(status_text(dram, "path"));
	json_decref(status);
	return 0;
}

int run_stop(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	struct stop s = {.timeout_s = 30};
	int rc = stop_parse(cmd, argc, argv, &s, &options);

	if (rc >= 0)
		return rc;
	if (stop_prepare(&s, &options, argv[optind]))
		return CLI_FAILED;
	autoclose int pidfd = daemon_open(s.pid);
	autofree char *dram_path = s.dram_path;
	if (send_order(&s))
		return CLI_FAILED;
	if (wait_end(&s, pidfd)) {
		cli_error("%s: the daemon (pid %llu) has not ended within --timeout %llu s",
			  s.mount, (unsigned long long)s.pid, (unsigned long long)s.timeout_s);
		return CLI_FAILED;
	}
	return report(&s, options.json);
}
