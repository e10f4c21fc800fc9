/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "deadline.h"
#include "rdma/rdma.h"

#define COMPLAIN_NS (10 * NS_PER_S)

/* ENOMEM of ibv_reg_mr has three causes; what can be known of them goes into the log, now and then. */
static int registration_failed(struct rdma *t, const struct rdma_device *d, size_t len)
{
	int err = errno ? errno : EIO;
	int64_t now = clock_now_ns(), last = t->complained_ns;
	struct rlimit lim = {0};

	if (last && now - last < COMPLAIN_NS)
		return -err;
	t->complained_ns = now;
	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (err == ENOMEM)
		log_error(
			"rdma: %s: cannot register %zu bytes: %s (limits: memlock %llu KiB, max_mr %d)",
			ibv_get_device_name(d->verbs->device), len, strerror(err),
			(unsigned long long)(lim.rlim_cur >> 10), d->attr.max_mr);
	else
		log_error("rdma: %s: cannot register %zu bytes: %s",
			  ibv_get_device_name(d->verbs->device), len, strerror(err));
	return -err;
}

static int register_on(const struct rdma_device *d, struct rdma_mr *mr, struct ibv_mr **out)
{
	if (mr->len > d->attr.max_mr_size) {
		log_error("rdma: %s: cannot register %zu bytes: max_mr_size is %llu",
			  ibv_get_device_name(d->verbs->device), mr->len,
			  (unsigned long long)d->attr.max_mr_size);
		return -EFBIG;
	}
	errno = 0;
	*out = ibv_reg_mr(d->pd, mr->addr, mr->len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	return *out ? 0 : registration_failed(mr->t, d, mr->len);
}

static void deregister_all(struct rdma_mr *mr)
{
	for (uint32_t k = 0; k < mr->t->n_devices; k++)
		/* What a removed device knew is gone with it; the call then frees our part. */
		if (mr->mrs[k] && ibv_dereg_mr(mr->mrs[k]) && !mr->t->devices[k].is_gone)
			log_error("rdma: cannot deregister %zu bytes at %p: %m", mr->len, mr->addr);
}

int rdma_register_memory(struct transport *base, void *addr, size_t len, struct transport_mr **out)
{
	struct rdma *t = (struct rdma *)base;
	bool has_device = false;
	int rc = 0;

	if (!len || (uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE))
		return -EINVAL;
	struct rdma_mr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	*mr = (struct rdma_mr){.t = t, .addr = addr, .len = len};
	for (uint32_t k = 0; k < t->n_devices && !rc; k++)
		if (!t->devices[k].is_gone) {
			rc = register_on(&t->devices[k], mr, &mr->mrs[k]);
			has_device = true;
		}
	if (!rc && !has_device)
		rc = -ENODEV;
	if (rc) {
		deregister_all(mr);
		free(mr);
		return rc;
	}
	t->stats.n_mrs++;
	t->stats.n_registrations++;
	t->stats.registered_bytes += len;
	*out = (struct transport_mr *)mr;
	return 0;
}

void rdma_deregister(struct transport_mr *base)
{
	struct rdma_mr *mr = (struct rdma_mr *)base;

	deregister_all(mr);
	mr->t->stats.n_mrs--;
	mr->t->stats.registered_bytes -= mr->len;
	free(mr);
}

size_t rdma_key_of(struct transport_mr *base, uint8_t key_out[TRANSPORT_KEY_BYTES])
{
	const struct rdma_mr *mr = (const struct rdma_mr *)base;
	struct rdma *t = mr->t;
	struct rdma_key k = {.addr = (uintptr_t)mr->addr, .len = mr->len, .n_rkeys = t->n_devices};
	bool is_reachable = false;

	k.port = rdma_listening_port(t);
	if (!k.port)
		return 0;
	memcpy(k.token, t->token, sizeof(k.token));
	for (uint32_t d = 0; d < t->n_devices; d++) {
		k.rkeys[d] = mr->mrs[d] && !t->devices[d].is_gone ? mr->mrs[d]->rkey : 0;
		is_reachable |= k.rkeys[d] != 0;
	}
	return is_reachable ? rdma_key_encode(&k, key_out) : 0;
}
