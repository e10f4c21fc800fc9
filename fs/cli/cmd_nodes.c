/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakectl nodes, peers: the cluster as one mount sees it. */
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>

static const char *number_or_dash(const json_t *o, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(o, key, &n) ? text_count(n, buf) : NULL;
}

static const char *size_or_dash(const json_t *o, const char *key, char buf[TEXT_BYTES])
{
	uint64_t n;

	return status_number(o, key, &n) ? format_size(n, buf, TEXT_BYTES) : NULL;
}

static void add_node(struct table *t, const json_t *n)
{
	char used[TEXT_BYTES], budget[TEXT_BYTES], dram[2 * TEXT_BYTES + 8], objects[TEXT_BYTES], load[TEXT_BYTES];
	char lease[TEXT_BYTES];
	const char *u = size_or_dash(n, "dram_used_bytes", used), *b = size_or_dash(n, "dram_bytes", budget);
	uint64_t ms;

	snprintf(dram, sizeof(dram), "%s of %s", u ? u : "-", b ? b : "-");
	snprintf(lease, sizeof(lease), "%.1f s", status_number(n, "lease_ms", &ms) ? (double)ms / 1000 : 0);
	table_row(t, status_text(n, "name"), status_text(n, "node"), status_text(n, "address"), dram,
		  number_or_dash(n, "objects", objects), number_or_dash(n, "load", load),
		  json_is_true(json_object_get(n, "self")) ? "this node" : lease);
}

static void print_nodes(const json_t *cluster)
{
	static const struct table_column columns[] = {
		{.title = "NAME", .is_elastic = true},	{.title = "NODE"}, {.title = "ADDRESS"}, {.title = "DRAM"},
		{.title = "OBJECTS", .is_right = true}, {.title = "LOAD", .is_right = true}, {.title = "LEASE"},
	};
	const json_t *nodes = json_object_get(cluster, "nodes"), *d = json_object_get(cluster, "directory");
	struct table *t = table_create(columns, 7);

	if (!t)
		return;
	for (size_t i = 0; i < json_array_size(nodes); i++)
		add_node(t, json_array_get(nodes, i));
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
	if (!json_is_true(json_object_get(d, "up")))
		printf("the directory is away: %s\n", status_text(d, "reason") ? status_text(d, "reason") : "?");
}

static void add_peer(struct table *t, const json_t *p)
{
	char rtt[TEXT_BYTES], rate[TEXT_BYTES], bytes[TEXT_BYTES], pulled[TEXT_BYTES], errors[TEXT_BYTES];
	const char *reason = status_text(p, "reason");
	uint64_t ns;

	table_row(t, status_text(p, "name"), status_text(p, "address"), status_text(p, "state"),
		  status_number(p, "rtt_ns", &ns) && ns ? text_latency(ns, rtt) : NULL,
		  size_or_dash(p, "rx_bytes_per_s", rate), size_or_dash(p, "rx_bytes", bytes),
		  size_or_dash(p, "pulled_bytes", pulled),
		  number_or_dash(p, "errors", errors), reason && *reason ? reason : status_text(p, "pull_reason"));
}

static void print_peers(const json_t *cluster)
{
	static const struct table_column columns[] = {
		{.title = "NAME"}, {.title = "ADDRESS"}, {.title = "STATE"}, {.title = "RTT", .is_right = true},
		{.title = "RATE/S", .is_right = true},	 {.title = "READ", .is_right = true},
		{.title = "BY RDMA", .is_right = true},
		{.title = "ERRORS", .is_right = true},	 {.title = "REASON", .is_elastic = true},
	};
	const json_t *peers = json_object_get(cluster, "peers");
	struct table *t = table_create(columns, 9);

	if (!t)
		return;
	for (size_t i = 0; i < json_array_size(peers); i++)
		add_peer(t, json_array_get(peers, i));
	table_print(t, stdout, table_limit(stdout));
	table_destroy(t);
}

static int run(const struct command *cmd, int argc, char **argv, const char *member,
	       void (*print)(const json_t *cluster))
{
	struct common_options options = {0};
	char mount[PATH_MAX];
	json_t *status;
	int rc = common_parse(cmd, argc, argv, true, 0, 1, &options);

	if (rc >= 0)
		return rc;
	if (mount_find(options.mount, optind < argc ? argv[optind] : NULL, mount) || mount_status(mount, &status))
		return CLI_FAILED;
	json_t *cluster = json_object_get(status, "cluster");
	if (!json_is_object(cluster)) {
		cli_error("%s is alone: it was mounted without directory=", mount);
		rc = CLI_FAILED;
	} else if (options.json) {
		rc = print_json(json_incref(json_object_get(cluster, member)), CLI_OK);
	} else {
		print(cluster);
		rc = CLI_OK;
	}
	json_decref(status);
	return rc;
}

int run_nodes(const struct command *cmd, int argc, char **argv)
{
	return run(cmd, argc, argv, "nodes", print_nodes);
}

int run_peers(const struct command *cmd, int argc, char **argv)
{
	return run(cmd, argc, argv, "peers", print_peers);
}
