# The backends in kernels.a.
#
# reference is built twice, with float and with double (reference64). The ops of cpu are built once for each instruction set of
# cpu_isas; cpu.c chooses one when the backend is opened, so that one binary serves any node. The conversions of low_precision
# are built for the same sets, and for any processor ("base").

KERNELS_MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))

# tests/gpu/build.py reads the lines `cpu_… := words` and CPU_OP_FLAGS below.
cpu_isas_x86_64 := v2 v3 v4
cpu_isas := $(or $(cpu_isas_$(KERNELS_MACHINE)),base)
cpu_isa_base :=
cpu_isa_v2   := -march=x86-64-v2
cpu_isa_v3   := -march=x86-64-v3
cpu_isa_v4   := -march=x86-64-v4 -mprefer-vector-width=512

# Not -ffast-math: NaN and infinity must be kept, and sums keep the order of the source (omp simd marks the reductions that may
# be split into lanes).
CPU_OP_FLAGS := -fopenmp -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math

cpu_once := cpu blas
cpu_ops  := $(filter-out $(cpu_once),$(basename $(notdir $(wildcard kernels/cpu/*.c))))
low_precision_c := $(filter-out convert,$(basename $(notdir $(wildcard kernels/low_precision/*.c))))
reference_c  := $(basename $(notdir $(wildcard kernels/reference/*.c)))

# The members of an archive need different names, hence the prefixes.
objs_kernels := $(reference_c:%=$(BUILD)/obj/kernels/reference/%.o) \
	$(reference_c:%=$(BUILD)/obj/kernels/reference64-%.o) \
	$(cpu_once:%=$(BUILD)/obj/kernels/cpu/%.o) \
	$(foreach i,$(cpu_isas),$(cpu_ops:%=$(BUILD)/obj/kernels/cpu-$(i)-%.o)) \
	$(low_precision_c:%=$(BUILD)/obj/kernels/low_precision/%.o) \
	$(foreach i,$(sort base $(cpu_isas)),$(BUILD)/obj/kernels/low_precision-$(i)-convert.o)

CFLAGS_kernels-cpu := $(patsubst %,-DCPU_HAVE_%,$(cpu_isas))
CFLAGS_kernels-low_precision := -fopenmp

$(BUILD)/obj/kernels/reference64-%.o: kernels/reference/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(FRAME) -DREFERENCE64 -MMD -MP -c $< -o $@

define cpu_isa_rule
$(BUILD)/obj/kernels/cpu-$(1)-%.o: kernels/cpu/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(FRAME) $$(CPU_OP_FLAGS) $$(cpu_isa_$(1)) -DCPU_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(cpu_isas),$(eval $(call cpu_isa_rule,$(i))))

define low_precision_isa_rule
$(BUILD)/obj/kernels/low_precision-$(1)-%.o: kernels/low_precision/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(FRAME) $$(CPU_OP_FLAGS) $$(cpu_isa_$(1)) -DLOW_PRECISION_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(sort base $(cpu_isas)),$(eval $(call low_precision_isa_rule,$(i))))
