#!/usr/bin/env bats
# A run that several jobs train one after another: muster submit --chain, slurm.chain, and the comment that tells when little is lost.

load ../helpers
load jobs

setup_file() { start_two_nodes; }
teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { cancel_all; }

jobs_of() { grep -oP '"job":"\K[0-9]+' "$(run_folder "$1")/submissions.jsonl"; }
states() { scontrol --oneliner show job "$1" | grep -oP ' JobState=\K\S+'; }
# Prints the process of the job that runs: scancel with SIGKILL would cancel the job in an orderly way.
supervisor() { processes "^$(realpath "$MUSTER") run .*/submit-1.ini"; }
waits() { [[ $(states "$1") == PENDING ]]; }

@test "--chain: the jobs are queued at once; those that are not needed are cancelled when the run is done" {
	# shellcheck disable=SC2086 # a list of words
	output=$("$MUSTER" submit --chain 3 "$tiny" job.name=three $words)
	[[ $(wc -l <<<"$output") -eq 3 ]]
	read -r -d '' -a ids <<<"$output" || true
	[[ $(jobs_of three) == "$output" ]]
	id=${ids[0]}
	ends_with 0
	[[ $(states "${ids[1]}") == CANCELLED && $(states "${ids[2]}") == CANCELLED ]]
	event three chain | grep -q 'the run is complete: 2 waiting jobs of the chain are cancelled'
	has_bits_of three alone
}

@test "slurm.chain = yes: a job queues the next one after its first step; a job that is killed is continued by it" {
	submit killed slurm.chain=yes
	wait_for 60 step_reached killed 150
	wait_for 60 eval '[[ $(jobs_of killed | wc -l) -eq 2 ]]'
	id=$(jobs_of killed | tail -n 1)
	waits "$id"
	kill -KILL $(supervisor)
	ends_with 0
	[[ $(jobs_of killed | wc -l) -eq 3 && $(states "$(jobs_of killed | tail -n 1)") == CANCELLED ]]
	has_bits_of killed alone
	wait_for 60 no_agent
}

@test "scancel: the chain ends, too" {
	submit ended slurm.chain=yes
	wait_for 60 step_reached ended 20
	wait_for 60 eval '[[ $(jobs_of ended | wc -l) -eq 2 ]]'
	scancel "$id"
	wait_for 60 job_over
	wait_for 60 no_jobs
	[[ $(states "$(jobs_of ended | tail -n 1)") == CANCELLED ]]
	event ended chain | grep -q 'the run was stopped'
}

@test "after a checkpoint the job's comment says when it was saved and when the next one is due; a comment of the user's stays" {
	submit says
	wait_for 60 step_reached says 150
	wait_for 60 eval '[[ $(job_field Comment) == muster ]]'
	scontrol --oneliner show job "$id" |
		grep -E 'Comment=muster step=[0-9]+/1200 saved=20[0-9T:-]+ next=20[0-9T:-]+ stop_s=[0-9]+ nodes=2 eta=20[0-9T:-]+ goodput=[01]\.[0-9]+ '
	submit mine slurm.comment=project-7
	ends_with 0
	scontrol --oneliner show job "$id" | grep -F 'Comment=project-7 '
}

@test "mistakes: a number of jobs that is none, both kinds of chain, alternative dependencies" {
	run "$MUSTER" submit --chain 0 "$tiny"
	[[ $status -eq 2 && $output == *"--chain 0: is not a number of jobs; use a number from 1 to 1000"* ]]
	run "$MUSTER" submit --chain 5x "$tiny"
	[[ $status -eq 2 && $output == *"--chain 5x: is not a number of jobs"* ]]
	run "$MUSTER" submit --chain 2 "$tiny" slurm.chain=yes
	[[ $status -eq 2 && $output == *"use one of them"* ]]
	run "$MUSTER" submit --chain 2 "$tiny" "slurm.dependency=afterok:1?afterok:2"
	[[ $status -eq 2 && $output == *"alternatives (?)"* ]]
}

# Each job has about a minute, because Slurm looks at time limits every 30 s or so.
@test "a chain of five jobs, of which each meets its time limit and one is killed, has the bits of one long run" {
	large
	run_tiny long parallel.dp=2 job.steps=20000 checkpoint.every=0 launch.launcher=local
	# shellcheck disable=SC2086 # a list of words
	"$MUSTER" submit --chain 12 "$tiny" job.name=five $words job.steps=20000 slurm.time=1 slurm.signal_before=30
	read -r -d '' -a ids < <(jobs_of five) || true
	id=${ids[1]}
	wait_for 200 job_is RUNNING
	step=$(last_step five)
	wait_for 60 step_reached five $((step + 200))
	kill -KILL $(supervisor)
	wait_for 1200 no_jobs
	has_bits_of five long || {
		tail -n 12 "$(run_folder five)"/logs/slurm-*.out
		return 1
	}
	done_jobs=$(grep -c '"event":"generation-start"' "$(run_folder five)/events.jsonl")
	echo "# figure: $done_jobs jobs" >&3
	[[ $done_jobs -ge 5 ]]
}
