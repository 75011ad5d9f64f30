#!/usr/bin/env bats
# A run copies its checkpoints to an object store behind training, and resumes from there.

load ../helpers
load s3

setup_file() {
	make_data
	make_tiny_job
	start_store
}

teardown() { kill -CONT "$(<"$store/pid")" 2>/dev/null || true; }
teardown_file() { stop_store; }

words=(checkpoint.every=10 checkpoint.remote=s3://bucket/runs/mine checkpoint.remote_keep=2)

@test "the object store gets the checkpoints, and a run without its folder resumes from them" {
	run_tiny mine job.steps=24 "${words[@]}"
	[[ $(event mine uploaded | wc -l) -ge 1 ]]
	"$MUSTER" ckpt verify s3://bucket/runs/mine/step-00000024
	rm -r "$(run_folder mine)/ckpt"
	run_tiny mine job.steps=30 "${words[@]}"
	[[ $(event_field mine ready step) -eq 24 ]]
	run "$MUSTER" ckpt ls s3://bucket/runs/mine
	[[ $output == *step-00000030* && $output == *step-00000024* && $output != *step-00000010* ]]
	# No secret is in what the run wrote.
	run grep -rl "SECRETTEST\|TOKENTEST" "$(run_folder mine)"
	[[ $status -eq 1 ]]
}

@test "a store that stops answering: the run ends well and on time, and the next one copies" {
	"$MUSTER" run "$tiny" job.name=silent job.steps=900 checkpoint.every=0 checkpoint.remote=s3://bucket/runs/silent \
		checkpoint.remote_wait=1 </dev/null >"$BATS_FILE_TMPDIR/silent.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached silent 1
	kill -STOP "$(<"$store/pid")"
	rc=0
	wait $pid || rc=$?
	kill -CONT "$(<"$store/pid")"
	[[ $rc -eq 0 ]]
	[[ $(event silent upload-left | wc -l) -eq 1 ]]
	run_tiny silent job.steps=900 checkpoint.every=0 checkpoint.remote=s3://bucket/runs/silent
	"$MUSTER" ckpt verify s3://bucket/runs/silent/step-00000900
}
