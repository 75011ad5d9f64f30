# muster: `make` builds with the installed packages. `make demo` and `make check` also install the Debian 12 packages that
# are missing. `make help` lists the targets.

BUILD    ?= build
ifeq ($(origin CC),default)
CC       := gcc
endif
WARN     := -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes
OPT      ?= -O2 -g
SAN      ?=
# Programs and their threads run with 512 KiB of stack (ulimit -s), so large objects are on the heap. The limit does not
# apply to tests, nor to sanitizer builds, whose frames are larger.
FRAME    := $(if $(SAN),,-Wframe-larger-than=16384)
CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS   += -std=c11 $(OPT) $(WARN) $(SAN) -pthread
LDFLAGS  += $(SAN) -pthread -Wl,--as-needed
PREFIX   ?= /usr/local

# --- Rooms: each row of the table `rooms` is built into one archive ---------------------

# ROOM_ROWS has one word for each row: the room and the rooms that it may include, joined by "+".
ROOM_ROWS := $(shell sed -n "s/^\([a-z][^ ]*\) *| *\([^|]*\).*/\1 \2/p" rooms | sed "s/ *$$//" | tr -s " " "+")
ROOMS     := $(foreach row,$(ROOM_ROWS),$(firstword $(subst +, ,$(row))))
# stands_on_ROOM holds the room and every room that it includes, directly or not. A row names only rows above it, so one
# pass is enough.
$(foreach row,$(ROOM_ROWS),$(eval room := $(firstword $(subst +, ,$(row))))$(eval stands_on_$(room) := \
	$(sort $(room) $(foreach below,$(wordlist 2,99,$(subst +, ,$(row))),$(stands_on_$(below))))))
# $(call stands_on,FOLDER): every room of that folder, and every room that those include.
stands_on = $(sort $(foreach r,$(filter $(1) $(1)/%,$(ROOMS)),$(stands_on_$(r))))

