#!/usr/bin/env bats
# A run stops, and continues in the same or in another layout.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

@test "a run that SIGTERM stops exits 75, and continues to the same bits" {
	run_tiny whole job.steps=400 parallel.tp=2 parallel.pp=2 parallel.dp=2
	"$MUSTER" run "$tiny" job.name=stopped job.steps=400 parallel.tp=2 parallel.pp=2 parallel.dp=2 \
		</dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached stopped 1
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	[[ $rc -eq 75 ]]
	run_tiny stopped job.steps=400 parallel.tp=2 parallel.pp=2 parallel.dp=2
	run "$losses" compare "$(run_folder whole)/metrics.jsonl" "$(run_folder stopped)/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "a checkpoint of tp 2 x pp 2 x dp 2 continues in other layouts" {
	run_tiny reference job.steps=20 parallel.tp=2 parallel.pp=2 parallel.dp=2 checkpoint.every=10
	for layout in 4x1x1 1x1x8 1x4x2 1x1x1; do
		IFS=x read -r tp pp dp <<<"$layout"
		run_tiny "from-$layout" job.steps=20 parallel.tp=$tp parallel.pp=$pp parallel.dp=$dp \
			checkpoint.resume="$(run_folder reference)/ckpt/step-00000010"
		run "$losses" compare "$(run_folder reference)/metrics.jsonl" "$(run_folder from-$layout)/metrics.jsonl" 1e-5 11 20
		figure "resumed as $layout: $output"
		[[ $status -eq 0 ]]
	done
}

@test "a complete run is reported, and nothing changes" {
	run_tiny again job.steps=5
	before=$(cat "$(run_folder again)/metrics.jsonl")
	run_tiny again job.steps=5
	[[ $(cat "$(run_folder again)/metrics.jsonl") == "$before" ]]
}

@test "a damaged newest checkpoint is named and the one before it is used" {
	run_tiny damaged job.steps=20 checkpoint.every=5
	shard=$(ls "$(run_folder damaged)"/ckpt/step-00000020/shard-*.safetensors | head -n 1)
	truncate -s -1 "$shard"
	run_tiny damaged job.steps=25 checkpoint.every=5
	grep -q 'step-00000020' "$BATS_FILE_TMPDIR/damaged.out"
	run "$losses" final "$(run_folder damaged)/metrics.jsonl"
	[[ $output == 25\ * ]]
}
