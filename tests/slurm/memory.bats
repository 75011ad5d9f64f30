#!/usr/bin/env bats
# A run that loses a node goes on from the copies in the memory of the others: with a spare node in the same layout, and without one in
# another. A real Slurm with four nodes on the loopback address.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1 batch.global=24 job.steps=600 checkpoint.every=0"
	words+=" checkpoint.memory_every=5"
	export words
	run_tiny alone batch.global=24 job.steps=600 checkpoint.every=0 checkpoint.memory_every=0 launch.launcher=local
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# The run lost a node, and continued at a step that only memory had.
continued_in_memory() { # run
	[[ $(event_field "$1" ready from) == memory && $(event_field "$1" ready step) -ge 40 ]] || { event "$1" ready; return 1; }
	figure "$1: continued from step $(event_field "$1" ready step)," \
		"first step $(span "$(event_field "$1" rank-lost time)" "$(event_field "$1" first-step time)") s after the loss was seen"
}

is_close() { # run
	ends_with 0 || return 1
	"$MUSTER" data audit "$(run_folder "$1")" || return 1
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 1
	echo "$output"
	[[ $status -eq 0 && $output =~ "loss "([0-9.e+-]+) ]] || return 1
	awk -v difference="${BASH_REMATCH[1]}" 'BEGIN { exit !(difference <= 1e-4) }' || return 1
	wait_for 60 no_agent
}

@test "a spare node takes the place of a lost one, and gets its state from the copies on another" {
	submit spare parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3 slurm.spares=1
	wait_for 60 step_reached spare 51
	kill_host n2
	is_close spare
	[[ $(nodes_of spare 2) == *n4* ]]
	continued_in_memory spare
}

@test "three nodes of four take another layout, and the copies with them" {
	submit smaller parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4
	wait_for 60 step_reached smaller 51
	kill_host n3
	is_close smaller
	continued_in_memory smaller
}
