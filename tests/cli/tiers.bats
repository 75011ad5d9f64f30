#!/usr/bin/env bats
# Checkpoints in several tiers: on the nodes, in the folder that all share, and copies in a remote place.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny undisturbed job.steps=60 parallel.tp=2 parallel.dp=2
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
	start_run killed job.steps=60 parallel.tp=2 parallel.dp=2 restart.backoff=0.1 \
		checkpoint.local="$BATS_TEST_TMPDIR/local/%N" checkpoint.local_every=2
	kill_ranks killed 3 0
	wait $pid
	has_same_bits killed undisturbed
	[[ $(started_at killed) -gt 0 ]]
	# Nothing of an attempt stays, and one checkpoint.
	[[ $(ls "$BATS_TEST_TMPDIR"/local/*) == $'RUN\nstep-00000060' ]]
	"$MUSTER" ckpt verify "$BATS_TEST_TMPDIR"/local/*/step-00000060
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
