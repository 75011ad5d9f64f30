# make check-gpu: checks and measurements on the GPU of this machine, and a report of them. A C compiler, make, CUDA 12 or
# newer with nvcc, and python3 are enough: what the programs need of base/, plan/, libcomm/, kernels/ and agent/ uses no package
# of Debian's, and tests/gpu/standin stands for the headers of those that are mentioned on the way.
#
# tests/gpu/report runs make again, with a BUILD of its own, GPU_CHECK=1 and CUDA_ARCH for the GPU at hand alone, asks for gpu-programs, and then
# runs them. The same programs are built over the emulator by emulator/emulator.mk, out of the usual objects.

# Sources of a training step on one host, and of what is asked about it.
GPU_CHECK_SRC := $(addprefix base/,buf.c err.c file.c human.c log.c meminfo.c net.c philox.c pin.c spill.c) \
	$(filter-out plan/job/ini.c,$(wildcard plan/job/*.c)) $(wildcard plan/model/*.c) \
	$(addprefix plan/schedule/,check.c order.c run.c schedule.c timeline.c) $(addprefix plan/,batch.c layout.c memory.c speeds.c) \
	$(filter-out libcomm/flight/trace.c libcomm/flight/diagnose.c,$(wildcard $(COMM_ROOMS:%=%/*.c))) \
	$(wildcard agent/model/*.c agent/parallel/*.c agent/pipeline/*.c agent/optim/*.c agent/server/*.c) agent/state_init.c agent/view.c \
	tests/unit/agent/tiny.c tests/unit/agent/trainee.c tests/unit/agent/world.c tests/gpu/models.c \
	$(addprefix tests/conform/,op_attention.c op_call.c op_check.c op_elements.c op_experts.c op_fp8.c op_layers.c op_tokens.c op_vary.c storage.c) \
	$(addprefix tests/conform/,comm_forms.c comm_reference.c)

# An archive: each program takes what it uses.
$(BUILD)/lib/gpu-check.a: $(GPU_CHECK_SRC:%.c=$(BUILD)/obj/%.o)
	@mkdir -p $(@D)
	@rm -f $@
	ar rcsD $@ $^

GPU_PARTS := ops edges train bench kernels
GPU_LIBS  := $(BUILD)/lib/gpu-check.a $(BUILD)/lib/kernels.a
# What standin/ stands for is there in other builds.
GPU_SYSLIBS := $(if $(GPU_CHECK),,-lsodium) $(libs_kernels)

# The collectives on a device's memory, in one command: emulator.mk builds it over the doubles too.
GPU_SRC := tests/gpu/conform.c tests/conform/comm_forms.c tests/conform/comm_reference.c base/buf.c base/err.c base/file.c \
	base/human.c base/meminfo.c base/net.c \
	$(filter-out libcomm/flight/trace.c libcomm/flight/diagnose.c,$(wildcard $(COMM_ROOMS:%=%/*.c)))
GPU_SODIUM := $(if $(wildcard /usr/include/sodium.h),-lsodium)
GPU_CONFORM = $(CC) $(CPPFLAGS) $(CFLAGS) -O3 -isystem $(CUDA_HOME)/include $(if $(GPU_SODIUM),,-Itests/gpu/standin) $(LDFLAGS) \
	-o $@ $(GPU_SRC)
GPU_DEPS := $(GPU_SRC) $(wildcard libcomm/*.h libcomm/*/*.h tests/conform/*.h tests/gpu/standin/*.h)

ifdef GPU_CHECK
CPPFLAGS := -Itests/gpu/standin $(CPPFLAGS) $(if $(NCCL_HEADER),-isystem $(dir $(NCCL_HEADER)))
# Behind the toolkit's: pip's folder has other headers of CUDA too.
CUDA_CFLAGS += $(if $(LT_HEADER),-isystem $(dir $(LT_HEADER)))
# What the compilers there warn of is not what this is for.
WARN      := $(filter-out -Werror,$(WARN))
NVCCFLAGS := $(subst -Werror all-warnings,,$(subst $(comma)-Werror,,$(NVCCFLAGS)))

$(GPU_PARTS:%=$(BUILD)/%): $(BUILD)/%: $(BUILD)/obj/tests/gpu/%.o $(GPU_LIBS)
	$(link) $(GPU_SYSLIBS)

$(BUILD)/comm: $(GPU_DEPS)
	@mkdir -p $(@D)
	$(GPU_CONFORM) $(CUDA_LIB) $(GPU_SODIUM) -ldl -lrt -lm

.PHONY: gpu-programs
gpu-programs: $(CUDA_SO) $(GPU_PARTS:%=$(BUILD)/%) $(if $(CUDA_SO),$(BUILD)/comm)
endif

.PHONY: check-gpu
check-gpu:
	@if command -v python3 >/dev/null; then tests/gpu/report $(BUILD)/gpu; else \
		echo 'skip   the GPU checks: python3 is not here'; echo '0 passed, 0 failed, 1 skipped'; fi
