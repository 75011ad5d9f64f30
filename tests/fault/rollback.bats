#!/usr/bin/env bats
# Bad numbers: a poisoned batch ends with the same bits as a run that skips it from the beginning, on every layout and through
# kills; a spike by corrupted data is found; and the audit proves what was skipped.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	# A text with 96 bytes of noise in it.
	{
		head -c 60000 /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/LGPL-2.1 -q
		seq 1 32 | while read -r i; do printf "\\x$(printf %x $((128 + i * 37 % 128)))\\x$(printf %x $((128 + i * 73 % 128)))\\xff"; done
		cat /usr/share/common-licenses/Apache-2.0 /usr/share/common-licenses/GPL-2
	} >"$BATS_FILE_TMPDIR/noisy.txt"
	"$MUSTER" data pack "$BATS_FILE_TMPDIR/noisy.txt" -o "$BATS_FILE_TMPDIR/noisy"
	# Without the batch of step 24 from the beginning.
	run_tiny without job.steps=40 checkpoint.every=10 parallel.dp=2 data.skip=184-191 data.eval_every=20
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

# run_poisoned NAME WORD...: runs the job with a sample of the batch of step 24 that makes rank 0's gradients NaN in each generation.
run_poisoned() {
	local name=$1
	shift
	DRILL_MARK=test DRILL_FAULT="poison 0 187 0" \
		run_tiny "$name" job.steps=40 checkpoint.every=10 data.eval_every=20 health.bad_numbers=skip "$@"
}

# same_run NAME REFERENCE: both computed the same bits and have the same checkpoint after their last step.
same_run() {
	local file
	has_same_bits "$1" "$2"
	diff <("$losses" list "$(run_folder "$1")"/{metrics,events}.jsonl) <("$losses" list "$(run_folder "$2")"/{metrics,events}.jsonl)
	for file in "$(run_folder "$2")"/ckpt/step-00000040/*.safetensors; do
		cmp "$file" "$(run_folder "$1")/ckpt/step-00000040/${file##*/}"
	done
}

# proves_skip NAME: the audit proves the order, and that the batch of step 24 was skipped because of its step.
proves_skip() {
	run "$MUSTER" data audit "$(run_folder "$1")"
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"the samples that count are 0 to 327 of the order, each once or skipped, after 40 steps"* ]]
	[[ $output == *"samples 184 to 191, by generation 2: step 24: the gradient norm is NaN or infinite (generation 1)"* ]]
	[[ $output == *"320 samples of $data"* && $output == *"every rank read exactly these tokens"* ]]
}

@test "a poisoned batch: the run rolls back, skips it, and ends with the bits of the run without it" {
	run_poisoned poisoned parallel.dp=2 restart.max_restarts=0
	cat "$(run_folder poisoned).out"
	grep -qE "rollback +step 24: the gradient norm is NaN or infinite; the run continues from its last checkpoint and skips the samples 184 to 191 \(rollback 1 of 5\)" "$(run_folder poisoned).out"
	[[ $(event poisoned generation-start | wc -l) -eq 2 ]]
	[[ $(event_field poisoned generation-start restarts) -eq 0 ]]
	same_run poisoned without
	proves_skip poisoned
	run "$MUSTER" data audit "$(run_folder poisoned)" --json --no-data
	[[ $output == *'"skips"'*'"first": 184'*'"count": 8'* ]]
	run "$MUSTER" data audit "$(run_folder without)"
	[[ $status -eq 0 && $output == *"samples 184 to 191, by generation 1: data.skip"* ]]
}

# Each layout beside its own run without the batch.
compare_on() { # layout words
	local name=$1
	shift
	run_tiny "without-$name" job.steps=40 checkpoint.every=10 data.skip=184-191 data.eval_every=20 "$@"
	run_poisoned "$name" "$@"
	same_run "$name" "without-$name"
	proves_skip "$name"
}

@test "the same on a pipeline" { compare_on pp parallel.pp=2 parallel.dp=1; }

@test "the same with tensor parallelism, ZeRO 1 and dropout" {
	compare_on tp parallel.tp=2 parallel.dp=2 parallel.zero=1 model.dropout=0.1
}

@test "the same with ZeRO 2" {
	large
	compare_on zero2 parallel.dp=2 parallel.zero=2
}

@test "the same with ZeRO 3" {
	large
	compare_on zero3 parallel.dp=2 parallel.zero=3
}

@test "a kill of muster after the rollback, and another layout: the same command skips the same samples" {
	DRILL_MARK=test DRILL_FAULT="poison 0 187 0" "$MUSTER" run "$tiny" job.name=killed job.steps=90000 checkpoint.every=10 \
		data.eval_every=20 optimizer.decay_steps=40 health.bad_numbers=skip parallel.dp=2 </dev/null >"$(run_folder killed).out" 2>&1 3>&- &
	pid=$!
	wait_for 60 event killed rollback
	kill -9 "$pid" # the next generation may or may not have begun
	wait_for 60 has_ended "$pid"
	pid=""
	wait_for 60 "$MUSTER" data audit "$(run_folder killed)" --no-data
	[[ $(grep -c '"first":184,"count":8' "$(run_folder killed)/rollbacks.jsonl") -eq 1 ]]
	last=$(last_step killed)
	run_poisoned killed job.steps=$((last + 40)) optimizer.decay_steps=40 parallel.dp=1
	run_tiny without-killed job.steps=$((last + 40)) optimizer.decay_steps=40 parallel.dp=1 data.skip=184-191 data.eval_every=20
	run "$losses" compare "$(run_folder without-killed)/metrics.jsonl" "$(run_folder killed)/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $(event killed rollback | wc -l) -eq 1 ]]
	run "$MUSTER" data audit "$(run_folder killed)"
	echo "$output"
	[[ $status -eq 0 && $output == *"samples 184 to 191, by generation "*": step 24: the gradient norm is NaN or infinite (generation 1)"* ]]
}

