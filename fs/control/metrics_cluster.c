/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdlib.h>

#include "cluster/cluster.h"
#include "control/metrics.h"
#include "control/prom.h"
#include "fs.h"
#include "object/object.h"

#define N(array) (sizeof(array) / sizeof(*(array)))
#define MAX_PEERS DIRECTORY_SLOTS

struct peers {
	struct peer_stats *v; /* MAX_PEERS */
	size_t n;
};

static void add_peer(void *arg, const struct peer_stats *s)
{
	struct peers *p = arg;

	if (p->n < MAX_PEERS)
		p->v[p->n++] = *s;
}

/* Of struct peer_stats: the uint64_t at offset. */
static const struct figure {
	const char *name;
	enum prom_type type;
	const char *help;
	size_t offset;
} peer_figures[] = {
#define PEER(member) offsetof(struct peer_stats, member)
	{ "mooncakefs_peer_rx_bytes_total", PROM_COUNTER, "bytes read from a peer", PEER(rx_bytes) },
	{ "mooncakefs_peer_rx_bytes_per_second", PROM_GAUGE, "rate of reads from a peer, smoothed", PEER(rx_bytes_per_s) },
	{ "mooncakefs_peer_reads_total", PROM_COUNTER, "reads asked of a peer", PEER(n_reads) },
	{ "mooncakefs_peer_grants_total", PROM_COUNTER, "grants asked of a peer", PEER(n_grants) },
	{ "mooncakefs_peer_invalidations_total", PROM_COUNTER, "changes told to a peer", PEER(n_invalidations) },
	{ "mooncakefs_peer_errors_total", PROM_COUNTER, "calls of a peer that failed", PEER(n_errors) },
	{ "mooncakefs_peer_bad_chunks_total", PROM_COUNTER, "chunks of a peer with a wrong checksum", PEER(n_bad_chunks) },
	{ "mooncakefs_peer_pulled_bytes_total", PROM_COUNTER, "bytes read out of a peer's memory by RDMA",
	  PEER(pulled_bytes) },
	{ "mooncakefs_peer_pull_failures_total", PROM_COUNTER, "RDMA reads of a peer that failed; the bytes came by TCP",
	  PEER(n_pull_failures) },
	{ "mooncakefs_peer_connects_total", PROM_COUNTER, "connections made to a peer", PEER(n_connects) },
};

static void peer_labels(const struct peer_stats *s, char labels[PROM_LABELS_BYTES])
{
	*labels = '\0';
	prom_label(labels, "peer", s->name);
	prom_label(labels, "address", s->address);
}

static void print_peers(FILE *f, const struct peers *p)
{
	char labels[PROM_LABELS_BYTES];

	for (size_t g = 0; g < N(peer_figures); g++) {
		prom_family(f, peer_figures[g].name, peer_figures[g].type, peer_figures[g].help);
		for (size_t k = 0; k < p->n; k++) {
			peer_labels(&p->v[k], labels);
			prom_sample(f, peer_figures[g].name, labels,
				    *(const uint64_t *)((const char *)&p->v[k] + peer_figures[g].offset));
		}
	}
	prom_family(f, "mooncakefs_peer_up", PROM_GAUGE, "1: a peer answers, or nothing has been asked of it");
	for (size_t k = 0; k < p->n; k++) {
		peer_labels(&p->v[k], labels);
		prom_sample(f, "mooncakefs_peer_up", labels,
			    p->v[k].state == PEER_UP || p->v[k].state == PEER_IDLE);
	}
	prom_family(f, "mooncakefs_peer_rtt_seconds", PROM_GAUGE, "round trip to a peer, smoothed; 0: not known");
	for (size_t k = 0; k < p->n; k++) {
		peer_labels(&p->v[k], labels);
		prom_sample_real(f, "mooncakefs_peer_rtt_seconds", labels, (double)p->v[k].rtt_ns / 1e9);
	}
}

static void print_directory(FILE *f, struct cluster *c)
{
	struct directory_stats s;
	char why[256];

	directory_get_stats(c->directory, &s);
	prom_single(f, "mooncakefs_directory_up", PROM_GAUGE, "1: the cluster's directory answers",
		    !directory_state(c->directory, why, sizeof(why)));
	prom_single(f, "mooncakefs_directory_lease", PROM_GAUGE, "1: this node's lease holds",
		    directory_lease_holds(c->directory));
	prom_single(f, "mooncakefs_directory_queued", PROM_GAUGE, "changes that wait for the directory", s.n_queued);
	prom_single(f, "mooncakefs_directory_lookup_errors_total", PROM_COUNTER,
		    "lookups that the directory did not answer in time", s.n_lookup_errors);
	prom_single(f, "mooncakefs_directory_given_up_total", PROM_COUNTER,
		    "changes that the directory did not take; a resync makes up for them", s.n_given_up);
	prom_single(f, "mooncakefs_directory_resyncs_total", PROM_COUNTER, "times that all was announced anew",
		    s.n_resyncs);
}

void metrics_cluster(FILE *f, struct fs *fs)
{
	struct cluster *c = fs->cluster;

	if (!c)
		return;
	struct peers p = { .v = xcalloc(MAX_PEERS, sizeof(*p.v)) };
	peer_each(c->endpoint, add_peer, &p);
	print_directory(f, c);
	print_peers(f, &p);
	free(p.v);
}
