/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "deadline.h"
#include "peer_impl.h"

#define N_LANES 4
#define PING_MS 1000
#define MAX_CONNECTIONS 4096

/* ---- configuration ---- */

static int check_conf(const struct peer_conf *conf)
{
	const struct peer_handlers *h = &conf->handlers;
	char host[HOST_BYTES];
	uint16_t port;

	if (!conf->transport || !h->grant || !h->read || !h->release || !h->gone || !h->invalidate)
		return -EINVAL;
	if (!conf->cluster || strlen(conf->cluster) >= WIRE_CLUSTER_BYTES) {
		log_error("peer: the name of a cluster has at most %d bytes", WIRE_CLUSTER_BYTES - 1);
		return -EINVAL;
	}
	if (conf->n_lanes > LANES_MAX) {
		log_error("peer: %u lanes: at most %d", conf->n_lanes, LANES_MAX);
		return -EINVAL;
	}
	if (!conf->listen || address_split(conf->listen, host, &port)) {
		log_error("listen=%s: not a HOST:PORT", conf->listen ? conf->listen : "");
		return -EINVAL;
	}
	if (!conf->key && !address_host_is_loopback(host)) {
		log_error("listen=%s: others can reach this address, which needs a cluster key: key=FILE",
			  conf->listen);
		return -EACCES;
	}
	return 0;
}

static void take_conf(struct peer_endpoint *e, const struct peer_conf *conf)
{
	e->conf = *conf;
	e->conf.n_lanes = conf->n_lanes ? conf->n_lanes : N_LANES;
	e->conf.ping_ms = conf->ping_ms ? conf->ping_ms : PING_MS;
	e->conf.max_connections = conf->max_connections ? conf->max_connections : MAX_CONNECTIONS;
	e->auth.self = conf->self;
	strcpy(e->auth.cluster, conf->cluster);
	if (conf->key) {
		memcpy(e->key, conf->key, sizeof(e->key));
		e->auth.key = e->key;
	}
	/* The caller's strings are not needed any more. */
	e->conf.cluster = e->conf.listen = e->conf.advertise = e->conf.device = NULL;
	e->conf.key = NULL;
}

/* Port 0 of what is advertised is the bound one. */
static int find_address(const char *advertise, const char *bound, char out[TRANSPORT_ADDRESS_BYTES])
{
	char host[HOST_BYTES], bound_host[HOST_BYTES];
	uint16_t port, bound_port;

	if (address_split(bound, bound_host, &bound_port))
		return -EINVAL;
	if (!advertise)
		return address_join(bound_host, bound_port, out);
	if (address_split(advertise, host, &port)) {
		log_error("advertise=%s: not a HOST:PORT", advertise);
		return -EINVAL;
	}
	return address_join(host, port ? port : bound_port, out);
}

/* ---- begin and end ---- */

static int start_threads(struct peer_endpoint *e)
{
	int rc = pulse_start(e);

	if (rc)
		return rc;
	rc = served_start(e);
	if (!rc)
		return 0;
	pthread_mutex_lock(&e->lock);
	e->is_stopping = true;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	pulse_stop(e);
	return rc;
}

static void endpoint_free(struct peer_endpoint *e)
{
	OPENSSL_cleanse(e->key, sizeof(e->key));
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

int peer_endpoint_create(const struct peer_conf *conf, struct peer_endpoint **out)
{
	const struct transport_conf transport_conf = { .device = conf->device };
	char bound[TRANSPORT_ADDRESS_BYTES];
	int rc = check_conf(conf);

	if (rc)
		return rc;
	struct peer_endpoint *e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	clock_cond_init(&e->changed);
	take_conf(e, conf);
	rc = conf->transport->create(&transport_conf, &e->transport);
	if (rc)
		goto err_free;
	rc = conf->transport->listen(e->transport, conf->listen, &e->listener, bound);
	if (rc) {
		log_error("listen=%s: %s", conf->listen, strerror(-rc));
		goto err_transport;
	}
	rc = find_address(conf->advertise, bound, e->address);
	if (!rc)
		rc = start_threads(e);
	if (rc)
		goto err_listener;
	log_info("peers: %s at %s", conf->transport->name, e->address);
	*out = e;
	return 0;
err_listener:
	conf->transport->close_listener(e->listener);
err_transport:
	conf->transport->destroy(e->transport);
err_free:
	endpoint_free(e);
	return rc;
}

void peer_endpoint_stop(struct peer_endpoint *e)
{
	if (e->is_stopped)
		return;
	e->is_stopped = true;
	pthread_mutex_lock(&e->lock);
	e->is_stopping = true;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	pulse_stop(e);
	peers_cut(e);
	served_stop(e);
}

void peer_endpoint_destroy(struct peer_endpoint *e)
{
	if (!e)
		return;
	peer_endpoint_stop(e);
	e->conf.transport->close_listener(e->listener);
	e->conf.transport->destroy(e->transport);
	endpoint_free(e);
}

bool peer_endpoint_pulls(const struct peer_endpoint *e)
{
	return e->conf.transport->pull;
}

int peer_register(struct peer_endpoint *e, void *addr, size_t bytes, struct transport_mr **out)
{
	return e->conf.transport->register_memory(e->transport, addr, bytes, out);
}

void peer_deregister(struct peer_endpoint *e, struct transport_mr *mr)
{
	e->conf.transport->deregister(mr);
}

uint16_t peer_key_of(struct peer_endpoint *e, struct transport_mr *mr, uint8_t key_out[TRANSPORT_KEY_BYTES])
{
	return (uint16_t)e->conf.transport->key_of(mr, key_out);
}

const char *peer_endpoint_address(const struct peer_endpoint *e)
{
	return e->address;
}

void peer_endpoint_get_stats(struct peer_endpoint *e, struct peer_endpoint_stats *out)
{
	guard_lock(&e->lock);

	*out = (struct peer_endpoint_stats){ .n_accepted = e->n_served,
					     .n_refused = e->n_refused,
					     .tx_bytes = e->tx_bytes,
					     .transport = e->conf.transport->name };
}
