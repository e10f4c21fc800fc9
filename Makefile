# SPDX-License-Identifier: Apache-2.0
#
# mooncakefs build. `make help` lists targets and variables.
#
# One make for the whole tree: each folder says in its module.mk what it adds,
# everything lands under $(O). The compile line of a folder names the only
# headers it may reach, which keeps the arrows of the design pointing one way:
# fs -> {meta, transport} -> fs/base, include.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

VERSION := $(shell cat VERSION)

# ---- variables a user may set ----------------------------------------------

SANITIZE ?=
WERROR ?=
DEBUG ?=
V ?=
BENCH ?=
FUZZ_TIME ?= 60
USE_RDMA ?=
JOBS ?= $(shell nproc)
STAGES ?= $(if $(MCFS_CHECK_STAGES),$(MCFS_CHECK_STAGES),$(stages-default))

# Sanitizers cannot be mixed object by object, so each has a tree of its own.
ifneq ($(findstring fuzzer,$(SANITIZE)),)
o-suffix := -fuzz
else ifneq ($(findstring thread,$(SANITIZE)),)
o-suffix := -tsan
else ifneq ($(SANITIZE),)
o-suffix := -asan
endif
O ?= build$(o-suffix)
# One spelling, or the same tree would be built anew by its other name.
override O := $(patsubst $(CURDIR)/%,%,$(patsubst %/,%,$(O)))
ifneq ($(filter . .. /,$(O))$(if $(O),,empty),)
$(error O=$(O) must be a folder of its own)
endif

# Not under $(O): one libfuse serves every build tree and survives `make clean`.
FUSE3_PREFIX ?= $(CURDIR)/build/deps/fuse3

DESTDIR ?=
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/mooncakefs
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSCTLDIR ?= $(PREFIX)/lib/sysctl.d
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin AR),default)
AR := ar
endif
CLANG ?= clang
PKG_CONFIG ?= pkg-config
INSTALL ?= install

Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $(Q),@printf '  %-7s %s\n' $(1) '$(2)')

# ---- libraries --------------------------------------------------------------

# The distribution's libfuse when it knows passthrough, else the private one,
# else whatever there is, which serves everything through direct_io.
fuse3-system := $(shell $(PKG_CONFIG) --atleast-version=3.17 fuse3 2>/dev/null && echo yes)
ifneq ($(fuse3-system),yes)
ifneq ($(wildcard $(FUSE3_PREFIX)/lib/libfuse3.so),)
fuse3-private := yes
endif
endif

ifeq ($(fuse3-private),yes)
# Not from its .pc file, which holds the folder it was built for: a tree that
# was moved or copied must still build.
FUSE3_CFLAGS := -I$(FUSE3_PREFIX)/include/fuse3
FUSE3_LIBS := -L$(FUSE3_PREFIX)/lib -lfuse3
FUSE3_SO := $(shell readlink -f $(FUSE3_PREFIX)/lib/libfuse3.so)
FUSE3_SONAME := $(notdir $(firstword $(wildcard $(FUSE3_PREFIX)/lib/libfuse3.so.[0-9])))
FUSE_USE_VERSION := 317
else
FUSE3_CFLAGS := $(shell $(PKG_CONFIG) --cflags fuse3 2>/dev/null)
FUSE3_LIBS := $(shell $(PKG_CONFIG) --libs fuse3 2>/dev/null)
FUSE_USE_VERSION := $(if $(fuse3-system),317,314)
endif
ROCKSDB_CFLAGS := $(shell $(PKG_CONFIG) --cflags rocksdb 2>/dev/null)
HIREDIS_CFLAGS := $(shell $(PKG_CONFIG) --cflags hiredis 2>/dev/null)
BASE_CFLAGS := $(shell $(PKG_CONFIG) --cflags jansson libisal libxxhash 2>/dev/null)
# The provider rdma: where its libraries are, or as USE_RDMA says.
has-rdma := $(shell $(PKG_CONFIG) --exists libibverbs librdmacm 2>/dev/null && echo 1)
use-rdma := $(filter-out 0,$(if $(USE_RDMA),$(USE_RDMA),$(has-rdma)))
RDMA_LIBS := $(if $(use-rdma),$(shell $(PKG_CONFIG) --libs libibverbs librdmacm 2>/dev/null))
DAEMON_LIBS := $(FUSE3_LIBS) $(shell $(PKG_CONFIG) --libs rocksdb jansson libisal libxxhash liburing libmicrohttpd hiredis libcrypto 2>/dev/null) $(RDMA_LIBS)
CLI_LIBS := $(shell $(PKG_CONFIG) --libs rocksdb jansson libisal libxxhash 2>/dev/null)
CRITERION_CFLAGS := $(shell $(PKG_CONFIG) --cflags criterion 2>/dev/null)
CRITERION_LIBS := $(shell $(PKG_CONFIG) --libs criterion 2>/dev/null)

