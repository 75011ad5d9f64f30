#!/usr/bin/env bats
# The same job under a real Slurm with four nodes, which have two fake GPUs each, on the loopback address.

load ../helpers
load jobs

setup_file() {
	local from=${EPOCHREALTIME/./}
	start_cluster 4
	[[ -z $lacking ]] || return 0
	figure "cluster of 4 nodes up in $(((${EPOCHREALTIME/./} - from) / 1000)) ms"
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4 slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1"
	export words
}

teardown_file() { stop_cluster; }

setup() { [[ -z $lacking ]] || skip "$lacking"; }

teardown() {
	[[ -z ${strays-} ]] || kill -9 $strays 2>/dev/null || true
	end_jobs
}

# Prints a field of the JSON object that the last command printed.
jq_field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$output"; }

# Succeeds if neither an agent nor an srun that started one is left.
none_left() { [[ -z $(processes "$(realpath "$(dirname "$MUSTER")")/muster-agent") ]]; }

@test "the nodes are idle, and a step over PMIx reaches all of them" {
	all_idle
	run srun -N4 --ntasks-per-node=2 --gpus-per-node=2 --mpi=pmix sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
	[[ $status -eq 0 ]]
	[[ $(sort <<<"$output" | uniq -c | sed 's/^ *//') == $'2 n1 0,1\n2 n2 0,1\n2 n3 0,1\n2 n4 0,1' ]]
}

@test "submit --dry-run prints the script and changes nothing" {
	# shellcheck disable=SC2086
	run "$MUSTER" submit --dry-run "$tiny" "job.name=dry" $words slurm.time=10 slurm.signal_before=60
	[[ $status -eq 0 ]]
	bash -n <<<"$output"
	[[ $output == *"#SBATCH --nodes=4"*"#SBATCH --ntasks-per-node=2"*"#SBATCH --gpus-per-node=2"* ]]
	[[ $output == *"#SBATCH --signal=B:TERM@60"* ]]
	[[ ! -e $(run_folder dry) ]]
	no_jobs
}

@test "a refusal by Slurm is reported, and exits 3" {
	# shellcheck disable=SC2086
	run "$MUSTER" submit "$tiny" "job.name=refused" $words slurm.partition=nowhere
	[[ $status -eq 3 ]]
	[[ $output == *partition* ]]
	run "$MUSTER" submit "$tiny" parallel.tp=two
	[[ $status -eq 2 ]]
}

@test "jobs can be queued while one runs, and each runs as it was submitted" {
	scontrol update PartitionName=main State=DOWN
	submit queued job.steps=7
	local first=$id
	exec 8>>"$(run_folder queued)/lock"
	flock 8
	submit queued job.steps=5
	exec 8>&-
	scancel "$id"
	scontrol update PartitionName=main State=UP
	id=$first
	ends_with 0
	[[ $(event_field queued "done" step) == 7 ]]
	grep -qx 'steps = 5' "$(run_folder queued)/submit-2.ini"
}

@test "a job over four nodes trains to the end" {
	submit whole job.steps=200 checkpoint.every=5
	ends_with 0
	[[ $(event_field whole "done" status) == 0 ]]
	step_reached whole 199
	"$losses" final "$(run_folder whole)/metrics.jsonl"
	figure "undisturbed: first step $(event_field whole first-step since_start_s) s after the start of its generation"
	wait_for 60 none_left
}

@test "both ends of the control channel have shown MUNGE credentials" {
	[[ $(event_field whole generation-start auth) == "secret and MUNGE credential" ]]
	[[ -z $(event whole refused) ]]
}

# run_with AUTH NAME: gives AUTH to the agents in place of the launcher's word; NAME.out has what the run prints.
run_with() {
	local agent=$BATS_FILE_TMPDIR/agent-$2
	printf '#!/bin/sh\nMUSTER_AUTH=%s exec %s/muster-agent\n' "$1" "$(realpath "$(dirname "$MUSTER")")" >"$agent"
	chmod 700 "$agent"
	# shellcheck disable=SC2086
	MUSTER_AGENT=$agent salloc --quiet -N4 --ntasks-per-node=2 --gpus-per-node=2 "$MUSTER" run --quiet "$tiny" "job.name=$2" \
		$words restart.max_restarts=0 >"$BATS_FILE_TMPDIR/$2.out" 2>&1
}

