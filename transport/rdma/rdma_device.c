/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "rdma/rdma.h"
#include "rdma/rdma_gid.h"

/* ConnectX has 256 per port. */
#define GIDS_MAX 1024

/* ---- open and close ---- */

static bool has_active_port(struct ibv_context *verbs, const struct ibv_device_attr *attr)
{
	struct ibv_port_attr port;

	for (uint8_t p = 1; p <= attr->phys_port_cnt; p++)
		if (!ibv_query_port(verbs, p, &port) && port.state == IBV_PORT_ACTIVE)
			return true;
	return false;
}

static int device_open(struct rdma_device *d, struct ibv_context *verbs)
{
	d->verbs = verbs;
	errno = 0;
	if (ibv_query_device(verbs, &d->attr))
		return rdma_failed(d, "cannot ask the device", "-", 0);
	d->pd = ibv_alloc_pd(verbs);
	if (!d->pd)
		return rdma_failed(d, "cannot make a protection domain", "max_pd",
				   (uint64_t)d->attr.max_pd);
	d->idle_cq = ibv_create_cq(verbs, 1, NULL, NULL, 0);
	if (!d->idle_cq) {
		int rc = rdma_failed(d, "cannot make a completion queue", "max_cq",
				     (uint64_t)d->attr.max_cq);
		ibv_dealloc_pd(d->pd);
		return rc;
	}
	int rc = rdma_async_open(d);
	if (rc) {
		ibv_destroy_cq(d->idle_cq);
		ibv_dealloc_pd(d->pd);
		return rc;
	}
	if (!has_active_port(verbs, &d->attr))
		log_warn("rdma: %s has no active port yet", ibv_get_device_name(verbs->device));
	return 0;
}

bool rdma_has_device(void)
{
	int n = 0;
	struct ibv_context **found = rdma_get_devices(&n);

	if (found)
		rdma_free_devices(found);
	return n > 0;
}

/* Those found, for messages. */
static void list_names(struct ibv_context **found, int n, char *out, size_t room)
{
	size_t at = 0;

	out[0] = '\0';
	for (int k = 0; k < n && at < room; k++)
		at += (size_t)snprintf(out + at, room - at, "%s%s", k ? ", " : "",
				       ibv_get_device_name(found[k]->device));
}

int rdma_devices_open(struct rdma *t, const char *only)
{
	int n_found = 0, n_wanted = 0, rc = -ENODEV;
	char names[256];

	errno = 0;
	t->found = rdma_get_devices(&n_found);
	if (!t->found || !n_found)
		log_error("rdma: this machine has no RDMA device%s%s", errno ? ": " : "",
			  errno ? strerror(errno) : "");
	for (int k = 0; t->found && k < n_found && t->n_devices < RDMA_DEVICES_MAX; k++) {
		if (only && strcmp(only, ibv_get_device_name(t->found[k]->device)))
			continue;
		n_wanted++;
		int err = device_open(&t->devices[t->n_devices], t->found[k]);
		if (!err)
			t->n_devices++;
		else
			rc = err;
	}
	if (!only && n_found > RDMA_DEVICES_MAX)
		log_warn("rdma: %d devices, the first %d are used (rdma_device= names another)", n_found,
			 RDMA_DEVICES_MAX);
	if (n_found && !n_wanted) {
		list_names(t->found, n_found, names, sizeof(names));
		log_error("rdma_device=%s: there is none of that name; there is %s", only, names);
	}
	if (t->n_devices)
		return 0;
	rdma_devices_close(t);
	return rc;
}

void rdma_devices_close(struct rdma *t)
{
	for (uint32_t k = 0; k < t->n_devices; k++) {
		struct rdma_device *d = &t->devices[k];
		if (ibv_destroy_cq(d->idle_cq) || ibv_dealloc_pd(d->pd))
			log_error("rdma: %s: something is still in use",
				  ibv_get_device_name(d->verbs->device));
	}
	t->n_devices = 0;
	if (t->found)
		rdma_free_devices(t->found);
	t->found = NULL;
}

struct rdma_device *rdma_device_find(struct rdma *t, const struct ibv_context *verbs)
{
	for (uint32_t k = 0; k < t->n_devices; k++)
		if (t->devices[k].verbs == verbs)
			return &t->devices[k];
	return NULL;
}

/* ---- which of them serves an address ---- */

void rdma_end_of(const struct sockaddr *sa, struct rdma_end *out)
{
	struct sockaddr_in four = {.sin_family = AF_INET};

	memset(out, 0, sizeof(*out));
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)sa;
		memcpy(&out->sa, six, sizeof(*six));
		memcpy(out->address, &six->sin6_addr, 16);
		out->port = ntohs(six->sin6_port);
		if (!IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
			return;
		/* What a socket of both families calls IPv4. */
		four.sin_port = six->sin6_port;
		memcpy(&four.sin_addr, out->address + 12, 4);
	} else if (sa->sa_family == AF_INET) {
		memcpy(&four, sa, sizeof(four));
		out->address[10] = out->address[11] = 0xff;
		memcpy(out->address + 12, &four.sin_addr, 4);
		out->port = ntohs(four.sin_port);
	}
	memset(&out->sa, 0, sizeof(out->sa));
	memcpy(&out->sa, &four, sizeof(four));
}

