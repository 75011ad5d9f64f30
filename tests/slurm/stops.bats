#!/usr/bin/env bats
# Slurm stops a job: muster asks why, and the job begins again in the queue if Slurm was the cause and [slurm] requeue permits it.

load ../helpers
load jobs

# Jobs of the partition high take the nodes of the others, of which each has its own way to end a job.
preemption='PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=requeue Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=requeue-now Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=cancel Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=cancel-now Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=0
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF'

setup_file() { CLUSTER_PARTITIONS=$preemption start_two_nodes; }
teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { cancel_all; }

cause() { event_field "$1" stop-cause cause; }
says_requeued() { [[ -n $(event "$1" requeued) ]]; }
is_requeued() { [[ $(job_field Restarts) -ge 1 ]] && job_is "PENDING|RUNNING|COMPLETING"; }

# Lets a job that Slurm has requeued start after 15 s instead of two minutes.
start_soon() {
	wait_for 60 job_is PENDING
	scontrol update "jobid=$id" starttime=now+15
}

# preempt: takes both nodes for two seconds.
preempt() { sbatch --parsable --partition=high --nodes=2 --exclusive --output="$BATS_TEST_TMPDIR/high.out" --wrap "sleep 2"; }

# is_right RUN: the job has ended well, and the run has the losses of an undisturbed one, to the bit, and each sample once.
is_right() {
	ends_with 0 || return 1
	has_bits_of "$1" alone
	wait_for 60 no_agent
}

# The job starts again after 15 s, when Slurm's nodes accept it again.
goes_on_after() { # run cause
	wait_for 60 is_requeued
	[[ $(cause "$1") == "$2" ]] || { event "$1" stop-cause; return 1; }
	wait_for 60 says_requeued "$1" # Slurm knows it first
	is_right "$1"
}

# Each start of the job has about 40 s, because Slurm looks at time limits every 30 s or so.
@test "time limits: the job is requeued until its work is done, and has the bits of a run without a limit" {
	large
	run_tiny unlimited parallel.dp=2 job.steps=6000 checkpoint.every=0 launch.launcher=local
	submit limit job.steps=6000 slurm.time=1 slurm.signal_before=30
	wait_for 400 job_over
	ends_with 0
	[[ $(event limit stop-cause | wc -l) -ge 1 && $(event limit requeued | wc -l) -eq $(event limit stop-cause | wc -l) ]]
	has_bits_of limit unlimited
}

@test "preemption with a grace time: the job is requeued, and ends with the same bits" {
	submit grace slurm.partition=requeue
	wait_for 60 step_reached grace 20
	preempt
	goes_on_after grace preempted
}

@test "preemption that cancels after a grace time: the job is requeued all the same" {
	large
	submit cancel slurm.partition=cancel
	wait_for 60 step_reached cancel 20
	preempt
	goes_on_after cancel preempted
}

@test "preemption that cancels without a grace time: a new job of the same submission goes on" {
	large
	submit gone slurm.partition=cancel-now
	wait_for 60 step_reached gone 120
	preempt
	wait_for 60 job_is PREEMPTED
	wait_for 60 event gone chain
	[[ $(cause gone) == preempted ]]
	id=$(event_field gone chain job)
	is_right gone
}

@test "preemption without a grace time: Slurm itself requeues the job" {
	large
	submit at-once slurm.partition=requeue-now
	wait_for 60 step_reached at-once 120
	preempt
	wait_for 60 is_requeued
	[[ $(cause at-once) == requeued ]]
	start_soon
	is_right at-once
}

@test "scancel: the run stops with a checkpoint and stays stopped" {
	submit cancelled
	wait_for 60 step_reached cancelled 20
	scancel "$id"
	wait_for 60 job_over
	job_is CANCELLED
	[[ $(cause cancelled) == cancelled ]]
	[[ -z $(event cancelled requeued) ]]
	[[ $(event_field cancelled stopped step) -eq $(event_field cancelled ckpt step) ]]
}

@test "signals of the user: the run stops with a checkpoint and stays stopped" {
	local signal
	large
	for signal in TERM INT USR1; do
		submit "by-$signal"
		wait_for 60 step_reached "by-$signal" 20
		scancel --batch --signal=$signal "$id"
		ends_with 75
		[[ $(cause "by-$signal") == person ]]
		[[ -z $(event "by-$signal" requeued) ]]
		[[ $(event_field "by-$signal" stopped step) -eq $(event_field "by-$signal" ckpt step | tail -n 1) ]]
	done
}

@test "scontrol requeue: the run stops with a checkpoint and goes on" {
	large
	submit again
	wait_for 60 step_reached again 20
	scontrol requeue "$id"
	wait_for 60 is_requeued
	[[ $(cause again) == requeued ]]
	start_soon
	is_right again
}

@test "requeue = no: the run stops at its time limit, and says why it does not go on" {
	large
	submit stays job.steps=100000 slurm.time=1 slurm.signal_before=50 slurm.requeue=no
	ends_with 75
	[[ $(cause stays) == time-limit ]]
	grep -q 'the job does not begin again: \[slurm\] requeue = no' "$(run_folder stays)"/logs/slurm-*.out
}