comma := ,

# Where a program in folder $(1) finds the private libfuse: relative, so that
# the tree may be moved.
rpath = $(if $(fuse3-private),'-Wl$(comma)-rpath$(comma)$$ORIGIN/$(shell realpath -m --relative-to=$(1) $(FUSE3_PREFIX)/lib)')
rpath-installed = $(if $(fuse3-private),'-Wl$(comma)-rpath$(comma)$$ORIGIN/$(shell realpath -m --relative-to=$(BINDIR) $(LIBDIR)/mooncakefs)')

# ---- flags ------------------------------------------------------------------

# A report of a sanitizer wants lines and names of functions, which -g1 has.
CFLAGS ?= $(if $(filter-out 0,$(DEBUG)),-Og -g3,$(if $(SANITIZE),-O1 -g1,-O2 -g))
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wno-unused-parameter $(if $(filter-out 0,$(WERROR)),-Werror)
# Fortified string functions hide from the sanitizers what they look for.
harden-cflags := -fstack-protector-strong \
	$(if $(SANITIZE)$(filter-out 0,$(DEBUG)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
harden-ldflags := -Wl,-z,relro,-z,now
sanitize-flags := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)

all-cppflags = -D_GNU_SOURCE -DFUSE_USE_VERSION=$(FUSE_USE_VERSION) \
	-DMCFS_VERSION='"$(VERSION)"' $(if $(use-rdma),-DMCFS_RDMA) $(CPPFLAGS)
all-cflags = -std=gnu11 -pthread $(warnings) $(harden-cflags) $(sanitize-flags) $(CFLAGS)
all-ldflags = -pthread $(harden-ldflags) $(sanitize-flags) -Wl,--as-needed $(LDFLAGS)

COMPILE = $(CC) $(all-cppflags) $(MODULE_CFLAGS) $(all-cflags) $(MODULE_OPT) -MMD -MP
LINK = $(CC) $(filter-out -g%,$(CFLAGS)) $(all-ldflags)

# ---- modules ----------------------------------------------------------------

# $(call sources,DIR...): every .c below the folders, none of which need exist.
sources = $(sort $(foreach d,$(1),$(if $(wildcard $(d)/.),$(shell find $(d) -name '*.c'))))
objects = $(patsubst %.c,$(O)/obj/%.o,$(1))

include fs/module.mk meta/module.mk transport/module.mk lib/module.mk
include tests/module.mk mount-helpers/module.mk examples/module.mk

daemon-objs := $(call objects,$(fs-srcs) $(base-srcs) $(meta-srcs) $(transport-srcs))
core-objs := $(filter-out $(O)/obj/fs/main.o,$(daemon-objs))
ctl-objs := $(call objects,$(cli-srcs) $(base-srcs))
cli-objs := $(filter-out $(O)/obj/fs/cli/main.o,$(call objects,$(cli-srcs)))
all-objs := $(sort $(daemon-objs) $(ctl-objs) $(test-objs) $(example-objs) $(lib-objs))

.PHONY: all
all: $(O)/bin/mooncakefs $(O)/bin/mooncakectl $(lib-outs) $(helper-outs) $(example-bins)

# ---- rules ------------------------------------------------------------------

.PHONY: FORCE
FORCE:

# Files that hold a text, written anew only when the text changes: what depends
# on them is rebuilt when a flag changes, or when a source comes or goes.
define keep-text
@mkdir -p $(@D)
@printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(1))' >$@
endef

$(O)/.flags: FORCE
	$(call keep-text,$(COMPILE) $(unit-opt) $(FUSE3_CFLAGS) $(ROCKSDB_CFLAGS) $(BASE_CFLAGS) $(CRITERION_CFLAGS))
$(O)/.ldflags: FORCE
	$(call keep-text,$(LINK) $(test-linker) $(DAEMON_LIBS) $(CRITERION_LIBS) $(FUSE3_SO))
$(O)/obj/core.list: FORCE
	$(call keep-text,$(core-objs))
