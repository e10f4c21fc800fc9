/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void message(const char *fmt, va_list args)
{
	/* One write per line keeps the lines of several threads whole. */
	char line[4608];
	int saved_errno = errno;
	int n = vsnprintf(line, sizeof(line), fmt, args);

	if (n >= 0)
		fprintf(stderr, "mooncakectl: %s\n", line);
	errno = saved_errno;
}

void cli_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	message(fmt, args);
	va_end(args);
}

int usage_error(const struct command *cmd, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	message(fmt, args);
	va_end(args);
	fprintf(stderr, "Try 'mooncakectl %s --help'.\n", cmd->name);
	return CLI_USAGE;
}

static void print_help(const struct command *cmd)
{
	printf("Usage: mooncakectl %s [OPTION...] %s\n\n%s.\n\n%s", cmd->name, cmd->arguments,
	       cmd->summary, cmd->details);
	printf("  --json              print JSON instead of a table\n"
	       "  --help              print this help\n");
}

int common_option(const struct command *cmd, int value, struct common_options *options)
{
	switch (value) {
	case OPTION_JSON:
		options->json = true;
		return -1;
	case OPTION_MOUNT:
		options->mount = optarg;
		return -1;
	case OPTION_HELP:
		print_help(cmd);
		return CLI_OK;
	default: /* getopt_long has said what is wrong */
		fprintf(stderr, "Try 'mooncakectl %s --help'.\n", cmd->name);
		return CLI_USAGE;
	}
}

int common_operands(const struct command *cmd, int argc, char **argv, int min, int max)
{
	int n = argc - optind;

	if (n < min)
		return usage_error(cmd, "%s: an argument is missing, expected: %s", cmd->name,
				   cmd->arguments);
	if (max >= 0 && n > max)
		return usage_error(cmd, "%s: unexpected argument '%s'", cmd->name,
				   argv[optind + max]);
	return -1;
}

int common_parse(const struct command *cmd, int argc, char **argv, bool takes_mount, int min,
		 int max, struct common_options *options)
{
	static const struct option with_mount[] = {COMMON_OPTIONS, MOUNT_OPTION, {0}};
	static const struct option without_mount[] = {COMMON_OPTIONS, {0}};
	const struct option *known = takes_mount ? with_mount : without_mount;
	int value;

	while ((value = getopt_long(argc, argv, "", known, NULL)) != -1) {
		int rc = common_option(cmd, value, options);
		if (rc >= 0)
			return rc;
	}
	return common_operands(cmd, argc, argv, min, max);
}

int print_json(json_t *document, int exit_code)
{
	if (!document) {
		cli_error("cannot build the JSON output: out of memory");
		return CLI_FAILED;
	}
	json_dumpf(document, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(document);
	return exit_code;
}
