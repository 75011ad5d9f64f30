#!/usr/bin/env bats
# Mistakes of users, and the line that each gets before anything is queued. A refused submission leaves neither a job nor a run folder.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words=""
	export words
	scontrol update NodeName=n[1-2] AvailableFeatures=big,ib ActiveFeatures=big,ib
	scontrol create PartitionName=short Nodes=n[1-2] MaxTime=60 MaxNodes=1 State=UP
	scontrol create PartitionName=lab Nodes=ALL AllowAccounts=lab,staff DenyQos=low State=UP
	scontrol create PartitionName=pairs Nodes=ALL MinNodes=2 State=UP
	scontrol create PartitionName=closed Nodes=ALL State=DRAIN
}

teardown_file() { stop_cluster; }

setup() { [[ -z $lacking ]] || skip "$lacking"; }

teardown() { end_jobs; }

# Tries each row "WORDS | TEXT" of standard input: submit must exit with the status, print one line that has the text, queue nothing
# and leave no run folder. The words are blank-separated; '~' stands for a blank in a value.
refused() { # status
	local line part count=0 list
	while IFS= read -r line; do
		[[ -n $line ]] || continue
		list=()
		for part in ${line%% | *}; do
			list+=("${part//\~/ }")
		done
		run "$MUSTER" submit "$tiny" job.name=mistake "${list[@]}"
		echo "${line%% | *}: $status: $output"
		[[ $status -eq $1 ]]
		[[ $output == "muster: "*"${line#* | }"* && $output != *$'\n'* ]]
		[[ ! -e $(run_folder mistake) ]]
		count=$((count + 1))
	done
	no_jobs
	figure "$count mistakes refused before queueing, with status $1"
}

@test "keys with a wrong value" {
	set -f
	refused 2 <<-'ROWS'
		slurm.nodes=two | slurm.nodes: "two" is neither a whole number nor a range
		slurm.nodes=4-2 | begins with the larger number; use 2-4
		slurm.time=1~hour | "1 hour" is not a time limit
		slurm.time=0:1 | signal_before = 120 s leaves nothing of the time limit of 1 s
		slurm.mem=64GB | "64GB" is not an amount of memory
		slurm.partition=gpu~--uid=0 | has blanks or shell characters
		slurm.mail_type=DONE | "DONE" is not an event that Slurm sends mail about
		slurm.dependency=afterok | "afterok" names no job; use afterok:JOBID
		slurm.dependency=expand:7 | "expand" is not a dependency that muster can pass on
		slurm.gres=gpu:2 slurm.gpus_per_node=2 | gres = gpu:2 requests GPUs, and so does gpus_per_node = 2
		slurm.array=0-3 | every task of an array would run the same job in the same run folder
		slurm.ntasks=8 | muster computes the number of tasks from the degrees
		slurm.partion=main | unknown key; did you mean partition?
		slurm.options=--nodes=4 | use [slurm] nodes
		slurm.options=--out=x | the output goes to the run folder
		slurm.options=--array=1-4 | job.name=NAME-$i
		slurm.options=-N4 | does not begin with --
		slurm.options=--nice=`id` | a quote or a shell character
		slurm.options=--nice=1~: | heterogeneous
		parallel.tp=6 parallel.dp=1 slurm.gpus_per_node=6 | tp = 6 cannot split heads = 4; use tp of at most 4
		data.path= | is not given, and there is nothing to train on
	ROWS
}