$(O)/obj/cli.list: FORCE
	$(call keep-text,$(cli-objs))
$(O)/obj/testlib.list: FORCE
	$(call keep-text,$(testlib-objs))

# The one view of fs/ that meta/ and transport/ have: "base/log.h".
$(O)/inc-base/base:
	@mkdir -p $(@D)
	@ln -sfn $(CURDIR)/fs/base $@

$(all-objs): $(O)/obj/%.o: %.c $(O)/.flags | $(O)/inc-base/base
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<

define archive
$(call say,AR,$@)
@rm -f $@
$(Q)$(AR) rcs $@ $(1)
endef

$(O)/obj/core.a: $(core-objs) $(O)/obj/core.list
	$(call archive,$(core-objs))
$(O)/obj/cli.a: $(cli-objs) $(O)/obj/cli.list
	$(call archive,$(cli-objs))
$(O)/obj/testlib.a: $(testlib-objs) $(O)/obj/testlib.list
	$(call archive,$(testlib-objs))

$(O)/bin/mooncakefs: $(daemon-objs) $(O)/.ldflags $(O)/obj/core.list
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(daemon-objs) $(call rpath,$(@D)) $(DAEMON_LIBS)

# Of the daemon it takes what fsck needs: the catalog and the list of disks.
$(O)/bin/mooncakectl: $(ctl-objs) $(O)/lib/libmooncakefs.a $(O)/obj/core.a $(O)/.ldflags $(O)/obj/cli.list
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(ctl-objs) $(O)/lib/libmooncakefs.a $(O)/obj/core.a $(CLI_LIBS)

# Linked apart, because an installed program must not look for a library in
# folders beside it that only the build tree has. Every time: it depends on
# BINDIR and LIBDIR.
$(O)/installed/mooncakefs: $(daemon-objs) FORCE
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(daemon-objs) $(rpath-installed) $(DAEMON_LIBS)

-include $(all-objs:.o=.d)

# ---- dependencies -----------------------------------------------------------

.PHONY: deps deps-dev
deps:
	@scripts/deps.sh $(FUSE3_PREFIX)
deps-dev:
	@scripts/deps.sh --dev $(FUSE3_PREFIX)

# What a missing library looks like otherwise is a page of compiler errors.
ifeq ($(filter deps deps-dev clean distclean help check check-% demo dist uninstall format,$(MAKECMDGOALS)),)
missing := $(if $(FUSE3_LIBS),,fuse3) $(strip $(foreach p,rocksdb jansson libisal libxxhash liburing libmicrohttpd hiredis libcrypto $(if $(use-rdma),libibverbs librdmacm),\
	$(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null || echo $(p))))
ifneq ($(strip $(missing)),)
$(error not found by $(PKG_CONFIG): $(strip $(missing)) - run 'sudo make deps' first)
endif
endif

# ---- check ------------------------------------------------------------------

# Unit tests run under asan, once; plain they are a stage of their own.
stages-default := $(if $(SANITIZE),unit) stress fuzz integration $(if $(SANITIZE),integration-directio,asan tsan) rdma
asan-O := $(O)-asan
tsan-O := $(O)-tsan


# Packages may have appeared since this make read its files, so the build is
# that of another make. A job server of an outer make is used where there is one.
submake = +$(Q)$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

define build-sanitized
$(if $(filter asan,$(1)),$(submake) O=$(asan-O) SANITIZE=address$(comma)undefined $(build-for-asan))
$(if $(filter tsan,$(1)),$(submake) O=$(tsan-O) SANITIZE=thread stress-build)
endef

# $(call run-stages,STAGES): builds what the stages need, then runs them. Where others come first, which wait more
# than they work, the trees of the sanitizers are built meanwhile.
define run-stages
$(submake) O=$(O) all $(sort $(foreach s,$(filter-out asan tsan,$(1)),$(build-for-$(s))))
$(if $(filter-out asan tsan,$(1)),,$(call build-sanitized,$(1)))
$(Q)MCFS_BUILD=$(abspath $(O)) MCFS_BUILD_ASAN=$(abspath $(asan-O)) \
	MCFS_BUILD_TSAN=$(abspath $(tsan-O)) MCFS_CHECK_STAGES="$(strip $(1))" \
	MCFS_BUILD_LATER="$(if $(filter-out asan tsan,$(1)),$(if $(filter asan tsan,$(1)),$(MAKE) check-trees))" \
	tests/run.sh