ROOM_SRC := $(shell find $(sort $(foreach r,$(ROOMS),$(firstword $(subst /, ,$(r))))) -name '*.c')
# $(call room_src,ROOM): the sources in the room's folder, without those of rooms inside it and those that another makefile
# builds.
room_src = $(filter-out $(foreach r,$(filter $(1)/%,$(ROOMS)) $(apart_$(1)),$(r)/% $(r)) %/main.c,$(filter $(1)/%,$(ROOM_SRC)))
apart_kernels := $(patsubst %/,%,$(wildcard kernels/*/))
apart_libcomm := libcomm/device/cuda

libs_base     := -lsodium -lexpat -ljansson -lutf8proc -lm -ldl
libs_topo     := -lhwloc -lexpat -ljansson -lm
libs_plan     := -linih -ljansson -lm
libs_libcomm  := -lxxhash
libs_kernels  := -fopenmp -lm -ldl
libs_agent    := -lpmix -lxxhash -ljansson -lpcre2-8 -lutf8proc -lz -lzstd -lm -ldl
libs_launcher := -lpmix -luv -ljansson $(or $(shell pkg-config --libs ncursesw 2>/dev/null),-lncursesw -ltinfo)

floor = $(firstword $(subst /, ,$(1)))
flat  = $(subst /,-,$(1))
archives = $(foreach r,$(filter-out %/main.c,$(1)),$(BUILD)/lib/$(call flat,$(r)).a)
# $(call syslibs,ROOMS): the system libraries that these rooms need.
syslibs = $(foreach f,$(sort $(foreach r,$(1),$(call floor,$(r)))),$(libs_$(f)))

.DEFAULT_GOAL := all
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(FRAME) $(CFLAGS_$(call flat,$(patsubst %/,%,$(dir $<)))) -MMD -MP -c $< -o $@

$(BUILD)/obj/tests/%: FRAME :=

$(foreach d,$(sort $(dir $(filter libcomm/%,$(ROOM_SRC)))),$(eval CFLAGS_$(call flat,$(d:%/=%)) := -O3))
CFLAGS_agent-engine-optim := -fopenmp -O3
CFLAGS_kernels            := -fopenmp -O3
PMIX_CFLAGS           := $(shell pkg-config --cflags pmix 2>/dev/null)
CFLAGS_launcher-pmix  := $(PMIX_CFLAGS)
CFLAGS_tests-unit-launcher := $(PMIX_CFLAGS)
CFLAGS_tests-unit-agent := $(PMIX_CFLAGS)
CFLAGS_agent          := $(PMIX_CFLAGS)
CFLAGS_tests-tools    := $(PMIX_CFLAGS)
# $(call files,LIST) expands a list of paths, patterns and !exceptions (tests/gpu/sources.mk).
files = $(filter-out $(patsubst !%,%,$(filter !%,$(1))),$(wildcard $(filter-out !%,$(1))))
-include tests/gpu/sources.mk
-include kernels/kernels.mk
-include kernels/cuda/cuda.mk
-include tests/gpu/check.mk
-include tests/gpu/emulator/emulator.mk

define room_rule
$(BUILD)/lib/$(call flat,$(1)).a: $$(patsubst %.c,$(BUILD)/obj/%.o,$$(call room_src,$(1))) $$(objs_$(call flat,$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar qcsD $$@ $$^
endef
$(foreach r,$(filter-out %/main.c,$(ROOMS)),$(eval $(call room_rule,$(r))))

link = $(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

# --- Programs -----------------------------------------------------------------

PROGRAMS := $(BUILD)/muster $(BUILD)/muster-agent

# `programs` leaves out libmuster-cuda.so, whose kernels take minutes to compile.
.PHONY: all programs
all: programs $(CUDA_SO)
programs: $(PROGRAMS)

$(BUILD)/muster: $(BUILD)/obj/launcher/cli/main.o $(call archives,$(call stands_on,launcher))
	$(link) $(call syslibs,$(call stands_on,launcher))

$(BUILD)/muster-agent: $(BUILD)/obj/agent/main.o $(call archives,$(call stands_on,agent))
	$(link) $(call syslibs,$(call stands_on,agent))

# --- Unit tests: tests/unit/ROOM/test_*.c links the archives of that folder's rooms and of those they include ---

UNIT_SRC  := $(wildcard tests/gpu/test_*.c tests/conform/test_*.c tests/fault/test_*.c tests/unit/*/test_*.c)
UNIT_BIN  := $(patsubst %.c,$(BUILD)/%,$(UNIT_SRC))

# $(call shared,FOLDER): the objects that several tests of the folder use, from its other .c files.
shared = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(1)/test_%,$(wildcard $(1)/*.c)) $(shared_$(call flat,$(1))))
shared_tests-unit-agent := tests/golden/ref64.c
shared_tests-unit-launcher := tests/unit/base/http_server.c
shared_tests-fault := tests/conform/comm_forms.c tests/conform/comm_reference.c

# These objects form an archive, so that a test links only those that it uses: some tests replace functions that the
# other helpers call by doubles.
define unit_rule
$(BUILD)/lib/$(call flat,$(1)).a: $(call shared,$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar qcsD $$@ $$^
$(BUILD)/$(1)/%: $(BUILD)/obj/$(1)/%.o $(BUILD)/lib/$(call flat,$(1)).a $(call archives,$(2))
	@mkdir -p $$(@D)
	$$(link) -lcmocka $(call syslibs,$(2))
endef
$(foreach f,base topo plan libcomm kernels agent launcher,\
	$(eval $(call unit_rule,tests/unit/$(f),$(call stands_on,$(f)))))
# The tests of agents add storages of checkpoints (tests/unit/agent/ckpt_storages.h).
$(BUILD)/tests/unit/agent/%: LDFLAGS += -Wl,--wrap=ckpt_storage_of
$(eval $(call unit_rule,tests/conform,kernels libcomm base))
$(eval $(call unit_rule,tests/fault,libcomm base))

# A double of NVIDIA's management library.
NVML_DOUBLE := $(BUILD)/tests/doubles/libnvidia-ml.so.1
$(NVML_DOUBLE): tests/doubles/nvml.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $<
$(BUILD)/tests/unit/topo/test_nvml $(BUILD)/tests/unit/topo/test_gpu_state $(BUILD)/tests/unit/agent/test_health $(BUILD)/tests/unit/agent/test_preflight $(BUILD)/tests/unit/agent/test_watch: | $(NVML_DOUBLE)
# Where the toolkit has NVIDIA's header, a test compares our declarations with it.
NVML_INCLUDE ?= $(CUDA_HOME)/include
$(BUILD)/obj/tests/unit/topo/test_nvml_abi.o: CPPFLAGS += -isystem $(NVML_INCLUDE)

# A double that reports the versions of CUDA's libraries; tests give it their names.
CUDA_DOUBLE := $(BUILD)/tests/doubles/cuda.so
$(CUDA_DOUBLE): tests/doubles/cuda.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $<

# A preload library that leads a run's connections through tests/tools/fault_proxy.
PROXY_DOUBLE := $(BUILD)/tests/doubles/through_proxy.so
$(PROXY_DOUBLE): tests/doubles/through_proxy.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $<

# Doubles and small programs that the bats files use.
TOOL_BIN := $(NVML_DOUBLE) $(CUDA_DOUBLE) $(PROXY_DOUBLE) $(patsubst %.c,$(BUILD)/%,$(wildcard tests/tools/*.c))
$(BUILD)/tests/tools/slurm_nodes: $(BUILD)/obj/tests/tools/slurm_nodes.o $(call archives,$(call stands_on,launcher))
	@mkdir -p $(@D)
	$(link) $(call syslibs,$(call stands_on,launcher))
$(BUILD)/tests/tools/at_call: $(BUILD)/obj/tests/tools/at_call.o $(BUILD)/obj/tests/unit/agent/crash.o $(call archives,base)
	@mkdir -p $(@D)
	$(link) $(libs_base)
$(BUILD)/tests/tools/%: $(BUILD)/obj/tests/tools/%.o
	@mkdir -p $(@D)
	$(link) -lpmix -ljansson -lm

.PHONY: unit-bins
unit-bins: $(UNIT_BIN)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# --- Debian 12 packages ---------------------------------------------------------

PACKAGES       := gcc make pkg-config libhwloc-dev libhwloc-plugins libpmix-dev libinih-dev libopenblas0 libjansson-dev \
                  libxxhash-dev libexpat1-dev libuv1-dev libsodium-dev libcurl4-openssl-dev libpcre2-dev libutf8proc-dev zlib1g-dev \
                  libzstd-dev libmicrohttpd-dev libncurses-dev
PACKAGES_CHECK := clang-format g++ libcmocka-dev bats slurm-wlm slurmrestd slurm-wlm-jwt-plugin munge iproute2 procps \
                  python3 openssl tcl tmux openmpi-bin libopenmpi-dev
PACKAGES_FUZZ  := clang libclang-rt-14-dev
PYTHON_PROGRAMS   := torch jax numpy py-spy
PROGRAMS_VENV     := $(BUILD)/programs-venv

# tests/setup installs the missing packages and names them. It does not use the network if none is missing.
.PHONY: setup setup-check setup-fuzz setup-programs
setup:
	@tests/setup $(PACKAGES)
setup-check:
	@tests/setup $(PACKAGES) $(PACKAGES_CHECK)
setup-fuzz:
	@tests/setup $(PACKAGES) $(PACKAGES_FUZZ)
setup-programs: setup-check
	@tests/setup_python $(PROGRAMS_VENV) $(PYTHON_PROGRAMS)

# --- The demo: pack real text, train a model on 8 agents ------------------------

DEMO := $(BUILD)/demo

.PHONY: demo
demo: setup
	@$(MAKE) --no-print-directory $(EVERY_CORE) programs
	@mkdir -p $(DEMO)
	@find /usr/share/common-licenses /usr/share/doc /usr/share/perl -type f \
		\( -path '*/common-licenses/*' -o -name copyright -o -name '*.pod' \) 2>/dev/null | LC_ALL=C sort >$(DEMO)/files
	@rm -rf $(DEMO)/demo
	$(BUILD)/muster data pack @$(DEMO)/files -o $(DEMO)/text
	$(BUILD)/muster run templates/jobs/demo.ini data.path=$(DEMO)/text job.run_dir=$(DEMO)

# --- Tests ----------------------------------------------------------------------

CHECKS := tests/floors tests/rooms_graph tests/format_check tests/symbols tests/documents
BATS := $(wildcard tests/slurm/*.bats tests/fault/*.bats tests/programs/*.bats tests/cli/*.bats)

# make check compiles the fuzzers without running them, so that they keep up with what they test.
FUZZ_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/fuzz/fuzz_*.c))

# Two tests run at the same time. The long ones come first, and a bats file, which mostly waits, comes beside a program,
# which mostly computes: "$(join a b,c d)" is "ac bd", and no path has a "+".
RUN_TESTS := tests/run -j 2
ALL_TESTS := $(CHECKS) $(subst +, ,$(join $(addsuffix +,$(BATS)),$(UNIT_BIN)))

# make uses every core, unless -j gives a number.
EVERY_CORE = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: check check-all check-unit check-san format fuzz bench bench-comm bench-network
check: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) all unit-bins $(TOOL_BIN) $(FUZZ_OBJ)
	@$(RUN_TESTS) $(ALL_TESTS)

# make check, with the cases that a test leaves out because they are large: bats files ask `large` (tests/helpers.bash),
# programs ask large_run or cell_runs (tests/large.h), and test_comm runs ALL_SWEEP times as many cells. The sanitizers, the
# proxy and the fuzzers follow.
ALL_SWEEP ?= 20
check-all: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) all unit-bins $(TOOL_BIN)
	@MUSTER_LARGE=1 MUSTER_COMM_SWEEP=$(ALL_SWEEP) $(RUN_TESTS) $(ALL_TESTS)
	@$(MAKE) --no-print-directory check-san
	@$(MAKE) --no-print-directory check-proxy
	@$(MAKE) --no-print-directory fuzz

# The fault tests alone, with their large cases; then FAULT_RUNS runs with random faults on this host, and as many in a Slurm
# cluster over loopback.
FAULT_TESTS := $(wildcard tests/slurm/*.bats tests/fault/*.bats) tests/cli/drill.bats $(filter $(BUILD)/tests/fault/%,$(UNIT_BIN))
FAULT_RUNS ?= 50
.PHONY: check-faults
check-faults: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) all $(filter $(BUILD)/tests/fault/%,$(UNIT_BIN)) $(TOOL_BIN)
	@MUSTER_LARGE=1 $(RUN_TESTS) $(FAULT_TESTS)
	tests/fault/fault_runs $(FAULT_RUNS) local
	tests/fault/fault_runs $(FAULT_RUNS) slurm

check-unit: unit-bins
	@$(RUN_TESTS) $(UNIT_BIN) tests/floors

# Formats the sources by .clang-format; tests/format_check, which make check runs, only compares.
format:
	@tests/format

# All unit tests under AddressSanitizer and UBSan, and those of code that starts threads under ThreadSanitizer as well.
# The kernels are not among the latter, because ThreadSanitizer does not know libgomp's barriers. The emulator's threads have
# signal stacks of their own, which AddressSanitizer would unmap when they end: hence use_sigaltstack=0. muster, which has a thread
# for its output, forks its PMIx server, which starts threads: hence die_after_fork=0.
ASAN_BIN := $(UNIT_BIN:$(BUILD)/%=build/asan/%)
TSAN_BIN := $(patsubst $(BUILD)/%,build/tsan/%,$(filter $(foreach f,base libcomm launcher,$(BUILD)/tests/unit/$(f)/%) \
	$(BUILD)/tests/conform/test_comm% $(BUILD)/tests/fault/% $(BUILD)/tests/unit/agent/test_data_feed $(BUILD)/tests/unit/agent/test_server \
	$(BUILD)/tests/unit/agent/test_mirror $(BUILD)/tests/unit/agent/test_log_%,$(UNIT_BIN)))
check-san: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) BUILD=build/asan SAN='-fsanitize=address,undefined -fno-sanitize-recover=all' unit-bins
	@$(MAKE) --no-print-directory $(EVERY_CORE) BUILD=build/tsan SAN=-fsanitize=thread $(TSAN_BIN)
	@ASAN_OPTIONS=use_sigaltstack=0:$$ASAN_OPTIONS TSAN_OPTIONS=die_after_fork=0:$$TSAN_OPTIONS \
		$(RUN_TESTS) $(ASAN_BIN) $(TSAN_BIN)

# Programs of other frameworks under muster: PyTorch, JAX and MPI, with and without Slurm. Their Python packages are gigabytes, so
# make check does not install them; it skips what this host lacks.
PROGRAM_TESTS := $(wildcard tests/programs/*.bats) tests/slurm/programs.bats
.PHONY: check-programs bench-programs
check-programs: setup-programs
	@$(MAKE) --no-print-directory $(EVERY_CORE) programs $(TOOL_BIN)
	@PATH="$(abspath $(PROGRAMS_VENV))/bin:$$PATH" MUSTER_PROGRAMS=required $(RUN_TESTS) $(PROGRAM_TESTS)

# Compares how muster and torchrun start 8 processes, and replace one that was killed.
bench-programs: setup-programs
	@$(MAKE) --no-print-directory programs
	PATH="$(abspath $(PROGRAMS_VENV))/bin:$$PATH" tests/bench/program_start $(BUILD)/muster

# Every cell of the collectives' conformance test, the large ones included: hours. SWEEP=20 runs 20 times as many cells as
# make check.
.PHONY: check-comm
SWEEP ?= 1000000
check-comm: setup-check
	@$(MAKE) --no-print-directory $(BUILD)/tests/conform/test_comm
	@MUSTER_COMM_SWEEP=$(SWEEP) tests/run $(BUILD)/tests/conform/test_comm

# Training runs whose connections a proxy disturbs. Each result is compared bit for bit with that of an undisturbed run.
# PROXY_RUNS runs disturb the control channel, and as many disturb the data under each [network] integrity that detects it.
.PHONY: check-proxy
PROXY_RUNS ?= 500
check-proxy: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) all $(TOOL_BIN)
	tests/fault/proxy_runs $(PROXY_RUNS) control
	tests/fault/proxy_runs $(PROXY_RUNS) data network.integrity=checksum
	tests/fault/proxy_runs $(PROXY_RUNS) data network.integrity=seal

# Simulated runs that meet many faults (launcher/simulate): SEEDS of them from FIRST_SEED on, each with about FAULTS faults.
SEEDS      ?= 10000
FIRST_SEED ?= 1
FAULTS     ?= 100
.PHONY: simulate
simulate: setup-check
	@$(MAKE) --no-print-directory $(EVERY_CORE) $(BUILD)/tests/simulate/simulate
	$(BUILD)/tests/simulate/simulate --first $(FIRST_SEED) --count $(SEEDS) --faults $(FAULTS)

$(BUILD)/tests/simulate/simulate: $(BUILD)/obj/tests/simulate/simulate.o $(call archives,$(call stands_on,launcher))
	@mkdir -p $(@D)
	$(link) $(call syslibs,$(call stands_on,launcher))

# Each parser of untrusted input under libFuzzer, FUZZ_SECONDS each.
FUZZ_SECONDS ?= 60
fuzz: setup-fuzz
	@$(MAKE) --no-print-directory $(EVERY_CORE) BUILD=build/fuzz CC=clang OPT='-O1 -g' \
		SAN='-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all' fuzz-bins
	@tests/fuzz/run $(FUZZ_SECONDS) $(patsubst tests/fuzz/%.c,build/fuzz/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: fuzz-bins
fuzz-bins: $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))

FUZZ_ROOMS := launcher/goodput launcher/top launcher/report launcher/console agent/tools agent agent/health agent/task agent/stacks launcher/suspects launcher/doctor launcher/slurm launcher/helper launcher/supervise launcher launcher/exports launcher/rundir agent/engine/text agent/engine/ckpt agent/engine/dcp agent/engine/hf agent/engine/train agent/engine/data libcomm plan plan/place plan/spec topo base/s3 base/http base
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(call archives,$(FUZZ_ROOMS))
	@mkdir -p $(@D)
	$(link) -fsanitize=fuzzer $(sort $(libs_base) $(libs_topo) $(libs_plan) $(libs_libcomm)) -lxxhash -lpcre2-8 -lutf8proc -lz -lzstd -luv

bench: setup
	@$(MAKE) --no-print-directory all
	$(BUILD)/muster bench gemm
	$(BUILD)/muster bench step
	$(BUILD)/muster bench comm --ops all --ranks 4 --factor 8

# Compares libcomm with Open MPI on this host, with BENCH_RANKS ranks.
BENCH_RANKS ?= 2 4 8
bench-comm: setup
	@for program in mpicc mpirun python3; do command -v $$program >/dev/null || { \
		echo "bench-comm: $$program is not installed; apt-get install openmpi-bin libopenmpi-dev python3" >&2; exit 3; }; done
	@$(MAKE) --no-print-directory all
	@mkdir -p $(BUILD)/tests/bench
	mpicc -O2 -Wall -Wextra -o $(BUILD)/tests/bench/mpi_loop tests/bench/mpi_loop.c
	tests/bench/beside_mpi $(BUILD)/muster $(BUILD)/tests/bench/mpi_loop $(BENCH_RANKS)

# Compares each pipeline schedule's measured bubble with the simulated one. BENCH_PIPELINE='RANKS MICRO-BATCHES'.
BENCH_PIPELINE ?= 2 8
.PHONY: bench-schedules
bench-schedules: setup
	@$(MAKE) --no-print-directory all
	tests/bench/schedules $(BUILD)/muster $(BENCH_PIPELINE)

# Compares libcomm between two network namespaces with a plain TCP stream; needs root.
bench-network: setup
	@$(MAKE) --no-print-directory $(BUILD)/tests/bench/network
	$(BUILD)/tests/bench/network $(BENCH_SOCKETS)

$(BUILD)/tests/bench/network: $(BUILD)/obj/tests/bench/network.o $(BUILD)/obj/tests/unit/libcomm/network.o \
		$(call archives,libcomm base)
	@mkdir -p $(@D)
	$(link) $(libs_base) $(libs_libcomm)

# Measures the cost of [network] integrity: none, checksum and seal in turn.
.PHONY: bench-integrity
bench-integrity: setup
	@$(MAKE) --no-print-directory all
	tests/bench/integrity

# Measures the time to place ranks, by number of ranks.
.PHONY: bench-place
bench-place: setup
	@$(MAKE) --no-print-directory $(BUILD)/tests/bench/place
	$(BUILD)/tests/bench/place

$(BUILD)/tests/bench/place: $(BUILD)/obj/tests/bench/place.o $(call archives,$(stands_on_plan))
	@mkdir -p $(@D)
	$(link) $(call syslibs,$(stands_on_plan))

# Measures the supervisor with the connections of up to 10,000 agents. BENCH_AGENTS='NUMBER …', multiples of 40.
.PHONY: bench-agents
bench-agents: setup
	@$(MAKE) --no-print-directory $(BUILD)/tests/bench/agents/agents
	$(BUILD)/tests/bench/agents/agents $(BENCH_AGENTS)

BENCH_AGENTS_ROOMS := launcher/supervise $(call stands_on,launcher/supervise)
$(BUILD)/tests/bench/agents/agents: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/bench/agents/*.c)) \
		$(call archives,$(BENCH_AGENTS_ROOMS))
	@mkdir -p $(@D)
	$(link) $(call syslibs,$(BENCH_AGENTS_ROOMS))

# Published steps, and what the planner predicts for them.
.PHONY: rows
rows: setup
	@$(MAKE) --no-print-directory $(BUILD)/tests/unit/plan/test_rows
	$(BUILD)/tests/unit/plan/test_rows

# Measures the search for a layout: exhaustively, and by branch and bound.
.PHONY: bench-search
bench-search: setup
	@$(MAKE) --no-print-directory $(BUILD)/tests/bench/search
	$(BUILD)/tests/bench/search

$(BUILD)/tests/bench/search: $(BUILD)/obj/tests/bench/search.o $(call archives,$(stands_on_plan))
	@mkdir -p $(@D)
	$(link) $(call syslibs,$(stands_on_plan))

# --- Documents --------------------------------------------------------------------

# keys.md, recipes.md, rooms.svg and the pictures are generated and kept in the tree. tests/documents fails if one of the first
# three is out of date.
.PHONY: documents pictures
documents: programs
	doc/reference/make_keys $(BUILD)/muster >doc/reference/keys.md
	doc/reference/make_run_files >doc/reference/run-files.md
	doc/developer/make_recipes >doc/developer/recipes.md
	tests/rooms_graph --svg doc/developer/rooms.svg
pictures: programs
	doc/pictures/make $(BUILD)/muster

# --- Man pages: made from the help pages ------------------------------------------

MAN := $(BUILD)/man/muster.1
$(MAN): doc/man/make $(PROGRAMS)
	doc/man/make $(BUILD)/muster $(@D)
.PHONY: man
man: $(MAN)

# --- Install ----------------------------------------------------------------------

.PHONY: install
install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/muster $(DESTDIR)$(PREFIX)/share/muster/templates/jobs \
		$(DESTDIR)$(PREFIX)/share/muster/templates/programs $(DESTDIR)$(PREFIX)/share/muster/templates/report $(DESTDIR)$(PREFIX)/share/muster/templates/site $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/muster/python $(DESTDIR)$(PREFIX)/include
	install $(BUILD)/muster $(DESTDIR)$(PREFIX)/bin
	install $(BUILD)/muster-agent $(CUDA_SO) $(DESTDIR)$(PREFIX)/libexec/muster
	install -m 644 templates/sbatch.in $(DESTDIR)$(PREFIX)/share/muster/templates
	install -m 644 templates/report/page.html templates/report/style.css templates/report/script.js \
		$(DESTDIR)$(PREFIX)/share/muster/templates/report
	install -m 644 templates/jobs/*.ini $(DESTDIR)$(PREFIX)/share/muster/templates/jobs
	install -m 644 templates/programs/* $(DESTDIR)$(PREFIX)/share/muster/templates/programs
	install -m 755 templates/site/epilog.sh $(DESTDIR)$(PREFIX)/share/muster/templates/site
	install -m 644 templates/site/muster.spec templates/site/package.py $(DESTDIR)$(PREFIX)/share/muster/templates/site
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(BUILD)/muster --version | cut -d ' ' -f 2)|" templates/site/modulefile \
		>$(DESTDIR)$(PREFIX)/share/muster/templates/site/modulefile
	chmod 644 $(DESTDIR)$(PREFIX)/share/muster/templates/site/modulefile
	install -m 644 agent/client/muster_client.py $(DESTDIR)$(PREFIX)/share/muster/python
	install -m 644 agent/client/muster_client.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1

.PHONY: help
help:
	@echo 'make                  build build/muster and build/muster-agent from the installed packages; where CUDA 12 or newer is'
	@echo '                      found, build/libmuster-cuda.so too'
	@echo 'make demo             install missing packages, build the programs, train a small model on 8 agents of this machine'
	@echo 'make check            install missing packages, build, run the tests, also on a real Slurm cluster over loopback'
	@echo 'make check-all        make check with its large cases, then check-san, check-proxy and fuzz: hours'
	@echo 'make check-unit       the unit tests alone'
	@echo 'make check-san        the unit tests under AddressSanitizer, UBSan and ThreadSanitizer'
	@echo 'make check-comm       every cell of the collectives conformance test: hours; SWEEP=20 runs 20 times as many as make check'
	@echo 'make check-faults     every fault test, the large ones too, then FAULT_RUNS=50 runs with random faults here and in Slurm'
	@echo 'make simulate         SEEDS=10000 simulated runs of the supervisor with FAULTS=100 faults each, from FIRST_SEED=1 on'
	@echo 'make check-proxy      runs behind a proxy that drops, repeats, delays and changes bytes: PROXY_RUNS=500 of each kind'
	@echo 'make check-programs   install Open MPI, and PyTorch and JAX in build/programs-venv; run programs of theirs under muster'
	@echo 'make spills           compile the kernels for five architectures and report their registers; fails if one spills'
	@echo 'make check-gpu        check and measure the GPU of this machine and write a report; needs only CUDA, gcc and python3'
	@echo 'make fuzz             every parser of untrusted input under libFuzzer, FUZZ_SECONDS=60 each'
	@echo 'make format           format the C and CUDA sources (clang-format 14)'
	@echo 'make bench            training speed, as a share of what this machine can do'
	@echo 'make bench-comm       the collectives compared with those of Open MPI, where it is installed'
	@echo 'make bench-network    TCP between network namespaces compared with a plain stream (root)'
	@echo 'make bench-integrity  the cost of checking and sealing TCP data, as ratios in one run'
	@echo 'make bench-schedules  the bubble of each pipeline schedule, simulated and measured'
	@echo 'make bench-programs   the start of 8 processes and the restart after a kill, beside torchrun'
	@echo 'make bench-place      the time to place ranks, up to 100,000 devices'
	@echo 'make bench-search     the time to search a layout, up to 100,000 devices'
	@echo 'make bench-agents     the supervisor with up to 10,000 connections: time, CPU and memory'
	@echo 'make rows             what the planner predicts for published training steps, beside what was measured'
	@echo 'make documents        write the generated pages of doc/ again; make pictures: the pictures'
	@echo 'make man              the man pages, in build/man'
	@echo 'make install          install into PREFIX=/usr/local, below DESTDIR'
	@echo 'make clean            remove build/'

.PHONY: clean
clean:
	rm -rf $(BUILD)
