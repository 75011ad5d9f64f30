# libmuster-cuda.so for machines without a GPU: its C sources, its kernels compiled for the processor (tests/gpu/emulator), and
# doubles of CUDA's runtime, cuBLASLt, cuDNN and NCCL (tests/gpu/doubles). It needs only CUDA's headers and g++.
#
# Programs in $(DOUBLES) find the library beside themselves, and the doubles by DT_RPATH, which comes before LD_LIBRARY_PATH.
# libnccl.so.2, libcudnn.so.9 and libcublasLt.so are loaded then, so that dlopen by their names returns them.

DOUBLES     := $(BUILD)/tests/gpu
CUBLASLT_SO := libcublasLt.so.$(if $(filter 13%,$(CUDA_VERSION)),13,12)
DOUBLE_SO   := $(DOUBLES)/libcudart-double.so $(DOUBLES)/$(CUBLASLT_SO) $(if $(CUDNN_HEADER),$(DOUBLES)/libcudnn.so.9)
DOUBLE_NCCL := $(if $(NCCL_HEADER),$(DOUBLES)/libnccl.so.2)
DOUBLE_LD   := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed

EMULATOR_C  := $(call files,$(DOUBLE_CUDART_FILES))
EMULATED_CU := $(filter %.cu,$(CUDA_SRC))
EMULATED_O  := $(patsubst %.cu,$(BUILD)/obj/emulated/%.o,$(EMULATED_CU)) \
	$(patsubst %.c,$(BUILD)/obj/cuda/%.o,$(filter %.c,$(CUDA_SRC)))

# Without SAN, since sanitizers do not follow switches of stacks. Instead every access is reported to check.c, as it would be to
# ThreadSanitizer's library. -ffp-contract=off keeps sums as the source has them. tests/gpu/build.py reads EMULATED_FLAGS too.
EMULATED_FLAGS := -x c++ -std=c++17 -O2 -g -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off \
	-Wall -Wno-parentheses -Wno-unknown-pragmas -Wno-unused-function -Wno-array-bounds -pthread \
	-fsanitize=thread,alignment,bounds -fsanitize-undefined-trap-on-error --param tsan-instrument-func-entry-exit=0 \
	-Itests/gpu/emulator -I. -D_GNU_SOURCE -include tests/gpu/emulator/device.h
CXX_EMULATED := g++ $(EMULATED_FLAGS) -mtls-dialect=$(if $(filter x86_64,$(KERNELS_MACHINE)),gnu2,desc) -isystem $(CUDA_HOME)/include

$(BUILD)/obj/emulated/%.o: %.cu
	@mkdir -p $(@D)
	$(CXX_EMULATED) -MMD -MP -c $< -o $@

$(BUILD)/obj/cuda/tests/gpu/%.o: CUDA_CFLAGS += -fvisibility=default
$(BUILD)/obj/cuda/tests/gpu/doubles/blaslt%.o: CUDA_CFLAGS += -O3
$(BUILD)/obj/cuda/tests/gpu/doubles/cudnn%.o: CUDA_CFLAGS += -O3
$(BUILD)/obj/cuda/tests/gpu/emulator/%.o: CUDA_CFLAGS += -O3 -fno-sanitize=all

