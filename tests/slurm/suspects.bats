#!/usr/bin/env bats
# Nodes of the list of suspects in submissions and runs, on a real Slurm with three nodes on the loopback address.

load ../helpers
load jobs

setup_file() {
	start_cluster 3
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.cpus_per_task=1 job.steps=20"
	export words
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }

teardown() {
	[[ -z $lacking ]] || scontrol update NodeName=n[1-3] State=RESUME 2>/dev/null || true
	cancel_all
}

# suspect NODE: a run has seen that a device of the node is lost.
suspect() {
	mkdir -p "$MUSTER_NODES_DIR"
	printf '{"time":%s,"cluster":"","node":"%s","kind":"device","evidence":"Xid 79","did":"","run":"/runs/a"}\n' \
		"$(date +%s)" "$1" >>"$MUSTER_NODES_DIR/$(id -u).jsonl"
}

@test "a suspect becomes the spare, and the other nodes work" {
	suspect n1
	submit spare slurm.nodes=2 slurm.spares=1 parallel.dp=2
	ends_with 0
	[[ $(nodes_of spare) == "n2 n3 " ]]
	grep -q "warning: n1 is a suspect (80 %): Xid 79" "$(run_folder spare)"/logs/slurm-*.out
}

@test "submit names the suspects that the job could get, and none that it excludes itself" {
	suspect n2
	suspect unknown
	run "$MUSTER" submit --dry-run "$tiny" slurm.nodes=2
	echo "$output"
	[[ $status -eq 0 && $output == *"warning: n2 is a suspect (80 %): Xid 79"* ]]
	[[ $output == *"to keep the job away from it: slurm.exclude=n2, or health.suspects=exclude"* ]]
	[[ $output != *unknown* ]]
	run "$MUSTER" submit --dry-run "$tiny" slurm.nodes=1 slurm.exclude=n[1-2]
	[[ $status -eq 0 && $output != *"is a suspect"* ]]
}

@test "submit keeps a job away from suspects if it says so, and refuses a job that cannot start without them" {
	suspect n2
	suspect unknown
	submit away slurm.nodes=2 parallel.dp=2 health.suspects=exclude
	ends_with 0
	[[ $(job_field ExcNodeList) == n2 && $(nodes_of away) == "n1 n3 " ]]
	run "$MUSTER" submit "$tiny" job.name=never slurm.nodes=3 health.suspects=exclude
	echo "$output"
	[[ $status -eq 3 && $output == *"n2 is a suspect"*"excludes it"* && ! -e $(run_folder never) ]]
}

@test "a node that Slurm takes away from a run gets a line, with what was done" {
	submit lost slurm.nodes=2 slurm.spares=1 parallel.dp=2 job.steps=90000 restart.backoff=0.1
	wait_for 60 step_reached lost 5
	scontrol update NodeName=n1 State=FAIL Reason=test
	kill -9 "$(agent_pid lost 0)"
	wait_for 60 event lost node-suspected
	event lost node-suspected | grep -q '"node":"n1","kind":"down"'
	scancel --signal=TERM --batch "$id"
	wait_for 60 job_over
	run "$MUSTER" nodes show n1
	echo "$output"
	[[ $output == *"down "*"(job $id)"* ]]
}