@test "requests that the cluster can never fulfil" {
	set -f
	refused 3 <<-'ROWS'
		slurm.nodes=40 parallel.dp=4 | 40 nodes are requested, but partition main has 4; request at most 4
		slurm.nodes=4 slurm.spares=1 parallel.dp=4 | nodes + spares: 5 nodes are requested, but partition main has 4
		slurm.partition=gpu | there is no partition gpu; the partitions are
		slurm.partition=closed | partition closed takes no new jobs (its state is DRAIN)
		slurm.partition=short slurm.nodes=2 parallel.dp=2 | partition short allows a job 1; request at most 1
		slurm.partition=short slurm.time=2:00:00 | time = 2:00:00 is longer than the 60 minutes that partition short allows
		slurm.partition=pairs | a job of partition pairs needs at least 2
		slurm.partition=lab slurm.account=other | account = other may not use partition lab, which allows lab,staff
		slurm.partition=lab slurm.account=lab slurm.qos=low | qos = low may not use partition lab
		slurm.gpus_per_node=3 parallel.tp=3 parallel.dp=1 | 3 GPUs are requested on each node, and a node has at most 2
		slurm.gres=gpu:8 | gres: 8 GPUs are requested on each node, and a node has at most 2
		slurm.constraint=h100 | constraint = h100: the nodes have the features big,ib; no node of partition main fits
		slurm.constraint=big&ib slurm.nodes=3 parallel.dp=3 batch.global=9 | 2 of the 3 nodes that are requested fit in partition main
		slurm.cpus_per_task=8 | 1 agent with 8 cores each are requested on each node, and a node has at most 4
		slurm.mem=2T | mem = 2T: a node has at most 1 MB
		slurm.exclude=n[1-3] slurm.nodes=2 parallel.dp=2 | exclude leaves 1 of the nodes of partition main, and 2 are requested
		slurm.nodelist=n9 | partition main has no node n9
		slurm.nodelist=n[1-2] | nodelist names 2 nodes, and at most 1 are requested
		slurm.licenses=matlab:2 | check [slurm] licenses
		slurm.reservation=none | check [slurm] reservation
		slurm.exclude=n9 | check [slurm] nodelist and exclude
		slurm.options=--bogus=1 | [slurm] options has an option that this sbatch does not know
	ROWS
}

@test "a dry run prints the script and the refusal, and says what could not be checked" {
	run "$MUSTER" submit --dry-run "$tiny" job.name=dry slurm.nodes=40 parallel.dp=4
	echo "$output"
	[[ $status -eq 3 && $output == "#!/bin/bash"*"#SBATCH --nodes=40"*"muster: "*"40 nodes are requested, but partition main has 4"* ]]
	run "$MUSTER" submit --dry-run "$tiny" job.name=dry data.path=nowhere
	[[ $status -eq 3 && $output == *"[data] path: nowhere.idx: no such file"* ]]
	run "$MUSTER" submit --dry-run "$tiny" job.name=dry
	[[ $status -eq 0 && $output == *"muster: Slurm expects to start the job now" ]]
	run env PATH=/nowhere "$MUSTER" submit --dry-run "$tiny" job.name=dry
	echo "$output"
	[[ $status -eq 0 && $output == *"muster: warning: the request was not compared with a cluster: scontrol"* ]]
	[[ ! -e $(run_folder dry) ]]
	no_jobs
}

@test "files that are not there" {
	set -f
	refused 3 <<-'ROWS'
		data.path=nowhere | [data] path: nowhere.idx: no such file
		data.path=0.5~nowhere~0.5~there | [data] path: nowhere.idx: no such file
		checkpoint.resume=/nowhere | [checkpoint] resume: /nowhere: no such file
	ROWS
	[[ -e $(dirname "$(realpath "$MUSTER")")/libmuster-cuda.so ]] ||
		refused 3 <<<"job.device=cuda | [job] device = cuda needs libmuster-cuda.so: it is not in the folder of muster-agent"
}

@test "a site's own template may bring the files, so they are warnings" {
	MUSTER_TEMPLATES=$top/templates run "$MUSTER" submit "$tiny" job.name=staged data.path=nowhere slurm.dependency=singleton
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"muster: warning: on this host: [data] path: nowhere.idx: no such file"* ]]
}

@test "what may change by itself is a warning, and the job is queued" {
	scontrol update PartitionName=short State=DOWN
	run "$MUSTER" submit "$tiny" job.name=warned slurm.partition=short
	scontrol update PartitionName=short State=UP
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"muster: warning: partition short is down, so the job waits"* ]]
	end_jobs
	local daemons
	daemons=$(daemons_of n4)
	# shellcheck disable=SC2086 # a list of pids
	kill -STOP $daemons # a slurmd that registers brings its node back
	# shellcheck disable=SC2086
	scontrol update NodeName=n4 State=DOWN Reason=test || { kill -CONT $daemons; return 1; }
	run "$MUSTER" submit "$tiny" job.name=warned slurm.nodes=4 parallel.dp=4
	# shellcheck disable=SC2086
	kill -CONT $daemons
	scontrol update NodeName=n4 State=RESUME || true # it is up again if its slurmd has registered meanwhile
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"4 nodes are requested, and of the 4 that fit in partition main, 3 are up; the job waits for the others"* ]]
	[[ $output == *"Slurm cannot start the job on the nodes as they are now"* ]]
}

