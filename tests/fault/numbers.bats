#!/usr/bin/env bats
# Wrong numbers: the rank and the tensor where they begin are named in each layout, a fault of hardware is told from data, and
# replicas that hold different weights are found before a checkpoint keeps them.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# plant FAULT WORD...: runs a job whose rank 3 causes the fault after step 7, without a restart. Sets $output and $run.
plant() {
	local fault=$1
	shift
	run=planted-$BATS_TEST_NUMBER-$((++planted))
	DRILL_MARK=1 DRILL_FAULT="$fault 3 7 0" run_muster "$@"
}

run_muster() {
	status=0
	output=$("$MUSTER" run "$tiny" "job.name=$run" checkpoint.every=5 restart.max_restarts=0 batch.global=4 "$@" </dev/null 2>&1 3>&-) || status=$?
}

traced() { # FIELD: of the last run's event numbers-traced
	event_field "$run" numbers-traced "$1"
}

# named KIND TENSOR SUSPECT: the last run has failed, and rank 3 was named with this.
named() {
	[[ $status -eq 1 ]]
	echo "$output" | grep lost
	[[ $(traced rank) == 3 && $(traced step) == 8 && $(traced kind) == "$1" && $(traced tensor) == $2 && $(traced suspect) == "$3" ]]
}

layouts=(
	"parallel.dp=4"
	"parallel.dp=4 parallel.zero=1"
	"parallel.dp=4 parallel.zero=2 recompute.mode=full"
	"parallel.dp=4 parallel.zero=3"
	"parallel.tp=2 parallel.dp=2"
	"parallel.tp=4 parallel.sp=yes"
	"parallel.cp=2 parallel.dp=2"
	"parallel.pp=2 parallel.dp=2"
	"parallel.pp=4 recompute.mode=selective"
	"parallel.pp=2 parallel.tp=2 offload.activations=yes"
	"parallel.dp=4 precision.dtype=bf16"
	"model.family=mixtral model.experts=4 parallel.ep=2 parallel.dp=4"
)

@test "a NaN in one rank's activations is traced to that rank, in each layout" {
	large
	local layout
	for layout in "${layouts[@]}"; do
		echo "$layout"
		plant nan-input $layout
		named activations "input of layer ?" false
		echo "$output" | grep "rank 3 on [^ ]* has them first, in the forward pass of micro-batch 0"
	done
}

@test "a NaN in one rank's gradients is traced to that rank and its parameter, in each layout" {
	large
	local layout
	for layout in "${layouts[@]}"; do
		echo "$layout"
		plant nan-gradient $layout
		named gradient "layers.?.attn.q.weight" false
		echo "$output" | grep "rank 3 on [^ ]* has them first, in the backward pass of micro-batch 0"
	done
}

@test "a NaN in one rank's weights is found before the step, in each layout" {
	large
	local layout
	for layout in "${layouts[@]}"; do
		echo "$layout"
		plant nan-weight $layout
		named weights "layers.*.weight" "$(case "$layout" in *zero=3* | *pp=4* | *tp=4* | *tp=2*activations*) echo false ;; *) echo true ;; esac)"
		echo "$output" | grep "rank 3 on [^ ]* had bad numbers before this step"
	done
}

@test "a NaN is traced in a small run of each kind" {
	plant nan-input parallel.dp=4
	named activations "input of layer 0" false
	[[ $(event_field "$run" fault fault) == numeric ]]
	plant nan-gradient parallel.dp=4
	named gradient "layers.3.attn.q.weight" false
	plant nan-weight parallel.dp=4
	named weights "layers.0.attn.q.weight" true
	[[ $(event_field "$run" fault fault) == wrong-results && $(event_field "$run" node-suspected kind) == numbers ]]
}

@test "a NaN that a second computation does not give is a fault of hardware, on the rank whose own results differ" {
	plant nan-once parallel.dp=4
	named activations "layer 0" true
	echo "$output" | grep "a device or a memory failed for a moment, on rank 3 on "
	[[ $(event_field "$run" fault fault) == wrong-results && $(event_field "$run" node-suspected kind) == numbers ]]
	plant nan-once parallel.tp=2 parallel.dp=2 batch.global=2
	named activations "layer 0" true
	plant nan-once parallel.dp=4 parallel.zero=3
	named activations "layer 0" true
	plant nan-once parallel.dp=2 parallel.pp=2 batch.global=8 # the stage's slot has had other micro-batches since
	[[ $(event "$run" numbers-traced) != *'"rank":0'* && $(event "$run" numbers-traced) != *'"rank":2'* && $(event "$run" numbers-traced) == *'"rank":3'* ]]
	[[ $(event "$run" numbers-traced) != *'"suspect":true'* && $(event_field "$run" fault fault) == numeric ]]
}