@test "agents that know the secret but have no credential are refused" {
	run run_with secret no-credential
	[[ $status -eq 1 ]]
	event no-credential refused | grep -q 'the peer offers the secret alone, but this launch requires the secret and a MUNGE credential'
	[[ -z $(event no-credential hello) ]]
}

@test "if munged does not answer, the run ends and reports this" {
	run run_with munge:/nowhere no-munged
	[[ $status -eq 1 ]]
	grep -q 'MUNGE: munged does not answer on this node; start it' "$BATS_FILE_TMPDIR/no-munged.out"
}

@test "credentials can be switched off" {
	MUSTER_AUTH=secret submit without job.steps=5
	ends_with 0
	[[ $(event_field without generation-start auth) == secret ]]
}

@test "tensor-parallel pairs share a node, and every node is used" {
	local rank nodes=""
	for rank in 0 2 4 6; do
		[[ $(event_field whole hello node $rank) == "$(event_field whole hello node $((rank + 1)))" ]]
		nodes+="$(event_field whole hello node $rank) "
	done
	[[ $(tr ' ' '\n' <<<"$nodes" | sed '/^$/d' | sort | tr '\n' ' ') == "n1 n2 n3 n4 " ]]
}

@test "each rank has a log, named by node and rank" {
	local rank
	for rank in {0..7}; do
		[[ -s $(run_folder whole)/logs/$(event_field whole hello node $rank)-$rank.log ]]
	done
	[[ -s $(run_folder whole)/logs/slurm-$(job_of whole).out ]]
}

job_of() { basename "$(ls "$(run_folder "$1")"/logs/slurm-*.out | head -n 1)" .out | tr -dc 0-9; }

@test "no secret is in a log, an event or on a command line" {
	run grep -rE '[0-9a-f]{64}' "$(run_folder whole)"/{logs,events.jsonl,job.ini}
	[[ $status -eq 1 ]]
	[[ -z $(find "$(run_folder whole)" -type f -perm /077) ]]
}

@test "the losses are those of a local run of the same layout, to the bit" {
	run_tiny alone job.steps=200 parallel.tp=2 parallel.pp=2 parallel.dp=2 checkpoint.every=5 launch.launcher=local
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder whole)/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
}

# stop_and_go_on NAME STATE COMMAND...: stops a job by the command. It must leave a checkpoint, and a second submission must continue
# from it and end with the losses of an undisturbed run.
stop_and_go_on() {
	local name=$1 state=$2 stopped
	shift 2
	submit "$name" job.steps=200 checkpoint.every=0
	wait_for 60 step_reached "$name" 7
	"$@" "$id"
	wait_for 60 job_over
	[[ $(job_field JobState) == "$state" ]]
	wait_for 60 none_left
	[[ $(event_field "$name" stopped status) == 75 ]]
	stopped=$(event_field "$name" ckpt step)
	"$MUSTER" ckpt verify "$(run_folder "$name")/ckpt"
	submit "$name" job.steps=200 checkpoint.every=0
	ends_with 0
	run "$losses" compare "$(run_folder whole)/metrics.jsonl" "$(run_folder "$name")/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
	figure "$name: stopped with a checkpoint of step $stopped; $output"
}

@test "scancel leaves a checkpoint, from which the next submission continues" {
	stop_and_go_on cancelled CANCELLED scancel
}

@test "the signal before the time limit does too, with exit status 75" {
	stop_and_go_on limit FAILED scancel --batch --signal=TERM
}

# survive_kills RANK...: the run must restart by itself after each kill, and end with the same bits.
survive_kills() {
	local name=kill-$1
	submit "$name" job.steps=200 checkpoint.every=5 restart.exclude_after=0
	kill_ranks "$name" "$@"
	ends_with 0
	has_same_bits "$name" whole
	wait_for 60 none_left
}

@test "ranks 0 to 3 of 8 are killed in turn: the run restarts each time and ends with the same bits" { survive_kills 0 1 2 3; }
@test "ranks 4 to 7 of 8 are killed in turn: the run restarts each time and ends with the same bits" { survive_kills 4 5 6 7; }

@test "the supervisor is killed: no agent and no job step remains" {
	local pid
	submit orphans job.steps=100000
	wait_for 60 step_reached orphans 2
	[[ $(agents | wc -l) -eq 8 ]]
	pid=$(cat "$(run_folder orphans)/lock")
	kill -9 "$pid"
	wait_for 60 none_left
	wait_for 60 job_over
	[[ $(job_field JobState) == FAILED ]]
}

@test "srun is killed: the run continues with another job step" {
	local pid
	submit srun job.steps=200 checkpoint.every=5
	wait_for 60 step_reached srun 7
	pid=$(pgrep -f -- "--job-name=muster-1-$(cat "$(run_folder srun)/lock") " | head -n 1)
	kill -9 "$pid"
	ends_with 0
	[[ $(event_field srun first-step generation) == 2 ]]
	"$losses" repeats "$(run_folder srun)/metrics.jsonl"
}

has_other_parent() { [[ $(awk '{ print $4 }' "/proc/$1/stat") != "$2" ]]; } # pid parent

# The agents of a node lose their slurmstepd, so that Slurm cannot end them, and are stopped, so that they do not notice that their
# generation is lost. They are stopped after the end of slurmstepd, because a stopped process that becomes an orphan is continued.
# Meanwhile srun and the supervisor stand still: srun would end the step, which the agents notice, as soon as it misses the slurmstepd.
@test "agents that Slurm has lost sight of are ended before the next generation trains" {
	local stepd supervisor srun killed pid
	submit strays job.steps=200 checkpoint.every=5
	wait_for 60 step_reached strays 7
	strays="$(agent_pid strays 4) $(agent_pid strays 5)"
	stepd=$(awk '{ print $4 }' "/proc/${strays% *}/stat")
	[[ $(cat "/proc/$stepd/comm") == slurmstepd ]]
	supervisor=$(cat "$(run_folder strays)/lock")
	srun=$(pgrep -f -- "--job-name=muster-1-$supervisor " | head -n 1)
	kill -STOP "$supervisor" "$srun"
	kill -9 "$stepd"
	# All of its threads must have ended: only then are the agents orphans.
	wait_for 60 has_other_parent "${strays% *}" "$stepd"
	wait_for 60 has_other_parent "${strays#* }" "$stepd"
	# shellcheck disable=SC2086 # a list of pids
	kill -STOP $strays
	kill -CONT "$supervisor" "$srun"
	killed=$EPOCHREALTIME
	# Slurm may have ended it already, because it misses the slurmstepd.
	pid=$(agent_pid strays 0)
	[[ $pid ]]
	kill -9 "$pid" || true
	ends_with 0
	has_ended "${strays% *}"
	has_ended "${strays#* }"
	# The warning comes before the first step of the next generation.
	grep -E '"generation":2.*(still ran and were killed|"first-step")' "$(run_folder strays)/events.jsonl" | head -n 1 |
		grep -F "n3: agents of earlier generations still ran and were killed: "
	has_same_bits strays whole
	figure "first step of the next generation after $(span "$killed" "$(event_field strays first-step time)") s"
	wait_for 60 none_left
}

@test "bench comm runs on all tasks of an allocation, and every element is right" {
	run salloc -Q -N3 --ntasks-per-node=2 "$MUSTER" bench comm --ops all --max-bytes 4096 --factor 16 --seconds 0.005 --json
	[[ $status -eq 0 ]]
	[[ $(jq_field ranks) == 6 && $(jq_field backend) == hybrid && $(jq_field wrong) == 0 ]]
	run salloc -Q -N2 -n3 "$MUSTER" bench comm --max-bytes 64 --seconds 0.005 --json
	[[ $status -eq 0 && $(jq_field ranks) == 3 ]]
	run salloc -Q -N2 -n2 "$MUSTER" bench comm --ranks 3 --max-bytes 64 --seconds 0.005 --json
	[[ $status -eq 0 && $(jq_field ranks) == 3 && $(jq_field backend) == shm ]]
}

@test "a mistyped option of bench comm is reported once, whatever the number of tasks" {
	run salloc -Q -N2 --ntasks-per-node=2 "$MUSTER" bench comm --max-byts 64
	[[ $status -eq 2 ]]
	[[ $(grep -c -e "--max-byts is not an option" <<<"$output") == 1 ]]
	run salloc -Q -N2 --ntasks-per-node=2 "$MUSTER" bench comm --algorithm nope
	[[ $status -eq 2 ]]
	[[ $(grep -c -e '"nope" is none of' <<<"$output") == 1 ]]
	run salloc -Q -N2 --ntasks-per-node=2 "$MUSTER" bench comm --ops reduce --root 4
	[[ $status -eq 2 ]]
	[[ $(grep -c "is none of the ranks 0 to 3" <<<"$output") == 1 ]]
	none_left
}
