#!/usr/bin/env bats
# muster drill in an allocation of a real Slurm with four nodes on the loopback address.

bats_require_minimum_version 1.5.0
load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4 slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1"
	export words
}

teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
}

# drill NAME WORD...: drills the tiny job as NAME in an allocation of four nodes; $output is the table.
drill() {
	local name=$1
	shift
	# shellcheck disable=SC2086 # a list of words
	run --separate-stderr salloc --quiet --no-kill -N4 --ntasks-per-node=2 --gpus-per-node=2 \
		"$MUSTER" drill "$tiny" "job.name=$name" $words "$@"
	echo "$output"
	echo "$stderr"
}

# Prints the processes of the drills on this cluster.
processes_left() {
	local env
	for env in /proc/[0-9]*/environ; do
		grep -qz "^DRILL_MARK=" "$env" 2>/dev/null && grep -qzxF "SLURM_CONF=$SLURM_CONF" "$env" && echo "${env//[!0-9]/}"
	done
	true
}
none_left() { [[ -z $(processes_left) ]]; }

@test "an agent, srun and a slurmstepd are killed: the run recovers to the same bits" {
	large
	drill cluster --fault agent-killed,srun-killed,slurmstepd-killed
	[[ $status -eq 0 ]]
	[[ $output == *"agent-killed"*" right"*"srun-killed"*" right"*"slurmstepd-killed"*" right"* ]]
	[[ $output == *"3 drilled, 3 right, 0 skipped" ]]
	[[ ! -e $(run_folder drill-cluster) ]]
	none_left
	figure "$(grep '^agent-killed' <<<"$output")"
}

@test "agents fail by themselves, and all agents of a node are killed" {
	large
	drill inside --steps 60 --fault agent-exited,device-lost,numeric,node-agents-killed slurm.nodes=3-4 restart.shrink=any
	[[ $status -eq 0 ]]
	[[ $output == *"4 drilled, 4 right, 0 skipped" ]]
}

@test "slurmctld and munged seem to be away, and the plugin for PMIx is missing: the cluster is not touched" {
	# PATH may be unset, and the current folder is not searched.
	mkdir "$BATS_TEST_TMPDIR/here"
	printf '#!/bin/sh\ntouch "$0.ran"\n' >"$BATS_TEST_TMPDIR/here/squeue"
	chmod +x "$BATS_TEST_TMPDIR/here/squeue"
	cd "$BATS_TEST_TMPDIR/here"
	run --separate-stderr salloc --quiet --no-kill -N4 --ntasks-per-node=2 --gpus-per-node=2 env -u PATH "$(realpath "$MUSTER")" drill "$tiny" job.name=pathless $words --steps 60 --fault pmix-missing
	echo "$output"
	echo "$stderr"
	[[ $status -eq 0 && ! -e squeue.ran ]]
	cd -
	drill services --steps 60 --fault controller-away,pmix-missing
	[[ $status -eq 0 ]]
	[[ $output == *"2 drilled, 2 right, 0 skipped" ]]
	wait_for 60 all_idle
}

@test "munged seems to be away: the run waits and continues" {
	large
	drill munge --steps 60 --fault munge-away
	[[ $status -eq 0 ]]
}

@test "muster is killed and started again in the same allocation" {
	large
	drill again --fault supervisor-killed
	[[ $status -eq 0 ]]
}

@test "nodes are not drained without permission" {
	drill careful --steps 60 --fault node-drained,node-down
	[[ $status -eq 1 ]]
	[[ $output == *"node-drained         skipped: it changes the state of a node; --allow-node-faults permits it"* ]]
	wait_for 60 all_idle # the allocation may still be completing
}

@test "a node is drained: the run continues without it, and the node is put back" {
	drill shrinks --steps 240 --allow-node-faults --fault node-drained slurm.nodes=3-4 restart.shrink=any
	[[ $status -eq 0 ]]
	[[ $output == *"1 drilled, 1 right, 0 skipped" ]]
	wait_for 60 no_jobs
	wait_for 60 all_idle # the allocation may still be completing
}

@test "a node is expected to fail: the run continues without it" {
	large
	drill fails --steps 60 --allow-node-faults --fault node-fail slurm.nodes=3-4 restart.shrink=any
	[[ $status -eq 0 ]]
	wait_for 60 no_jobs
	wait_for 60 all_idle
}

@test "Ctrl-C ends the job step, and leaves no process and no folder" {
	large
	# shellcheck disable=SC2086
	salloc --quiet --no-kill -N4 --ntasks-per-node=2 --gpus-per-node=2 bash -c 'echo $$ >"$0"; exec "$@"' "$BATS_TEST_TMPDIR/pid" \
		"$MUSTER" drill "$tiny" job.name=stop $words --steps 100000 </dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	local salloc=$! rc=0
	wait_for 60 grep -qs '"first-step"' "$(run_folder drill-stop)/undisturbed/events.jsonl"
	kill -INT "$(<"$BATS_TEST_TMPDIR/pid")"
	wait $salloc || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	[[ $rc -eq 75 ]]
	none_left
	[[ ! -e $(run_folder drill-stop) ]]
	wait_for 60 no_jobs
}
