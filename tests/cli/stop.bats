#!/usr/bin/env bats
# `muster stop` and `muster checkpoint`: the supervisor of a run does what its owner asks for.

load ../helpers
load long_run

# checkpoint_of NAME: asks for a checkpoint, which must be valid and of a step that the run had not left long ago; sets $step.
checkpoint_of() {
	local before folder
	before=$(last_step "$1")
	folder=$("$MUSTER" checkpoint "$1")
	"$MUSTER" ckpt verify "$folder"
	step=$((10#${folder##*-}))
	echo "asked after step $before, got $folder"
	[[ $folder == "$(run_folder "$1")"/ckpt/* && $step -ge $before ]]
	[[ $(event_field "$1" ckpt step) -eq $step ]]
}

@test "muster stop: the run finishes its step, writes a checkpoint and ends, and the command waits for that" {
	long polite parallel.tp=2 parallel.dp=2
	run "$MUSTER" stop polite
	echo "$output"
	[[ $status -eq 0 && $output == *"stops after the step that it is in, with a checkpoint"*"polite: stopped since "* ]]
	ended 75
	[[ $(event_field polite ckpt step) -eq $(event_field polite finished step) ]]
	event polite stop | grep -q "asked for it (muster stop)"
	run "$MUSTER" stop polite
	echo "$output"
	[[ $status -eq 0 && $output == *"the run has ended already: stopped"* ]]
	"$MUSTER" stop polite --json | python3 -c '
import json, sys
a = json.load(sys.stdin)
assert a["ok"] and a["state"]["state"] == "stopped" and a["state"]["live"] is False, a'
	run "$MUSTER" checkpoint polite
	[[ $status -eq 3 && $output == *"the run has ended already: stopped"* ]]
}

@test "muster stop --now: the run ends at once, without a checkpoint" {
	long rude parallel.dp=2
	"$MUSTER" stop rude --now --json | python3 -c '
import json, sys
a = json.load(sys.stdin)
assert a["ok"] and a["state"]["state"] == "stopped" and "checkpoint" not in a["state"], a'
	ended 75
	[[ -z $(event rude ckpt) ]]
}

@test "a checkpoint on request: all ranks save the same step, and training goes on as if nobody had asked" {
	# The schedule does not depend on the number of steps, which nobody knows before the run is stopped.
	local words=(parallel.tp=2 parallel.dp=2 optimizer.decay_steps=1000) first last
	long asked "${words[@]}"
	checkpoint_of asked
	first=$step
	wait_for 60 step_reached asked $((first + 5))
	"$MUSTER" stop asked
	ended 75
	last=$(event_field asked finished step)
	run_tiny reference "job.steps=$last" "${words[@]}"
	has_same_bits asked reference
	event asked ckpt-asked | grep -q " on "
}

@test "a checkpoint on request with a pipeline, with the sharded optimizer, and with copies in memory" {
	long pipeline parallel.pp=2 batch.global=4
	checkpoint_of pipeline
	"$MUSTER" stop pipeline --now
	ended 75
	long zero parallel.dp=2 parallel.zero=1 checkpoint.memory_every=1
	checkpoint_of zero
	"$MUSTER" stop zero
	ended 75
}

@test "a checkpoint on request with a parameter server, with and without staleness" {
	local staleness
	for staleness in 0 2; do
		long "server$staleness" parallel.dp=3 batch.global=3 parallel.sync=server parallel.staleness=$staleness
		checkpoint_of "server$staleness"
		local first=$step
		checkpoint_of "server$staleness"
		[[ $step -gt $first ]]
		wait_for 60 step_reached "server$staleness" $((step + 3))
		"$MUSTER" stop "server$staleness"
		ended 75
	done
}

@test "requests that come together get the same checkpoint" {
	long together parallel.dp=2
	kill -STOP $(event together hello | grep -oP '"pid":\K[0-9]+')
	local i waiting=()
	for i in 1 2 3; do
		"$MUSTER" checkpoint together >"$BATS_TEST_TMPDIR/$i" 2>"$BATS_TEST_TMPDIR/$i.err" 3>&- &
		waiting+=($!)
	done
	wait_for 60 eval '[[ $(cat "$BATS_TEST_TMPDIR"/*.err | grep -c "the step that the run is in") -eq 1 ]]'
	wait_for 60 eval '[[ $(cat "$BATS_TEST_TMPDIR"/*.err | grep -c "this request waits for it") -eq 2 ]]'
	kill -CONT $(event together hello | grep -oP '"pid":\K[0-9]+')
	wait "${waiting[@]}"
	[[ $(sort -u "$BATS_TEST_TMPDIR"/[123] | wc -l) -eq 1 && $(event together ckpt | wc -l) -eq 1 ]]
	"$MUSTER" stop together
	ended 75
}

@test "a checkpoint that fails is told, and the run trains on" {
	long full parallel.dp=2
	chmod 500 "$(run_folder full)/ckpt"
	[[ $(id -u) -ne 0 ]] || { rm -r "$(run_folder full)/ckpt" && : >"$(run_folder full)/ckpt"; }
	run "$MUSTER" checkpoint full
	echo "$output"
	[[ $status -eq 1 && $output == *"the checkpoint failed: "*"ckpt"*"the run trains on"* ]]
	wait_for 60 step_reached full $(($(last_step full) + 3))
	"$MUSTER" stop full --now
	ended 75
}

@test "a loss while a checkpoint is asked for ends the wait with words" {
	long lossy parallel.dp=2
	local ranks
	ranks=$(event lossy hello | grep -oP '"pid":\K[0-9]+')
	kill -STOP $ranks
	"$MUSTER" checkpoint lossy >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	local asking=$!
	wait_for 60 grep -q "the step that the run is in" "$BATS_TEST_TMPDIR/out"
	kill -9 $ranks
	local rc=0
	wait $asking || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	[[ $rc -eq 1 && $(<"$BATS_TEST_TMPDIR/out") == *"the generation ended before the checkpoint was committed"* ]]
	wait_for 60 eval '[[ $(event lossy first-step | wc -l) -ge 2 ]]'
	checkpoint_of lossy
	"$MUSTER" stop lossy
	ended 75
}

# answered NAME EVENT: the supervisor has written this event, and answered since then.
answered() {
	local run=$1 kind=$2
	wait_for 60 eval '[[ -n $(event "$run" "$kind") ]]'
	wait_for 60 eval '[[ $("$MUSTER" status "$run" --json) == *"\"live\": true"* ]]'
}

@test "--json prints an object if the connection is lost, the run is lost, or there is no such run" {
	local command row name kind status_is words ranks asking rc
	for row in "checkpoint ckpt-asked 1 the connection ended before" "stop stop 3 lost"; do
		read -r command kind status_is words <<<"$row"
		name=gone-$command
		long "$name" parallel.dp=2
		ranks=$(event "$name" hello | grep -oP '"pid":\K[0-9]+')
		kill -STOP $ranks
		"$MUSTER" "$command" "$name" --json >"$BATS_TEST_TMPDIR/out" 2>/dev/null 3>&- &
		asking=$!
		answered "$name" "$kind"
		kill -9 $pid
		wait $pid || true
		rc=0
		wait $asking || rc=$?
		kill -CONT $ranks
		echo "$row: $rc $(<"$BATS_TEST_TMPDIR/out")"
		[[ $rc -eq $status_is ]]
		python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
assert o["ok"] is False and sys.argv[2] in o["text"], o' "$BATS_TEST_TMPDIR/out" "$words"
		wait_for 60 eval '! kill -0 $ranks 2>/dev/null'
	done
	"$MUSTER" stop no-such-run --json >"$BATS_TEST_TMPDIR/out" 2>/dev/null || [[ $? -eq 3 ]]
	python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
assert o["ok"] is False and "no-such-run" in o["text"], o' "$BATS_TEST_TMPDIR/out"
}

@test "the file control is private, names no wider address than the agents', and a changed one opens nothing" {
	long guarded parallel.dp=2
	local file
	file=$(run_folder guarded)/control
	[[ $(stat -c %a "$file") == 600 ]]
	python3 -c '
import json, sys
c = json.load(open(sys.argv[1]))
assert c["address"].startswith("127.0.0.1:") or c["address"].startswith("[::1]:"), c["address"]
assert len(c["secret"]) == 64, "secret"
for name in sys.argv[2:]:
    assert c["secret"] not in open(name).read(), name' "$file" "$(run_folder guarded)"/{events.jsonl,state.json} "$BATS_FILE_TMPDIR/guarded.out"
	cp -p "$file" "$BATS_TEST_TMPDIR/control"
	sed -i 's/"secret": "[0-9a-f]*"/"secret": "'"$(printf 'a%.0s' {1..64})"'"/' "$file"
	run "$MUSTER" stop guarded
	echo "$output"
	[[ $status -eq 3 && $output != *aaaaaaaa* ]]
	[[ $("$MUSTER" status guarded --json) == *'"live": false'* ]]
	cp -p "$BATS_TEST_TMPDIR/control" "$file"
	chmod 644 "$file"
	run "$MUSTER" stop guarded
	[[ $status -eq 3 ]]
	chmod 600 "$file"
	echo '{"version": 9}' >"$file"
	run "$MUSTER" stop guarded
	[[ $status -eq 3 ]]
	cp -p "$BATS_TEST_TMPDIR/control" "$file"
	"$MUSTER" stop guarded
	ended 75
}

@test "a supervisor that does not answer, and one that is gone" {
	long mute parallel.dp=2
	kill -STOP $pid
	run "$MUSTER" stop mute
	echo "$output"
	[[ $status -eq 3 && $output == *"process $pid is stopped (SIGSTOP)"* ]]
	kill -CONT $pid
	kill -9 $pid
	wait $pid || true
	run "$MUSTER" stop mute
	echo "$output"
	[[ $status -eq 3 && $output == *"the run is lost"*"process $pid"* ]]
	run "$MUSTER" checkpoint mut
	[[ $status -eq 3 && $output == *"did you mean mute?"* ]]
	run "$MUSTER" stop
	[[ $status -eq 2 ]]
}
