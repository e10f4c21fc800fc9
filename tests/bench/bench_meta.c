/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One directory with a million objects and more: a phase of the group, chosen by its name. run.sh starts
 * and restarts the daemon between phases.
 *
 * Exit status as of the other groups: 0 it ran, whatever the time; 1 it could not run or something was
 * missing or wrong; 2 usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/many.h"

static const struct {
	const char *name;
	int (*run)(struct many *m);
} phases[] = {
	{"create", many_create},	 {"list", many_list},	    {"stat", many_stat},
	{"first-read", many_first_read}, {"figures", many_figures},
};

static int usage(void)
{
	fputs("usage: bench_meta PHASE --dir DIR --count N --mode TEXT --pid PID [--json FILE] [--head]\n"
	      "                  [--plain N] [--bytes N] [--raw DIR] [--catalog DIR] [--since SECONDS]\n"
	      "  --dir DIR        the directory, in the root of a mooncakefs mount\n"
	      "  --count N        objects in it, numbered from 0\n"
	      "  --bytes N        in each of them, 16\n"
	      "  --mode TEXT      for the rows: what came before\n"
	      "  --pid PID        the daemon\n"
	      "  --plain N        create: so many through plain files, the others by batches\n"
	      "  --raw DIR        create: does not exist yet, on a raw tmpfs\n"
	      "  --catalog DIR    figures: STATE/catalog\n"
	      "  --since SECONDS  first-read: when the daemon was started (seconds since 1970)\n"
	      "phases:",
	      stderr);
	for (size_t k = 0; k < ARRAY_LEN(phases); k++)
		fprintf(stderr, " %s", phases[k].name);
	fputs("\n", stderr);
	return 2;
}

struct options {
	const char *json;
	int has_head;
};

static int parse(int argc, char **argv, struct many *m, struct options *opt)
{
	static const struct option longs[] = {
		{"dir", required_argument, NULL, 'd'},	 {"count", required_argument, NULL, 'n'},
		{"bytes", required_argument, NULL, 'b'}, {"mode", required_argument, NULL, 'm'},
		{"pid", required_argument, NULL, 'p'},	 {"plain", required_argument, NULL, 'P'},
		{"raw", required_argument, NULL, 'r'},	 {"catalog", required_argument, NULL, 'c'},
		{"since", required_argument, NULL, 's'}, {"json", required_argument, NULL, 'j'},
		{"head", no_argument, NULL, 'h'},	 {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			m->dir = optarg;
			break;
		case 'n':
			m->n_objects = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'b':
			m->object_bytes = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'm':
			m->mode = optarg;
			break;
		case 'p':
			m->daemon_pid = (pid_t)atoi(optarg);
			break;
		case 'P':
			m->n_plain = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			m->raw_dir = optarg;
			break;
		case 'c':
			m->catalog = optarg;
			break;
		case 's':
			m->since_ns = (uint64_t)(strtod(optarg, NULL) * 1e9);
			break;
		case 'j':
			opt->json = optarg;
			break;
		case 'h':
			opt->has_head = 1;
			break;
		default:
			return -1;
		}
	}
	return optind + 1 == argc && m->dir && m->n_objects && m->mode && m->object_bytes <= 4096 &&
			       m->n_plain <= m->n_objects ?
		       0 :
		       -1;
}

int main(int argc, char **argv)
{
	static struct many m = {.object_bytes = 16};
	struct options opt = {0};

	if (parse(argc, argv, &m, &opt))
		return usage();
	for (size_t k = 0; k < ARRAY_LEN(phases); k++) {
		if (strcmp(argv[optind], phases[k].name))
			continue;
		if ((k == 0 && !m.raw_dir) || (k == 4 && !m.catalog))
			return usage();
		if (opt.has_head)
			report_print_value_head();
		int failed = phases[k].run(&m) != 0;
		if (opt.json)
			failed |= report_write_json(opt.json, m.rows, m.n_rows) != 0;
		return failed;
	}
	return usage();
}
