#!/usr/bin/env bats
# Checkpoints in several tiers: on the nodes, in the folder that all share, and copies in a remote place.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny undisturbed job.steps=200 parallel.tp=2 parallel.dp=2
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

# start_run NAME WORDS...: starts it in the background, and sets $pid.
start_run() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" job.name="$name" "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
}

# started_at NAME: the step from which the last generation of the run continued.
started_at() { event_field "$1" ready step; }

@test "a killed rank: the run goes back to the checkpoint on the node, and ends with the same bits" {
	start_run killed job.steps=200 parallel.tp=2 parallel.dp=2 restart.backoff=0.1 \
		checkpoint.local="$BATS_TEST_TMPDIR/local/%N" checkpoint.local_every=2 checkpoint.memory_every=0
	wait_for 60 checkpoint_reached killed 2 ckpt-local
	kill_ranks killed 3 0
	wait $pid
	has_same_bits killed undisturbed
	[[ $(started_at killed) -gt 0 && $(event_field killed ready from) == "$BATS_TEST_TMPDIR"/local/* ]]
	# Nothing of an attempt stays, and one checkpoint.
	[[ $(ls "$BATS_TEST_TMPDIR"/local/*) == $'RUN\nstep-00000200' ]]
	"$MUSTER" ckpt verify "$BATS_TEST_TMPDIR"/local/*/step-00000200
}

@test "the newest step counts, in whichever tier it is; a lost folder of the node costs only its steps" {
	words=(checkpoint.every=10 checkpoint.local="$BATS_TEST_TMPDIR/local" checkpoint.local_every=4)
	run_tiny both job.steps=28 "${words[@]}"
	ckpt=$(run_folder both)/ckpt
	[[ -e $BATS_TEST_TMPDIR/local/step-00000028 ]]
	rm -r "$ckpt/step-00000028"
	run_tiny both job.steps=32 "${words[@]}"
	[[ $(started_at both) -eq 28 ]]
	rm -r "$BATS_TEST_TMPDIR/local" "$ckpt/step-00000032"
	run_tiny both job.steps=40 "${words[@]}"
	[[ $(started_at both) -eq 30 ]]
}

@test "a damaged checkpoint of the node: the same step of the other tier comes first" {
	words=(checkpoint.every=10 checkpoint.local="$BATS_TEST_TMPDIR/local" checkpoint.local_every=10)
	run_tiny torn job.steps=20 "${words[@]}"
	printf X | dd of="$BATS_TEST_TMPDIR/local/step-00000020/shard-00000.safetensors" bs=1 seek=20000 conv=notrunc status=none
	run_tiny torn job.steps=30 "${words[@]}"
	[[ $(started_at torn) -eq 20 ]]
	[[ -e $BATS_TEST_TMPDIR/local/damaged-step-00000020 ]]
}

@test "a full disk of the node is named once; training and the other tier go on" {
	unshare -m true 2>/dev/null || skip "needs the right to mount"
	mkdir "$BATS_TEST_TMPDIR/small"
	small=$BATS_TEST_TMPDIR/small
	export small
	export -f run_tiny
	unshare -m bash -c '
		mount -t tmpfs -o size=100k none "$small" || exit 1
		run_tiny full parallel.dp=2 checkpoint.every=10 checkpoint.local="$small" checkpoint.local_every=2'
	[[ $(grep -c "checkpoints on the nodes fail" "$(run_folder full)/events.jsonl") -eq 1 ]]
	[[ $(ls "$(run_folder full)/ckpt") == $'step-00000010\nstep-00000020' ]]
}

@test "the folder of a node belongs to one run" {
	run_tiny first job.steps=6 checkpoint.local="$BATS_TEST_TMPDIR/local" checkpoint.local_every=2
	run run_tiny second job.steps=6 checkpoint.local="$BATS_TEST_TMPDIR/local" checkpoint.local_every=2
	[[ $status -ne 0 ]]
	grep -q "holds the checkpoints of the run .*; set checkpoint.local to another folder" "$BATS_FILE_TMPDIR/second.out"
}

@test "checkpoints are copied behind training, and a run without its folder resumes from the copies" {
	words=(checkpoint.every=5 checkpoint.keep=1 checkpoint.remote="$BATS_TEST_TMPDIR/remote" checkpoint.remote_every=10 checkpoint.remote_keep=2)
	run_tiny copied job.steps=24 "${words[@]}"
	# The last step is copied, too, and the steps between are not.
	[[ $(ls "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000020\nstep-00000024' ]]
	cmp "$(run_folder copied)/ckpt/step-00000024/MANIFEST.json" "$BATS_TEST_TMPDIR/remote/step-00000024/MANIFEST.json"
	"$MUSTER" ckpt verify "$BATS_TEST_TMPDIR/remote/step-00000020"
	rm -r "$(run_folder copied)/ckpt"
	run_tiny copied job.steps=30 "${words[@]}"
	[[ $(started_at copied) -eq 24 ]]
	[[ $(ls "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000024\nstep-00000030' ]]
	run "$MUSTER" ckpt ls "$(run_folder copied)"
	[[ $output == *"dir"*step-00000030*"remote"*step-00000030* ]]
}

@test "a remote place that is down is named once; what waits for it stays, and is copied when it is back" {
	touch "$BATS_TEST_TMPDIR/remote" # a file where the folder is to be
	words=(checkpoint.every=5 checkpoint.keep=1 checkpoint.remote="$BATS_TEST_TMPDIR/remote" checkpoint.remote_keep=3)
	run_tiny down job.steps=24 "${words[@]}" checkpoint.remote_wait=2
	[[ $(event down upload-failed | wc -l) -eq 1 ]]
	[[ $(event down upload-left | wc -l) -eq 1 ]]
	grep -q "the same command continues with what is left" "$BATS_FILE_TMPDIR/down.out"
	[[ $(ls -d "$(run_folder down)"/ckpt/step-* | xargs -n 1 basename) == $'step-00000015\nstep-00000020\nstep-00000024' ]]
	# Nothing was copied, so it may also start over; afterwards it may not.
	rm "$BATS_TEST_TMPDIR/remote"
	run_tiny down job.steps=24 "${words[@]}"
	[[ $(ls "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000015\nstep-00000020\nstep-00000024' ]]
	[[ $(event down uploaded | wc -l) -eq 3 ]]
	rm -r "$(run_folder down)/ckpt" "$BATS_TEST_TMPDIR/remote"
	touch "$BATS_TEST_TMPDIR/remote"
	run run_tiny down job.steps=24 "${words[@]}" restart.max_restarts=0 checkpoint.remote_wait=0
	[[ $status -ne 0 ]]
	[[ ! -e $(run_folder down)/ckpt/step-00000024 ]]
}

@test "an upload that is killed with its run is continued by the next one; nothing is sent twice" {
	words=(checkpoint.every=0 checkpoint.remote="$BATS_TEST_TMPDIR/remote")
	# Slow enough that the upload does not end by itself.
	start_run cut job.steps=8 "${words[@]}" checkpoint.remote_bandwidth=50000
	wait_for 60 bash -c "ls -d '$BATS_TEST_TMPDIR'/remote/.attempt-*/shard-* 2>/dev/null"
	child=$(pgrep -P $pid -x muster-agent)
	kill -9 $pid
	wait_for 60 has_ended "$child"
	[[ ! -e $BATS_TEST_TMPDIR/remote/step-00000008 ]]
	run_tiny cut job.steps=8 "${words[@]}"
	[[ $(ls -A "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000008' ]]
	run_tiny cut job.steps=8 "${words[@]}"
	[[ $(event cut uploaded | wc -l) -eq 1 ]]
}

@test "a stop ends the wait for the copies, and the status is that of the run" {
	start_run impatient job.steps=8 checkpoint.remote="$BATS_TEST_TMPDIR/remote" checkpoint.remote_bandwidth=1000
	wait_for 60 grep -q "waiting for the copies" "$BATS_FILE_TMPDIR/impatient.out"
	kill -TERM $pid
	wait $pid
	[[ $(event impatient upload-left | wc -l) -eq 1 ]]
	[[ ! -e $BATS_TEST_TMPDIR/remote/step-00000008 ]]
}

@test "the copies of another run are refused" {
	run_tiny owner job.steps=6 checkpoint.remote="$BATS_TEST_TMPDIR/remote"
	run run_tiny thief job.steps=6 checkpoint.remote="$BATS_TEST_TMPDIR/remote"
	[[ $status -ne 0 ]]
	grep -q "holds the checkpoints of the run .*; set checkpoint.remote to another folder" "$BATS_FILE_TMPDIR/thief.out"
}

@test "checkpoints for good stay in both places" {
	run_tiny good job.steps=24 checkpoint.every=4 checkpoint.keep=1 checkpoint.keep_every=8 \
		checkpoint.remote="$BATS_TEST_TMPDIR/remote" checkpoint.remote_keep=1
	[[ $(ls "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000008\nstep-00000016\nstep-00000024' ]]
	run ls -d "$(run_folder good)"/ckpt/step-*
	[[ $output == *step-00000008*step-00000016*step-00000024 ]]
}
