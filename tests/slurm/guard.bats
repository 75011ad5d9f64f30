#!/usr/bin/env bats
# The guard under a real Slurm with four nodes on the loopback address, which run jobs of three nodes: what happens to a job when its
# batch host, its supervisor or its guard is lost.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=1 parallel.dp=3 batch.global=6 slurm.nodes=3 slurm.cpus_per_task=1"
	words+=" restart.backoff=0.1"
	export words
}

teardown_file() { stop_cluster; }

setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

requeued() { [[ $(job_field Restarts) == 1 ]]; }

guards() { processes "^$(realpath "$MUSTER") guard "; }
no_guard() { [[ -z $(guards) ]]; }

guard_connected() { # run times
	[[ $(event "$1" guard 2>/dev/null | grep -c "the guard is connected") -ge $2 ]]
}

batch_host() { job_field BatchHost; }

@test "an undisturbed job has one guard, on another node than its batch host, and none after its end" {
	submit whole job.steps=1200 checkpoint.every=5 slurm.gpus_per_node=2
	wait_for 60 guard_connected whole 1
	[[ $(guards | wc -l) == 1 ]]
	[[ $(event_field whole guard node) == n3 && $(batch_host) == n1 ]]
	# It has neither a GPU nor a secret on its command line.
	tr '\0' '\n' <"/proc/$(guards)/environ" >"$BATS_TEST_TMPDIR/environ"
	! grep -E '^CUDA_VISIBLE_DEVICES=[0-9]' "$BATS_TEST_TMPDIR/environ"
	! grep -E '[0-9a-f]{64}' "$BATS_TEST_TMPDIR/environ" "/proc/$(guards)/cmdline"
	figure "the guard: $(awk '/VmRSS|VmHWM|Threads/ { printf "%s %s ", $1, $2 }' "/proc/$(guards)/status")," \
		"$(awk '{ print $14 + $15 }' "/proc/$(guards)/stat") ticks of CPU"
	wait_for 600 job_over
	[[ $(job_field ExitCode) == 0:0 ]]
	wait_for 60 no_guard
	grep -q 'the guard leaves: the supervisor has released it' "$(run_folder whole)/logs/guard.log"
	! grep -rE '[0-9a-f]{64}' "$(run_folder whole)/logs"
	run_tiny alone job.steps=1200 parallel.tp=2 parallel.dp=3 batch.global=6 checkpoint.every=5 launch.launcher=local
	"$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder whole)/metrics.jsonl" 0
	figure "first step $(event_field whole first-step since_start_s) s after the start; guard connected" \
		"$(span "$(event_field whole first-step time)" "$(event_field whole guard time)") s after the first step"
}

@test "the batch host dies: the job is requeued within a minute and ends with the same bits" {
	large
	local from step
	submit requeued job.steps=1200 checkpoint.every=5
	wait_for 60 guard_connected requeued 1
	wait_for 60 step_reached requeued 20
	from=$EPOCHREALTIME
	kill_host n1
	wait_for 60 no_agent
	wait_for 60 requeued || { cat "$(run_folder requeued)"/logs/guard.log; squeue; sinfo -N; return 1; }
	figure "batch host dead: requeued after $(span "$from" "$EPOCHREALTIME") s"
	wait_for 60 job_is PENDING
	figure "pending after $(span "$from" "$EPOCHREALTIME") s"
	no_guard
	# Slurm delays a requeued job until the credentials of its former start have expired, 2 minutes.
	scontrol update "jobid=$id" starttime=now
	wait_for 120 job_over
	tail -n 5 "$(run_folder requeued)"/logs/{guard.log,slurm-*.out}
	[[ $(job_field ExitCode) == 0:0 ]]
	[[ $(batch_host) == n2 ]]
	[[ $(event_field requeued first-step generation) == 2 ]]
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder requeued)/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]]
	"$losses" repeats "$(run_folder requeued)/metrics.jsonl"
}

