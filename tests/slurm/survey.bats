#!/usr/bin/env bats
# The state of a job's nodes, the end of a step on a dead node, and a requeue without a bad node, under a real Slurm.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	tool=$(dirname "$(realpath "$MUSTER")")/tests/tools/slurm_nodes
	export tool
}

teardown_file() { stop_cluster; }

setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# start_job WORD...: submits a job that sleeps on four nodes, and sets $id and SLURM_JOB_ID to its id.
start_job() {
	id=$(sbatch --parsable --no-kill --requeue --nodes=4 --ntasks-per-node=2 --gpus-per-node=2 \
		--output="$BATS_TEST_TMPDIR/job.log" --wrap "exec sleep 1000")
	export SLURM_JOB_ID=$id
	wait_for 60 job_is RUNNING
}

@test "the states of nodes are those that the controller gives" {
	start_job
	run "$tool" survey 'n[1-4]' 'n[1-4]'
	[[ $output == $'n1 is up\nn2 is up\nn3 is up\nn4 is up\nanswered, can be requeued' ]]
	scontrol update nodename=n2 state=drain reason=test
	scontrol update nodename=n3 state=fail reason=test
	scontrol update nodename=n4 state=down reason=test
	run "$tool" survey 'n[1-5]' n1
	echo "$output"
	# slurmctld takes a node that is down from the job some time later.
	[[ ${output/n4 has left the job/n4 is down} == \
		$'n1 is up\nn2 is drained\nn3 is failing\nn4 is down\nn5 has left the job\nanswered, can be requeued' ]]
}

@test "a dead node is found before Slurm notices it, and its step is left behind" {
	start_job
	mkdir -p "$BATS_TEST_TMPDIR/run/logs"
	printf '#!/bin/sh\nexec sleep 1000\n' >"$BATS_TEST_TMPDIR/agent"
	chmod 700 "$BATS_TEST_TMPDIR/agent"
	mkfifo "$BATS_TEST_TMPDIR/hold"
	"$tool" kill 'n[1-4]' "$BATS_TEST_TMPDIR/run" "$BATS_TEST_TMPDIR/agent" lost <"$BATS_TEST_TMPDIR/hold" \
		>"$BATS_TEST_TMPDIR/killed" &
	local killer=$!
	exec 9>"$BATS_TEST_TMPDIR/hold"
	wait_for 60 tasks_run 8
	kill_host n3
	run "$tool" survey 'n[1-4]' 'n[1-4]'
	echo "$output"
	[[ $output == *$'n2 is up\nn3 cannot be reached\nn4 is up\nanswered'* ]]
	exec 9>&-
	wait "$killer"
	figure "step on a dead node: $(<"$BATS_TEST_TMPDIR/killed")"
	# scancel waits 10 s for the dead node, srun until SlurmdTimeout; nobody waits for them.
	awk '{ exit !($2 < 9) }' "$BATS_TEST_TMPDIR/killed"
	# The next step runs on the nodes that are left, while the controller still lists the old one.
	run "$tool" kill n1,n2,n4 "$BATS_TEST_TMPDIR/run" /bin/true </dev/null
	[[ $status -eq 0 && $output == gone* ]]
}

tasks_run() { [[ $(pgrep -cfx 'sleep 1000' -P "$(pgrep -d, -f 'slurmstepd: \[')") -ge $1 ]]; }

@test "a silent controller is named, and suspects are still connected to" {
	start_job
	local pid
	pid=$(awk '$2 == "slurmctld" { print $1 }' "$cluster/pids")
	kill -STOP "$pid"
	run "$tool" survey 'n[1-4]' 'n1'
	kill -CONT "$pid"
	echo "$output"
	[[ $output == *"silent, cannot be requeued"*"no answer from slurmctld within 3 s"* ]]
}

is_requeued() { grep -qs requeued "$BATS_TEST_TMPDIR/job.log"; }

@test "a job is requeued without a bad node, on fewer nodes, and is not held" {
	large
	cat >"$BATS_TEST_TMPDIR/job" <<-END
		#!/bin/bash
		trap : TERM
		echo "start on \$SLURM_JOB_NODELIST with \$SLURM_TASKS_PER_NODE"
		[[ -z \${SLURM_RESTART_COUNT-} ]] || exit 0
		$tool requeue n2 2 3
	END
	id=$(sbatch --parsable --no-kill --requeue --open-mode=append --nodes=4 --ntasks-per-node=2 --gpus-per-node=2 \
		--output="$BATS_TEST_TMPDIR/job.log" "$BATS_TEST_TMPDIR/job")
	wait_for 60 is_requeued
	[[ $(job_field ExcNodeList) == n2 ]]
	# It starts 15 s later, or at the next look of the scheduler, which is at most 30 s away; not after 121 s.
	wait_for 60 no_jobs
	cat "$BATS_TEST_TMPDIR/job.log"
	grep -qx 'start on n\[1-4\] with 2(x4)' "$BATS_TEST_TMPDIR/job.log"
	grep -qE '^start on n\[(1,3|1,4|3-4)\] with 2\(x2\)$' "$BATS_TEST_TMPDIR/job.log"
}
