# libmuster-cuda.so: what needs CUDA, for the agent to load on machines that have it. Built where CUDA 12 or newer is
# found, silently left out elsewhere; without nccl.h it has the staged backend alone.
#
# It carries what it needs of base/ and libcomm/ and exports nothing but its tables.

CUDA_HOME    ?= $(firstword $(patsubst %/include/cuda_runtime_api.h,%,$(wildcard /usr/local/cuda/include/cuda_runtime_api.h \
                $(patsubst %/bin/nvcc,%/include/cuda_runtime_api.h,$(shell command -v nvcc 2>/dev/null)))))
CUDA_LIB     := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a))
CUDA_VERSION := $(if $(CUDA_LIB),$(shell sed -n 's/^\#define CUDART_VERSION *\([0-9]*\)$$/\1/p' $(CUDA_HOME)/include/cuda_runtime_api.h))
NCCL_HEADER  := $(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h))

# 12000 and more has five digits and a first of 1 or 2; 11000 is too old.
ifneq ($(filter-out 10% 11%,$(filter 1% 2%,$(CUDA_VERSION))),)
CUDA_SO := $(BUILD)/libmuster-cuda.so
endif

CUDA_SRC    := base/err.c base/human.c libcomm/op.c libcomm/reduce.c libcomm/device/cuda/cuda.c $(if $(NCCL_HEADER),libcomm/device/cuda/nccl.c)
CUDA_CFLAGS := -isystem $(CUDA_HOME)/include -fPIC -fvisibility=hidden $(if $(NCCL_HEADER),-DHAVE_NCCL)

$(BUILD)/obj/cuda/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(CUDA_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libmuster-cuda.so: $(CUDA_SRC:%.c=$(BUILD)/obj/cuda/%.o)
	$(CC) $(LDFLAGS) -shared -Wl,-z,defs -o $@ $^ $(CUDA_LIB) -ldl -lrt -lm

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
	@echo 'skip   the GPU checks: there is no CUDA 12 or newer here (CUDA_HOME=)'
	@echo '0 passed, 0 failed, 1 skipped'
endif
