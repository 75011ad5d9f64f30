#!/usr/bin/env bats
# The layout changes the time that a run takes, not what it computes: the same job in many layouts gives the losses of a single
# process.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# same_losses NAME WORD... -- LAYOUT...: runs a single process, then each layout tp×pp×dp, and compares the losses.
same_losses() {
	local name=$1 words=() layout
	shift
	while [[ $1 != -- ]]; do
		words+=("$1")
		shift
	done
	shift
	run_tiny "$name-1x1x1" "${words[@]}" parallel.tp=1 parallel.pp=1 parallel.dp=1
	for layout in "$@"; do
		IFS=x read -r tp pp dp <<<"$layout"
		run_tiny "$name-$layout" "${words[@]}" parallel.tp="$tp" parallel.pp="$pp" parallel.dp="$dp"
		run "$losses" compare "$(run_folder "$name-1x1x1")/metrics.jsonl" "$(run_folder "$name-$layout")/metrics.jsonl" 1e-5
		figure "$name tp x pp x dp = $layout: $output"
		[[ $status -eq 0 ]]
		[[ $output == 20\ steps* ]]
	done
}

@test "gpt2: 15 layouts give the losses of one process" {
	same_losses gpt2 -- 2x1x1 1x2x1 1x1x2 4x1x1 1x4x1 1x1x4 2x2x1 2x1x2 1x2x2 2x2x2 4x2x1 4x1x2 2x4x1 1x4x2 2x1x4
}

@test "llama with grouped-query attention: 12 layouts give the losses of one process" {
	same_losses llama model.family=llama model.heads=8 model.kv_heads=4 -- \
		2x1x1 1x2x1 1x1x2 4x1x1 1x4x1 2x2x1 2x1x2 1x2x2 2x2x2 4x2x1 1x2x4 1x1x8
}

@test "sizes that do not divide evenly: vocabulary 50257, 3 heads, ffn 100, 5 layers" {
	same_losses odd model.vocab=50257 model.hidden=24 model.heads=3 model.ffn=100 model.layers=5 model.seq=16 -- \
		2x1x1 1x2x1 1x4x1 2x2x1 2x2x2 1x2x4
}

@test "a GPipe schedule computes what 1F1B computes, to the bit" {
	run_tiny one parallel.pp=4 parallel.schedule=1f1b batch.global=8
	run_tiny gpipe parallel.pp=4 parallel.schedule=gpipe batch.global=8
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder gpipe)/metrics.jsonl" 0
	[[ $status -eq 0 ]]
}
