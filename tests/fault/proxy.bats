#!/usr/bin/env bats
# Bytes that are dropped, doubled, delayed or changed on the way: whatever a run that ends well has computed and recorded is
# what the undisturbed run has. The seeds are printed; SEED sets the first one.

load ../helpers

setup() {
	proxy_runs=$top/tests/fault/proxy_runs
	export SEED=${SEED:-$((RANDOM * 100))} AT_ONCE=8
}

@test "the control channel is disturbed: no run that ends well differs" {
	run "$proxy_runs" 12 control
	echo "$output"
	[[ $status -eq 0 ]]
	figure "${lines[-1]} (seeds from $SEED)"
}

@test "what the reporting rank sends is lost from some byte on: the series is whole all the same" {
	# A checkpoint that is committed although its metrics did not arrive lets the next generation begin behind the hole.
	ACTIONS=s FAULTS=1 SEED=1 run "$proxy_runs" 4 control parallel.pp=1 parallel.dp=1
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "the data between ranks is disturbed: with checksum and with seal no run that ends well differs" {
	local mode
	for mode in checksum seal; do
		run "$proxy_runs" 6 data "network.integrity=$mode"
		echo "$output"
		[[ $status -eq 0 ]]
		figure "$mode: ${lines[-1]} (seeds from $SEED)"
	done
}

@test "a flipped bit ends the generation with both ranks, the connection and the remedy; the run goes on" {
	export KEEP=$BATS_TEST_TMPDIR/kept ALL=1 FAULTS=1 ACTIONS=f SEED=1
	run "$proxy_runs" 1 data network.integrity=checksum
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"same, 2 generations"* ]]
	grep '"rank-lost"' "$KEEP"/seed-1/run/events.jsonl
	grep '"rank-lost"' "$KEEP"/seed-1/run/events.jsonl |
		grep -E 'from .*rank [0-3].* came to world rank [0-3] on host .* broken: .*integrity = checksum.*test both hosts'
}
