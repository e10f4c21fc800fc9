# SPDX-License-Identifier: Apache-2.0
#
# transport/: how bytes move between nodes.

transport-srcs := $(call sources,transport)

$(call objects,$(transport-srcs)): private MODULE_CFLAGS = -Iinclude -Itransport \
	-I$(O)/inc-base $(BASE_CFLAGS)
