# make check-gpu checks and measures the GPU of this machine, and writes a report. tests/gpu/report does all of it, also the
# build for this GPU (tests/gpu/build.py), and needs no make. The rules here build the same programs over the emulator, from
# the usual objects. Both read the lists of tests/gpu/sources.mk.

GPU_CHECK_SRC := $(call files,$(GPU_CHECK_FILES))

# An archive, so that each program links only what it uses.
$(BUILD)/lib/gpu-check.a: $(GPU_CHECK_SRC:%.c=$(BUILD)/obj/%.o) tests/gpu/sources.mk
	@mkdir -p $(@D)
	@rm -f $@
	ar rcsD $@ $(filter %.o,$^)

GPU_LIBS    := $(BUILD)/lib/gpu-check.a $(BUILD)/lib/kernels.a
GPU_SYSLIBS := -lsodium $(libs_kernels)

# The program that checks collectives on device memory, built by one command.
GPU_SRC := $(call files,$(GPU_COMM_FILES))
GPU_SODIUM := $(if $(wildcard /usr/include/sodium.h),-lsodium)
GPU_CONFORM = $(CC) $(CPPFLAGS) $(CFLAGS) -O3 -isystem $(CUDA_HOME)/include $(if $(GPU_SODIUM),,-Itests/gpu/standin) $(LDFLAGS) \
	-o $@ $(GPU_SRC)
GPU_DEPS := $(GPU_SRC) $(wildcard libcomm/*.h libcomm/*/*.h tests/conform/*.h tests/gpu/standin/*.h)

.PHONY: check-gpu spills
check-gpu:
	@if command -v python3 >/dev/null; then tests/gpu/report $(BUILD)/gpu; else \
		echo 'skip   the GPU checks: python3 is not here'; echo '0 passed, 0 failed, 1 skipped'; fi

# The kernels' registers, for each architecture; needs nvcc and no GPU.
spills:
	@if command -v python3 >/dev/null; then tests/gpu/spills; else \
		echo "skip   the kernels' registers: python3 is not here"; echo '0 passed, 0 failed, 1 skipped'; fi