endef
build-for-unit := unit-build
build-for-stress := stress-build
build-for-fuzz := fuzz-replay-build
build-for-integration := progs-build stress-build deb
build-for-integration-directio := progs-build stress-build deb
build-for-rdma := rdma-build
build-for-asan := all unit-build progs-build stress-build fuzz-replay-build

.PHONY: check check-unit check-stress check-fuzz check-integration check-asan check-tsan check-trees \
	check-rdma check-rdma-full
check:
	$(Q)scripts/deps.sh $(FUSE3_PREFIX)
	$(call run-stages,$(STAGES))
check-unit:
	$(call run-stages,unit)
check-stress:
	$(call run-stages,stress)
check-fuzz:
	$(call run-stages,fuzz)
check-integration:
	$(call run-stages,integration integration-directio)
check-asan:
	$(call run-stages,asan)
check-tsan:
	$(call run-stages,tsan)
check-trees:
	$(call build-sanitized,$(STAGES))

# Status 77 is a VM that does not start, and no failure: the line that it printed says why.
check-rdma:
	$(submake) O=$(O) all rdma-build
	$(Q)MCFS_BUILD=$(abspath $(O)) tests/rdma/run.sh || [ $$? -eq 77 ]
check-rdma-full:
	$(submake) O=$(O) all rdma-build
	$(submake) O=$(asan-O) SANITIZE=address$(comma)undefined all rdma-build
	$(Q)MCFS_BUILD=$(abspath $(O)) MCFS_LONG=1 tests/rdma/run.sh || [ $$? -eq 77 ]
	$(Q)MCFS_BUILD=$(abspath $(asan-O)) MCFS_LONG=1 MCFS_TIME_SCALE=10 \
		ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		LSAN_OPTIONS=print_suppressions=0 tests/rdma/run.sh || [ $$? -eq 77 ]

.PHONY: demo bench bench-rdma bench-10m
demo:
	$(Q)scripts/deps.sh $(FUSE3_PREFIX)
	$(submake) O=$(O) all
	$(Q)MCFS_BUILD=$(abspath $(O)) examples/demo.sh
bench:
	$(submake) O=$(O) all bench-build progs-build
	$(Q)MCFS_BUILD=$(abspath $(O)) BENCH="$(BENCH)" tests/bench/run.sh
# Status 77 is a VM that does not start, and no failure.
bench-rdma:
	$(submake) O=$(O) all bench-build
	$(Q)MCFS_BUILD=$(abspath $(O)) tests/rdma/run.sh env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(CURDIR)/tests/bench \
		python3 -m cluster.rdma --build $(abspath $(O)) --top /run/tmp/bench-rdma || [ $$? -eq 77 ]
bench-10m:
	$(submake) O=$(O) bench BENCH=meta10m

# Crashes under load, ROUNDS of each kind in SOAK, and MINUTES of steady load.
.PHONY: soak
soak:
	$(submake) O=$(O) all stress-build
	$(Q)MCFS_BUILD=$(abspath $(O)) MCFS_ROUNDS="$(ROUNDS)" MCFS_SEED="$(SEED)" MCFS_MINUTES="$(MINUTES)" \
		tests/soak/run.sh $(SOAK)

# ---- fuzz, lint, format -----------------------------------------------------

.PHONY: fuzz fuzz-build
fuzz-build:
	$(submake) O=$(O)-fuzz CC=$(CLANG) SANITIZE=address,undefined,fuzzer-no-link fuzz-bins
fuzz: fuzz-build
	$(Q)MCFS_BUILD_FUZZ=$(O)-fuzz FUZZ="$(FUZZ)" FUZZ_TIME="$(FUZZ_TIME)" scripts/fuzz.sh

.PHONY: lint format
lint: $(O)/inc-base/base
	$(Q)CC="$(CC)" INC_BASE=$(O)/inc-base \
		LINT_CPPFLAGS='-std=gnu11 $(subst ','\'',$(all-cppflags)) $(BASE_CFLAGS) $(CRITERION_CFLAGS)' \
		FUSE3_CFLAGS='$(FUSE3_CFLAGS)' scripts/lint.sh
format:
	$(Q)find include fs lib meta transport tests examples -name '*.[ch]' -exec clang-format -i {} +

# ---- install ----------------------------------------------------------------

