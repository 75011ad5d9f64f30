#!/usr/bin/env bats
# A program of the user in a Slurm job whose nodes are lost or taken: it goes on, from its own checkpoint, with a spare node, with fewer
# tasks, or when the job begins again. A real Slurm with four nodes on the loopback address.

load ../helpers
load jobs

preemption='PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=requeue Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF'

setup_file() { CLUSTER_PARTITIONS=$preemption start_cluster 4; }
teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# submit_program NAME WORD...: submits the program, and sets $id.
submit_program() {
	local name=$1
	shift
	cat >"$BATS_FILE_TMPDIR/$name.ini" <<-INI
		[job]
		run_dir = $BATS_FILE_TMPDIR
		program = python3 $top/tests/slurm/elastic_program.py 800 $BATS_FILE_TMPDIR/state-$name
		[slurm]
		cpus_per_task = 1
		gpus_per_node = 2
		[restart]
		backoff = 0.1
	INI
	id=$("$MUSTER" submit "$BATS_FILE_TMPDIR/$name.ini" "$@")
	[[ $id =~ ^[0-9]+$ ]]
}

output_of() { "$MUSTER" logs "$(run_folder "$1")"; }
# What the tasks of a generation say that the world is, once each.
worlds() { output_of "$1" | grep -oP "rank \d+ of \K\d+(?= continues from step .* start $2)" | sort -u | tr '\n' ' '; } # run restarts

# is_done RUN WORLD: the job has ended well, all tasks of the last world ended after the last step, and nothing is left.
is_done() {
	ends_with 0 || return 1
	[[ $(output_of "$1" | grep -c "of $2 ends after step 800") -eq $2 ]] || { output_of "$1" | tail -n 30; return 1; }
	wait_for 60 no_agent
	[[ -z $(processes elastic_program.py) ]]
}

@test "a node dies and a spare replaces it: as many tasks go on from the program's checkpoint" {
	submit_program spare parallel.dp=4 slurm.nodes=2 slurm.spares=1
	wait_for 60 step_reached spare 45
	[[ $(nodes_of spare 1) == "n1 n2 " ]]
	kill_host n2
	is_done spare 4
	[[ $(event spare decision | grep -oP '"how":"\K[^"]+' | head -n 1) == spare ]]
	[[ $(nodes_of spare 2) == "n1 n3 " ]]
	[[ $(worlds spare 1) == "4 " ]]
	output_of spare | grep "rank 0 of 4 continues from step [1-9]"
}

@test "a node dies without a spare: fewer tasks go on, with a smaller world size" {
	submit_program smaller parallel.dp=6 slurm.nodes=3 restart.shrink=dp restart.regrow=no
	wait_for 60 step_reached smaller 45
	kill_host n3
	is_done smaller 4
	[[ $(worlds smaller 0) == "6 " && $(worlds smaller 1) == "4 " ]]
}

@test "a job with a range of nodes starts with fewer tasks where fewer nodes are free" {
	scontrol update NodeName=n4 State=DRAIN Reason=test
	submit_program range parallel.dp=8 slurm.nodes=2-4 restart.shrink=dp
	is_done range 6
	grep '^muster: 3 nodes cannot hold the layout of the job; it runs with tp 1 × dp 6 × pp 1$' "$(run_folder range)"/logs/slurm-*.out
}

@test "the job is preempted: the program saves after the same step on all ranks, and goes on when the job begins again" {
	submit_program taken parallel.dp=4 slurm.nodes=2 slurm.partition=requeue
	wait_for 60 step_reached taken 45
	sbatch --parsable --partition=high --nodes=4 --exclusive --output="$BATS_TEST_TMPDIR/high.out" --wrap "sleep 2"
	is_done taken 4
	[[ $(event_field taken stop-cause cause) == preempted ]]
	[[ $(output_of taken | grep -oP 'ends after step \K\d+' | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ') == "4 4 " ]]
}
