# muster: `make` builds with what is there; `make demo` and `make check` also
# install what Debian 12 lacks. `make help` lists the targets.

BUILD    ?= build
CC       ?= gcc
WARN     := -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes
OPT      ?= -O2 -g
SAN      ?=
CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS   += -std=c11 $(OPT) $(WARN) $(SAN) -pthread
LDFLAGS  += $(SAN) -pthread -Wl,--as-needed
PREFIX   ?= /usr/local

# --- The floors: a room is a folder, built into one archive. -----------------
# A room may include from the rooms it lists and from nothing else (tests/floors.sh checks it).

AGENT_ROOMS    := agent/data agent/ckpt agent/parallel agent/model agent/pipeline agent/optim agent/metrics agent/tools agent
LAUNCHER_ROOMS := launcher/pmix launcher/slurm launcher/supervise launcher
ROOMS          := base topo plan libcomm kernels $(AGENT_ROOMS) $(LAUNCHER_ROOMS)

below_base     :=
below_topo     := base
below_plan     := topo base
below_libcomm  := base
below_kernels  := base
below_agent    := $(AGENT_ROOMS) libcomm kernels plan topo base
below_launcher := $(LAUNCHER_ROOMS) plan topo base

libs_base     := -lsodium -ljansson -lm
libs_topo     := -lhwloc
libs_plan     := -linih -ljansson -lm
libs_libcomm  :=
libs_kernels  := -fopenmp $(BLAS) -lm
libs_agent    := -lpmix -lxxhash -ljansson -lm -ldl
libs_launcher := -lpmix -luv -lcurl -ljansson

BLAS ?= -lopenblas

floor = $(firstword $(subst /, ,$(1)))
flat  = $(subst /,-,$(1))
below = $(below_$(call floor,$(1)))
archives = $(foreach r,$(1),$(BUILD)/lib/$(call flat,$(r)).a)
# Libraries of the floors that the rooms $(1) stand on.
syslibs = $(foreach f,$(sort $(foreach r,$(1),$(call floor,$(r)))),$(libs_$(f)))

.DEFAULT_GOAL := all
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_$(call flat,$(patsubst %/,%,$(dir $<)))) -MMD -MP -c $< -o $@

CFLAGS_kernels        := -fopenmp
CFLAGS_kernels-plain  := -fopenmp
CFLAGS_kernels-cpu    := -fopenmp -O3

-include kernels/kernels.mk

define room_rule
$(BUILD)/lib/$(call flat,$(1)).a: $$(patsubst %.c,$(BUILD)/obj/%.o,$$(filter-out %/main.c,$$(wildcard $(1)/*.c))) $$(objs_$(call flat,$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcsD $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

link = $(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

# --- Programs -----------------------------------------------------------------

PROGRAMS := $(BUILD)/muster $(BUILD)/muster-agent

.PHONY: all
all: $(PROGRAMS)

$(BUILD)/muster: $(BUILD)/obj/launcher/main.o $(call archives,$(below_launcher))
	$(link) $(call syslibs,$(below_launcher))

$(BUILD)/muster-agent: $(BUILD)/obj/agent/main.o $(call archives,$(below_agent))
	$(link) $(call syslibs,$(below_agent))

# --- Unit tests: tests/unit/<floor>/test_*.c links the archives of its floor and of those below ---

UNIT_SRC  := $(wildcard tests/unit/*/test_*.c tests/conform/test_*.c)
UNIT_BIN  := $(patsubst %.c,$(BUILD)/%,$(UNIT_SRC))

define unit_rule
$(BUILD)/tests/unit/$(1)/%: $(BUILD)/obj/tests/unit/$(1)/%.o $(call archives,$(sort $(filter $(1) $(1)/%,$(ROOMS)) $(below_$(1))))
	@mkdir -p $$(@D)
	$$(link) -lcmocka $(call syslibs,$(1) $(below_$(1)))
endef
$(foreach f,base topo plan libcomm kernels agent launcher,$(eval $(call unit_rule,$(f))))

$(BUILD)/tests/conform/%: $(BUILD)/obj/tests/conform/%.o $(call archives,kernels libcomm base)
	@mkdir -p $(@D)
	$(link) -lcmocka $(call syslibs,kernels libcomm base)

.PHONY: unit-bins
unit-bins: $(UNIT_BIN)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

.PHONY: clean
clean:
	rm -rf $(BUILD)
