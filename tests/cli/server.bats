#!/usr/bin/env bats
# parallel.sync = server: replicas train with a parameter server instead of all-reduce.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny one parallel.dp=1 checkpoint.every=5
}

@test "staleness 0 gives the losses of one process, twice the same bits" {
	run_tiny sync parallel.dp=4 parallel.sync=server parallel.staleness=0 data.eval_every=5 checkpoint.every=5
	run_tiny again parallel.dp=4 parallel.sync=server parallel.staleness=0
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder sync)/metrics.jsonl" 1e-5
	figure "staleness 0, dp 4: $output"
	[[ $status -eq 0 && $output == 20\ steps* ]]
	run "$losses" compare "$(run_folder sync)/metrics.jsonl" "$(run_folder again)/metrics.jsonl" 0
	[[ $status -eq 0 ]]
}

@test "staleness 3: losses fall, on held-out data too, and every step is counted" {
	run_tiny stale parallel.dp=4 parallel.sync=server parallel.staleness=3 job.steps=60 data.eval_every=30 checkpoint.every=20
	run "$losses" final "$(run_folder stale)/metrics.jsonl"
	[[ $output == 60\ * ]]
	first=$(grep -m 1 '"step":1,' "$(run_folder stale)/metrics.jsonl" | grep -oP '"loss":\K[0-9.]+')
	figure "staleness 3, dp 4: loss $first at first, ${output#60 } after 60 steps"
	awk -v a="$first" -v b="${output#60 }" 'BEGIN { exit !(b < a - 1) }'
	run "$MUSTER" data audit "$(run_folder stale)"
	[[ $status -eq 0 ]]
}

@test "over TCP the losses are the same" {
	run_tiny tcp parallel.dp=4 parallel.sync=server parallel.staleness=0 network.backend=tcp
	run "$losses" compare "$(run_folder sync)/metrics.jsonl" "$(run_folder tcp)/metrics.jsonl" 0
	[[ $status -eq 0 ]]
	run_tiny stale-tcp parallel.dp=4 parallel.sync=server parallel.staleness=2 network.backend=tcp
	run "$losses" final "$(run_folder stale-tcp)/metrics.jsonl"
	[[ $output == 20\ * ]]
}

@test "a checkpoint of a parameter server continues under all-reduce, and the other way round" {
	run_tiny to-server parallel.dp=2 parallel.sync=server parallel.staleness=0 \
		checkpoint.resume="$(run_folder one)/ckpt/step-00000010"
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder to-server)/metrics.jsonl" 1e-5 11 20
	[[ $status -eq 0 ]]
	run_tiny from-server parallel.dp=2 checkpoint.resume="$(run_folder sync)/ckpt/step-00000010"
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder from-server)/metrics.jsonl" 1e-5 11 20
	[[ $status -eq 0 ]]
}

@test "a stopped run leaves a checkpoint of one step for all replicas, and continues" {
	"$MUSTER" run "$tiny" job.name=stopped job.steps=300 parallel.dp=3 parallel.sync=server parallel.staleness=5 batch.global=6 \
		</dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached stopped 3
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	[[ $rc -eq 75 ]]
	run_tiny stopped job.steps=300 parallel.dp=3 parallel.sync=server parallel.staleness=5 batch.global=6
	run "$losses" final "$(run_folder stopped)/metrics.jsonl"
	[[ $output == 300\ * ]]
	run "$MUSTER" data audit "$(run_folder stopped)"
	[[ $status -eq 0 ]]
}

@test "after kill -9 of a rank, which is a worker and a server, the run continues" {
	"$MUSTER" run "$tiny" job.name=killed job.steps=200 parallel.dp=4 parallel.sync=server checkpoint.every=10 restart.backoff=0.1 \
		</dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached killed 25
	kill -9 "$(agent_pid killed 2)"
	wait $pid
	[[ $(event_field killed first-step generation) == 2 ]]
	run "$losses" final "$(run_folder killed)/metrics.jsonl"
	[[ $output == 200\ * ]]
}

@test "keys that do not combine with a parameter server are refused before anything starts" {
	for word in parallel.tp=2 parallel.pp=2 parallel.cp=2 parallel.zero=1 precision.dtype=bf16 offload.optimizer=yes; do
		run "$MUSTER" plan "$tiny" parallel.dp=2 parallel.sync=server "$word"
		[[ $status -eq 2 && $output == *"sync = server does not work with"* ]]
	done
}