@test "a rank is killed after the rollback: the next generation skips the same samples" {
	DRILL_MARK=test DRILL_FAULT="poison 0 187 0" "$MUSTER" run "$tiny" job.name=rank job.steps=300 checkpoint.every=10 \
		health.bad_numbers=skip parallel.dp=2 </dev/null >"$(run_folder rank).out" 2>&1 3>&- &
	pid=$!
	wait_for 60 event rank rollback
	wait_for 60 generation_steps rank 2
	kill -9 "$(agent_pid rank 1)"
	wait "$pid"
	pid=""
	run_tiny without-rank job.steps=300 parallel.dp=2 data.skip=184-191
	has_same_bits rank without-rank
	run "$MUSTER" data audit "$(run_folder rank)"
	[[ $status -eq 0 && $output == *"  8 of them were skipped"* ]]
}

@test "a spike by corrupted data is found and skipped, and nothing else is" {
	run_tiny spike job.steps=700 checkpoint.every=50 parallel.dp=1 batch.global=4 "data.path=$BATS_FILE_TMPDIR/noisy" optimizer.lr=3e-3 \
		health.bad_numbers=skip health.max_skips=20
	skipped=$(tr -d '{}"' <"$(run_folder spike)/rollbacks.jsonl" | awk -F'[:,]' '{ printf "%s%d-%d", (NR > 1 ? "," : ""), $2, $2 + $4 - 1 }')
	[[ -n $skipped ]]
	grep -q "a spike: the loss is [0-9.]*, and [0-9.]* is usual" "$(run_folder spike).out"
	run_tiny without-spike job.steps=700 parallel.dp=1 batch.global=4 "data.path=$BATS_FILE_TMPDIR/noisy" optimizer.lr=3e-3 "data.skip=$skipped"
	has_same_bits spike without-spike
	"$MUSTER" data audit "$(run_folder spike)"
	run_tiny healthy job.steps=700 parallel.dp=1 batch.global=4 optimizer.lr=3e-3 health.bad_numbers=skip # without noise
	[[ -z $(event healthy rollback) ]]
}

@test "a spike soon after a restart is found by what was usual before it" {
	step=$(head -n 1 "$(run_folder spike)/rollbacks.jsonl" | grep -oP '"step":\K[0-9]+')
	words=(parallel.dp=1 batch.global=4 "data.path=$BATS_FILE_TMPDIR/noisy" optimizer.lr=3e-3 optimizer.decay_steps=700 health.bad_numbers=skip)
	run_tiny soon job.steps=$((step - 5)) "${words[@]}"
	[[ -z $(event soon rollback) ]]
	run_tiny soon job.steps=$((step + 5)) "${words[@]}"
	[[ $(event_field soon rollback step) -eq $step ]]
}

@test "batches before the bad one are skipped with it, and the run goes back to a checkpoint before them" {
	run_poisoned before parallel.dp=1 health.skip_before=5
	cat "$(run_folder before).out"
	[[ $(event_field before rollback first) -eq 144 && $(event_field before rollback count) -eq 48 ]]
	[[ $(event_field before ready step) -eq 10 ]]
	[[ -d $(run_folder before)/ckpt/undone-step-00000020 ]]
	run_tiny without-before job.steps=40 parallel.dp=1 data.skip=144-191
	# The steps from 19 on are done again with other samples.
	"$losses" compare "$(run_folder without-before)/metrics.jsonl" "$(run_folder before)/metrics.jsonl" 0
	"$MUSTER" data audit "$(run_folder before)"
	# Another start leaves the new checkpoints alone.
	run_poisoned before parallel.dp=1 health.skip_before=5 job.steps=42
	[[ $(event_field before ready step) -eq 40 ]]
}

@test "without a checkpoint before the batches the run goes back to the oldest one" {
	run_poisoned oldest parallel.dp=1 health.skip_before=20
	cat "$(run_folder oldest).out"
	[[ $(event_field oldest rollback first) -eq 24 && $(event_field oldest ready step) -eq 10 ]]
	run_tiny without-oldest job.steps=40 parallel.dp=1 data.skip=80-191
	"$losses" compare "$(run_folder without-oldest)/metrics.jsonl" "$(run_folder oldest)/metrics.jsonl" 0
	run "$MUSTER" data audit "$(run_folder oldest)"
	[[ $status -eq 0 && $output == *"samples 80 to 191, by generation 2: step 24"* ]]
}

@test "after max_skips rollbacks the run gives up with the step and the samples" {
	run run_poisoned often parallel.dp=1 health.max_skips=0
	[[ $status -eq 4 ]]
	grep -q "step 24: the gradient norm is NaN or infinite; its samples are 184 to 191 of the order; after 0 rollbacks health.max_skips = 0 permits no other" "$(run_folder often).out"
	[[ $(event often generation-start | wc -l) -eq 1 ]]
}

@test "bad_numbers = stop ends the run with the step and the samples" {
	run run_poisoned stopped parallel.dp=1 health.bad_numbers=stop
	[[ $status -eq 1 ]]
	grep -q "step 24: the gradient norm is NaN or infinite; its samples are 184 to 191 of the order; health.bad_numbers = stop ends the run" "$(run_folder stopped).out"
}

@test "in fp16 a dynamic loss scale handles the step, and nothing is rolled back" {
	large
	run_poisoned half parallel.dp=1 precision.dtype=fp16
	[[ -z $(event half rollback) ]]
	[[ $(event half generation-start | wc -l) -eq 1 ]]
}
