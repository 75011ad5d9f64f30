#!/usr/bin/env bats
# Jobs with a range of nodes and with spare nodes, in a real Slurm with four nodes on the loopback address.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.gpus_per_node=2 slurm.cpus_per_task=1 job.steps=20 checkpoint.every=10"
	export words
}

teardown_file() { stop_cluster; }

setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# submit_and_wait NAME WORD...: succeeds if the job ends with status 0.
submit_and_wait() {
	submit "$@"
	ends_with 0
}

# has_losses_of NAME REFERENCE: succeeds if the losses are equal up to rounding, and each sample was used once.
has_losses_of() {
	"$MUSTER" data audit "$(run_folder "$1")" || return 1
	"$losses" compare "$(run_folder "$2")/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 1e-5
}

@test "with a range the run starts on the nodes that are left, with the same global batch" {
	scontrol update NodeName=n3 State=DRAIN Reason=test
	submit_and_wait dp slurm.nodes=3-4 restart.shrink=dp
	[[ $(nodes_of dp) != *n3* ]]
	grep -q '^muster: 3 nodes cannot hold the layout of the job; it runs with tp 2 × dp 1 × pp 2, .* and the global batch stays 8$' \
		"$(run_folder dp)"/logs/slurm-*.out
	submit_and_wait any slurm.nodes=3-4
	[[ $(nodes_of any) != *n3* ]]
	grep '^muster: 3 nodes cannot hold the layout' "$(run_folder any)"/logs/slurm-*.out
	run_tiny alone job.steps=20 parallel.tp=2 parallel.pp=2 parallel.dp=2 checkpoint.every=10 launch.launcher=local
	has_losses_of dp alone
	has_losses_of any alone
}

@test "with all nodes of the range the layout is that of the job" {
	submit_and_wait four slurm.nodes=3-4
	[[ $(nodes_of four) == "n1 n2 n3 n4 " ]]
	run grep 'cannot hold' "$(run_folder four)"/logs/slurm-*.out
	[[ $status -eq 1 ]]
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
