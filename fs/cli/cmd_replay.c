/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl replay: its options, and the steps from a trace to the report. */
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/replay.h"
#include "cli/replay_report.h"
#include "cli/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_BLOCK_BYTES (64 << 10)
#define MIN_BLOCK_BYTES 32
#define MAX_BLOCK_BYTES (1 << 30)
#define MAX_THREADS 256

const char replay_details[] =
	"TRACE ('-': standard input) has one JSON object per line, with hash_ids, the ids of\n"
	"a request's prefix blocks. A block is a file of MOUNT/kv/DIR. One that is there is\n"
	"read whole and checked byte by byte; one that is not is a miss and is written.\n"
	"MOUNT may be any directory, for comparison. Exit status 1 if a byte was wrong or a\n"
	"read or write failed.\n\n"
	"Options:\n"
	"  --block-bytes SIZE  size of a block (default 64K)\n"
	"  --limit N           stop after N requests\n"
	"  --threads N         threads that share the blocks of a request (default 1)\n"
	"  --dir NAME          directory (default replay-<trace>-<block bytes>)\n"
	"  --fresh             first remove the blocks of an earlier replay from it\n"
	"  --publish HOW       direct: create, write, close (default);\n"
	"                      rename: the same under a temporary name, then rename\n"
	"  --progress WHEN     auto (a bar on a terminal, else lines), on or off\n";

struct replay_command {
	struct common_options common;
	struct replay_options run;
	const char *trace_path, *mount;
	const char *publish;
	uint64_t block_bytes, limit, n_threads;
	bool is_fresh;
	char dir[NAME_MAX + 1];
};

/* The position of text in a NULL-terminated list, or -1. */
static int choice(const char *text, const char *const *list)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(text, list[i]))
			return i;
	return -1;
}

enum {
	OPTION_BLOCK = OPTION_OWN,
	OPTION_LIMIT,
	OPTION_THREADS,
	OPTION_DIR,
	OPTION_FRESH,
	OPTION_PUBLISH,
	OPTION_PROGRESS
};

/* Returns -1 to go on, else the exit code. */
static int take_option(const struct command *cmd, int option, struct replay_command *r)
{
	static const char *const publishes[] = {"direct", "rename", NULL};
	static const char *const progresses[] = {"auto", "on", "off", NULL};
	int n;

	switch (option) {
	case OPTION_BLOCK:
		if (parse_size(optarg, &r->block_bytes) || r->block_bytes < MIN_BLOCK_BYTES ||
		    r->block_bytes > MAX_BLOCK_BYTES)
			return usage_error(cmd, "--block-bytes: '%s' is not a size from %d to 1G",
					   optarg, MIN_BLOCK_BYTES);
		return -1;
	case OPTION_LIMIT:
		if (parse_u64(optarg, 1, UINT32_MAX, &r->limit))
			return usage_error(cmd, "--limit: '%s' is not a number from 1", optarg);
		return -1;
	case OPTION_THREADS:
		if (parse_u64(optarg, 1, MAX_THREADS, &r->n_threads))
			return usage_error(cmd, "--threads: '%s' is not a number from 1 to %d",
					   optarg, MAX_THREADS);
		return -1;
	case OPTION_DIR:
		if (!*optarg || strchr(optarg, '/') || !strcmp(optarg, ".") ||
		    !strcmp(optarg, "..") || strlen(optarg) > NAME_MAX)
			return usage_error(cmd, "--dir: '%s' is not the name of a directory",
					   optarg);
		strcpy(r->dir, optarg);
		return -1;
	case OPTION_FRESH:
		r->is_fresh = true;
		return -1;
	case OPTION_PUBLISH:
		if ((n = choice(optarg, publishes)) < 0)
			return usage_error(cmd, "--publish: '%s' is neither direct nor rename",
					   optarg);
		r->run.store.publish = (enum block_publish)n;
		r->publish = publishes[n];
		return -1;
	case OPTION_PROGRESS:
		if ((n = choice(optarg, progresses)) < 0)
			return usage_error(cmd, "--progress: '%s' is not auto, on or off", optarg);
		r->run.progress = (enum progress_mode)n;
		return -1;
	default:
		return common_option(cmd, option, &r->common);
	}
}

/* Traces number their blocks from 0 each, so every trace gets a directory of its own. */
static void default_dir(struct replay_command *r)
{
	const char *slash = strrchr(r->trace_path, '/');
	const char *base = strcmp(r->trace_path, "-") ? (slash ? slash + 1 : r->trace_path) :
							"stdin";
	const char *dot = strrchr(base, '.');
	char stem[65];
	size_t len = dot && dot != base ? (size_t)(dot - base) : strlen(base);

	if (len >= sizeof(stem))
		len = sizeof(stem) - 1;
	for (size_t i = 0; i < len; i++)
		stem[i] = isalnum((unsigned char)base[i]) || strchr("-_.", base[i]) ? base[i] : '_';
	stem[len] = '\0';
	snprintf(r->dir, sizeof(r->dir), "replay-%s-%llu", stem,
		 (unsigned long long)r->block_bytes);
}

