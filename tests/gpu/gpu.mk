# The checks of what needs CUDA: on a GPU, and over doubles of its libraries. After kernels/cuda/cuda.mk.

# make check-gpu, on a machine with CUDA and a compiler alone: no package of Debian is needed; libsodium is used when it is
# there, else tests/gpu/standin is.
GPU_SRC := tests/gpu/conform.c tests/conform/comm_forms.c tests/conform/comm_reference.c base/buf.c base/err.c base/file.c \
	base/human.c base/net.c $(filter-out libcomm/flight/trace.c libcomm/flight/diagnose.c,$(wildcard $(COMM_ROOMS:%=%/*.c)))
GPU_SODIUM := $(if $(wildcard /usr/include/sodium.h),-lsodium)

GPU_CONFORM = $(CC) $(CPPFLAGS) $(CFLAGS) -O3 -isystem $(CUDA_HOME)/include $(if $(GPU_SODIUM),,-Itests/gpu/standin) $(LDFLAGS) \
	-o $@ $(GPU_SRC)
GPU_DEPS := $(GPU_SRC) $(wildcard libcomm/*.h libcomm/*/*.h tests/conform/*.h tests/gpu/standin/*.h)

$(BUILD)/gpu-conform: $(GPU_DEPS)
	@mkdir -p $(@D)
	$(GPU_CONFORM) $(CUDA_LIB) $(GPU_SODIUM) -ldl -lrt -lm

.PHONY: check-gpu
ifdef CUDA_SO
check-gpu: $(CUDA_SO) $(BUILD)/gpu-conform
	$(BUILD)/gpu-conform $(CUDA_SO)
else
check-gpu:
	@echo 'skip   the GPU checks: there is no CUDA 12 or newer with nvcc here (CUDA_HOME=)'
	@echo '0 passed, 0 failed, 1 skipped'
endif
