/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakefs: the daemon. See lifecycle.h for the order of things. */
#include <stdio.h>
#include <string.h>

#include "daemonize.h"
#include "lifecycle.h"
#include "mountpoint.h"
#include "options.h"

int main(int argc, char **argv)
{
	struct daemon_pipe pipe = { .ready_fd = -1 };
	struct options opt;

	int rc = options_parse(argc, argv, &opt);
	if (!rc && opt.show_help) {
		options_print_help();
	} else if (!rc && opt.show_version) {
		printf("mooncakefs %s\n", MCFS_VERSION);
	} else if (!rc) {
		rc = mountpoint_check(opt.mountpoint, opt.nonempty) ? EXIT_RUNTIME : EXIT_OK;
		if (!rc) {
			int err = daemonize(opt.foreground, &pipe);
			if (err)
				fprintf(stderr, "mooncakefs: cannot go to the background: %s\n",
					strerror(-err));
			rc = err ? EXIT_RUNTIME : lifecycle_run(&opt, &pipe);
		}
	}
	options_fini(&opt);
	return rc;
}