# Slurm 22.05.8 loses the GPUs of a job that is requeued before its dead node counts as down.
@test "the batch host of a job with GPUs dies: the job is requeued once the host counts as down, and keeps its GPUs" {
	large
	submit gpus job.steps=1200 checkpoint.every=5 slurm.gpus_per_node=2
	wait_for 60 guard_connected gpus 1
	wait_for 60 step_reached gpus 20
	local from=$EPOCHREALTIME
	kill_host n1
	wait_for 90 requeued || { cat "$(run_folder gpus)"/logs/guard.log; squeue; sinfo -N; return 1; }
	figure "batch host dead, with GPUs: requeued after $(span "$from" "$EPOCHREALTIME") s"
	[[ $(sinfo -h -n n1 -o %T) == down* ]]
	grep -q 'the requeue waits until Slurm counts the batch host as down' "$(run_folder gpus)/logs/guard.log"
	wait_for 60 job_is PENDING
	scontrol update "jobid=$id" starttime=now
	wait_for 600 job_over
	tail -n 5 "$(run_folder gpus)"/logs/{guard.log,slurm-*.out}
	[[ $(job_field ExitCode) == 0:0 && $(batch_host) == n2 ]]
	[[ $(event_field gpus first-step generation) == 2 ]]
	"$losses" repeats "$(run_folder gpus)/metrics.jsonl"
}

@test "the batch host dies, and the job must not be requeued: it is cancelled within a minute" {
	local from
	submit cancelled job.steps=100000 slurm.requeue=no
	wait_for 60 guard_connected cancelled 1
	from=$EPOCHREALTIME
	kill_host n1
	wait_for 60 job_is "CANCELLED|COMPLETING"
	figure "batch host dead: cancelled after $(span "$from" "$EPOCHREALTIME") s"
	wait_for 60 job_is CANCELLED
	wait_for 60 no_guard
	no_agent
	grep -q 'the batch host does not answer: the guard cancels job' "$(run_folder cancelled)/logs/guard.log"
}

@test "the guard is killed: another one starts on another node, and training continues" {
	large
	submit second job.steps=100000
	wait_for 60 guard_connected second 1
	[[ $(event_field second guard node) == n3 ]]
	kill -9 "$(guards)"
	wait_for 60 guard_connected second 2
	[[ $(event_field second guard node) == n2 ]]
	[[ $(guards | wc -l) == 1 ]]
	[[ -z $(event second rank-lost) ]]
	scancel "$id"
	wait_for 60 job_over
	wait_for 60 no_guard
}

@test "the supervisor is stopped for 20 s: the job, the guard and training continue" {
	large
	local muster before
	submit stopped job.steps=100000
	wait_for 60 guard_connected stopped 1
	before=$(guards)
	muster=$(cat "$(run_folder stopped)/lock")
	kill -STOP "$muster"
	wait_for 60 grep -q 'the supervisor has sent nothing for 15 s' "$(run_folder stopped)/logs/guard.log"
	wait_for 60 grep -q 'no supervisor: the job is RUNNING; its batch host n1 answers' "$(run_folder stopped)/logs/guard.log"
	kill -CONT "$muster"
	wait_for 60 guard_connected stopped 1
	wait_for 60 guard_is_back stopped
	[[ $(guards) == "$before" ]]
	[[ $(job_field JobState) == RUNNING && $(job_field Restarts) == 0 ]]
	[[ -z $(event stopped rank-lost) ]]
	scancel "$id"
	wait_for 60 job_over
}

guard_is_back() { [[ $(grep -c 'connected to the supervisor' "$(run_folder "$1")/logs/guard.log") == 2 ]]; }

@test "the supervisor alone is killed: the job ends with it, and the guard does nothing" {
	large
	submit alone-killed job.steps=100000
	wait_for 60 guard_connected alone-killed 1
	kill -9 "$(cat "$(run_folder alone-killed)/lock")"
	wait_for 60 job_over
	[[ $(job_field JobState) == FAILED && $(job_field Restarts) == 0 ]]
	wait_for 60 no_guard
	! grep -E 'requeues|cancels' "$(run_folder alone-killed)/logs/guard.log"
}
