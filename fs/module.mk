# SPDX-License-Identifier: Apache-2.0
#
# fs/: the daemon, the leaf library fs/base and the command-line client fs/cli.

base-srcs := $(call sources,fs/base)
cli-srcs := $(call sources,fs/cli)
fs-srcs := $(filter-out $(base-srcs) $(cli-srcs),$(call sources,fs))

# A leaf: what it may reach of fs/ is itself.
$(call objects,$(base-srcs)): private MODULE_CFLAGS = -Iinclude -I$(O)/inc-base $(BASE_CFLAGS)
$(call objects,$(cli-srcs)): private MODULE_CFLAGS = -Iinclude -Ifs $(BASE_CFLAGS)
$(call objects,$(fs-srcs)): private MODULE_CFLAGS = -Iinclude -Ifs $(FUSE3_CFLAGS) $(BASE_CFLAGS)
