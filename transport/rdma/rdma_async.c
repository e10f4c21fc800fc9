/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device says of itself, on the thread of rdma_cm: an event is copied and acknowledged, then acted upon. What
 * befalls one queue pair its completions tell too; a device that is dead ends all of its links.
 *
 * Source: ibv_get_async_event(3).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "rdma/rdma.h"

int rdma_async_open(struct rdma_device *d)
{
	int flags = fcntl(d->verbs->async_fd, F_GETFL);

	if (flags >= 0 && !fcntl(d->verbs->async_fd, F_SETFL, flags | O_NONBLOCK))
		return 0;
	int rc = rdma_last_errno();
	log_error("rdma: %s: cannot wait for its events: %s", ibv_get_device_name(d->verbs->device), strerror(-rc));
	return rc;
}

static void act(struct rdma *t, struct rdma_device *d, enum ibv_event_type type, int port)
{
	const char *name = ibv_get_device_name(d->verbs->device);

	switch (type) {
	case IBV_EVENT_DEVICE_FATAL:
		log_error("rdma: %s is dead: its connections end, bytes go by TCP", name);
		d->is_gone = true;
		rdma_end_links(t, d, -EIO);
		break;
	case IBV_EVENT_PORT_ERR:
		log_warn("rdma: %s port %d is down", name, port);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		log_info("rdma: %s port %d is up", name, port);
		break;
	case IBV_EVENT_CQ_ERR:
		/* Which one it was is not told by number: the pulls of the others come by READ this once. */
		log_error("rdma: %s: a completion queue has overrun", name);
		rdma_end_links(t, d, -EIO);
		break;
	default:
		log_debug("rdma: %s: %s", name, ibv_event_type_str(type));
	}
}

void rdma_async_take(struct rdma *t, struct rdma_device *d)
{
	struct ibv_async_event e;

	while (!ibv_get_async_event(d->verbs, &e)) {
		enum ibv_event_type type = e.event_type;
		bool is_of_port = type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE;
		int port = is_of_port ? e.element.port_num : 0;
		ibv_ack_async_event(&e);
		act(t, d, type, port);
	}
}
