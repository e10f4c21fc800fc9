/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };
static const int syslog_levels[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_DEBUG };

static struct {
	int fd; /* -1: syslog */
	enum log_level level;
	char ident[32];
	atomic_int tees; /* may be changed while others log */
} logger = { .fd = STDERR_FILENO, .level = LOG_LEVEL_INFO, .ident = "mooncakefs" };

static int parse_level(const char *name)
{
	for (int i = 0; i < (int)(sizeof(level_names) / sizeof(*level_names)); i++)
		if (!strcasecmp(name, level_names[i]))
			return i;
	return -EINVAL;
}

int log_init(const char *target, const char *ident)
{
	char path[4096];
	const char *colon = strrchr(target, ':');
	int level = logger.level;

	if (strlen(target) >= sizeof(path))
		return -ENAMETOOLONG;
	strcpy(path, target);
	if (colon) {
		level = parse_level(colon + 1);
		if (level < 0)
			return level;
		path[colon - target] = '\0';
	}
	snprintf(logger.ident, sizeof(logger.ident), "%s", ident);
	int fd = STDERR_FILENO;
	if (!strcmp(path, "syslog")) {
		openlog(logger.ident, LOG_PID, LOG_DAEMON);
		fd = -1;
	} else if (strcmp(path, "stderr") != 0) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
		if (fd < 0)
			return -errno;
	}
	logger.fd = fd;
	logger.level = (enum log_level)level;
	return 0;
}

void log_fini(void)
{
	if (logger.fd < 0)
		closelog();
	else if (logger.fd != STDERR_FILENO)
		close(logger.fd);
	logger.fd = STDERR_FILENO;
}

void log_tee_stderr(int on)
{
	logger.tees = on;
}

int log_is_on(enum log_level level)
{
	return level <= logger.level;
}

/* One write per line keeps lines of several threads whole. */
static void write_line(int fd, const char *prefix, enum log_level level, const char *text)
{
	char line[2304];
	int n = snprintf(line, sizeof(line), "%s%s: %s: %s\n", prefix, logger.ident,
			 level_names[level], text);

	if (n >= (int)sizeof(line)) {
		n = (int)sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	/* Nothing sensible is left to do when the log itself cannot be written. */
	ssize_t ignored = write(fd, line, (size_t)n);
	(void)ignored;
}

static void write_file(enum log_level level, const char *text)
{
	char stamp[32], prefix[48];
	struct timespec ts;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(prefix, sizeof(prefix), "%s.%03ld ", stamp, ts.tv_nsec / 1000000);
	write_line(logger.fd, prefix, level, text);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	int saved_errno = errno;
	char text[2048];
	va_list args;

	if (!log_is_on(level))
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (logger.fd < 0)
		syslog(syslog_levels[level], "%s", text);
	else
		write_file(level, text);
	if (logger.tees && level <= LOG_LEVEL_WARN && logger.fd != STDERR_FILENO)
		write_line(STDERR_FILENO, "", level, text);
	errno = saved_errno;
}