man-pages := $(wildcard docs/man/*.[1358])
doc-files := $(wildcard README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE docs/*.md docs/grafana/*.json)
example-files := $(if $(wildcard examples/.),$(shell find examples -type f \
	! -name module.mk ! -name '*.pyc' ! -path '*.egg-info/*' ! -path '*/python/build/*'))

# mode|source|place, the single list that install and uninstall both walk.
install-list = \
	0755|$(O)/installed/mooncakefs|$(BINDIR)/mooncakefs \
	0755|$(O)/bin/mooncakectl|$(BINDIR)/mooncakectl \
	0755|mount-helpers/mount.mooncakefs|$(SBINDIR)/mount.mooncakefs \
	$(if $(fuse3-private),0644|$(FUSE3_SO)|$(LIBDIR)/mooncakefs/$(FUSE3_SONAME)) \
	0644|$(O)/installed/mooncakefs@.service|$(UNITDIR)/mooncakefs@.service \
	0644|mount-helpers/mooncakefs.sysctl.conf|$(SYSCTLDIR)/60-mooncakefs.conf \
	$(foreach c,mooncakefs mooncakectl,\
		0644|mount-helpers/completion/$(c)|$(COMPLETIONDIR)/$(c)) \
	$(foreach m,$(man-pages),\
		0644|$(m)|$(MANDIR)/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) \
	$(foreach h,$(wildcard include/mooncakefs.h),0644|$(h)|$(INCLUDEDIR)/$(notdir $(h))) \
	0644|$(O)/lib/libmooncakefs.a|$(LIBDIR)/libmooncakefs.a \
	0755|$(O)/lib/$(lib-soname)|$(LIBDIR)/$(lib-soname) \
	0644|$(O)/installed/mooncakefs.pc|$(LIBDIR)/pkgconfig/mooncakefs.pc \
	$(foreach d,$(doc-files),0644|$(d)|$(DOCDIR)/$(d)) \
	$(foreach e,$(example-files),\
		$(if $(filter %.sh %.py,$(e)),0755,0644)|$(e)|$(DOCDIR)/$(e))

# mount(8) looks for helpers in /sbin only, which is /usr/sbin wherever /usr is
# merged. With the default PREFIX a link there makes `mount -t` work.
helper-link := $(if $(filter /usr/local/sbin,$(SBINDIR)),$(DESTDIR)/usr/sbin/mount.mooncakefs)

.PHONY: install uninstall
install: all $(O)/installed/mooncakefs $(O)/installed/mooncakefs@.service $(O)/installed/mooncakefs.pc
	$(Q)set -e; for entry in $(foreach e,$(install-list),'$(e)'); do \
		mode=$${entry%%|*} rest=$${entry#*|}; \
		$(INSTALL) -D -m "$$mode" "$${rest%%|*}" "$(DESTDIR)$${rest#*|}"; \
	done
	$(Q)ln -sfn $(lib-soname) $(DESTDIR)$(LIBDIR)/libmooncakefs.so
ifneq ($(helper-link),)
	$(Q)$(if $(DESTDIR),mkdir -p $(dir $(helper-link));) \
	if [ -e $(helper-link) ] && [ ! -L $(helper-link) ]; then \
		echo "$(helper-link) is a file of someone else's: left alone" >&2; \
	elif [ -w $(dir $(helper-link)) ]; then \
		ln -sfn $(SBINDIR)/mount.mooncakefs $(helper-link); \
	else \
		echo "$(dir $(helper-link)) is not writable: 'mount -t mooncakefs' will not find its helper" >&2; \
	fi
endif

uninstall:
	$(Q)set -e; for entry in $(foreach e,$(install-list),'$(e)'); do \
		rest=$${entry#*|}; rm -f "$(DESTDIR)$${rest#*|}"; \
	done
	$(Q)rm -f $(DESTDIR)$(LIBDIR)/libmooncakefs.so
	$(Q)for d in $(LIBDIR)/mooncakefs $(DOCDIR); do \
		[ ! -d "$(DESTDIR)$$d" ] || find "$(DESTDIR)$$d" -depth -type d -empty -delete; \
	done
ifneq ($(helper-link),)
	$(Q)[ "$$(readlink $(helper-link))" != $(SBINDIR)/mount.mooncakefs ] || rm -f $(helper-link)
endif

# ---- deb --------------------------------------------------------------------

# Installed by another make, whose folders are those of a package.
deb-root = $(abspath $(O))/deb/root
.PHONY: deb check-deb
deb: all
	$(Q)rm -rf $(O)/deb
	$(submake) O=$(O) PREFIX=/usr DESTDIR=$(deb-root) install
	$(Q)scripts/deb.sh $(deb-root) $(VERSION) $(O)/deb \
		$(if $(fuse3-private),$(patsubst libfuse3.so.%,%,$(notdir $(FUSE3_SO))))
	$(Q)rm -rf $(deb-root)
check-deb: deb
	$(Q)MCFS_BUILD=$(abspath $(O)) MCFS_CHECK_STAGES=integration tests/run.sh -k 'test_deb or test_systemd'

# ---- dist, clean, help ------------------------------------------------------

dist-name := mooncakefs-$(VERSION)
dist-files = $(wildcard Makefile VERSION LICENSE *.md .ci .clang-format .clang-tidy .editorconfig .gitignore \
	docs examples fs include lib meta mount-helpers scripts tests transport)

.PHONY: dist clean distclean
dist:
	@mkdir -p $(O)
	$(Q)tar --create --gzip --file $(O)/$(dist-name).tar.gz --sort=name --owner=0 --group=0 \
		--numeric-owner --exclude=__pycache__ --exclude=.pytest_cache --exclude='*.pyc' \
		--transform='s,^,$(dist-name)/,S' $(dist-files)
	@echo $(O)/$(dist-name).tar.gz

trees := $(O) $(addprefix $(O),-asan -tsan -fuzz)
clean:
	$(Q)for d in $(trees); do [ ! -d $$d ] || \
		find $$d -mindepth 1 -maxdepth 1 ! -name deps -exec rm -rf {} +; done
	$(Q)rmdir $(trees) 2>/dev/null || true
distclean: clean
	$(Q)rm -rf $(FUSE3_PREFIX) $(dir $(FUSE3_PREFIX)).lock $(CURDIR)/build/deps/rdma-vm
	$(Q)rmdir -p $(dir $(patsubst $(CURDIR)/%,%,$(FUSE3_PREFIX))) 2>/dev/null || true
	$(Q)find . -name __pycache__ -prune -exec rm -rf {} +
	$(Q)rm -rf .pytest_cache compile_commands.json

define help-text
targets
  all                 $(O)/bin/mooncakefs and mooncakectl, $(O)/lib/libmooncakefs.{so,a}
  deps                install what building and testing need (asks apt only for what is absent)
  deps-dev            the same, and the tools of lint, format and fuzz
  demo                build, then a tour on a mount of its own
  check               deps, all, every test; the last line is "N passed, N failed, N skipped"
  check-unit check-stress check-fuzz check-integration check-asan check-tsan
                      one part of check
  check-rdma          the provider rdma and daemons with it on a software device, in a VM: five minutes
  check-rdma-full     the same with the long tests and large sizes, then again with the sanitizers
  bench               build, then the benchmarks; BENCH=NAME for one
  bench-rdma          objects of another node by RDMA, in the VM of check-rdma, against perftest
  bench-10m           ten million names: 3 GB of memory and of disk, minutes
  soak                kill the daemon and fail the power under load, ROUNDS times (1000), then MINUTES (30)
                      of steady load; SOAK=crash, power, steady or cluster for one, SEED= to run a series again
  fuzz                fuzz every parser for FUZZ_TIME seconds (clang); FUZZ=NAME for one
  lint                clang-tidy, cppcheck, shellcheck, header-alone, include-direction
  format              clang-format the sources in place
  install uninstall   DESTDIR= PREFIX=/usr/local and BINDIR SBINDIR LIBDIR MANDIR ...
  dist                $(O)/$(dist-name).tar.gz
  deb                 a Debian package in $(O)/deb
  check-deb           its tests: installed and purged, and run by systemd, in throw-away copies of /
  clean               remove build products, keep the private libfuse
  distclean           remove that too
variables
  O=DIR               build tree (now $(O))
  V=1                 show the commands
  DEBUG=1             -Og -g3
  WERROR=1            warnings are errors
  USE_RDMA=0|1        without or with the provider rdma (now $(if $(use-rdma),1,0): 1 where libibverbs and librdmacm are)
  SANITIZE=LIST       address,undefined or thread; the tree is then build-asan or build-tsan
  CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG FUSE3_PREFIX JOBS
  STAGES=LIST         what check runs: $(stages-default)
endef
.PHONY: help
help: export HELP_TEXT = $(help-text)
help:
	@printf '%s\n' "$$HELP_TEXT"
