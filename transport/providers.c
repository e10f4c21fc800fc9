/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "mcfs/transport.h"

static const struct transport_ops *const providers[] = {
	&transport_loopback,
	&transport_tcp,
#ifdef MCFS_RDMA
	&transport_rdma,
#endif
};

const struct transport_ops *transport_find(const char *name)
{
	for (size_t k = 0; k < sizeof(providers) / sizeof(*providers); k++)
		if (!strcmp(providers[k]->name, name))
			return providers[k];
	return NULL;
}
