#!/usr/bin/env bats
# [health] slow_policy = exclude on a real Slurm with three nodes on the loopback address: the run leaves the node of a slow rank.

load ../helpers
load jobs

setup_file() {
	start_cluster 3
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.cpus_per_task=1 parallel.dp=2 slurm.nodes=2 job.steps=90000 model.hidden=64 checkpoint.every=0 health.slow_window=2"
	words+=" health.pause=0"
	export words
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() {
	[[ -z ${held-} ]] || kill -CONT "$held" 2>/dev/null || true
	cancel_all
}

# Stops a rank for nine tenths of each second, for 120 s at most, until the command succeeds.
hold_back_until() { # run rank command...
	local i
	held=$(agent_pid "$1" "$2")
	shift 2
	for ((i = 0; i < 120; i++)); do
		kill -STOP "$held" 2>/dev/null || true
		sleep 0.9
		kill -CONT "$held" 2>/dev/null || true
		sleep 0.1
		! "$@" >/dev/null || return 0
	done
	return 1
}

generation_trains() { event "$1" first-step | grep -q "\"generation\":$2,"; } # run generation

@test "the run leaves the node of a slow rank for a spare, from a checkpoint" {
	submit spare slurm.spares=1 health.slow_policy=exclude
	wait_for 120 step_reached spare 20
	[[ $(nodes_of spare 1) == "n1 n2 " ]]
	hold_back_until spare 1 event spare slow-node
	wait_for 120 generation_trains spare 2
	event spare slow-node | grep '"node":"n2","excluded":true'
	event spare node-suspected | grep '"node":"n2","kind":"slow".*went on without it'
	[[ $(nodes_of spare 2) == "n1 n3 " ]]
	[[ -z $(event spare rank-lost) ]]
	[[ $(event_field spare ckpt step) -ge 20 ]]
	[[ $(event spare generation-start | tail -n 1 | grep -oP '"restarts":\K[0-9]+') == 0 ]]
	figure "spare: $(span "$(event_field spare slow-node mono)" "$(event spare first-step | tail -n 1 | grep -oP '"mono":\K[0-9.]+')") s from the decision to the first step on the spare"
}

@test "without a spare and with shrink = keep the slow node stays, and the run says why" {
	submit stays health.slow_policy=exclude restart.shrink=keep
	wait_for 120 step_reached stays 20
	hold_back_until stays 1 event stays slow-node
	event stays slow-node | grep '"node":"n2","excluded":false,"text":"n2 stays: the run does not fit on the other nodes'
	[[ $(event stays generation-start | wc -l) -eq 1 ]]
}

@test "without a spare the run goes on with fewer ranks if that is faster" {
	large
	submit fewer health.slow_policy=exclude restart.shrink=dp
	wait_for 120 step_reached fewer 20
	hold_back_until fewer 1 event fewer slow-node
	wait_for 120 generation_trains fewer 2
	[[ $(nodes_of fewer 2) == "n1 " ]]
}
