#!/usr/bin/env bats
# A run whose nodes are lost goes on with those that are left, and grows again when they are back: a real Slurm with four nodes on the
# loopback address.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1 batch.global=24 job.steps=600 checkpoint.every=20"
	export words
	run_tiny alone batch.global=24 job.steps=600 checkpoint.every=0 launch.launcher=local
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# Prints the seconds between two events of a run: the last ones of their kinds.
between() { span "$(event_field "$1" "$2" time)" "$(event_field "$1" "$3" time)"; } # run event event

has_generation() { [[ $(event_field "$1" first-step generation) -ge $2 ]]; } # run generation

# Prints what the last decision was.
decision() { event "$1" decision | tail -n 1 | grep -oP '"how":"\K[^"]+' | head -n 1; } # run
decided() { [[ $(decision "$1") == "$2" ]]; } # run how

# is_right RUN: the job has ended well, each sample was used once, the losses are those of a run on one process, and nothing is left.
# Rounding differs between layouts, and grows over 600 steps: to some 1e-5 in the losses, and to more in the norms of the gradients.
is_right() {
	ends_with 0 || return 1
	run "$MUSTER" data audit "$(run_folder "$1")"
	[[ $status -eq 0 ]] || { echo "$output"; return 1; }
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 1
	echo "$output"
	[[ $status -eq 0 && $output =~ "loss "([0-9.e+-]+) ]] || return 1
	awk -v difference="${BASH_REMATCH[1]}" 'BEGIN { exit !(difference <= 1e-4) }' || return 1
	wait_for 60 no_agent
}

# is_accounted_for RUN: each second of each of the 8 devices of the job is in one part of time.jsonl, and some of them had no rank.
is_accounted_for() {
	python3 - "$(run_folder "$1")/time.jsonl" <<-'PY'
		import json, sys
		lines = [line for line in map(json.loads, open(sys.argv[1])) if "format" not in line]
		for line in lines:
		    parts = sum(s for name, s in line.items() if name.endswith("_s") and name not in ("wall_s", "total_s"))
		    assert line["devices"] == 8 and abs(parts - 8 * line["wall_s"]) < 1e-4, (parts, line)
		print(lines[-1])
		assert lines[-1]["idle_s"] > 0 and lines[-1]["lost_s"] > 0 and lines[-1]["restart_s"] > 0
	PY
}

recovery_figure() { # run
	figure "$1: node lost: seen after $(span "$killed" "$(event_field "$1" rank-lost time)") s, first step" \
		"$(between "$1" rank-lost first-step) s later; $(event "$1" decision | tail -n 1 | grep -oP '"text":"\K[^"]+' | head -n 1)"
}

@test "a node dies and a spare replaces it, with the same layout" {
	submit spare parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3 slurm.spares=1
	wait_for 60 step_reached spare 45
	[[ $(nodes_of spare 1) == "n1 n2 n3 " ]]
	kill_host n2
	is_right spare
	[[ $(decision spare) == spare ]]
	[[ $(event_field spare rank-lost node) == n2 ]]
	[[ $(nodes_of spare 2) == "n1 n3 n4 " ]]
	is_accounted_for spare
	recovery_figure spare
}

@test "a node of four dies without a spare: the planner finds a layout for what is left" {
	submit smaller parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4
	wait_for 60 step_reached smaller 45
	kill_host n3
	is_right smaller
	[[ $(decision smaller) == replan ]]
	[[ $(nodes_of smaller 2) != *n3* ]]
	grep -q 'n3 cannot be reached' "$(run_folder smaller)"/logs/slurm-*.out
	recovery_figure smaller
}

@test "two nodes die, one after the other" {
	large
	submit twice parallel.tp=2 parallel.pp=1 parallel.dp=4 slurm.nodes=4 restart.shrink=dp
	wait_for 60 step_reached twice 25
	kill_host n4
	wait_for 60 has_generation twice 2
	kill_host n2
	is_right twice
	[[ $(nodes_of twice 3) == "n1 n3 " ]]
	[[ $(event twice decision | wc -l) == 2 ]]
	recovery_figure twice
}

@test "a node comes back and the run grows again" {
	large
	submit grown parallel.tp=2 parallel.pp=1 parallel.dp=4 slurm.nodes=4 restart.shrink=dp
	wait_for 60 step_reached grown 25
	kill_host n4
	wait_for 60 has_generation grown 2
	start_slurmd n4
	is_right grown
	[[ $(decision grown) == grow ]]
	# The node was checked first, while the run trained.
	[[ $(event grown node-check) == *'"node":"n4","passed":true'* ]]
	[[ $(nodes_of grown 3) == "n1 n2 n3 n4 " ]]
	is_accounted_for grown
	# It stops for a checkpoint, so no step is repeated.
	[[ $(event_field grown ready step) == $(event grown ckpt | grep '"generation":2[,}]' | tail -n 1 | grep -oP '"step":\K[0-9]+') ]]
}

@test "a layout that must stay waits for the node, and runs on when it is back" {
	large
	submit waits parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4 slurm.requeue=no restart.shrink=keep restart.patience=120
	wait_for 60 step_reached waits 45
	kill_host n4
	wait_for 60 decided waits wait
	start_slurmd n4
	is_right waits
	[[ $(nodes_of waits 2) == "n1 n2 n3 n4 " ]]
}

@test "a layout that must stay gives up when no node is expected back" {
	large
	submit gives-up parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4 slurm.requeue=no restart.shrink=keep restart.patience=0
	wait_for 60 step_reached gives-up 25
	kill_host n4
	ends_with 4
	[[ $(decision gives-up) == "give up" ]]
	wait_for 60 no_agent
}

@test "a node that is being drained is not used after a loss" {
	large
	submit drained parallel.tp=2 parallel.pp=1 parallel.dp=4 slurm.nodes=4
	wait_for 60 step_reached drained 25
	scontrol update NodeName=n3 State=DRAIN Reason=test
	kill -9 "$(agents n3 | head -n 1)"
	is_right drained
	[[ $(nodes_of drained 2) == "n1 n2 n4 " ]]
	grep -q 'n3 is drained' "$(run_folder drained)"/logs/slurm-*.out
}
