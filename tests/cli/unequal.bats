#!/usr/bin/env bats
# Unequal devices: faster ones get more layers and more micro-batches, and the losses are those of one process.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny one parallel.dp=1
}

# same_as_one NAME WORD...: runs NAME and compares its losses with those of a single process.
same_as_one() {
	local name=$1
	shift
	run_tiny "$name" "$@"
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder "$name")/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == 20\ steps* ]]
	figure "$*: $output"
}

# Prints a field of a run's plan.
plan_field() { # run expression
	python3 -c "import json, sys; p = json.load(open(sys.argv[1])); print($2)" "$(run_folder "$1")/plan-1.json"
}

@test "agents with 2 and 1 threads share the batch 2 to 1, in the same order of the data" {
	same_as_one threads parallel.dp=2 launch.threads=2,1 batch.global=8
	[[ $(plan_field threads 'p["rank_threads"], p["replica_micros"]') == "[2, 1] [5, 3]" ]]
	grep -q ", 2 threads," "$(run_folder threads)"/logs/*-0.log
	grep -q ", 1 threads," "$(run_folder threads)"/logs/*-1.log
}

@test "a pipeline's faster stage has more layers" {
	same_as_one stages parallel.pp=2 launch.speeds=3,1
	[[ $(plan_field stages '[s["layers"] for s in p["stages"]]') == "[[0, 3], [3, 4]]" ]]
}

@test "replicas of pipelines with unequal devices give the losses of one process" {
	same_as_one both parallel.pp=2 parallel.dp=2 launch.speeds=1,3,1,3
	[[ $(plan_field both 'p["replica_micros"]') == "[2, 6]" ]]
}

@test "a run uses the stages of the job file" {
	same_as_one hand parallel.pp=3 parallel.stages=2,1,1
	[[ $(plan_field hand '[s["layers"] for s in p["stages"]]') == "[[0, 2], [2, 3], [3, 4]]" ]]
}

@test "there must be as many speeds as ranks, also if the number of replicas is left open" {
	run "$MUSTER" plan "$tiny" parallel.dp=0 launch.speeds=2,1,1
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"3 ranks = tp 1 × dp 3 × pp 1"* ]]
	[[ $output == *"in 2 to 4 micro-batches"* ]]
	run "$MUSTER" plan "$tiny" parallel.tp=2 parallel.dp=0 launch.speeds=2,1,1
	echo "$output"
	[[ $status -eq 2 ]]
	[[ $output == *"[launch] speeds names 3 devices, and the job has 2 ranks; name as many, or set parallel.dp"* ]]
}
