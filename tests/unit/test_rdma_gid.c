/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma/rdma_gid.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

/* ---- helpers: tables as people read them in sysfs ---- */

struct row {
	const char *gid, *netdev;
	enum rdma_gid_type type;
};

static void to_raw(const char *text, uint8_t out[RDMA_GID_BYTES])
{
	struct in_addr v4;

	memset(out, 0, RDMA_GID_BYTES);
	if (!text[0])
		return;
	if (inet_pton(AF_INET, text, &v4) == 1) {
		out[10] = out[11] = 0xff;
		memcpy(out + 12, &v4, 4);
		return;
	}
	cr_assert_eq(inet_pton(AF_INET6, text, out), 1, "%s", text);
}

static struct rdma_gid table[16];

/* The index in the table, or -verdict. */
static int choose(const struct row *rows, size_t n, const char *address, const char *netdev)
{
	const struct rdma_gid *found = NULL;
	struct rdma_gid_wish wish = {0};

	for (size_t k = 0; k < n; k++) {
		table[k] = (struct rdma_gid){.index = (uint32_t)k, .type = rows[k].type};
		to_raw(rows[k].gid, table[k].raw);
		strcpy(table[k].netdev, rows[k].netdev);
	}
	to_raw(address, wish.address);
	strcpy(wish.netdev, netdev);
	enum rdma_gid_verdict v = rdma_gid_choose(table, n, &wish, &found);
	cr_assert_eq(v == RDMA_GID_FOUND, found != NULL);
	cr_assert_neq(rdma_gid_verdict_text(v)[0], '?');
	return found ? (int)found->index : -(int)v;
}

#define CHOOSE(rows, address, netdev) choose(rows, sizeof(rows) / sizeof(*(rows)), address, netdev)

/* ---- a ConnectX port with an IPv4 and a global IPv6 address ---- */

static const struct row ethernet[] = {
	{"fe80::ba3f:d2ff:fe00:1", "eth2", RDMA_GID_ROCE_V1},
	{"fe80::ba3f:d2ff:fe00:1", "eth2", RDMA_GID_ROCE_V2},
	{"10.1.2.3", "eth2", RDMA_GID_ROCE_V1},
	{"10.1.2.3", "eth2", RDMA_GID_ROCE_V2},
	{"2001:db8::3", "eth2", RDMA_GID_ROCE_V1},
	{"2001:db8::3", "eth2", RDMA_GID_ROCE_V2},
	{"192.168.7.3", "eth2.7", RDMA_GID_ROCE_V1},
	{"192.168.7.3", "eth2.7", RDMA_GID_ROCE_V2},
	{"", "", RDMA_GID_ROCE_V1},
};

Test(rdma_gid, is_RoCE_v2_of_the_address)
{
	cr_assert_eq(CHOOSE(ethernet, "10.1.2.3", "eth2"), 3);
	cr_assert_eq(CHOOSE(ethernet, "2001:db8::3", "eth2"), 5);
	cr_assert_eq(CHOOSE(ethernet, "192.168.7.3", "eth2.7"), 7);
}

Test(rdma_gid, is_of_the_netdev_where_the_address_has_none)
{
	cr_assert_eq(CHOOSE(ethernet, "10.1.2.99", "eth2"), 3, "the same family first");
	cr_assert_eq(CHOOSE(ethernet, "2001:db8::99", "eth2"), 5);
	cr_assert_eq(CHOOSE(ethernet, "2001:db8::99", "eth2.7"), 7,
		     "the other family, if there is no other");
}

Test(rdma_gid, of_other_netdevs_is_none)
{
	cr_assert_eq(CHOOSE(ethernet, "10.9.9.9", "eth0"), -RDMA_GID_OTHER_ADDRESS);
	cr_assert_eq(CHOOSE(ethernet, "127.0.0.1", "lo"), -RDMA_GID_OTHER_ADDRESS);
}

Test(rdma_gid, of_any_address_is_the_first_that_is_routable)
{
	cr_assert_eq(CHOOSE(ethernet, "", ""), 3);
}

/* ---- InfiniBand ---- */