@test "submit says when Slurm expects to start the job" {
	run "$MUSTER" submit "$tiny" job.name=soon
	echo "$output"
	[[ $status -eq 0 && $output == *"Slurm expects to start the job now"* ]]
	local first
	first=$(grep -xE '[0-9]+' <<<"$output")
	run "$MUSTER" submit "$tiny" job.name=later "slurm.dependency=afterany:$first"
	echo "$output"
	[[ $output == *"Slurm starts the job after its dependency, afterany:$first"* ]]
	id=$(grep -xE '[0-9]+' <<<"$output")
	ends_with 0
}

@test "the options reach Slurm" {
	submit options slurm.time=30 slurm.exclude=n1 slurm.nodelist=n3 slurm.exclusive=yes "slurm.comment=a b" slurm.mail_type=END \
		slurm.mail_user=nobody "slurm.options=--nice=5 --deadline=now+1day" slurm.dependency=singleton
	scontrol --oneliner show job "$id" | tee "$BATS_TEST_TMPDIR/record"
	for field in "ExcNodeList=n1 " "ReqNodeList=n3 " "Comment=a b " "MailType=END" "MailUser=nobody" "Nice=5 " "TimeLimit=00:30:00" \
		"OverSubscribe=NO"; do
		echo "$field"
		grep -qF "$field" "$BATS_TEST_TMPDIR/record"
	done
	ends_with 0
}

@test "a controller that does not answer is no fault of the job" {
	sed "s/^SlurmctldPort=.*/SlurmctldPort=1/; s/^SlurmctldTimeout=.*//" "$SLURM_CONF" >"$BATS_TEST_TMPDIR/slurm.conf"
	echo MessageTimeout=2 >>"$BATS_TEST_TMPDIR/slurm.conf"
	SLURM_CONF=$BATS_TEST_TMPDIR/slurm.conf run "$MUSTER" submit "$tiny" job.name=away
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == *"Slurm's controller does not answer, so the job was neither checked nor submitted; submit again when"* ]]
	[[ ! -e $(run_folder away) ]]
}

@test "srun with several tasks gets one refusal" {
	run salloc --quiet -N2 --ntasks-per-node=2 srun --quiet -n4 "$MUSTER" run "$tiny" job.name=several
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $(grep -c "srun has started muster run 4 times, and each would start all agents; start it once" <<<"$output") -eq 1 ]]
	[[ ! -e $(run_folder several) ]]
}

@test "a job that is submitted from a step of several tasks is started once" {
	run salloc --quiet -N1 --ntasks=2 srun --quiet -n2 sh -c \
		"[ \$SLURM_PROCID = 1 ] || '$MUSTER' submit '$tiny' job.name=nested job.steps=5"
	echo "$output"
	id=$(grep -xE '[0-9]+' <<<"$output")
	ends_with 0
}

@test "inside a step of one task the whole allocation trains" {
	run salloc --quiet -N2 --ntasks-per-node=2 srun -N1 -n1 "$MUSTER" run "$tiny" job.name=one parallel.tp=2 parallel.dp=2
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $(nodes_of one) == "n1 n2 " ]]
	[[ $(count_agents one) -eq 4 ]]
}

@test "a heterogeneous job is refused with the reason" {
	run salloc --quiet -N1 : -N1 "$MUSTER" run "$tiny" job.name=het
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == *"this is a heterogeneous Slurm job: muster starts all agents with one job step"* ]]
}

@test "tasks of an array that share a run folder are told how to have their own" {
	mkdir "$(run_folder shared)"
	exec 8>>"$(run_folder shared)/lock"
	flock 8
	SLURM_ARRAY_TASK_ID=2 run "$MUSTER" run "$tiny" job.name=shared
	exec 8>&-
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == *"already active in this folder"*"job.name=NAME-\$SLURM_ARRAY_TASK_ID"* ]]
}

@test "the log of a batch job does not speak of Ctrl-C" {
	submit stopped job.steps=1000000
	wait_for 60 step_reached stopped 1
	scancel --signal=TERM --batch "$id"
	ends_with 75
	grep "finishing the step and writing a checkpoint" "$(run_folder stopped)"/logs/slurm-*.out
	[[ -z $(grep "Ctrl-C" "$(run_folder stopped)"/logs/slurm-*.out) ]]
}
