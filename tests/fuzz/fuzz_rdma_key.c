/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a key for registered memory, and as private data of rdma_cm: what is taken comes out as it was. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rdma/rdma_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void take_key(const uint8_t *in, size_t len)
{
	uint8_t out[TRANSPORT_KEY_BYTES];
	struct rdma_key k;

	if (rdma_key_decode(in, len, &k))
		return;
	must(k.port && k.len && k.addr + k.len >= k.addr);
	must(k.n_rkeys && k.n_rkeys <= RDMA_DEVICES_MAX && len <= TRANSPORT_KEY_BYTES);
	must(rdma_key_encode(&k, out) == len && !memcmp(in, out, len));
}

static void take_private_data(const uint8_t *in, size_t len)
{
	uint8_t out[RDMA_REQ_BYTES], device;
	enum rdma_refusal why;
	struct rdma_req r;

	if (!rdma_req_decode(in, len, &r)) {
		rdma_req_encode(&r, out);
		must(!memcmp(in, out, RDMA_REQ_BYTES));
	}
	if (!rdma_rep_decode(in, len, &device)) {
		rdma_rep_encode(device, out);
		must(!memcmp(in, out, RDMA_REP_BYTES));
	}
	if (!rdma_rej_decode(in, len, &why)) {
		rdma_rej_encode(why, out);
		must(!memcmp(in, out, RDMA_REJ_BYTES));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	take_key(data, size);
	take_private_data(data, size);
	return 0;
}
