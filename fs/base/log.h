/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line per event, to stderr, a file, or syslog (where journald collects it).
 *
 * Levels by volume: error, warn, info (per mount), debug (per object), trace (per request).
 * Messages are lower case, name the operation and its arguments, and use %m for errno.
 * Thread safety: all functions, after log_init.
 */
#ifndef MCFS_LOG_H
#define MCFS_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVEL_TRACE };

/*
 * target: "stderr", "syslog", or the path of a file that is appended to. Optional ":LEVEL" suffix
 * ("syslog:debug"). Before the first call lines of level info and above go to stderr.
 * Returns 0 or a negative errno (-EINVAL unknown level; the open's errno for a file).
 */
int log_init(const char *target, const char *ident);
void log_fini(void);
/* Also writes warnings and errors to stderr: while somebody is watching the start. */
void log_tee_stderr(int on);
int log_is_on(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_is_on(LOG_LEVEL_DEBUG))                                                    \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);                                   \
	} while (0)
#define log_trace(...)                                                                             \
	do {                                                                                       \
		if (log_is_on(LOG_LEVEL_TRACE))                                                    \
			log_write(LOG_LEVEL_TRACE, __VA_ARGS__);                                   \
	} while (0)

#endif