static int replay_parse(const struct command *cmd, int argc, char **argv, struct replay_command *r)
{
	static const struct option known[] = {
		COMMON_OPTIONS,
		{"block-bytes", required_argument, NULL, OPTION_BLOCK},
		{"limit", required_argument, NULL, OPTION_LIMIT},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"dir", required_argument, NULL, OPTION_DIR},
		{"fresh", no_argument, NULL, OPTION_FRESH},
		{"publish", required_argument, NULL, OPTION_PUBLISH},
		{"progress", required_argument, NULL, OPTION_PROGRESS},
		{0},
	};
	int option, rc;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		if ((rc = take_option(cmd, option, r)) >= 0)
			return rc;
	if ((rc = common_operands(cmd, argc, argv, 2, 2)) >= 0)
		return rc;
	r->trace_path = argv[optind];
	r->mount = argv[optind + 1];
	if (!*r->dir)
		default_dir(r);
	r->run.store.block_bytes = (size_t)r->block_bytes;
	r->run.n_threads = (unsigned)r->n_threads;
	return -1;
}

static int load_trace(const struct replay_command *r, struct trace *out)
{
	bool is_stdin = !strcmp(r->trace_path, "-");
	const char *shown = is_stdin ? "standard input" : r->trace_path;
	FILE *file = is_stdin ? stdin : fopen(r->trace_path, "re");
	struct trace_error error;

	if (!file) {
		int rc = -errno;
		cli_error("%s: %m", shown);
		return rc;
	}
	int rc = trace_load(file, (size_t)r->limit, out, &error);
	if (!is_stdin)
		fclose(file);
	if (rc && error.line) {
		cli_error("%s:%zu: %s", shown, error.line, error.reason);
		return rc;
	}
	if (rc) {
		cli_error("%s: %s", shown, error.reason);
		return rc;
	}
	if (!out->n_requests) {
		cli_error("%s: no requests in it", shown);
		trace_free(out);
		return -ENODATA;
	}
	return 0;
}

/* Opens the directory of the blocks in r->run.store. */
static int prepare_store(struct replay_command *r)
{
	int rc = block_store_open(r->mount, r->dir, &r->run.store.dir_fd);

	if (rc) {
		cli_error("%s/kv/%s: cannot open or create it: %s", r->mount, r->dir,
			  strerror(-rc));
		return rc;
	}
	rc = r->is_fresh ? block_store_clear(r->run.store.dir_fd) : 0;
	if (rc)
		cli_error("%s/kv/%s: --fresh: cannot remove blocks: %s", r->mount, r->dir,
			  strerror(-rc));
	return rc;
}

static void announce(const struct replay_command *r, const struct trace *trace)
{
	char size[TEXT_BYTES], requests[TEXT_BYTES], blocks[TEXT_BYTES];

	if (r->run.progress == PROGRESS_OFF)
		return;
	if (!mount_is_live(r->mount))
		fprintf(stderr, "replay: %s is not a mooncakefs mount, just a directory\n",
			r->mount);
	fprintf(stderr, "replay: %s requests, %s blocks of %s, to %s/kv/%s\n",
		text_count(trace->n_requests, requests), text_count(trace->n_ids, blocks),
		format_size(r->block_bytes, size, sizeof(size)), r->mount, r->dir);
}

int run_replay(const struct command *cmd, int argc, char **argv)
{
	struct replay_command r = {.block_bytes = DEFAULT_BLOCK_BYTES,
				   .n_threads = 1,
				   .publish = "direct",
				   .run = {.store = {.dir_fd = -1}}};
	struct trace trace = {0};
	int rc = replay_parse(cmd, argc, argv, &r);

	if (rc >= 0)
		return rc;
	autofree struct replay_result *result = calloc(1, sizeof(*result));
	if (load_trace(&r, &trace))
		return CLI_FAILED;
	rc = prepare_store(&r);
	autoclose int dir_fd = r.run.store.dir_fd;
	if (!rc) {
		announce(&r, &trace);
		rc = result ? replay_run(&trace, &r.run, result) : -ENOMEM;
		if (rc)
			cli_error("replay: cannot start %u threads with blocks of %llu bytes: %s",
				  r.run.n_threads, (unsigned long long)r.block_bytes,
				  strerror(-rc));
	}
	trace_free(&trace);
	if (rc)
		return CLI_FAILED;
	const struct replay_setting setting = {.trace = r.trace_path,
					       .mount = r.mount,
					       .dir = r.dir,
					       .publish = r.publish,
					       .block_bytes = r.block_bytes,
					       .n_threads = r.run.n_threads};
	return replay_report(&setting, result, r.common.json);
}
