# SPDX-License-Identifier: Apache-2.0
#
# meta/: what this node and the cluster know about names and objects.

meta-srcs := $(call sources,meta)

$(call objects,$(meta-srcs)): private MODULE_CFLAGS = -Iinclude -Imeta -I$(O)/inc-base \
	$(ROCKSDB_CFLAGS) $(HIREDIS_CFLAGS) $(BASE_CFLAGS)
