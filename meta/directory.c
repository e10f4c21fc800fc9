/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory: how its parts (directory_parts.h) are put together and taken apart.
 *
 * In this order: health, pool, nodes; the threads resync, queue, letters, lease; and back, the queue last, so
 * that whoever still announces is told that it was in vain. stop_fd ends every exchange at once but the lease's goodbye.
 */
#include "mcfs/directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "directory_parts.h"

#define LEASE_MS 5000
#define LOOKUP_MS 100
#define QUEUE_BYTES (UINT64_C(64) << 20)
#define FLUSH_NS NS_PER_S
#define IO_MIN_NS (100 * NS_PER_MS)
#define IO_MAX_NS NS_PER_S

static int conf_take(struct directory *d, const struct directory_conf *conf)
{
	d->conf = *conf;
	d->conf.lease_ms = conf->lease_ms ? conf->lease_ms : LEASE_MS;
	d->conf.lookup_ms = conf->lookup_ms ? conf->lookup_ms : LOOKUP_MS;
	d->conf.max_queue_bytes = conf->max_queue_bytes ? conf->max_queue_bytes : QUEUE_BYTES;
	d->io_ns = d->conf.lease_ms * NS_PER_MS / 5;
	if (d->io_ns < IO_MIN_NS)
		d->io_ns = IO_MIN_NS;
	if (d->io_ns > IO_MAX_NS)
		d->io_ns = IO_MAX_NS;
	if (conf->self.slot >= DIRECTORY_SLOTS || !conf->on_resync) {
		log_error("directory: slot %u of %u, or no on_resync", conf->self.slot, DIRECTORY_SLOTS);
		return -EINVAL;
	}
	/* The text of the URL is not shown: it may hold a password. */
	if (redis_url_parse(conf->url, &d->address)) {
		log_error("directory: its URL is not redis://[[USER:]PASSWORD@]HOST[:PORT][/DB]");
		return -EINVAL;
	}
	if (directory_prefix_check(conf->prefix)) {
		log_error("directory: prefix %s is not 1 to %u of [A-Za-z0-9._-]", conf->prefix,
			  DIRECTORY_PREFIX_MAX);
		return -EINVAL;
	}
	snprintf(d->prefix, sizeof(d->prefix), "%s", conf->prefix);
	snprintf(d->where, sizeof(d->where), strchr(d->address.host, ':') ? "[%s]:%u" : "%s:%u", d->address.host,
		 d->address.port);
	d->conf.url = d->conf.prefix = NULL;
	return 0;
}

static void stop_tell(struct directory *d)
{
	uint64_t one = 1;

	if (write(d->stop_fd, &one, sizeof(one)) != sizeof(one))
		log_error("directory %s: eventfd: %m", d->where);
}

int directory_url_check(const char *url)
{
	struct redis_address a;
	int rc = redis_url_parse(url, &a);

	explicit_bzero(&a, sizeof(a));
	return rc;
}

int directory_create(const struct directory_conf *conf, struct directory **out)
{
	struct directory *d = calloc(1, sizeof(*d));
	int rc = d ? conf_take(d, conf) : -ENOMEM;

	if (rc)
		goto err_free;
	d->stop_fd = eventfd(0, EFD_CLOEXEC);
	rc = d->stop_fd < 0 ? -errno : 0;
	if (rc)
		goto err_free;
	directory_health_init(d);
	directory_pool_init(d);
	directory_nodes_init(d);
	rc = directory_resync_start(d);
	if (rc)
		goto err_parts;
	rc = directory_queue_start(d);
	if (rc)
		goto err_resync;
	/* Callbacks may come before this returns. */
	struct directory *was = *out;
	*out = d;
	rc = directory_letters_start(d);
	if (!rc)
		rc = directory_lease_start(d);
	if (!rc)
		return 0;
	*out = was;
	stop_tell(d);
	directory_letters_stop(d);
	directory_queue_stop(d);
err_resync:
	directory_resync_stop(d);
err_parts:
	directory_nodes_fini(d);
	directory_pool_fini(d);
	directory_health_fini(d);
	close(d->stop_fd);
err_free:
	if (rc != -EINVAL)
		log_error("directory: cannot start: %s", strerror(-rc));
	free(d);
	return rc;
}

void directory_destroy(struct directory *d)
{
	if (!directory_health_check(d) && directory_flush(d, clock_now_ns() + FLUSH_NS))
		log_warn("directory %s: not all changes were sent", d->where);
	stop_tell(d);
	directory_queue_end(d);
	directory_resync_stop(d);
	directory_lease_stop(d);
	directory_letters_stop(d);
	directory_queue_stop(d);
	directory_nodes_fini(d);
	directory_pool_fini(d);
	directory_health_fini(d);
	close(d->stop_fd);
	explicit_bzero(&d->address, sizeof(d->address));
	free(d);
}

bool directory_can_send(struct directory *d)
{
	return atomic_load(&d->health.is_up) && directory_lease_holds(d);
}

int directory_state(struct directory *d, char *text, size_t text_len)
{
	pthread_mutex_lock(&d->health.lock);
	int error = d->health.error;
	const char *refusal = d->health.refusal;
	snprintf(text, text_len, "%s", d->health.text);
	if (!error && *refusal)
		snprintf(text, text_len, "%s: takes no changes: %s", d->where, refusal);
	pthread_mutex_unlock(&d->health.lock);
	if (error)
		return error;
	guard_lock(&d->lease.lock);
	if (d->lease.error)
		snprintf(text, text_len, "%s: no slot: %s", d->where, d->lease.text);
	return d->lease.error;
}

void directory_get_stats(struct directory *d, struct directory_stats *out)
{
	*out = (struct directory_stats){
		.is_up = atomic_load(&d->health.is_up),
		.n_lookups = atomic_load(&d->n_lookups),
		.n_lookup_errors = atomic_load(&d->n_lookup_errors),
		.n_announced = atomic_load(&d->n_announced),
		.n_retracted = atomic_load(&d->n_retracted),
		.n_removed = atomic_load(&d->n_removed),
		.n_stale = atomic_load(&d->n_stale),
		.n_given_up = atomic_load(&d->n_given_up),
		.n_resyncs = atomic_load(&d->n_resyncs),
		.n_letters = atomic_load(&d->n_letters),
		.rtt_ns = atomic_load(&d->rtt_ns),
	};
	out->n_queued = directory_queue_count(d, &out->queue_bytes);
}
