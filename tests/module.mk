# SPDX-License-Identifier: Apache-2.0
#
# tests/: every program links what it needs out of four archives: the daemon
# without its main, the client without its main, libmooncakefs, and what tests
# share (tests/lib, tests/fakes, tests/bench/lib).

unit-srcs := $(wildcard tests/unit/test_*.c)
stress-srcs := $(wildcard tests/stress/*.c)
bench-srcs := $(wildcard tests/bench/*.c)
progs-srcs := $(wildcard tests/integration/progs/*.c)
fuzz-srcs := $(wildcard tests/fuzz/fuzz_*.c)
fuzz-main := $(wildcard tests/fuzz/standalone.c)
# Stands for libibverbs and librdmacm everywhere but in what tests/rdma/run.sh runs.
fake-rdma-srcs := tests/fakes/fake_verbs.c tests/fakes/fake_rdma_cm.c
testlib-srcs := $(filter-out $(fake-rdma-srcs),$(call sources,tests/lib tests/fakes tests/bench/lib))
fake-rdma-objs := $(if $(use-rdma),$(call objects,$(fake-rdma-srcs)))
# Tests on a real device: programs of their own, and unit tests linked again with the libraries.
rdma-srcs := $(if $(use-rdma),$(wildcard tests/rdma/test_*.c))
rdma-unit-srcs := $(if $(use-rdma),$(addprefix tests/unit/,test_transport.c test_peer.c test_peer_failures.c test_peer_pull.c))

testlib-objs := $(call objects,$(testlib-srcs))
test-objs := $(call objects,$(unit-srcs) $(stress-srcs) $(bench-srcs) $(progs-srcs) \
	$(fuzz-srcs) $(fuzz-main) $(rdma-srcs)) $(testlib-objs) $(fake-rdma-objs)

unit-bins := $(patsubst %.c,$(O)/%,$(unit-srcs))
stress-bins := $(patsubst %.c,$(O)/%,$(stress-srcs))
bench-bins := $(patsubst %.c,$(O)/%,$(bench-srcs))
progs-bins := $(patsubst tests/integration/progs/%.c,$(O)/tests/progs/%,$(progs-srcs))
rdma-bins := $(patsubst tests/rdma/%.c,$(O)/tests/rdma/%,$(rdma-srcs)) \
	$(patsubst tests/unit/%.c,$(O)/tests/rdma/%,$(rdma-unit-srcs))
fuzz-replay-bins := $(if $(fuzz-main),$(patsubst %.c,$(O)/%,$(fuzz-srcs)))
fuzz-engine-bins := $(patsubst tests/fuzz/%.c,$(O)/tests/fuzz-engine/%,$(fuzz-srcs))

tests-includes := -I. -Iinclude -Ifs -Imeta -Itransport -Itests

# Criterion's macros nest statement expressions with the same names inside.
$(call objects,$(unit-srcs) $(rdma-srcs) $(testlib-srcs) $(fake-rdma-srcs)): private MODULE_CFLAGS = $(tests-includes) \
	$(FUSE3_CFLAGS) $(BASE_CFLAGS) $(CRITERION_CFLAGS) -Wno-shadow

# The assertions of these programs are many and run once: optimising them takes longer than running them. Whoever
# sets CFLAGS sets it for these too.
unit-opt := $(if $(filter file,$(origin CFLAGS)),$(if $(filter-out 0,$(DEBUG)),,$(if $(SANITIZE),-Og,-O1) -g1))
$(call objects,$(unit-srcs)): private MODULE_OPT = $(unit-opt)

$(call objects,$(stress-srcs) $(bench-srcs) $(progs-srcs) $(fuzz-srcs) $(fuzz-main)): \
	private MODULE_CFLAGS = $(tests-includes) $(FUSE3_CFLAGS) $(BASE_CFLAGS)

# In a group, because fakes call the daemon's code and the daemon's code is
# tested against fakes.
real-archives := $(O)/obj/testlib.a $(O)/obj/core.a $(O)/obj/cli.a $(O)/obj/lib.a
test-archives := $(if $(use-rdma),$(O)/obj/fake_rdma.a) $(real-archives)

# There are a hundred of these programs, and gold, where there is one, links them in a quarter of the time.
test-linker := $(if $(findstring fuzzer,$(SANITIZE)),,\
	$(shell $(CC) -fuse-ld=gold -Wl,--version >/dev/null 2>&1 && echo -fuse-ld=gold))

# $(call test-link,OBJECTS,LIBS[,ARCHIVES])
define test-link
$(call say,LD,$@)
@mkdir -p $(@D)
$(Q)$(LINK) $(test-linker) -o $@ $(1) -Wl,--start-group $(if $(3),$(3),$(test-archives)) -Wl,--end-group \
	$(call rpath,$(@D)) $(DAEMON_LIBS) $(2)
endef

$(O)/obj/fake_rdma.a: $(fake-rdma-objs)
	$(call archive,$(fake-rdma-objs))

$(unit-bins): $(O)/%: $(O)/obj/%.o $(test-archives) $(O)/.ldflags
	$(call test-link,$<,$(CRITERION_LIBS) -lm)
$(patsubst tests/rdma/%.c,$(O)/tests/rdma/%,$(rdma-srcs)): $(O)/tests/rdma/%: $(O)/obj/tests/rdma/%.o
$(patsubst tests/unit/%.c,$(O)/tests/rdma/%,$(rdma-unit-srcs)): $(O)/tests/rdma/%: $(O)/obj/tests/unit/%.o
$(rdma-bins): $(real-archives) $(O)/.ldflags
	$(call test-link,$(filter %.o,$^),$(CRITERION_LIBS) -lm,$(real-archives))
$(stress-bins) $(bench-bins): $(O)/%: $(O)/obj/%.o $(test-archives) $(O)/.ldflags
	$(call test-link,$<,-lm)
$(fuzz-replay-bins): $(O)/%: $(O)/obj/%.o $(O)/obj/tests/fuzz/standalone.o $(test-archives) $(O)/.ldflags
	$(call test-link,$< $(O)/obj/tests/fuzz/standalone.o,)
$(fuzz-engine-bins): $(O)/tests/fuzz-engine/%: $(O)/obj/tests/fuzz/%.o $(test-archives) $(O)/.ldflags
	$(call test-link,-fsanitize=fuzzer $<,)

# Programs that stand for a user's: the system's libraries and nothing of ours.
$(progs-bins): $(O)/tests/progs/%: $(O)/obj/tests/integration/progs/%.o $(O)/.ldflags
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $< -lm

.PHONY: tests-build unit-build stress-build bench-build progs-build fuzz-replay-build fuzz-bins rdma-build
unit-build: $(unit-bins)
rdma-build: $(rdma-bins)
stress-build: $(stress-bins)
bench-build: $(bench-bins)
progs-build: $(progs-bins)
fuzz-replay-build: $(fuzz-replay-bins)
fuzz-bins: $(fuzz-engine-bins)
tests-build: unit-build stress-build bench-build progs-build fuzz-replay-build
# A recipe that does nothing keeps make from saying that there was nothing to do.
unit-build stress-build bench-build progs-build fuzz-replay-build fuzz-bins rdma-build tests-build:
	@:
