#!/usr/bin/env bats
# A run under Slurm, seen and controlled from outside of its job: the login node sees the run folder and reaches the supervisor.

load ../helpers
load jobs

setup_file() {
	start_cluster 2
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.nodes=2 slurm.cpus_per_task=4 parallel.dp=2 restart.backoff=0.1 job.steps=100000"
	export words
}

teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
	export MUSTER_RUNS=$BATS_FILE_TMPDIR
}

teardown() { cancel_all; }

# Succeeds if the supervisor itself has answered `muster status`, and not the file in its place.
answers() { [[ $(status_of "$1" "['live']") == True ]]; }

# Prints a member of `muster status --json`.
status_of() { "$MUSTER" status "$1" --json | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }

is_state() { [[ $(status_of "$1" "['state']") == "$2" ]]; } # run state

@test "a job in the queue, training, checkpointed and stopped, as the login node sees it" {
	id=$(sbatch --parsable --nodes=2 --exclusive --wrap "sleep 1000")
	local first=$id
	submit waits slurm.time=30
	run "$MUSTER" status waits
	echo "$output"
	[[ $status -eq 0 && $output == "waits: queued"*"job $id: PENDING"*"muster queue cancel "* ]]
	run "$MUSTER" stop waits
	[[ $status -eq 3 && $output == *"waits in Slurm's queue as job $id"* ]]
	run "$MUSTER" ls
	[[ $output == *"waits "*" queued "* ]]
	scancel "$first"
	wait_for 60 step_reached waits 20
	run "$MUSTER" status waits
	echo "$output"
	[[ $status -eq 0 && $output == "waits: training since "*"2 on 2 nodes: "*"Slurm job $id"* ]]
	wait_for 60 eval '[[ $("$MUSTER" status waits) == *"time limit  "* ]]'
	wait_for 60 answers waits
	[[ $(status_of waits "['job']") == "$id" ]]
	local folder
	folder=$("$MUSTER" checkpoint waits)
	"$MUSTER" ckpt verify "$folder"
	# The listener is no wider than that of the agents: it has one address, which is not every one of the host.
	[[ $(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$(run_folder waits)/control") != 0.0.0.0:* ]]
	run "$MUSTER" stop waits
	echo "$output"
	[[ $status -eq 0 && $output == *"waits: stopped since "*"muster submit $(run_folder waits)/job.ini"* ]]
	wait_for 60 no_jobs
	is_state waits stopped
}

@test "a supervisor that was killed with its job: lost, as its process tells here, and Slurm elsewhere" {
	submit killed slurm.requeue=no
	wait_for 60 step_reached killed 20
	local file supervisor
	file=$(run_folder killed)/state.json
	supervisor=$(status_of killed "['pid']")
	kill -9 "$supervisor"
	wait_for 60 has_ended "$supervisor"
	run "$MUSTER" status killed
	echo "$output"
	[[ $status -eq 5 && $output == "killed: lost"*"is gone without a word"* ]]
	wait_for 60 no_jobs
	# As a host sees it that is not the supervisor's.
	sed -i 's/"host": "[^"]*"/"host": "elsewhere"/; s/"boot": "[^"]*"/"boot": "other"/' "$file"
	run "$MUSTER" status killed
	echo "$output"
	[[ $status -eq 5 && $output == "killed: lost"*"its job $id does not run any more"* ]]
}
