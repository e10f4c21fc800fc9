/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: what the subcommands of mooncakectl share: the command record, exit codes, common options,
 * messages, and how the mount they talk to is found.
 *
 * Messages go to stderr as "mooncakectl: ..."; results go to stdout.
 * Thread safety: none is needed, commands run on the main thread; cli_error may be called anywhere.
 */
#ifndef MCFS_CLI_H
#define MCFS_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>

#define CLI_DEFAULT_MOUNT "/mnt/mooncake"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2
};

struct command {
	const char *name;
	const char *arguments; /* as in the usage line, "" for none */
	const char *summary;   /* one line, at most 55 bytes */
	const char *
		details; /* rest of the help: description and options of its own, lines end in \n */
	/* argv[0] is the command's name. Returns an enum cli_exit. */
	int (*run)(const struct command *cmd, int argc, char **argv);
};

struct common_options {
	bool json;
	const char *mount; /* --mount, or NULL */
};

/* Entries of a getopt_long table; their values stay clear of the letters that commands use. */
enum {
	OPTION_JSON = 256,
	OPTION_HELP,
	OPTION_MOUNT,
	OPTION_OWN
};
#define COMMON_OPTIONS                                 \
	{"json", no_argument, NULL, OPTION_JSON},      \
	{                                              \
		"help", no_argument, NULL, OPTION_HELP \
	}
#define MOUNT_OPTION                                           \
	{                                                      \
		"mount", required_argument, NULL, OPTION_MOUNT \
	}

/*
 * Handles a value of getopt_long that the command does not know itself.
 * Returns -1 to go on, else the exit code to return at once (after --help or a usage error).
 */
int common_option(const struct command *cmd, int value, struct common_options *options);

/*
 * For commands without options of their own: parses argv, leaves optind at the first operand and
 * checks that [min, max] operands follow. Returns as common_option.
 */
int common_parse(const struct command *cmd, int argc, char **argv, bool takes_mount, int min,
		 int max, struct common_options *options);

/* Checks the number of operands after optind; max < 0: no limit. Returns as common_option. */
int common_operands(const struct command *cmd, int argc, char **argv, int min, int max);

/* Prints the message and a pointer to --help; returns CLI_USAGE. */
int usage_error(const struct command *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Prints the document to stdout and drops the caller's reference. NULL counts as out of memory. */
int print_json(json_t *document, int exit_code);

int run_status(const struct command *cmd, int argc, char **argv);
int run_stat(const struct command *cmd, int argc, char **argv);
int run_lookup(const struct command *cmd, int argc, char **argv);
int run_pin(const struct command *cmd, int argc, char **argv);
int run_class(const struct command *cmd, int argc, char **argv);
int run_metrics(const struct command *cmd, int argc, char **argv);
int run_top(const struct command *cmd, int argc, char **argv);
int run_stop(const struct command *cmd, int argc, char **argv);
int run_replay(const struct command *cmd, int argc, char **argv);
int run_bench(const struct command *cmd, int argc, char **argv);
int run_scrub(const struct command *cmd, int argc, char **argv);
int run_prefetch(const struct command *cmd, int argc, char **argv);
int run_nodes(const struct command *cmd, int argc, char **argv);
int run_peers(const struct command *cmd, int argc, char **argv);
int run_fsck(const struct command *cmd, int argc, char **argv);

extern const char bench_details[];
extern const char replay_details[];
extern const char scrub_details[];
extern const char fsck_details[];
extern const char stop_details[];
extern const char top_details[];

#endif
