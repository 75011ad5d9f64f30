#!/usr/bin/env bats
# Whole runs of two ranks are killed at the system calls of a save, of an upload and of a resume, and started again: no checkpoint
# that was announced is lost, and the run ends with the same bits as an undisturbed one. tests/unit/agent/test_ckpt_crash does the
# same, faster, to the parts.
#
# `make check` kills at SOME calls of each, from a random one on (SEED); MUSTER_LARGE at each.

load ../helpers
load ../cli/s3

SOME=3

setup_file() {
	make_data
	make_tiny_job
	words="job.steps=12 checkpoint.every=4 checkpoint.keep=2 parallel.tp=2 restart.backoff=0.05"
	export words
	# shellcheck disable=SC2086 # a list of words
	run_tiny undisturbed $words
}

setup() {
	at_call=$(dirname "$(realpath "$MUSTER")")/tests/tools/at_call
	seen=$BATS_TEST_TMPDIR/seen
	local status=0
	"$at_call" "$seen" / 0 count 0 true || status=$?
	[[ $status -ne 77 ]] || skip "ptrace is not possible here"
}

# at PATH WHO WHAT NUMBER WORD...: a run of the name "victim" under at_call; sets $status, $count, $hit and $call.
at() {
	local path=$1 who=$2 what=$3 number=$4
	shift 4
	status=0
	# shellcheck disable=SC2086
	"$at_call" "$seen" "$path" "$who" "$what" "$number" "$MUSTER" run "$tiny" job.name=victim $words "$@" \
		</dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- || status=$?
	read -r count hit call <"$seen"
}

# Prints the last step whose checkpoint the events announce; 0: none.
announced() {
	local said
	said=$(event_field victim ckpt step 2>/dev/null) || true
	echo "${said:-0}"
}

# go_on WORD...: the run is started again and must end as if nothing had been.
go_on() {
	local said ckpt
	ckpt=$(run_folder victim)/ckpt
	said=$(announced)
	[[ $said -eq 0 || -e $ckpt/step-$(printf %08d "$said") ]]
	[[ $said -eq 0 ]] || "$MUSTER" ckpt verify "$ckpt" >"$BATS_TEST_TMPDIR/verified"
	# shellcheck disable=SC2086
	run_tiny victim $words "$@"
	"$losses" compare "$(run_folder undisturbed)/metrics.jsonl" "$(run_folder victim)/metrics.jsonl" 0 >"$BATS_TEST_TMPDIR/losses"
	"$losses" repeats "$(run_folder victim)/metrics.jsonl" >"$BATS_TEST_TMPDIR/repeats"
	# Step 4 stays if it was being copied.
	[[ $(ls -A "$ckpt" | grep -v -e UPLOADS -e step-00000004) == $'step-00000008\nstep-00000012' ]]
	"$MUSTER" ckpt verify "$ckpt" >"$BATS_TEST_TMPDIR/verified"
	"$MUSTER" ckpt diff "$ckpt/step-00000012" "$(run_folder undisturbed)/ckpt/step-00000012" >"$BATS_TEST_TMPDIR/diff"
}

# sweep PATH PREPARE WORD...: counts the calls of each process that names PATH, then kills at them. PREPARE runs before each.
sweep() {
	local path=$1 prepare=$2 who what number step points=0
	shift 2
	draw_number 1000
	for who in 0 1; do
		rm -rf "$(run_folder victim)"
		$prepare
		at "$path" $who count 0 "$@"
		[[ $status -eq 0 ]]
		[[ $count -gt 0 ]] || break
		[[ -n ${MUSTER_LARGE-} ]] && step=1 || step=$(((count + SOME - 1) / SOME))
		for what in all one; do
			for ((number = 1 + drawn % step; ; number += step)); do
				rm -rf "$(run_folder victim)"
				$prepare
				at "$path" $who $what $number "$@"
				echo "$what killed at call $number of process $who, $call: exit $status"
				[[ $hit -eq 1 ]] || break
				[[ $what == one && $status -eq 0 || $what == all && $status -eq 137 ]]
				go_on "$@"
				points=$((points + 1))
			done
		done
	done
	[[ $points -ge $SOME ]]
	figure "$path: $points points"
}

nothing() { true; }

@test "a run is killed at the system calls of a save" {
	sweep .attempt-00000008 nothing
}

# Trains to step 8 and stops there, as a stop in between would.
half() {
	# shellcheck disable=SC2086
	"$at_call" "$seen" .attempt-00000012 0 all 1 "$MUSTER" run "$tiny" job.name=victim $words </dev/null >"$BATS_TEST_TMPDIR/half" 2>&1 3>&- || true
}

@test "a run is killed at the system calls of a resume" {
	sweep step-00000008/ half
}

clear_remote() { rm -rf "$BATS_TEST_TMPDIR/remote"; }

@test "a run is killed at the system calls of an upload" {
	sweep remote/.attempt- clear_remote checkpoint.remote="$BATS_TEST_TMPDIR/remote" checkpoint.remote_keep=2
	[[ $(ls -A "$BATS_TEST_TMPDIR/remote") == $'RUN\nstep-00000008\nstep-00000012' ]]
	"$MUSTER" ckpt verify "$BATS_TEST_TMPDIR/remote/step-00000012"
	cmp "$BATS_TEST_TMPDIR/remote/step-00000012/MANIFEST.json" "$(run_folder victim)/ckpt/step-00000012/MANIFEST.json"
}

# A store that is empty, and fails now and then.
restart_store() {
	[[ ! -e $BATS_FILE_TMPDIR/store/pid ]] || stop_store
	rm -rf "$BATS_FILE_TMPDIR/store"
	start_store
	plan '* every7 503 0.01' '* every5 cut' 'PutObject every3 lost'
}

teardown_file() { [[ ! -e $BATS_FILE_TMPDIR/store/pid ]] || kill "$(<"$BATS_FILE_TMPDIR/store/pid")" || true; }

@test "a run is killed at the system calls of an upload to a store that fails, too" {
	sweep UPLOADS.tmp restart_store checkpoint.remote=s3://bucket/runs/victim checkpoint.remote_keep=2
	plan ""
	run "$MUSTER" ckpt verify s3://bucket/runs/victim
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == *step-00000012:\ ok && ${lines[1]} == *step-00000008:\ ok ]]
	"$MUSTER" ckpt diff s3://bucket/runs/victim/step-00000012 "$(run_folder undisturbed)/ckpt/step-00000012"
}
