/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl fsck: checks and repairs the state directory of a daemon that is not running. */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/fsck.h"

#include <stdlib.h>
#include <string.h>

const char fsck_details[] =
	"Compares the catalog with the frames on the tiers: every record can be read, every\n"
	"name has its object and every object its name and its bytes, every directory can\n"
	"be reached, no frame is left over. Refuses while a daemon has STATE_DIR.\n\n"
	"--repair removes names without bytes, records that are damaged and frames that\n"
	"nothing needs; bytes without a name get one in /lost+found. A catalog that cannot\n"
	"be opened is rebuilt from the files that are left, after a copy was made beside it.\n\n"
	"Exit status: 0 clean or repaired, 1 something was found (or the check failed),\n"
	"2 usage.\n\n"
	"Options:\n"
	"  --repair            repair what is found\n"
	"  --data              also read every SSD frame and compare its checksums\n"
	"  --ssd DIR           a directory of frames, repeatable (default: those that\n"
	"                      STATE_DIR/disks.json names, else STATE_DIR/ssd)\n"
	"  --quiet             no progress on the terminal\n";

static int parse(const struct command *cmd, int argc, char **argv, struct fsck *f, bool *is_quiet,
		 struct common_options *options)
{
	enum { OPTION_REPAIR = OPTION_OWN, OPTION_DATA, OPTION_SSD, OPTION_QUIET };
	static const struct option known[] = {COMMON_OPTIONS,
					      {"repair", no_argument, NULL, OPTION_REPAIR},
					      {"data", no_argument, NULL, OPTION_DATA},
					      {"ssd", required_argument, NULL, OPTION_SSD},
					      {"quiet", no_argument, NULL, OPTION_QUIET},
					      {0}};
	int value, rc;

	while ((value = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (value == OPTION_REPAIR)
			f->repairs = true;
		else if (value == OPTION_DATA)
			f->checks_data = true;
		else if (value == OPTION_QUIET)
			*is_quiet = true;
		else if (value == OPTION_SSD)
			f->ssd_dirs[f->n_ssd_dirs++] = optarg;
		else if ((rc = common_option(cmd, value, options)) >= 0)
			return rc;
	}
	return common_operands(cmd, argc, argv, 1, 1);
}

int run_fsck(const struct command *cmd, int argc, char **argv)
{
	struct common_options options = {0};
	bool is_quiet = false;
	struct fsck f = {.lock_fd = -1};

	f.ssd_dirs = calloc((size_t)argc, sizeof(*f.ssd_dirs)); /* not more than arguments */
	if (!f.ssd_dirs) {
		cli_error("out of memory");
		return CLI_FAILED;
	}
	int rc = parse(cmd, argc, argv, &f, &is_quiet, &options);
	if (rc < 0) {
		f.state_dir = argv[optind];
		/* What the catalog has to say: why it cannot be opened. */
		log_init("stderr:error", "mooncakectl");
		bar_init(&f.bar, !is_quiet && !options.json);
		bool has_failed = fsck_run(&f) != 0;
		rc = has_failed || !f.is_complete || fsck_n_left(&f) ? CLI_FAILED : CLI_OK;
		if (options.json && !has_failed)
			rc = print_json(fsck_json(&f), rc);
		else if (!has_failed)
			fsck_print(&f);
		log_fini();
	}
	fsck_fini(&f);
	free(f.ssd_dirs);
	return rc;
}
