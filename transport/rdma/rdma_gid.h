/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_gid: which entry of a port's GID table serves an address, as a pure function over a captured table.
 *
 * On Ethernet a GID is an IP address of a network device, in two forms: RoCE v1 (one Ethernet segment) and RoCE v2
 * (UDP, routable). rdma_cm takes the GID that equals the local address; this says beforehand whether there is one, and
 * if not, why. Wanted is RoCE v2 that is no link-local address: of the address itself, else of the network device
 * that carries it. On InfiniBand any GID of the port will do: the subnet manager routes by it.
 * No verbs: built also where there is no RDMA. Thread safe.
 */
#ifndef TRANSPORT_RDMA_RDMA_GID_H
#define TRANSPORT_RDMA_RDMA_GID_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>

#define RDMA_GID_BYTES 16

enum rdma_gid_type {
	RDMA_GID_IB,
	RDMA_GID_ROCE_V1,
	RDMA_GID_ROCE_V2
};

struct rdma_gid {
	uint8_t raw
		[RDMA_GID_BYTES]; /* an IPv6 address, or IPv4 as ::ffff:a.b.c.d; zeros: an empty entry */
	uint32_t index;		  /* in the port's table */
	enum rdma_gid_type type;
	char netdev[IF_NAMESIZE]; /* "": not known, as in a container that does not have it */
};

struct rdma_gid_wish {
	uint8_t address[RDMA_GID_BYTES]; /* as raw; zeros: any */
	char netdev[IF_NAMESIZE];	 /* that carries it; "": not known */
};

enum rdma_gid_verdict {
	RDMA_GID_FOUND,
	RDMA_GID_EMPTY,		  /* no GID at all */
	RDMA_GID_ONLY_ROCE_V1,	  /* of the address, but not routable */
	RDMA_GID_ONLY_LINK_LOCAL, /* of the network device, but not routable */
	RDMA_GID_OTHER_ADDRESS,	  /* of other network devices */
};

/* *out: the entry, only when found. */
enum rdma_gid_verdict rdma_gid_choose(const struct rdma_gid *table, size_t n,
				      const struct rdma_gid_wish *wish,
				      const struct rdma_gid **out);
/* For messages: what the port has instead. */
const char *rdma_gid_verdict_text(enum rdma_gid_verdict v);

#endif