$(DOUBLES)/libcudart-double.so: $(EMULATOR_C:%.c=$(BUILD)/obj/cuda/%.o)
$(DOUBLES)/$(CUBLASLT_SO): $(patsubst %.c,$(BUILD)/obj/cuda/%.o,$(call files,$(DOUBLE_BLASLT_FILES))) $(DOUBLES)/libcudart-double.so
$(DOUBLES)/libcudnn.so.9: $(patsubst %.c,$(BUILD)/obj/cuda/%.o,$(call files,$(DOUBLE_CUDNN_FILES))) $(DOUBLES)/libcudart-double.so
$(DOUBLES)/libnccl.so.2: $(patsubst %.c,$(BUILD)/obj/cuda/%.o,$(call files,$(DOUBLE_NCCL_FILES))) $(DOUBLES)/libcudart-double.so
$(DOUBLES)/libmuster-cuda.so: $(EMULATED_O) $(DOUBLES)/libcudart-double.so
$(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so:
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-z,defs -Wl,-soname,$(@F) $(DOUBLE_LD) -o $@ $^ -ldl -lm

# The programs of make check-gpu.
$(GPU_PARTS:%=$(DOUBLES)/%): $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o $(GPU_LIBS) $(DOUBLE_SO) $(DOUBLES)/libmuster-cuda.so
	@mkdir -p $(@D)
	$(link) $(DOUBLE_LD) $(DOUBLE_SO) $(GPU_SYSLIBS)

$(DOUBLES)/conform: $(GPU_DEPS) $(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so
	@mkdir -p $(@D)
	$(GPU_CONFORM) $(DOUBLE_LD) $(DOUBLE_SO) $(DOUBLE_NCCL) $(GPU_SODIUM) -ldl -lrt -lm

# Without the headers, tests are built so that they skip. Each rule names the rooms that its test links.
EMULATED_NEED := $(and $(CUDA_HEADERS),$(shell command -v g++))
DOUBLES_NEED  := $(if $(EMULATED_NEED),$(NCCL_HEADER))
$(BUILD)/obj/tests/gpu/%.o: CPPFLAGS += $(if $(EMULATED_NEED),-DHAVE_CUDA -DDOUBLES='"$(abspath $(DOUBLES))"' -DSOURCES='"$(CURDIR)"' -isystem $(CUDA_HOME)/include)
$(BUILD)/obj/tests/gpu/test_nccl.o $(BUILD)/obj/tests/gpu/test_nccl_graphs.o $(BUILD)/obj/tests/gpu/test_cuda_graphs.o: CPPFLAGS += $(if $(DOUBLES_NEED),-DHAVE_NCCL)
$(DOUBLES)/test_nccl $(DOUBLES)/test_nccl_graphs: $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o $(call archives,libcomm base) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so $(DOUBLES)/conform)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(DOUBLE_LD) $(filter %.so %.so.2 %.so.9 %.so.12 %.so.13,$^)) -lcmocka $(libs_base) $(libs_libcomm)

$(BUILD)/obj/tests/gpu/test_nccl_order.o: CPPFLAGS += $(if $(DOUBLES_NEED),-DHAVE_NCCL)
$(DOUBLES)/test_nccl_order: $(BUILD)/obj/tests/gpu/test_nccl_order.o $(call archives,libcomm plan/spec base) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(DOUBLE_LD) $(filter %.so %.so.2 %.so.12 %.so.13,$^)) -lcmocka $(libs_base) $(libs_libcomm) $(libs_plan)

$(BUILD)/obj/tests/gpu/test_nccl_train.o $(BUILD)/obj/tests/gpu/test_nccl_masters.o: CPPFLAGS += $(if $(DOUBLES_NEED),-DHAVE_NCCL)
$(DOUBLES)/test_nccl_train $(DOUBLES)/test_nccl_masters: $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o $(BUILD)/lib/tests-unit-agent.a $(call archives,$(call stands_on,agent)) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(DOUBLE_LD) $(DOUBLE_SO) $(DOUBLE_NCCL)) -lcmocka $(call syslibs,$(call stands_on,agent))

# A double that counts the calls of ranks that do not exist takes the place of the one that carries them out.
RECORDER_LD := -Wl,-rpath,'$$ORIGIN/recorder'
RECORDER    := $(if $(DOUBLES_NEED),$(DOUBLES)/recorder/libnccl.so.2)
$(RECORDER): $(DOUBLE_RECORDER_FILES:%.c=$(BUILD)/obj/cuda/%.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^
$(BUILD)/obj/tests/gpu/test_nccl_calls.o: CPPFLAGS += $(if $(DOUBLES_NEED),-DHAVE_NCCL)
$(BUILD)/obj/tests/gpu/test_cuda_waits.o: CPPFLAGS += $(if $(DOUBLES_NEED),-DHAVE_NCCL)
$(DOUBLES)/test_nccl_calls: LDFLAGS += -Wl,--wrap=backend_on_host
$(DOUBLES)/test_nccl_calls: $(BUILD)/obj/tests/gpu/test_nccl_calls.o $(call archives,agent/engine/parallel kernels plan/spec base) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(RECORDER) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(RECORDER_LD) $(DOUBLE_LD) $(filter %.so %.so.2 %.so.9 %.so.12 %.so.13,$^)) -lcmocka \
		$(libs_base) $(libs_kernels) $(libs_plan)

