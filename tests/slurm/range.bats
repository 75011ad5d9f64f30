#!/usr/bin/env bats
# Jobs with a range of nodes and with spare nodes, in a real Slurm with four nodes on the loopback address.

load ../helpers

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.gpus_per_node=2 slurm.cpus_per_task=1 job.steps=20 checkpoint.every=10"
	export words
}

teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
}

teardown() {
	[[ -z $lacking ]] || return 0
	[[ -z $(squeue -h -o %i) ]] || scancel --user=root
	wait_for 30 no_jobs
	scontrol update NodeName=n3 State=RESUME 2>/dev/null || true # it fails if the node is not drained
	wait_for 30 all_idle
}

all_idle() { [[ $(sinfo -h -o '%T %D') == "idle 4" ]]; }
no_jobs() { [[ -z $(squeue -h -o %i) ]]; }

# Prints the node of each agent that has connected, once each.
nodes_of() { event "$1" hello | grep -oP '"node":"\K[^"]+' | sort -u | tr '\n' ' '; }

# submit_and_wait NAME WORD...: succeeds if the job ends with status 0.
submit_and_wait() {
	local name=$1 id
	shift
	# shellcheck disable=SC2086 # a list of words
	id=$("$MUSTER" submit "$tiny" "job.name=$name" $words "$@")
	wait_for 60 job_over "$id"
	[[ $(scontrol --oneliner show job "$id") == *" ExitCode=0:0 "* ]] && return
	tail -n 30 "$(run_folder "$name")"/logs/{slurm,launch}-*
	return 1
}
job_over() { [[ $(scontrol --oneliner show job "$1") =~ " JobState="(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)" " ]]; }

# has_samples NAME: succeeds if the run used each sample once.
has_samples() { "$MUSTER" data audit "$(run_folder "$1")"; }

@test "with a range the run starts on the nodes that are left, with the same global batch" {
	scontrol update NodeName=n3 State=DRAIN Reason=test
	submit_and_wait three slurm.nodes=3-4
	[[ $(nodes_of three) != *n3* ]]
	grep -q 'muster: dp = 1 instead of 2: 3 nodes hold no more; the global batch stays 8' "$(run_folder three)"/logs/slurm-*.out
	[[ $(event_field three "done" step) == 20 ]]
	has_samples three
	run_tiny alone job.steps=20 parallel.tp=2 parallel.pp=2 parallel.dp=2 checkpoint.every=10 launch.launcher=local
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder three)/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "with all nodes of the range the layout is that of the job" {
	submit_and_wait four slurm.nodes=3-4
	[[ $(nodes_of four) == "n1 n2 n3 n4 " ]]
	! grep -q 'instead of' "$(run_folder four)"/logs/slurm-*.out
}

@test "a range that cannot hold a layout that is to be kept is refused, and nothing is submitted" {
	# shellcheck disable=SC2086
	run "$MUSTER" submit "$tiny" job.name=kept $words slurm.nodes=3-4 restart.shrink=keep
	[[ $status -eq 2 ]]
	[[ $output == *"the fewest nodes, 3, have 6 GPUs for the 8 ranks"*"use nodes = 4, or shrink = dp"* ]]
	[[ ! -e $(run_folder kept) ]]
	no_jobs
}

@test "a spare node has no agent, and run and plan name it" {
	submit_and_wait spare slurm.nodes=3 slurm.spares=1 parallel.dp=1
	[[ $(nodes_of spare) != *n4* ]]
	grep -qx '1 spare node: n4' "$(run_folder spare)"/logs/slurm-*.out
	python3 - "$(run_folder spare)/plan-1.json" <<-'PY'
		import json, sys
		plan = json.load(open(sys.argv[1]))
		assert plan["spares"] == ["n4"] and "n4" not in plan["nodes"], plan["nodes"]
	PY
	run salloc -Q -N4 --ntasks-per-node=2 "$MUSTER" plan "$tiny" slurm.spares=1 parallel.auto=yes
	[[ $status -eq 0 ]]
	[[ $output == *"1 spare node: n4"* ]]
	run salloc -Q -N4 --ntasks-per-node=2 "$MUSTER" plan "$tiny" slurm.spares=1 parallel.tp=2 parallel.pp=3
	[[ $status -eq 0 ]]
	[[ $output == *"1 spare node: n4"* ]]
}

@test "a layout that lacks the spare node is refused with its name" {
	# shellcheck disable=SC2086
	run salloc -Q -N4 --ntasks-per-node=2 "$MUSTER" plan "$tiny" $words slurm.spares=1
	[[ $status -eq 3 ]]
	[[ $output == *"1 spare node: n4: "*"8 ranks"*"6 devices"* ]]
}

@test "muster chooses a layout for the nodes that are not spare" {
	salloc -Q -N4 --ntasks-per-node=2 "$MUSTER" run "$tiny" job.name=chosen job.steps=5 slurm.spares=1 parallel.auto=yes \
		>"$BATS_FILE_TMPDIR/chosen.out" 2>&1
	[[ $(nodes_of chosen) != *n4* ]]
	grep -qx '1 spare node: n4' "$BATS_FILE_TMPDIR/chosen.out"
}