@test "samples are skipped if the data is to blame, and not if hardware is" {
	plant nan-gradient parallel.dp=4 health.bad_numbers=skip restart.max_restarts=3
	[[ $status -eq 0 && -n $(event "$run" rollback) && $(traced suspect) == false ]]
	plant nan-once parallel.dp=4 health.bad_numbers=skip restart.max_restarts=3
	[[ $status -eq 0 && -z $(event "$run" rollback) && $(traced suspect) == true && $(event_field "$run" fault fault) == wrong-results ]]
}

@test "a gradient that is bad on one replica after the reduction blames that rank" {
	plant nan parallel.dp=4
	named gradient "embed.tokens.weight" true
	echo "$output" | grep "and its replicas had none"
}

@test "numbers that training itself makes infinite blame no node" {
	run=diverged
	run_muster parallel.dp=2 job.steps=1000 optimizer.lr=100 optimizer.weight_decay=1 optimizer.clip=0 optimizer.warmup=0 \
		optimizer.schedule=constant optimizer.decay_steps=0 checkpoint.every=0
	[[ $status -eq 1 ]]
	echo "$output" | grep "lower optimizer.lr"
	[[ $(event_field "$run" fault fault) == numeric && -z $(event "$run" node-suspected) && $(traced suspect) != true ]]
}

@test "a flipped bit in the weights of one replica is found, and no checkpoint keeps it" {
	plant flip parallel.dp=4
	[[ $status -eq 1 && $(traced rank) == 3 && $(traced step) == 10 && $(traced tensor) == embed.tokens.weight && $(traced suspect) == true ]]
	echo "$output" | grep "after step 10, the weights of rank 3 on [^ ]* are not those of the other ranks that hold the same (4 in all; first tensor: embed.tokens.weight)"
	[[ $(event_field "$run" fault fault) == replicas-differ && $(event_field "$run" node-suspected kind) == numbers ]]
	[[ -e $BATS_FILE_TMPDIR/$run/ckpt/step-00000005 && ! -e $BATS_FILE_TMPDIR/$run/ckpt/step-00000010 ]]
}

@test "a flipped bit is found within compare_every steps" {
	plant flip parallel.dp=4 health.compare_every=1
	[[ $(traced rank) == 3 && $(traced step) == 8 ]]
	plant flip parallel.dp=4 health.compare_every=1 precision.dtype=bf16
	[[ $(traced rank) == 3 && $(traced step) == 8 ]]
	plant flip parallel.tp=2 parallel.dp=2 health.compare_every=1 # embed.tokens is split
	echo "$output" | grep "these ranks hold different weights, which must be equal: rank 1 on [^ ]*, rank 3 on"
	[[ $(event_field "$run" rank-lost rank) == null ]]
	plant flip parallel.dp=4 health.compare_every=-1 checkpoint.every=0
	[[ $status -eq 0 ]]
}

@test "a run goes on from its last checkpoint after a flipped bit, and ends as an undisturbed one" {
	run=undisturbed
	run_muster parallel.dp=4
	[[ $status -eq 0 ]]
	plant flip parallel.dp=4 restart.max_restarts=3
	[[ $status -eq 0 && $(event_field "$run" fault fault) == replicas-differ ]]
	run "$losses" compare "$(run_folder undisturbed)/metrics.jsonl" "$(run_folder "planted-$BATS_TEST_NUMBER-1")/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "replicas that are well agree after each step, in each layout" {
	large
	local layout
	run=well
	for layout in "${layouts[@]}" "parallel.dp=4 parallel.zero=3 parallel.zero_shard=node" "parallel.dp=4 optimizer.kind=muon" \
		"parallel.pp=2 parallel.dp=2 model.tie_head=no" "parallel.tp=4 model.family=llama model.kv_heads=2" \
		"parallel.dp=4 precision.dtype=bf16 precision.stochastic_rounding=yes offload.optimizer=yes" "parallel.dp=2 parallel.sync=server"; do
		echo "$layout"
		rm -rf "$BATS_FILE_TMPDIR/well"
		run_muster $layout health.compare_every=1 checkpoint.every=2
		echo "$output"
		[[ $status -eq 0 ]]
	done
}
