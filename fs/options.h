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

/* When an object in DRAM gets its durable copy, besides fsync and class keep. */
enum writeback_mode {
	WRITEBACK_EVICT,  /* when it has to leave DRAM */
	WRITEBACK_SECOND, /* when it is used a second time; what is not, is dropped when it has to leave */
	WRITEBACK_ALWAYS  /* soon after it is published */
};

#define OPTIONS_MAX_SSDS 16

struct option_ssd {
	char *dir;      /* absolute, no slash at its end */
	uint64_t bytes; /* 0: nine tenths of the free space */
};

struct options {
	char *mountpoint;        /* absolute */
	char *state_dir;         /* state=, default /var/lib/mooncakefs */
	struct option_ssd ssds[OPTIONS_MAX_SSDS]; /* ssd=DIR[:SIZE], default <state>/ssd */
	uint32_t n_ssds;
	bool has_ssd;            /* ssd= was given: DRAM may spill there */
	char *node;              /* node=, default the host name */
	char *log_target;        /* log=, default stderr with -f, else syslog */
	char *metrics_address;   /* metrics=HOST:PORT, NULL: not over HTTP */
	char *directory;         /* directory=redis://..., NULL: this node is alone */
	char *listen;            /* listen=HOST:PORT of its peer endpoint; NULL only when alone */
	char *advertise;         /* advertise=HOST:PORT, NULL: what listen has bound */
	char *key_file;          /* key=FILE, NULL: none */
	char *cluster;           /* cluster=NAME, default mooncake */
	char *rdma_device;       /* rdma_device=; NULL: whichever serve */
	char *transport;         /* transport=: auto, tcp, rdma */
	uint64_t dram_bytes;     /* dram=, default dram_budget_default() */
	uint64_t max_objects;    /* max_objects=, default one per 4 KiB of dram and 64 KiB of ssd= */
	uint32_t space_wait_ms;  /* space_wait=SECONDS, how long a write waits for space */
	enum writeback_mode writeback; /* writeback= */
	uint64_t writeback_rate; /* writeback_rate=, bytes per second, 0: no limit */
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
