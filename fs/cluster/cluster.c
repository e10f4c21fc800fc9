/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/parts.h"
#include "cluster/paths.h"
#include "fs.h"
#include "mcfs/catalog.h"
#include "object/object.h"
#include "options.h"

/* The node's number, drawn once and kept. */
static int read_node_id(struct fs *fs, uint64_t *id_out)
{
	int rc = catalog_control_get(fs->catalog, "node_id", id_out);

	if (rc != -ENOENT)
		return rc;
	do
		if (getrandom(id_out, sizeof(*id_out), 0) != (ssize_t)sizeof(*id_out))
			return -EIO;
	while (!*id_out);
	return catalog_control_put(fs->catalog, "node_id", *id_out, true);
}

static uint32_t load_of(void *arg)
{
	struct peer_endpoint_stats s;
	struct cluster *c = arg;

	if (!c->endpoint)
		return 0;
	peer_endpoint_get_stats(c->endpoint, &s);
	return s.n_accepted < 1000 ? s.n_accepted : 1000;
}

/* ---- memory that peers read by themselves ---- */

static int register_frame(void *arg, void *addr, size_t bytes, void **registration_out)
{
	struct cluster *c = arg;
	struct transport_mr *mr;
	int rc = peer_register(c->endpoint, addr, bytes, &mr);

	if (!rc)
		*registration_out = mr;
	return rc;
}

static void deregister_frame(void *arg, void *registration)
{
	struct cluster *c = arg;

	peer_deregister(c->endpoint, registration);
}

static void set_registrar(struct cluster *c, bool is_there)
{
	const struct tier_registrar r = { .reg = register_frame, .deregister = deregister_frame, .arg = c };

	if (c->endpoint && peer_endpoint_pulls(c->endpoint))
		tier_call(c->fs->dram, set_registrar, is_there ? &r : NULL);
}

/* ---- start ---- */

/* auto: RDMA where this machine has it. Which peers have it too shows in what they ask; to the others it is TCP. */
static int create_endpoint(struct cluster *c, struct peer_conf *conf)
{
	const char *name = c->fs->opt->transport;

	conf->transport = transport_find(name);
	if (strcmp(name, "auto"))
		return peer_endpoint_create(conf, &c->endpoint);
	conf->transport = transport_find("rdma");
	if (conf->transport && conf->transport->is_available()) {
		int rc = peer_endpoint_create(conf, &c->endpoint);
		if (!rc)
			return 0;
		log_warn("rdma cannot be used: %s", strerror(-rc));
	}
	conf->transport = transport_find("tcp");
	return peer_endpoint_create(conf, &c->endpoint);
}

static int start_endpoint(struct cluster *c)
{
	const struct options *o = c->fs->opt;
	uint8_t key[PEER_KEY_BYTES];

	if (o->key_file) {
		int rc = peer_key_read(o->key_file, key);
		if (rc)
			return rc;
	}
	struct peer_conf conf = {
		.device = o->rdma_device,
		.self = c->self,
		.cluster = o->cluster,
		.listen = o->listen,
		.advertise = o->advertise,
		.key = o->key_file ? key : NULL,
		.handlers = { .grant = grants_give, .read = grants_read, .release = grants_release,
			      .gone = grants_gone, .invalidate = invalidate_names, .load = load_of, .arg = c },
	};
	int rc = create_endpoint(c, &conf);
	explicit_bzero(key, sizeof(key));
	return rc;
}

static void on_resync(void *arg)
{
	changes_resync(arg);
}

/* Once a second or so: numbers for the others, and upkeep. */
static void on_renew(void *arg, struct directory_node *self)
{
	struct cluster *c = arg;
	struct tier_stats dram, ssd;

	tier_call(c->fs->dram, get_stats, &dram);
	tier_call(c->fs->ssd, get_stats, &ssd);
	self->dram_bytes = dram.budget_bytes;
	self->dram_used_bytes = dram.used_bytes - dram.free_list_bytes;
	self->ssd_bytes = ssd.budget_bytes;
	self->ssd_used_bytes = ssd.used_bytes;
	pthread_mutex_lock(&c->fs->lock);
	self->n_objects = object_count_locked(c->fs);
	pthread_mutex_unlock(&c->fs->lock);
	self->load = load_of(c);
	changes_renewed(c);
	grants_expire(c->grants);
}