SCENES := $(patsubst %.cu,$(BUILD)/obj/emulated/%.o,$(wildcard tests/gpu/emulator/*.cu))
$(DOUBLES)/test_emulator: $(BUILD)/obj/tests/gpu/test_emulator.o $(if $(EMULATED_NEED),$(SCENES) $(DOUBLE_SO))
	@mkdir -p $(@D)
	$(link) $(if $(EMULATED_NEED),$(DOUBLE_LD) $(DOUBLE_SO)) -lcmocka

COURSES := $(DOUBLES)/test_cuda_train $(DOUBLES)/test_cuda_train_choices
$(COURSES): $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o $(BUILD)/obj/tests/gpu/cuda_course.o $(BUILD)/lib/tests-unit-agent.a $(call archives,$(call stands_on,agent)) \
		$(if $(EMULATED_NEED),$(DOUBLE_SO) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(EMULATED_NEED),$(DOUBLE_LD) $(DOUBLE_SO)) -lcmocka $(call syslibs,$(call stands_on,agent))

# Ranks with a device each, whose groups NCCL's double runs, in buckets that small models fill.
$(DOUBLES)/test_cuda_graphs: LDFLAGS += -Wl,--wrap=zero_bucket
$(DOUBLES)/test_cuda_graphs: $(BUILD)/obj/tests/gpu/test_cuda_graphs.o $(BUILD)/lib/tests-unit-agent.a $(call archives,$(call stands_on,agent)) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(DOUBLE_NCCL) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(DOUBLE_LD) $(DOUBLE_SO) $(DOUBLE_NCCL)) -lcmocka $(call syslibs,$(call stands_on,agent))

# NCCL's recorder, so that a rank's transfers are counted and take no time.
$(DOUBLES)/test_cuda_waits: $(BUILD)/obj/tests/gpu/test_cuda_waits.o $(BUILD)/lib/tests-unit-agent.a $(call archives,$(call stands_on,agent)) \
		$(if $(DOUBLES_NEED),$(DOUBLE_SO) $(RECORDER) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(DOUBLES_NEED),$(RECORDER_LD) $(DOUBLE_LD) $(DOUBLE_SO) $(RECORDER)) -lcmocka $(call syslibs,$(call stands_on,agent))

$(DOUBLES)/test_cuda_ops: $(BUILD)/obj/tests/gpu/test_cuda_ops.o | $(if $(EMULATED_NEED),$(DOUBLES)/ops $(DOUBLES)/edges)
	@mkdir -p $(@D)
	$(link) -lcmocka

$(DOUBLES)/test_cuda_backend $(DOUBLES)/test_cuda_choices $(DOUBLES)/test_cuda_products: $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o $(call archives,kernels base) \
		$(if $(EMULATED_NEED),$(DOUBLE_SO) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(EMULATED_NEED),$(DOUBLE_LD) $(DOUBLE_SO)) -lcmocka $(libs_base) $(libs_kernels)

# With cuDNN's graphs themselves.
DNN_O := $(filter $(BUILD)/obj/cuda/kernels/cuda/dnn%,$(CUDA_OBJ))
$(DOUBLES)/test_cuda_attention $(DOUBLES)/test_cuda_attention_choices: $(DOUBLES)/%: $(BUILD)/obj/tests/gpu/%.o \
		$(BUILD)/obj/tests/gpu/attention_rig.o $(if $(EMULATED_NEED),$(DNN_O)) $(call archives,kernels base) \
		$(if $(EMULATED_NEED),$(DOUBLE_SO) $(DOUBLES)/libmuster-cuda.so)
	@mkdir -p $(@D)
	$(link) $(if $(EMULATED_NEED),$(DOUBLE_LD) $(DOUBLE_SO)) -lcmocka $(libs_base) $(libs_kernels)

# With the real library, if it is installed: no double is beside it in its search path.
CUDA_STUB := $(firstword $(wildcard $(CUDA_HOME)/lib64/stubs/libcuda.so $(CUDA_HOME)/lib/stubs/libcuda.so))
$(BUILD)/obj/tests/gpu/test_cudnn.o: CPPFLAGS += -DCUDA_STUB='"$(CUDA_STUB)"'
$(DOUBLES)/test_cudnn: $(BUILD)/obj/tests/gpu/test_cudnn.o $(if $(EMULATED_NEED),$(DNN_O)) $(call archives,base)
	@mkdir -p $(@D)
	$(link) -lcmocka $(libs_base)

# With the programs that tests/cli/gpu_report.bats runs.
$(DOUBLES)/test_cuda_report: $(BUILD)/obj/tests/gpu/test_cuda_report.o | $(if $(EMULATED_NEED),$(GPU_PARTS:%=$(DOUBLES)/%) $(DOUBLES)/conform)
	@mkdir -p $(@D)
	$(link) -lcmocka