int rdma_end_parse(const char *address, struct rdma_end *out)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	char host[HOST_BYTES], service[PORT_BYTES];
	struct addrinfo *found;
	uint16_t port;

	if (address_split(address, host, &port))
		return -EINVAL;
	snprintf(service, sizeof(service), "%u", (unsigned int)port);
	if (getaddrinfo(host, service, &hints, &found))
		return -EINVAL;
	rdma_end_of(found->ai_addr, out);
	freeaddrinfo(found);
	return 0;
}

/* The network device that has the address; "": none. */
static void netdev_of(const uint8_t address[16], char out[IF_NAMESIZE])
{
	struct ifaddrs *list;
	struct rdma_end e;

	out[0] = '\0';
	if (getifaddrs(&list)) {
		log_warn("rdma: getifaddrs: %m");
		return;
	}
	for (const struct ifaddrs *i = list; i && !out[0]; i = i->ifa_next) {
		if (!i->ifa_addr ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		rdma_end_of(i->ifa_addr, &e);
		if (!memcmp(e.address, address, 16))
			snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
	}
	freeifaddrs(list);
}

/* The GID tables of a device's port, as rdma_gid.h wants it. Entries, or a negative errno. */
static ssize_t capture(const struct rdma_device *d, uint32_t port, struct rdma_gid *table)
{
	autofree struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	size_t n_kept = 0;

	if (!entries)
		return -ENOMEM;
	ssize_t n = ibv_query_gid_table(d->verbs, entries, GIDS_MAX, 0);
	if (n < 0)
		return n;
	for (ssize_t k = 0; k < n; k++) {
		struct rdma_gid *g = &table[n_kept];
		if (entries[k].port_num != port)
			continue;
		memset(g, 0, sizeof(*g));
		memcpy(g->raw, entries[k].gid.raw, RDMA_GID_BYTES);
		g->index = entries[k].gid_index;
		g->type = entries[k].gid_type == IBV_GID_TYPE_IB      ? RDMA_GID_IB :
			  entries[k].gid_type == IBV_GID_TYPE_ROCE_V2 ? RDMA_GID_ROCE_V2 :
									RDMA_GID_ROCE_V1;
		if (!if_indextoname(entries[k].ndev_ifindex, g->netdev))
			g->netdev[0] = '\0';
		n_kept++;
	}
	return (ssize_t)n_kept;
}

static bool port_serves(const struct rdma_device *d, uint8_t port, const struct rdma_gid_wish *wish,
			const char *address, struct rdma_gid *table)
{
	const char *name = ibv_get_device_name(d->verbs->device);
	char text[INET6_ADDRSTRLEN];
	struct ibv_port_attr attr;
	const struct rdma_gid *g;

	if (ibv_query_port(d->verbs, port, &attr) || attr.state != IBV_PORT_ACTIVE) {
		log_info("rdma: %s: %s port %u is not active", address, name, port);
		return false;
	}
	ssize_t n = capture(d, port, table);
	if (n < 0) {
		log_error("rdma: cannot read the GIDs of %s: %s", name, strerror((int)-n));
		return false;
	}
	enum rdma_gid_verdict v = rdma_gid_choose(table, (size_t)n, wish, &g);
	if (v != RDMA_GID_FOUND) {
		log_info("rdma: %s: %s port %u has %s", address, name, port,
			 rdma_gid_verdict_text(v));
		return false;
	}
	inet_ntop(AF_INET6, g->raw, text, sizeof(text));
	log_info("rdma: %s is served by %s port %u, GID %u %s (%s)", address, name, port, g->index,
		 text, g->type == RDMA_GID_IB ? "InfiniBand" : "RoCE v2");
	return true;
}

static bool to_wish(const char *address, struct rdma_gid_wish *out)
{
	char host[HOST_BYTES];
	struct rdma_end e;
	uint16_t port;

	memset(out, 0, sizeof(*out));
	if (rdma_end_parse(address, &e) || address_split(address, host, &port))
		return false;
	if (address_host_is_any(host))
		return true;
	memcpy(out->address, e.address, 16);
	netdev_of(e.address, out->netdev);
	return true;
}

bool rdma_address_is_served(struct rdma *t, const char *address)
{
	autofree struct rdma_gid *table = calloc(GIDS_MAX, sizeof(*table));
	struct rdma_gid_wish wish;

	if (!table || !to_wish(address, &wish))
		return false;
	for (uint32_t k = 0; k < t->n_devices; k++)
		for (uint8_t p = 1; p <= t->devices[k].attr.phys_port_cnt; p++)
			if (!t->devices[k].is_gone &&
			    port_serves(&t->devices[k], p, &wish, address, table))
				return true;
	return false;
}
