#!/usr/bin/env bats
# Under Slurm a rollback survives the end of the job: the requeued one skips the same samples.

load ../helpers
load jobs

setup_file() {
	start_two_nodes
	[[ -n $lacking ]] || run_tiny without parallel.dp=2 job.steps=1200 checkpoint.every=0 launch.launcher=local data.skip=240-247
}
teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { cancel_all; }

is_requeued() { [[ $(job_field Restarts) -ge 1 ]] && job_is "PENDING|RUNNING|COMPLETING"; }

@test "a poisoned batch, then a requeue: the run has the bits of the run without the batch" {
	large
	export DRILL_MARK=test DRILL_FAULT="poison 1 243 0" # it is in the batch of step 31
	submit poisoned health.bad_numbers=skip
	wait_for 90 event poisoned rollback
	wait_for 60 generation_steps poisoned 2
	scontrol requeue "$id"
	wait_for 60 is_requeued
	wait_for 60 job_is PENDING
	scontrol update "jobid=$id" starttime=now+15
	ends_with 0
	[[ $(event poisoned rollback | wc -l) -eq 1 ]]
	has_bits_of poisoned without
	run "$MUSTER" data audit "$(run_folder poisoned)"
	echo "$output"
	[[ $output == *"8 of them were skipped"* && $output == *"samples 240 to 247, by generation "*": step 31: the gradient norm is NaN or infinite (generation 1)"* ]]
}
