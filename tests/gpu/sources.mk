# The source files of the programs of make check-gpu. make reads them (tests/gpu/check.mk, emulator.mk), and so does
# tests/gpu/build.py, which builds the programs where there is no make. A word is a path, a pattern of paths, or one with ! in
# front, whose files are left out.

# A training step on one host, with its checks. It uses no Debian package.
GPU_CHECK_FILES := base/buf.c base/choices.c base/choices_file.c base/err.c base/file.c base/hash.c base/human.c base/log.c \
	base/meminfo.c base/net.c base/net_addr.c base/net_host.c base/net_peer.c base/owner.c base/philox.c base/pin.c base/process.c base/ranges.c \
	base/run_paths.c base/spill.c base/thread.c base/words.c \
	plan/spec/job/*.c !plan/spec/job/ini.c plan/spec/model/*.c plan/spec/schedule/*.c \
	!plan/spec/schedule/timeline_json.c plan/spec/batch.c plan/spec/layout.c plan/spec/rank_view.c \
	plan/spec/optimizers.c plan/memory.c plan/memory_programs.c \
	plan/spec/speeds.c libcomm/*.c libcomm/*/*.c !libcomm/flight/trace.c \
	!libcomm/flight/diagnose.c !libcomm/flight/diagnosis_text.c \
	!libcomm/flight/mismatch.c !libcomm/flight/waits.c !libcomm/tcp/records.c tests/gpu/standin/records.c tests/gpu/standin/seal.c \
	agent/engine/model/*.c agent/engine/parallel/*.c agent/engine/pipeline/*.c \
	agent/engine/optim/*.c agent/engine/server/*.c agent/engine/train/state_init.c \
	agent/engine/train/agree_choices.c agent/engine/train/stepper.c agent/engine/train/bad_numbers.c base/recent.c \
	agent/engine/train/state_tensors.c tests/unit/agent/tiny.c tests/unit/agent/trainee.c \
	tests/unit/agent/world.c tests/gpu/models.c tests/gpu/kernel_rows.c \
	tests/gpu/predict.c agent/tools/bench_chip_ops.c agent/tools/bench_rig.c \
	plan/cost/chip.c plan/cost/devices.c plan/cost/machine.c plan/cost/attention.c plan/cost/measured.c \
	plan/cost/step.c plan/cost/pass.c plan/cost/layer.c plan/cost/layer_transfers.c plan/cost/engine.c \
	plan/place/group_links.c plan/place/exchange.c plan/place/traffic.c topo/gpus.c topo/measured.c topo/measured_chip.c \
	tests/conform/op_attention.c tests/conform/op_call.c tests/conform/op_check.c \
	tests/conform/op_elements.c tests/conform/op_experts.c tests/conform/op_fp8.c \
	tests/conform/op_layers.c tests/conform/op_tokens.c tests/conform/op_vary.c \
	tests/conform/storage.c tests/conform/comm_forms.c tests/conform/comm_reference.c

# The programs tests/gpu/NAME.c, which use the files above and the kernels.
GPU_PARTS := ops edges train bench kernels

# The program that checks collectives on device memory.
GPU_COMM_FILES := tests/gpu/conform.c tests/conform/comm_forms.c tests/conform/comm_reference.c \
	base/buf.c base/err.c base/file.c base/human.c base/meminfo.c base/net.c base/net_addr.c base/net_peer.c base/owner.c \
	base/process.c base/run_paths.c base/thread.c libcomm/*.c libcomm/*/*.c !libcomm/flight/trace.c \
	!libcomm/flight/diagnose.c !libcomm/flight/diagnosis_text.c \
	!libcomm/flight/mismatch.c !libcomm/flight/waits.c !libcomm/tcp/records.c tests/gpu/standin/records.c tests/gpu/standin/seal.c

# libmuster-cuda.so; nccl.c only where NCCL's header is installed.
CUDA_FILES := base/buf.c base/choices.c base/err.c base/hash.c base/human.c base/library.c libcomm/op.c libcomm/reduce.c libcomm/device/cuda/cuda.c \
	kernels/cuda/*.c kernels/cuda/*.cu
CUDA_NCCL_FILES := libcomm/device/cuda/nccl.c

# The doubles of CUDA's libraries for machines without a GPU.
DOUBLE_CUDART_FILES := tests/gpu/emulator/*.c tests/gpu/doubles/device.c \
	tests/gpu/doubles/memory.c tests/gpu/doubles/stream.c tests/gpu/doubles/copy.c \
	tests/gpu/doubles/graph.c
DOUBLE_BLASLT_FILES := tests/gpu/doubles/blaslt*.c
DOUBLE_CUDNN_FILES  := tests/gpu/doubles/cudnn*.c
DOUBLE_NCCL_FILES   := tests/gpu/doubles/collectives*.c tests/gpu/doubles/reduce.c
DOUBLE_RECORDER_FILES := tests/gpu/doubles/recorder.c
