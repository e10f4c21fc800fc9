/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "cluster/cluster.h"
#include "control/status.h"
#include "fs.h"
#include "options.h"

static json_t *hex(uint64_t v)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, v);
	return json_string(text);
}

static json_t *directory_object(struct cluster *c)
{
	struct directory_stats s;
	char why[256];
	int rc = directory_state(c->directory, why, sizeof(why));

	directory_get_stats(c->directory, &s);
	return json_pack("{s:b, s:s, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "up", rc == 0,
			 "reason", why, "slot", directory_slot(c->directory),
			 "lease", directory_lease_holds(c->directory),
			 "rtt_ns", status_u64((uint64_t)s.rtt_ns), "lookups", status_u64(s.n_lookups),
			 "lookup_errors", status_u64(s.n_lookup_errors), "announced", status_u64(s.n_announced),
			 "retracted", status_u64(s.n_retracted), "removed", status_u64(s.n_removed),
			 "queued", status_u64(s.n_queued), "given_up", status_u64(s.n_given_up),
			 "resyncs", status_u64(s.n_resyncs), "letters", status_u64(s.n_letters));
}

static void add_peer(void *arg, const struct peer_stats *s)
{
	static const char *const states[] = { [PEER_IDLE] = "idle", [PEER_UP] = "up", [PEER_DOWN] = "down",
					      [PEER_PROBING] = "probing" };

	json_array_append_new(arg, json_pack(
		"{s:o, s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s}",
		"node", hex(s->id.node), "name", s->name, "address", s->address, "state", states[s->state],
		"reason", s->reason, "connections", (int)s->n_connections, "load", (int)s->load,
		"rtt_ns", status_u64((uint64_t)s->rtt_ns), "rx_bytes_per_s", status_u64(s->rx_bytes_per_s),
		"rx_bytes", status_u64(s->rx_bytes), "reads", status_u64(s->n_reads),
		"grants", status_u64(s->n_grants), "invalidations", status_u64(s->n_invalidations),
		"errors", status_u64(s->n_errors), "bad_chunks", status_u64(s->n_bad_chunks),
		"connects", status_u64(s->n_connects), "pulled_bytes", status_u64(s->pulled_bytes),
		"pull_failures", status_u64(s->n_pull_failures), "rdma", s->can_pull,
		"pull_reason", s->pull_reason));
}

struct node_list {
	json_t *array;
	uint64_t self;
};

static void add_node(void *arg, const struct directory_node *n)
{
	struct node_list *l = arg;

	json_array_append_new(l->array, json_pack(
		"{s:o, s:s, s:s, s:i, s:b, s:i, s:o, s:o, s:o, s:o, s:o, s:I}",
		"node", hex(n->id), "name", n->name, "address", n->address, "slot", (int)n->slot,
		"self", n->id == l->self, "load", (int)n->load, "dram_bytes", status_u64(n->dram_bytes),
		"dram_used_bytes", status_u64(n->dram_used_bytes), "ssd_bytes", status_u64(n->ssd_bytes),
		"ssd_used_bytes", status_u64(n->ssd_used_bytes), "objects", status_u64(n->n_objects),
		"lease_ms", (json_int_t)n->lease_ms));
}

json_t *status_cluster(struct fs *fs)
{
	struct cluster *c = fs->cluster;
	struct peer_endpoint_stats s;

	if (!c)
		return json_null();
	json_t *peers = json_array();
	struct node_list nodes = { json_array(), c->self.node };
	peer_endpoint_get_stats(c->endpoint, &s);
	peer_each(c->endpoint, add_peer, peers);
	directory_each_node(c->directory, add_node, &nodes);
	return json_pack("{s:s, s:o, s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:o}", "name", fs->opt->cluster,
			 "node", hex(c->self.node), "address", peer_endpoint_address(c->endpoint),
			 "transport", s.transport, "directory", directory_object(c), "accepted", (int)s.n_accepted,
			 "refused", status_u64(s.n_refused), "tx_bytes", status_u64(s.tx_bytes),
			 "nodes", nodes.array, "peers", peers);
}
