#!/usr/bin/env bats
# `muster trace RUN --next N`: the ranks of a running run record their next steps.

bats_require_minimum_version 1.5.0

load ../helpers
load long_run

ranks_of() { event "$1" hello | grep -oP '"pid":\K[0-9]+'; }

@test "the ranks record the same next steps, once or twice, and no bit of the run changes" {
	# The schedule does not depend on the number of steps, which nobody knows before the run is stopped.
	local words=(parallel.tp=2 parallel.pp=2 batch.global=8 checkpoint.memory_every=0 optimizer.decay_steps=1000) before last turn
	long asked "${words[@]}"
	for turn in 3 1; do
		before=$(last_step asked)
		run --separate-stderr "$MUSTER" trace asked --next $turn -o "$BATS_TEST_TMPDIR/$turn.json" --json
		echo "$output $stderr"
		[[ $status -eq 0 ]]
		python3 - "$(run_folder asked)" "$BATS_TEST_TMPDIR/$turn.json" $turn "$before" <<-PY
			import json, sys
			folder, picture, n, before = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
			told = json.loads('''$output''')
			first, last = told["first"], told["last"]
			assert first > before and last == first + n - 1 and told["ranks"] == 4 and told["lost"] == 0, told
			for rank in range(4):
			    own = json.load(open(f"{folder}/trace/gen-1/steps-{rank}.json"))
			    assert (own["rank"], own["first"], own["last"]) == (rank, first, last), own
			    assert {p[1] for p in own["phases"]} == set(range(first, last + 1))
			    assert any(g["ops"] for g in own["comm"]["groups"])
			events = json.load(open(picture))["traceEvents"]
			steps = [(e["pid"], e["name"]) for e in events if e.get("cat") == "step"]
			assert sorted(steps) == sorted((r, f"step {s}") for r in range(4) for s in range(first, last + 1)), steps
		PY
	done
	"$MUSTER" stop asked
	ended 75
	last=$(event_field asked finished step)
	run_tiny reference "job.steps=$last" "${words[@]}"
	has_same_bits asked reference
	[[ $(event asked trace-asked | grep -c " on ") -eq 2 ]]
}

@test "without -o the recording stays in the run folder" {
	long plain parallel.dp=2
	run "$MUSTER" trace plain --next 2
	echo "$output"
	[[ $status -eq 0 && $output == *"the next 2 steps are recorded"*"are recorded"* ]]
	"$MUSTER" trace plain --next 2 --json | python3 -c '
import json, os, sys
a = json.load(sys.stdin)
assert a["ok"] and a["last"] == a["first"] + 1 and os.path.exists(a["path"] + "/steps-1.json"), a'
	run "$MUSTER" trace plain -o "$BATS_TEST_TMPDIR/a.json"
	[[ $status -eq 0 && $output == *"of 2 ranks"* ]]
	"$MUSTER" stop plain --now
	ended 75
}

@test "a second request is refused until the first one is done" {
	long two parallel.dp=2
	kill -STOP $(ranks_of two)
	"$MUSTER" trace two --next 2 >"$BATS_TEST_TMPDIR/first" 2>&1 3>&- &
	local asking=$!
	wait_for 60 grep -q "the next 2 steps are recorded" "$BATS_TEST_TMPDIR/first"
	run "$MUSTER" trace two --next 3
	echo "$output"
	[[ $status -eq 3 && $output == *"2 steps are being recorded already, because "*" on "*" asked for it; ask again"* ]]
	kill -CONT $(ranks_of two)
	wait $asking
	"$MUSTER" trace two --next 3
	"$MUSTER" stop two --now
	ended 75
}

@test "a rank that dies, and a run that stops, end the wait with words" {
	long lossy parallel.dp=2
	local rc=0 asking ranks=()
	mapfile -t ranks < <(ranks_of lossy)
	kill -STOP "${ranks[@]}"
	"$MUSTER" trace lossy --next 5 -o "$BATS_TEST_TMPDIR/lossy.json" --json >"$BATS_TEST_TMPDIR/out" 3>&- &
	asking=$!
	wait_for 60 eval '[[ -n $(event lossy trace-asked) ]]'
	kill -9 "${ranks[0]}"
	kill -CONT "${ranks[1]}"
	wait $asking || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	[[ $rc -eq 1 && ! -e $BATS_TEST_TMPDIR/lossy.json ]]
	python3 -c 'import json, sys; a = json.load(sys.stdin); assert sorted(a) == ["ok", "text"] and not a["ok"] and "the generation ended before all ranks" in a["text"], a' <"$BATS_TEST_TMPDIR/out"
	wait_for 60 eval '[[ $(event lossy first-step | wc -l) -ge 2 ]]'
	run "$MUSTER" trace lossy --next 1 --json
	echo "$output"
	[[ $status -eq 0 && $output == *"/trace/gen-2"* ]]
	# The ranks learn of both between the same two steps, or the stop follows the first steps that are recorded.
	kill -STOP $(ranks_of lossy | tail -n 2)
	"$MUSTER" trace lossy --next 1000 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	asking=$!
	wait_for 60 eval '[[ $(event lossy trace-asked | wc -l) -eq 3 ]]'
	"$MUSTER" stop lossy --no-wait
	kill -CONT $(ranks_of lossy | tail -n 2)
	rc=0
	wait $asking || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	case $rc in
	0) grep -q "the run ends; steps [0-9]* to [0-9]* are recorded" "$BATS_TEST_TMPDIR/out" ;;
	1) grep -q "the generation ended before all ranks had written the steps" "$BATS_TEST_TMPDIR/out" ;;
	*) false ;;
	esac
	ended 75
	run "$MUSTER" trace lossy --next 1
	[[ $status -eq 3 && $output == *"the run has ended already: stopped"* ]]
}

@test "a rank that cannot write is named, and the run trains on" {
	long full parallel.dp=2
	: >"$(run_folder full)/trace"
	run "$MUSTER" trace full --next 2 -o "$BATS_TEST_TMPDIR/full.json"
	echo "$output"
	[[ $status -eq 1 && $output == *"the steps are not recorded: rank "[01]": "*"trace"* && ! -e $BATS_TEST_TMPDIR/full.json ]]
	wait_for 60 step_reached full $(($(last_step full) + 3))
	rm "$(run_folder full)/trace"
	"$MUSTER" trace full --next 2 -o "$BATS_TEST_TMPDIR/full.json"
	"$MUSTER" stop full --now
	ended 75
}

@test "what cannot be asked is refused" {
	run "$MUSTER" trace none --next 0
	[[ $status -eq 2 && $output == *'"0" is not a number of steps from 1 to 1000'* ]]
	run "$MUSTER" trace none --next 1001
	[[ $status -eq 2 && $output == *'"1001" is not a number of steps from 1 to 1000'* ]]
	run "$MUSTER" trace none --next 5 --steps 3-4
	[[ $status -eq 2 && $output == *"--steps cannot be used with --next"* ]]
	run "$MUSTER" trace none --next 5 --ranks 1
	[[ $status -eq 2 && $output == *"--ranks needs -o FILE"* ]]
	run "$MUSTER" trace none --next 5
	[[ $status -eq 3 ]]
	long server parallel.dp=2 parallel.sync=server
	run "$MUSTER" trace server --next 5
	echo "$output"
	[[ $status -eq 3 && $output == *"with parallel.sync = server the ranks do not meet after each step; start the run with trace.steps="* ]]
	"$MUSTER" stop server --now
	ended 75
}
