/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma/rdma_gid.h"

#include <stdbool.h>
#include <string.h>

static const uint8_t no_gid[RDMA_GID_BYTES];
static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_mapped_v4(const uint8_t *raw)
{
	return !memcmp(raw, mapped_prefix, sizeof(mapped_prefix));
}

/* fe80::/10 and 169.254.0.0/16. */
static bool is_link_local(const uint8_t *raw)
{
	if (is_mapped_v4(raw))
		return raw[12] == 169 && raw[13] == 254;
	return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

/* How well it serves the wish: 0 not at all, 3 it is the address. */
static int fit(const struct rdma_gid *g, const struct rdma_gid_wish *wish)
{
	bool is_any = !memcmp(wish->address, no_gid, RDMA_GID_BYTES);

	if (is_any || g->type == RDMA_GID_IB)
		return 1;
	if (!memcmp(g->raw, wish->address, RDMA_GID_BYTES))
		return 3;
	if (!wish->netdev[0] || strcmp(g->netdev, wish->netdev) != 0)
		return 0;
	return is_mapped_v4(g->raw) == is_mapped_v4(wish->address) ? 2 : 1;
}

enum rdma_gid_verdict rdma_gid_choose(const struct rdma_gid *table, size_t n,
				      const struct rdma_gid_wish *wish, const struct rdma_gid **out)
{
	enum rdma_gid_verdict verdict = RDMA_GID_EMPTY;
	bool has_v1 = false, has_link_local = false;
	int best = 0;

	for (size_t k = 0; k < n; k++) {
		const struct rdma_gid *g = &table[k];
		if (!memcmp(g->raw, no_gid, RDMA_GID_BYTES))
			continue;
		verdict = RDMA_GID_OTHER_ADDRESS;
		int f = fit(g, wish);
		if (f && g->type != RDMA_GID_IB && is_link_local(g->raw))
			has_link_local = true;
		else if (f && g->type == RDMA_GID_ROCE_V1)
			has_v1 = true;
		else if (f > best) {
			best = f;
			*out = g;
		}
	}
	if (best)
		return RDMA_GID_FOUND;
	return has_v1 ? RDMA_GID_ONLY_ROCE_V1 : has_link_local ? RDMA_GID_ONLY_LINK_LOCAL : verdict;
}

const char *rdma_gid_verdict_text(enum rdma_gid_verdict v)
{
	switch (v) {
	case RDMA_GID_FOUND:
		return "a routable GID of the address";
	case RDMA_GID_EMPTY:
		return "no GID";
	case RDMA_GID_ONLY_ROCE_V1:
		return "RoCE v1 only, which is not routable";
	case RDMA_GID_ONLY_LINK_LOCAL:
		return "link-local GIDs only, which are not routable";
	case RDMA_GID_OTHER_ADDRESS:
		return "GIDs of other addresses only";
	}
	return "?";
}
