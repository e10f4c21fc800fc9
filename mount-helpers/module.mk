# SPDX-License-Identifier: Apache-2.0
#
# mount-helpers/: what mount(8), systemd and bash need to know.

# A copy in the build tree finds its daemon in ../bin, as the installed one does.
helper-outs := $(O)/sbin/mount.mooncakefs

$(O)/sbin/%: mount-helpers/%
	@mkdir -p $(@D)
	@$(INSTALL) -m 0755 $< $@

$(O)/installed/%.service: mount-helpers/%.service FORCE
	@mkdir -p $(@D)
	@sed -e 's|/usr/local/sbin/|$(SBINDIR)/|g' -e 's|/usr/local/bin/|$(BINDIR)/|g' $< >$@
