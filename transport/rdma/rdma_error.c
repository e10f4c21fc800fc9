/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "rdma/rdma.h"

/* Numbers of InfiniBand's CM, as the kernel passes them on in the status of REJECTED. */
#define REJECT_NO_LISTENER 8
#define REJECT_BY_PEER 28

int rdma_errno_of_wc(enum ibv_wc_status s)
{
	switch (s) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
		return -EACCES;
	/* The other end does not answer, or its queue pair is gone. */
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
	/* Ours is in its error state: another completion, or event, says why. */
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

static int errno_of_reject(const struct rdma_note *n)
{
	enum rdma_refusal why;

	if (n->status == REJECT_NO_LISTENER)
		return -ECONNREFUSED;
	if (n->status != REJECT_BY_PEER)
		return -ECONNRESET;
	int rc = rdma_rej_decode(n->data, n->len, &why);
	if (rc)
		return rc == -EPROTONOSUPPORT ? rc : -ECONNREFUSED;
	switch (why) {
	case RDMA_REFUSED_VERSION:
		return -EPROTONOSUPPORT;
	case RDMA_REFUSED_TOKEN:
		return -EACCES;
	case RDMA_REFUSED_LIMIT:
		return -EAGAIN;
	default:
		return -ECONNRESET;
	}
}

int rdma_errno_of_event(const struct rdma_note *n)
{
	switch (n->event) {
	case RDMA_CM_EVENT_REJECTED:
		return errno_of_reject(n);
	case RDMA_CM_EVENT_UNREACHABLE:
		return n->status == -ETIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return n->status < 0 ? n->status : -EHOSTUNREACH;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return n->status < 0 ? n->status : -EIO;
	default: /* disconnected, the device was removed, ... */
		return -ECONNRESET;
	}
}

int rdma_failed(const struct rdma_device *d, const char *what, const char *limit, uint64_t value)
{
	int err = errno ? errno : EIO;

	if (err == ENOMEM || err == ENOSPC)
		log_error("rdma: %s: %s: %s (limit: %s, %llu)",
			  ibv_get_device_name(d->verbs->device), what, strerror(err), limit,
			  (unsigned long long)value);
	else
		log_error("rdma: %s: %s: %s", ibv_get_device_name(d->verbs->device), what,
			  strerror(err));
	return -err;
}
