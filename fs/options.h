/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: the command line and the configuration file, checked as a whole before anything starts.
 * A configuration file holds one option per line, as after -o; '#' starts a comment.
 */
#ifndef MCFS_OPTIONS_H
#define MCFS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { EXIT_OK = 0, EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

struct options {
	char *mountpoint;        /* absolute */
	char *state_dir;         /* state=, default /var/lib/mooncakefs */
	char *ssd_dir;           /* ssd=DIR, default <state>/ssd */
	char *node;              /* node=, default the host name */
	char *log_target;        /* log=, default stderr with -f, else syslog */
	uint64_t dram_bytes;     /* dram=, default dram_budget_default() */
	uint64_t ssd_bytes;      /* ssd=DIR:SIZE, 0: nine tenths of the free space */
	uint64_t max_objects;    /* max_objects=, default one per 4 KiB of dram */
	uint32_t space_wait_ms;  /* space_wait=SECONDS, how long a write waits for space */
	bool passthrough_off;    /* passthrough=off */
	bool allow_other;
	bool nonempty;
	bool foreground;         /* -f */
	bool show_help, show_version;
	bool plain_dram;         /* tests without root: the dram tier is an ordinary directory */
	char *fuse_opts;         /* what the kernel's mount takes: ro, nosuid, noatime, ... */
};

/*
 * Reads argv. Returns EXIT_OK, or EXIT_USAGE after printing what is wrong with which option.
 * With show_help or show_version set the rest is not checked.
 */
int options_parse(int argc, char **argv, struct options *o);
void options_fini(struct options *o);
void options_print_help(void);

#endif