Test(rdma_gid, of_InfiniBand_is_the_port_s)
{
	static const struct row ib[] = {
		{"fe80::e41d:2d03:6:7a31", "", RDMA_GID_IB},
		{"", "", RDMA_GID_IB},
	};

	cr_assert_eq(CHOOSE(ib, "10.3.0.1", "ib0"), 0,
		     "its prefix looks link-local, and is the subnet's");
	cr_assert_eq(CHOOSE(ib, "", ""), 0);
}

/* ---- what does not do ---- */

Test(rdma_gid, of_RoCE_v1_is_none)
{
	static const struct row old[] = {
		{"fe80::202:c9ff:fe00:1", "eth4", RDMA_GID_ROCE_V1},
		{"10.1.2.3", "eth4", RDMA_GID_ROCE_V1},
	};

	cr_assert_eq(CHOOSE(old, "10.1.2.3", "eth4"), -RDMA_GID_ONLY_ROCE_V1);
	cr_assert_eq(CHOOSE(old, "", ""), -RDMA_GID_ONLY_ROCE_V1);
}

Test(rdma_gid, that_is_link_local_is_none)
{
	static const struct row bare[] = {
		{"fe80::5054:ff:fe12:3456", "eth1", RDMA_GID_ROCE_V1},
		{"fe80::5054:ff:fe12:3456", "eth1", RDMA_GID_ROCE_V2},
		{"169.254.3.4", "eth1", RDMA_GID_ROCE_V2},
	};

	cr_assert_eq(CHOOSE(bare, "10.1.2.3", "eth1"), -RDMA_GID_ONLY_LINK_LOCAL);
	cr_assert_eq(CHOOSE(bare, "fe80::5054:ff:fe12:3456", "eth1"), -RDMA_GID_ONLY_LINK_LOCAL);
	cr_assert_eq(CHOOSE(bare, "", ""), -RDMA_GID_ONLY_LINK_LOCAL);
}

Test(rdma_gid, of_an_empty_table_is_none)
{
	static const struct row empty[] = {{"", "", RDMA_GID_ROCE_V1}, {"", "", RDMA_GID_ROCE_V2}};

	cr_assert_eq(CHOOSE(empty, "10.1.2.3", "eth1"), -RDMA_GID_EMPTY);
	cr_assert_eq(choose(empty, 0, "", ""), -RDMA_GID_EMPTY);
}

/* ---- IPv6 only ---- */

Test(rdma_gid, of_a_port_without_IPv4)
{
	static const struct row six[] = {
		{"fe80::1", "eth0", RDMA_GID_ROCE_V2},
		{"fd00:1::7", "eth0", RDMA_GID_ROCE_V1},
		{"fd00:1::7", "eth0", RDMA_GID_ROCE_V2},
	};

	cr_assert_eq(CHOOSE(six, "fd00:1::7", "eth0"), 2);
	cr_assert_eq(CHOOSE(six, "", ""), 2);
	cr_assert_eq(CHOOSE(six, "10.0.0.1", "eth9"), -RDMA_GID_OTHER_ADDRESS);
}

/* ---- a container: the device is there, the netdev has another name here or none ---- */

Test(rdma_gid, of_a_container_is_known_by_its_address)
{
	static const struct row host[] = {
		{"fe80::1", "", RDMA_GID_ROCE_V2},    {"10.1.2.3", "", RDMA_GID_ROCE_V1},
		{"10.1.2.3", "", RDMA_GID_ROCE_V2},   {"10.244.0.9", "", RDMA_GID_ROCE_V1},
		{"10.244.0.9", "", RDMA_GID_ROCE_V2},
	};

	cr_assert_eq(CHOOSE(host, "10.244.0.9", "net1"), 4);
	cr_assert_eq(CHOOSE(host, "10.244.0.9", ""), 4);
	cr_assert_eq(CHOOSE(host, "172.17.0.2", "eth0"), -RDMA_GID_OTHER_ADDRESS, "of a bridge");
	cr_assert_eq(CHOOSE(host, "172.17.0.2", ""), -RDMA_GID_OTHER_ADDRESS,
		     "no name is no name in common");
}
