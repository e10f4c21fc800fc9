/* SPDX-License-Identifier: Apache-2.0 */
#include "object/version.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs.h"

#define NODE_BITS 12
#define MAX_SKEW_US (24ull * 3600 * 1000 * 1000)
#define STEP (1ull << NODE_BITS)
/* The ceiling is raised by this much at a time: a minute of wall clock, so one small write a minute. */
#define CEILING_STEP (60ull * 1000 * 1000 * STEP)

struct version_clock {
	pthread_mutex_t lock;
	struct catalog *catalog;
	uint64_t last, ceiling, node;
};

int version_clock_create(struct catalog *c, struct version_clock **out)
{
	uint64_t node = 0, ceiling = 0;
	int rc = catalog_control_get(c, "node_bits", &node);

	if (rc == -ENOENT) {
		if (getrandom(&node, sizeof(node), 0) != sizeof(node))
			return -EIO;
		node &= STEP - 1;
		rc = catalog_control_put(c, "node_bits", node, true);
	}
	if (rc)
		return rc;
	rc = catalog_control_get(c, "version_ceiling", &ceiling);
	if (rc && rc != -ENOENT)
		return rc;
	struct version_clock *v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	pthread_mutex_init(&v->lock, NULL);
	v->catalog = c;
	v->node = node & (STEP - 1);
	v->last = v->ceiling = ceiling & ~(STEP - 1);
	*out = v;
	return 0;
}

void version_clock_destroy(struct version_clock *v)
{
	if (!v)
		return;
	pthread_mutex_destroy(&v->lock);
	free(v);
}

uint64_t version_next(struct version_clock *v)
{
	uint64_t wall = (uint64_t)(now_real_ns() / 1000) << NODE_BITS;

	guard_lock(&v->lock);
	uint64_t next = wall > v->last ? wall : v->last + STEP;
	if (next >= v->ceiling) {
		uint64_t ceiling = next + CEILING_STEP;
		int rc = catalog_control_put(v->catalog, "version_ceiling", ceiling, false);
		if (rc) {
			errno = -rc;
			log_error("version clock: cannot store the ceiling: %m");
			return 0;
		}
		v->ceiling = ceiling;
	}
	v->last = next;
	return next | v->node;
}

void version_observe(struct version_clock *v, uint64_t version)
{
	uint64_t far = ((uint64_t)(now_real_ns() / 1000) + MAX_SKEW_US) << NODE_BITS;

	if (version > far) {
		log_warn("version %llu is more than a day ahead of this node's clock: not followed",
			 (unsigned long long)version);
		return;
	}
	guard_lock(&v->lock);
	if ((version & ~(STEP - 1)) > v->last)
		v->last = version & ~(STEP - 1);
}

int64_t version_time_ns(uint64_t version)
{
	return (int64_t)(version >> NODE_BITS) * 1000;
}

uint64_t version_age_s(uint64_t version)
{
	uint64_t now_us = (uint64_t)(now_real_ns() / 1000), then_us = version >> NODE_BITS;

	return now_us > then_us ? (now_us - then_us) / 1000000 : 0;
}
