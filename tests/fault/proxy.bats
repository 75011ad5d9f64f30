#!/usr/bin/env bats
# A proxy drops, repeats, delays or changes bytes between the processes. A run that ends with status 0 has computed and recorded
# the same as an undisturbed run. The seeds are printed; SEED sets the first one.

load ../helpers

setup() {
	proxy_runs=$top/tests/fault/proxy_runs
	export SEED=${SEED:-$((RANDOM * 100))} AT_ONCE=8
}

@test "with a disturbed control channel, no run that ends with status 0 differs" {
	run "$proxy_runs" 12 control
	echo "$output"
	[[ $status -eq 0 ]]
	figure "${lines[-1]} (seeds from $SEED)"
}

@test "the metrics are complete, even if what the reporting rank sends is lost from some byte on" {
	# If a checkpoint were committed before its metrics arrived, the next generation would begin after the gap.
	ACTIONS=s FAULTS=1 SEED=1 run "$proxy_runs" 4 control parallel.pp=1 parallel.dp=1
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "with disturbed data, and checksum or seal, no run that ends with status 0 differs" {
	local mode
	for mode in checksum seal; do
		run "$proxy_runs" 6 data "network.integrity=$mode"
		echo "$output"
		[[ $status -eq 0 ]]
		figure "$mode: ${lines[-1]} (seeds from $SEED)"
	done
}

@test "a flipped bit ends the generation; the error names both ranks, the connection and the remedy; the run continues" {
	export KEEP=$BATS_TEST_TMPDIR/kept ALL=1 FAULTS=1 ACTIONS=f SEED=1
	run "$proxy_runs" 1 data network.integrity=checksum
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"same, 2 generations"* ]]
	grep '"rank-lost"' "$KEEP"/seed-1/run/events.jsonl
	grep '"rank-lost"' "$KEEP"/seed-1/run/events.jsonl |
		grep -E 'from .*rank [0-3].* came to world rank [0-3] on host .* broken: .*integrity = checksum.*test both hosts'
}
