# SPDX-License-Identifier: Apache-2.0
#
# lib/: libmooncakefs, for programs of users. It reaches include/ and itself; mooncakectl and examples link
# the archive. One set of objects serves both forms. In the archive they are one object, whose inner names
# no program can run into; tests, which need them, link obj/lib.a.

lib-srcs := $(wildcard lib/*.c)
lib-objs := $(call objects,$(lib-srcs))
lib-soname := libmooncakefs.so.1
lib-outs := $(O)/lib/libmooncakefs.a $(O)/lib/libmooncakefs.so

$(lib-objs): private MODULE_CFLAGS = -Iinclude -Ilib -fPIC -fvisibility=hidden

OBJCOPY ?= objcopy

$(O)/obj/lib.a: $(lib-objs) $(O)/obj/lib.list
	$(call archive,$(lib-objs))

$(O)/obj/lib-whole.o: $(lib-objs) $(O)/obj/lib.list
	$(Q)$(CC) -nostdlib -r -o $@ $(lib-objs)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(O)/lib/libmooncakefs.a: $(O)/obj/lib-whole.o
	@mkdir -p $(@D)
	$(call archive,$<)

$(O)/lib/$(lib-soname): $(lib-objs) lib/mooncakefs.map $(O)/.ldflags $(O)/obj/lib.list
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,$(lib-soname) -Wl,--version-script,lib/mooncakefs.map \
		-o $@ $(lib-objs)

$(O)/lib/libmooncakefs.so: $(O)/lib/$(lib-soname)
	@ln -sfn $(lib-soname) $@

$(O)/obj/lib.list: FORCE
	$(call keep-text,$(lib-objs))

# Written anew every time: it depends on PREFIX and its kin.
$(O)/installed/mooncakefs.pc: lib/mooncakefs.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' $< >$@