static int start_directory(struct cluster *c)
{
	const struct options *o = c->fs->opt;
	struct directory_conf conf = {
		.url = o->directory,
		.prefix = o->cluster,
		.self = { .id = c->self.node, .incarnation = c->self.incarnation,
			  .slot = (uint16_t)(c->self.node % DIRECTORY_SLOTS) },
		.on_resync = on_resync,
		.on_renew = on_renew,
		.on_letter = invalidate_letter,
		.arg = c,
	};

	snprintf(conf.self.name, sizeof(conf.self.name), "%s", o->node);
	snprintf(conf.self.address, sizeof(conf.self.address), "%s", peer_endpoint_address(c->endpoint));
	return directory_create(&conf, &c->directory);
}

int cluster_start(struct fs *fs)
{
	if (!fs->opt->directory)
		return 0;
	struct cluster *c = xcalloc(1, sizeof(*c));
	c->fs = fs;
	pthread_mutex_init(&c->retry_lock, NULL);
	pthread_mutex_init(&c->letter_lock, NULL);
	c->takes_letters = true;
	c->self.incarnation = (uint64_t)now_real_ns();
	fs->cluster = c;
	int rc = read_node_id(fs, &c->self.node);
	if (!rc)
		rc = dir_paths_create(fs->catalog, &c->paths);
	c->grants = grants_create(c);
	if (!rc)
		rc = changes_create(c, &c->changes);
	if (!rc)
		rc = fetcher_create(c, &c->fetcher);
	if (!rc)
		rc = start_endpoint(c);
	if (!rc)
		set_registrar(c, true);
	if (!rc)
		rc = start_directory(c);
	if (rc) {
		log_error("cannot join cluster %s: %s", fs->opt->cluster, strerror(-rc));
		return rc;
	}
	log_info("node %016llx of cluster %s, peers connect to %s", (unsigned long long)c->self.node,
		 fs->opt->cluster, peer_endpoint_address(c->endpoint));
	return 0;
}

/*
 * Who fetches is told first, then nobody asks us. Threads end before what they use: the follower of changes looks for
 * fetches, and both ask peers.
 */
void cluster_stop(struct fs *fs)
{
	struct cluster *c = fs->cluster;

	if (!c)
		return;
	fetcher_stop(c->fetcher);
	pthread_mutex_lock(&c->letter_lock);
	c->takes_letters = false;
	pthread_mutex_unlock(&c->letter_lock);
	if (c->endpoint)
		peer_endpoint_stop(c->endpoint);
	changes_stop(c->changes);
	fetcher_join(c->fetcher);
}

/* The directory sends what is queued, and its threads ask the others for numbers until its end. */
void cluster_destroy(struct fs *fs)
{
	struct cluster *c = fs->cluster;

	if (!c)
		return;
	cluster_stop(fs);
	if (c->directory)
		directory_destroy(c->directory);
	fetcher_destroy(c->fetcher);
	changes_destroy(c->changes);
	grants_destroy(c->grants);
	set_registrar(c, false);
	if (c->endpoint)
		peer_endpoint_destroy(c->endpoint);
	dir_paths_destroy(c->paths);
	pthread_mutex_destroy(&c->letter_lock);
	pthread_mutex_destroy(&c->retry_lock);
	fs->cluster = NULL;
	free(c);
}

int cluster_peer(struct cluster *c, uint16_t slot, int64_t deadline_ns, struct peer **out)
{
	struct directory_node n;
	int rc = directory_node_of(c->directory, slot, &n, deadline_ns);

	if (!rc && n.id == c->self.node)
		rc = -ENOENT;
	if (rc)
		return rc;
	*out = peer_get(c->endpoint, &(struct peer_id){ n.id, n.incarnation }, n.name, n.address);
	return *out ? 0 : -ECANCELED;
}
