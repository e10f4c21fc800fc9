/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One phase of the group cluster, chosen by its name. tests/bench/cluster starts the nodes and knows the other sides.
 *
 * Exit status: 0 it ran, whatever the time; 1 it could not run or saw wrong bytes; 2 usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/remote.h"

static const struct {
	const char *name;
	int (*run)(const struct remote *r);
} phases[] = {
	{"make", remote_make},	     {"make-small", remote_make_small}, {"remove", remote_remove},
	{"read", remote_read},	     {"read-again", remote_read_again}, {"prefetch", remote_prefetch},
	{"batch", remote_batch},     	{"lookup", remote_lookup},   {"rtt", remote_rtt},
};

static int usage(void)
{
	fputs("usage: bench_cluster PHASE --dir DIR [--first N] [--count N] [--bytes N]\n"
	      "  --dir DIR    of objects, in a mount; rtt: an IPv4 address\n"
	      "  --first N    number of the first object, 1\n"
	      "  --count N    objects, or echoes, 1\n"
	      "  --bytes N    in each object, 0\n"
	      "phases:",
	      stderr);
	for (size_t k = 0; k < ARRAY_LEN(phases); k++)
		fprintf(stderr, " %s", phases[k].name);
	fputs("\n", stderr);
	return 2;
}

static int parse(int argc, char **argv, struct remote *r)
{
	static const struct option longs[] = {
		{"dir", required_argument, NULL, 'd'},	 {"first", required_argument, NULL, 'f'},
		{"count", required_argument, NULL, 'n'}, {"bytes", required_argument, NULL, 'b'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			r->dir = optarg;
			break;
		case 'f':
			r->first = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'n':
			r->count = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'b':
			r->bytes = strtoull(optarg, NULL, 10);
			break;
		default:
			return -1;
		}
	}
	return optind + 1 == argc && r->dir && r->count ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct remote r = {.first = 1, .count = 1};

	if (parse(argc, argv, &r))
		return usage();
	for (size_t k = 0; k < ARRAY_LEN(phases); k++)
		if (!strcmp(argv[optind], phases[k].name))
			return phases[k].run(&r) != 0;
	return usage();
}
