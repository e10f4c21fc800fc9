/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma/rdma_key.h"

#include <errno.h>
#include <string.h>

#include "base/le.h"

_Static_assert(RDMA_KEY_FIXED_BYTES + 4 * RDMA_DEVICES_MAX <= TRANSPORT_KEY_BYTES,
	       "a key fits the seam's");
/* What InfiniBand's CM leaves of a REQ for private data when rdma_cm has taken its part. */
_Static_assert(RDMA_REQ_BYTES <= 56, "a request fits");

size_t rdma_key_encode(const struct rdma_key *k, uint8_t out[TRANSPORT_KEY_BYTES])
{
	out[0] = RDMA_KEY_VERSION;
	out[1] = (uint8_t)k->n_rkeys;
	put_le16(out + 2, k->port);
	memcpy(out + 4, k->token, RDMA_TOKEN_BYTES);
	put_le64(out + 20, k->addr);
	put_le64(out + 28, k->len);
	for (uint32_t i = 0; i < k->n_rkeys; i++)
		put_le32(out + RDMA_KEY_FIXED_BYTES + 4 * i, k->rkeys[i]);
	return RDMA_KEY_FIXED_BYTES + 4 * (size_t)k->n_rkeys;
}

int rdma_key_decode(const uint8_t *in, size_t len, struct rdma_key *out)
{
	struct rdma_key k = {0};

	if (!len)
		return -EINVAL;
	if (in[0] != RDMA_KEY_VERSION)
		return -EPROTONOSUPPORT;
	if (len < RDMA_KEY_FIXED_BYTES)
		return -EINVAL;
	k.n_rkeys = in[1];
	if (!k.n_rkeys || k.n_rkeys > RDMA_DEVICES_MAX ||
	    len != RDMA_KEY_FIXED_BYTES + 4 * (size_t)k.n_rkeys)
		return -EINVAL;
	k.port = get_le16(in + 2);
	memcpy(k.token, in + 4, RDMA_TOKEN_BYTES);
	k.addr = get_le64(in + 20);
	k.len = get_le64(in + 28);
	if (!k.port || !k.len || k.addr + k.len < k.addr)
		return -EINVAL;
	for (uint32_t i = 0; i < k.n_rkeys; i++)
		k.rkeys[i] = get_le32(in + RDMA_KEY_FIXED_BYTES + 4 * i);
	*out = k;
	return 0;
}

/* ---- private data of rdma_cm ---- */

static int check_version(const uint8_t *in, size_t len, size_t wanted)
{
	if (!len)
		return -EINVAL;
	if (in[0] != RDMA_CM_VERSION)
		return -EPROTONOSUPPORT;
	return len < wanted ? -EINVAL : 0;
}

void rdma_req_encode(const struct rdma_req *r, uint8_t out[RDMA_REQ_BYTES])
{
	memset(out, 0, RDMA_REQ_BYTES);
	out[0] = RDMA_CM_VERSION;
	put_le16(out + 2, r->asker_port);
	put_le16(out + 4, r->holder_port);
	memcpy(out + 8, r->token, RDMA_TOKEN_BYTES);
}

int rdma_req_decode(const uint8_t *in, size_t len, struct rdma_req *out)
{
	int rc = check_version(in, len, RDMA_REQ_BYTES);

	if (rc)
		return rc;
	if (in[1] || get_le16(in + 6))
		return -EINVAL;
	out->asker_port = get_le16(in + 2);
	out->holder_port = get_le16(in + 4);
	memcpy(out->token, in + 8, RDMA_TOKEN_BYTES);
	return 0;
}

void rdma_rep_encode(uint8_t device, uint8_t out[RDMA_REP_BYTES])
{
	memset(out, 0, RDMA_REP_BYTES);
	out[0] = RDMA_CM_VERSION;
	out[1] = device;
}

int rdma_rep_decode(const uint8_t *in, size_t len, uint8_t *device_out)
{
	int rc = check_version(in, len, RDMA_REP_BYTES);

	if (rc)
		return rc;
	if (in[1] >= RDMA_DEVICES_MAX || get_le16(in + 2))
		return -EINVAL;
	*device_out = in[1];
	return 0;
}

void rdma_rej_encode(enum rdma_refusal why, uint8_t out[RDMA_REJ_BYTES])
{
	memset(out, 0, RDMA_REJ_BYTES);
	out[0] = RDMA_CM_VERSION;
	out[1] = (uint8_t)why;
}

int rdma_rej_decode(const uint8_t *in, size_t len, enum rdma_refusal *why_out)
{
	int rc = check_version(in, len, RDMA_REJ_BYTES);

	if (rc)
		return rc;
	if (!in[1] || in[1] >= RDMA_N_REFUSALS || get_le16(in + 2))
		return -EINVAL;
	*why_out = (enum rdma_refusal)in[1];
	return 0;
}
