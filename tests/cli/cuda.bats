#!/usr/bin/env bats
# A job for GPUs from its launch to its end, over the emulator (tests/gpu/emulator): plan, preflight, agents, checkpoints, evaluations, restarts.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	built=$(dirname "$(realpath "$MUSTER")")
	place=$BATS_FILE_TMPDIR/place
	export built place
	# An agent finds its libraries beside itself. NCCL's double works only inside one process, so it is left out and transfers go
	# through the host.
	mkdir -p "$place"
	cp "$built/muster-agent" "$built/tests/doubles/libnvidia-ml.so.1" "$built"/tests/gpu/lib*.so* "$place/" || true
	: >"$place/libnccl.so.2"
}

setup() {
	[[ -e $place/libmuster-cuda.so ]] || skip "CUDA's headers are not here: there is no emulated GPU"
}

# Trains a few steps of a model that is small enough for the emulator, with the words that the test adds. The runs share a cache of
# choices: what the first one measured decides, so that they have the same bits.
small() { # name word...
	local name=$1
	shift
	exec env -u SLURM_JOB_ID -u CUDA_VISIBLE_DEVICES NVML_DOUBLE=pair LD_LIBRARY_PATH="$place" MUSTER_AGENT="$place/muster-agent" \
		XDG_CACHE_HOME="$BATS_FILE_TMPDIR/cache" \
		"$MUSTER" run --quiet "$tiny" "job.name=$name" job.steps=4 model.layers=1 model.hidden=16 model.heads=2 batch.global=2 \
		optimizer.schedule=constant optimizer.warmup=2 data.eval_every=2 parallel.dp=1 "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&-
}

# Prints each evaluation of a run: its step, and the digits of its loss that do not depend on the order of fp32 sums.
held_out() {
	event "$1" eval | sed -E 's/.*"step":([0-9]+).*"loss":([0-9]+\.[0-9]{5}).*/\1 \2/'
}

again() { [[ $(event_field killed first-step generation) == 2 ]] && step_reached killed 4; }
saved() { event killed ckpt >/dev/null; }

@test "a job on a GPU has the CPU's losses; after a kill it continues to the same bits; the CPU continues from its checkpoint" {
	(small host)
	(small device job.device=cuda)
	run "$losses" compare "$(run_folder host)/metrics.jsonl" "$(run_folder device)/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 && -n $(held_out host) && $(held_out host) == "$(held_out device)" ]]

	small killed job.device=cuda job.steps=1000000 checkpoint.every=2 restart.backoff=0.1 &
	pid=$!
	wait_for 60 saved
	kill -9 "$(agent_pid killed 0)"
	wait_for 60 again
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	[[ $rc -eq 75 && $(event_field killed ready step) -ge 2 ]]
	run "$losses" compare "$(run_folder device)/metrics.jsonl" "$(run_folder killed)/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
	"$losses" repeats "$(run_folder killed)/metrics.jsonl"

	(small onward job.steps=6 checkpoint.resume="$(run_folder device)/ckpt/step-00000004")
	(small straight job.steps=6)
	run "$losses" compare "$(run_folder straight)/metrics.jsonl" "$(run_folder onward)/metrics.jsonl" 1e-5 5 6
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "two GPUs have one CPU's losses: tensor parallel, in bf16, with the optimizer state in host memory" {
	local words="parallel.tp=2 precision.dtype=bf16 offload.optimizer=yes"
	(small two-host $words)
	(small two-device $words job.device=cuda)
	run "$losses" compare "$(run_folder two-host)/metrics.jsonl" "$(run_folder two-device)/metrics.jsonl" 1e-2
	echo "$output"
	[[ $status -eq 0 ]]
}

# The launcher passes no variable MUSTER_… to an agent, so a script sets it.
@test "the log says once why cuDNN is not used" {
	local real=$place place=$BATS_TEST_TMPDIR/place
	cp -rs "$real" "$place"
	rm "$place/muster-agent"
	printf '#!/bin/sh\nMUSTER_DOUBLE_CUDNN=refuses exec "%s" "$@"\n' "$real/muster-agent" >"$place/muster-agent"
	chmod +x "$place/muster-agent"
	(small without-cudnn job.device=cuda precision.dtype=bf16)
	run grep -rh 'cuDNN has no deterministic engine' "$(run_folder without-cudnn)/logs"
	echo "$output"
	[[ $status -eq 0 && ${#lines[@]} -eq 1 && $output == *" info "*"muster's own kernels are used"* ]]
}

# The numbers of each step of a run, without times, and without memory: a run that measures takes more.
numbers_of() {
	grep -o '"step":.*"skipped":[a-z]*' "$(run_folder "$1")/metrics.jsonl" | sed -E 's/"([a-z_]+_s|peak_bytes)":[^,]*,//g'
}

# What the end of a run says of the rank that it lost, without the digits of the loss.
lost_of() { grep '^  lost ' "$BATS_FILE_TMPDIR/$1.out" | sed -E 's/loss [0-9.]+/loss X/'; }

@test "limits for the numbers of a step change no bits, also with steps that are skipped" {
	local kind words="job.device=cuda job.steps=12 data.eval_every=5 precision.dtype=fp16 precision.loss_scale_window=1"
	for kind in dense experts; do
		[[ $kind == dense ]] || words+=" model.family=mixtral model.experts=4 model.ffn=16"
		(small "free-$kind" $words)
		(small "limited-$kind" $words health.bad_numbers=stop health.spike_window=8)
		diff <(numbers_of "free-$kind") <(numbers_of "limited-$kind")
		[[ $(numbers_of "free-$kind" | wc -l) == 12 && $(numbers_of "free-$kind") == *'"skipped":true'* ]]
		[[ $(held_out "free-$kind") == "$(held_out "limited-$kind")" ]]
	done
}

# The CPU reads the numbers of a step before its update.
@test "bad numbers that a GPU's run reads one step late name the same step and the same place as the CPU's" {
	local kind words name where
	export DRILL_MARK=here
	for kind in nan-input nan-gradient nan-weight nan-once; do
		for words in health.bad_numbers=retry health.bad_numbers=stop \
			"precision.dtype=bf16 precision.fp8=hybrid precision.fp8_scaling=delayed"; do
			name=$kind-${words//[^a-z]/-}
			for where in cpu cuda; do
				! (DRILL_FAULT="$kind 0 2 0" small "$name-$where" job.device=$where $words data.eval_every=0 restart.max_restarts=0)
				[[ $(lost_of "$name-$where") == *"after step 2 (diagnosis): step 3: loss "* ]]
			done
			diff <(lost_of "$name-cpu") <(lost_of "$name-cuda")
		done
	done
}

@test "a GPU's run skips the samples of a bad step, and ends with the bits of the run without them" {
	local words="job.device=cuda job.steps=8 checkpoint.every=2 data.eval_every=4"
	(DRILL_MARK=here DRILL_FAULT="poison 0 11 0" small skipping $words health.bad_numbers=skip restart.max_restarts=0)
	(small without $words data.skip=10-11)
	[[ $(event_field skipping rollback step) == 6 && $(event_field skipping rollback first) == 10 ]]
	[[ $(event skipping generation-start | wc -l) == 2 ]]
	has_same_bits skipping without
}
