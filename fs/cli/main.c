/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncakectl: asks and steers a mounted mooncakefs through its files, and replays traces on it.
 *
 * fsck works on a state directory. The others need nothing but the mount: .mooncake/status.json, .mooncake/metrics, .mooncake/control and the
 * extended attributes user.mooncake.*. Exit codes: 0, 1 runtime error, 2 usage.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifndef MCFS_VERSION
#define MCFS_VERSION "unknown"
#endif

#define MOUNT_DETAILS                                                                   \
	"  --mount DIR         mount point (default: the mount that holds PATH, else\n" \
	"                      $MOONCAKE_MOUNT, else " CLI_DEFAULT_MOUNT ")\n"

static const struct command commands[] = {
	{"status", "[PATH]", "Show tiers, objects and paths of a mount", "Options:\n" MOUNT_DETAILS,
	 run_status},
	{"stat", "PATH...", "Show where objects are and their attributes",
	 "An attribute that a path does not have is shown as '-' (null in JSON).\n\nOptions:\n",
	 run_stat},
	{"lookup", "PATH...", "Say which objects exist, and how soon they are ready",
	 "Exit status 1 when any of them is missing.\n\nOptions:\n", run_lookup},
	{"prefetch", "PATH...", "Bring files here that other nodes hold",
	 "Says how much came, also when it is interrupted. Exit status 1 when a file could not\n"
	 "be had.\n\nOptions:\n",
	 run_prefetch},
	{"pin", "PATH...", "Keep objects in DRAM",
	 "A directory hands its pin to what is created in it later.\n\nOptions:\n", run_pin},
	{"unpin", "PATH...", "Let objects be evicted again", "Options:\n", run_pin},
	{"class", "CLASS PATH...", "Set the class of objects or directories",
	 "CLASS is cache (may be evicted), keep (may leave DRAM, is never dropped while it\n"
	 "is the last copy) or pinned (stays in DRAM).\n\nOptions:\n",
	 run_class},
	{"metrics", "[PATH]", "Print the metrics of a mount",
	 "Prometheus text; with --json one object, series name to value.\n\n"
	 "Options:\n" MOUNT_DETAILS,
	 run_metrics},
	{"top", "[PATH]", "Show what a mount does, refreshed every second", top_details, run_top},
	{"stop", "[PATH]", "Stop the daemon of a mount and wait for its end", stop_details,
	 run_stop},
	{"replay", "TRACE MOUNT", "Replay a request trace and measure hits and speed",
	 replay_details, run_replay},
	{"bench", "[MOUNT]", "Measure batches next to memcpy", bench_details, run_bench},
	{"scrub", "[PATH]", "Have all SSD frames read again and compared", scrub_details, run_scrub},
	{"nodes", "[PATH]", "Show the nodes of the cluster", "Options:\n" MOUNT_DETAILS, run_nodes},
	{"peers", "[PATH]", "Show the connections to other nodes", "Options:\n" MOUNT_DETAILS, run_peers},
	{"fsck", "STATE_DIR", "Check and repair a state directory, offline", fsck_details, run_fsck},
};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static void print_summary(FILE *out)
{
	fprintf(out, "Usage: mooncakectl COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
	fprintf(out,
		"\nEvery command takes --json. 'mooncakectl COMMAND --help' lists its options;\n"
		"'mooncakectl --version' prints the version.\n");
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* argv[0] becomes "mooncakectl NAME", which getopt_long's messages begin with. */
static int command_run(const struct command *cmd, int argc, char **argv)
{
	char title[64];

	snprintf(title, sizeof(title), "mooncakectl %s", cmd->name);
	argv[0] = title;
	return cmd->run(cmd, argc, argv);
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		print_summary(stderr);
		return CLI_USAGE;
	}
	const char *name = argv[1];
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_summary(stdout);
		return CLI_OK;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		printf("mooncakectl %s\n", MCFS_VERSION);
		return CLI_OK;
	}
	const struct command *cmd = command_find(name);
	if (!cmd) {
		cli_error("unknown %s '%s'", *name == '-' ? "option" : "command", name);
		fprintf(stderr, "Try 'mooncakectl --help'.\n");
		return CLI_USAGE;
	}
	return command_run(cmd, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int exit_code = dispatch(argc, argv);

	if (fflush(stdout) || ferror(stdout)) {
		cli_error("cannot write to standard output: %m");
		return CLI_FAILED;
	}
	return exit_code;
}
