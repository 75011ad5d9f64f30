# libmuster-cuda.so: the code that needs CUDA, which is the backend cuda and libcomm's device. Programs load it on machines that
# have CUDA. It is built where nvcc of CUDA 12 or newer is found, and silently left out elsewhere. Without nccl.h it has only the
# staged collectives.
#
# It contains what it needs of base/, libcomm/ and CUDA's runtime, and nothing of C++'s. It exports only what base, kernels and
# libcomm look up by name (muster_…). Its kernels are built for each architecture of CUDA_ARCH, and as PTX for later ones.
#
#     make CUDA_HOME=/opt/cuda CUDA_ARCH='80 90' CUDA_HOST_CXX=g++-12

CUDA_HOME    ?= $(firstword $(patsubst %/include/cuda_runtime_api.h,%,$(wildcard /usr/local/cuda/include/cuda_runtime_api.h \
                $(patsubst %/bin/nvcc,%/include/cuda_runtime_api.h,$(shell command -v nvcc 2>/dev/null)))))
CUDA_ARCH    ?= 80 90
NVCC         := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_LIB     := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a))
CUDA_VERSION := $(if $(CUDA_LIB),$(shell sed -n 's/^\#define CUDART_VERSION *\([0-9]*\)$$/\1/p' $(CUDA_HOME)/include/cuda_runtime_api.h))
NCCL_HEADER  := $(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h))
CUDNN_HEADER := $(firstword $(wildcard $(CUDA_HOME)/include/cudnn_graph.h /usr/include/cudnn_graph.h /usr/local/include/cudnn_graph.h))

# 12000 and more has five digits, the first of which is 1 or 2; 11000 is too old.
CUDA_HEADERS := $(filter-out 10% 11%,$(filter 1% 2%,$(CUDA_VERSION)))
ifneq ($(and $(CUDA_HEADERS),$(NVCC)),)
CUDA_SO := $(BUILD)/libmuster-cuda.so
endif

CUDA_SRC := $(call files,$(CUDA_FILES) $(if $(NCCL_HEADER),$(CUDA_NCCL_FILES)))
CUDA_OBJ  = $(patsubst %.c,$(BUILD)/obj/cuda/%.o,$(filter %.c,$(CUDA_SRC))) \
	$(patsubst %,$(BUILD)/obj/cuda/%.o,$(filter %.cu,$(CUDA_SRC)))

CUDA_CFLAGS := -isystem $(CUDA_HOME)/include -fPIC -fvisibility=hidden $(if $(NCCL_HEADER),-DHAVE_NCCL)

comma := ,
CUDA_CODE  := $(foreach a,$(CUDA_ARCH),-gencode=arch=compute_$(a)$(comma)code=sm_$(a)) \
	-gencode=arch=compute_$(lastword $(CUDA_ARCH))$(comma)code=compute_$(lastword $(CUDA_ARCH))
# tests/gpu/build.py reads the words of these two variables too.
NVCC_FLAGS := -std=c++17 -O3 -lineinfo
NVCC_HOST  := -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra
NVCCFLAGS  := $(NVCC_FLAGS) $(CUDA_CODE) $(if $(CUDA_HOST_CXX),-ccbin $(CUDA_HOST_CXX)) -Werror all-warnings $(NVCC_HOST),-Werror

$(BUILD)/obj/cuda/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(FRAME) $(CUDA_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/cuda/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(BUILD)/libmuster-cuda.so: $(CUDA_OBJ)
	$(CC) $(LDFLAGS) -shared -Wl,-z,defs -Wl,--exclude-libs,ALL -o $@ $^ $(CUDA_LIB) -ldl -lrt -lm
