# SPDX-License-Identifier: Apache-2.0
#
# examples/*.c: programs of users, so they see the public header and libmooncakefs, nothing else.

example-srcs := $(wildcard examples/*.c)
example-objs := $(call objects,$(example-srcs))
example-bins := $(patsubst %.c,$(O)/%,$(example-srcs))

$(example-objs): private MODULE_CFLAGS = -Iinclude

$(example-bins): $(O)/%: $(O)/obj/%.o $(O)/lib/libmooncakefs.a $(O)/.ldflags
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $< $(O)/lib/libmooncakefs.a
