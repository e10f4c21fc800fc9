# SPDX-License-Identifier: Apache-2.0
#
# transport/: how bytes move between nodes.

# What the provider rdma computes without verbs is built, and tested, everywhere.
rdma-pure-srcs := transport/rdma/rdma_key.c transport/rdma/rdma_gid.c
transport-srcs := $(filter-out $(if $(use-rdma),,$(filter-out $(rdma-pure-srcs),$(wildcard transport/rdma/*.c))),\
	$(call sources,transport))

$(call objects,$(transport-srcs)): private MODULE_CFLAGS = -Iinclude -Itransport \
	-I$(O)/inc-base $(BASE_CFLAGS)
