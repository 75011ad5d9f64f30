#!/usr/bin/env bats
# A Slurm without its plugin for PMIx: helpers, one on each node, start the agents and serve PMIx to them.

load ../helpers
load jobs

setup_file() {
	CLUSTER_PMIX=no start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.tp=2 parallel.pp=2 parallel.dp=2 slurm.nodes=4 slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1"
	export words
	run_tiny alone parallel.tp=2 parallel.pp=2 parallel.dp=2 job.steps=200 checkpoint.every=0 launch.launcher=local
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# Prints the helpers and their PMIx servers, which have the same command line.
both() { processes "^$(realpath "$MUSTER") helper" "$@"; }
servers() { comm -12 <(both "$@" | sort) <(pgrep -x muster-pmix | sort); }
no_helper() { [[ -z $(both) ]]; }
helpers() { comm -23 <(both "$@" | sort) <(pgrep -x muster-pmix | sort); }

# Succeeds if nothing of the run's helpers is left: no process, and no file of the PMIx servers.
nothing_left() { # run
	wait_for 60 no_agent && wait_for 60 no_helper && [[ ! -e $(run_folder "$1")/.pmix ]]
}

# is_right RUN: the job has ended well with the bits of the run alone, and nothing is left.
is_right() {
	ends_with 0 && has_same_bits "$1" alone && nothing_left "$1"
}

# begins NAME WORD...: submits the run of 200 steps, and waits until it trains.
begins() {
	submit "$@" job.steps=200 checkpoint.every=20
	wait_for 60 step_reached "$1" 25
}

fault_of() { event_field "$1" fault fault; } # run

@test "the plugin is missing, and a job over four nodes has the bits of a local run all the same" {
	[[ $(srun --mpi=list 2>&1) != *pmix* ]]
	mkdir "$BATS_TEST_TMPDIR/tmp"
	TMPDIR=$BATS_TEST_TMPDIR/tmp begins same
	[[ $(helpers | wc -l) -eq 4 ]]
	[[ $(agents n3 | wc -l) -eq 2 ]]
	is_right same
	[[ $(event_field same pmix what) == own ]]
	grep -q "muster serves PMIx itself, by a helper on each node" "$(run_folder same)"/logs/slurm-*.out
	[[ $(nodes_of same) == "n1 n2 n3 n4 " ]]
	[[ -z $(ls -A "$BATS_TEST_TMPDIR/tmp") ]]
	figure "helpers: first step $(event_field same first-step since_start_s) s after the start of the generation"
}

@test "each agent has what the task of the node got from Slurm, and no secret is visible" {
	begins visible
	local pid secrets
	for pid in $(agents n2); do
		tr '\0' '\n' <"/proc/$pid/environ" >"$BATS_TEST_TMPDIR/environ"
		grep -qx "CUDA_VISIBLE_DEVICES=0,1" "$BATS_TEST_TMPDIR/environ"
		grep -qx "SLURMD_NODENAME=n2" "$BATS_TEST_TMPDIR/environ"
		! grep "^PMI_" "$BATS_TEST_TMPDIR/environ"
	done
	# A secret is a word of 64 hexadecimal digits.
	secrets='(^|[^0-9a-f])[0-9a-f]{64}([^0-9a-f]|$)'
	for pid in $(helpers) $(agents); do
		! tr '\0' '\n' <"/proc/$pid/environ" | grep -E "$secrets"
		! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -E "$secrets"
	done
	! grep -rE "$secrets" "$(run_folder visible)"/logs "$(run_folder visible)"/events.jsonl
	[[ $(stat -c %a "$(run_folder visible)/.pmix" "$(run_folder visible)/.pmix/node0" | xargs) == "700 700" ]]
	scancel "$id"
	wait_for 60 job_over
}

@test "the PMIx servers listen on the loopback address only, and their end stops no agent" {
	large
	begins servers
	local pid port
	[[ $(servers | wc -l) -eq 4 ]]
	for pid in $(servers); do
		! ss -Hltnp 2>/dev/null | grep "pid=$pid," | grep -v "127\.0\.0\.1:"
		kill -9 "$pid"
	done
	is_right servers
	[[ $(event_field servers done restarts) -eq 0 ]]
	grep -q "PMIx server's process has ended; agents that are wired up continue" "$(run_folder servers)/logs/launch-1.log"
}

@test "an agent is killed: its own signal is reported, and the run restarts to the same bits" {
	large
	begins killed
	kill -SEGV "$(agent_pid killed 5)"
	is_right killed
	grep -qE "lost +rank 5 on n3, .*: killed by SIGSEGV; the agent crashed" "$(run_folder killed)"/logs/slurm-*.out
	[[ $(event_field killed rank-lost signal) -eq 11 || $(event_field killed fault signal) -eq 11 ]]
	figure "agent killed: first step $(event_field killed first-step since_lost_s) s after the loss"
}

@test "a helper is killed: its agents die with it, it is named, and the run restarts to the same bits" {
	begins helperless
	kill -9 "$(helpers n3)"
	is_right helperless
	[[ $(fault_of helperless) == helper-lost ]]
	[[ $(event_field helperless fault node) == n3 ]]
	[[ $(event helperless pmix | grep helper-lost) == *'"node":"n3"'* ]]
	grep -qE "helper +n3: the helper has ended, and its agents with it" "$(run_folder helperless)"/logs/slurm-*.out
	figure "helper killed: first step $(event_field helperless first-step since_lost_s) s after the loss"
}

@test "a helper cannot start: the generation ends after half a minute, and the next one trains" {
	large
	mkdir "$BATS_TEST_TMPDIR/bin"
	cat >"$BATS_TEST_TMPDIR/bin/srun" <<-END
		#!/bin/bash
		[[ \${@: -1} != helper ]] || set -- "\${@:1:\$#-2}" "$BATS_TEST_TMPDIR/bin/helper" helper
		exec $(command -v srun) "\$@"
	END
	cat >"$BATS_TEST_TMPDIR/bin/helper" <<-END
		#!/bin/bash
		[[ \$SLURMD_NODENAME != n3 ]] || mkdir "$BATS_TEST_TMPDIR/once" 2>/dev/null || exec "$(realpath "$MUSTER")" helper
		[[ \$SLURMD_NODENAME == n3 ]] || exec "$(realpath "$MUSTER")" helper
		echo "muster: the helper of this test does not start" >&2
		exit 3
	END
	chmod +x "$BATS_TEST_TMPDIR"/bin/*
	# shellcheck disable=SC2086 # a list of words
	PATH=$BATS_TEST_TMPDIR/bin:$PATH run salloc -Q --no-kill -N4 --ntasks-per-node=2 --gpus-per-node=2 "$MUSTER" run "$tiny" job.name=late $words job.steps=200
	echo "$output"
	[[ $status -eq 0 && $output == *"helper     n3: the helper has not connected within 30 s"* ]]
	grep -q "the helper of this test does not start" "$(run_folder late)/logs/launch-1.log"
	[[ $(fault_of late) == helper-lost && $(event_field late fault node) == n3 ]]
	[[ $(event_field late first-step generation) -eq 2 ]]
	awk -v a="$(event late generation-start | head -n 1 | grep -oP '"mono":\K[0-9.]+')" -v b="$(event_field late rank-lost mono)" 'BEGIN { exit !(b - a < 45) }'
	has_same_bits late alone
	nothing_left late
}

@test "a helper is stopped while the generation is ended: Slurm kills it, and the run restarts" {
	large
	begins stuck
	kill -STOP "$(helpers n2)"
	kill -9 "$(agent_pid stuck 7)"
	is_right stuck
	[[ $(event_field stuck done restarts) -eq 1 ]]
}

@test "a node dies and a spare replaces it" {
	large
	submit spare job.steps=200 checkpoint.every=20 parallel.tp=2 parallel.pp=1 parallel.dp=3 batch.global=24 slurm.nodes=3 slurm.spares=1
	wait_for 60 step_reached spare 45
	kill_host n2
	ends_with 0
	nothing_left spare
	[[ $(event_field spare rank-lost node) == n2 ]]
	[[ $(nodes_of spare 2) == "n1 n3 n4 " ]]
	"$MUSTER" data audit "$(run_folder spare)"
}

@test "scancel --signal reaches the agents, and the next submission continues to the same bits" {
	large
	begins stopped
	scancel --signal=TERM "$id"
	ends_with 75
	nothing_left stopped
	[[ -n $(event stopped stopped) ]]
	submit stopped job.steps=200 checkpoint.every=20
	is_right stopped
}

@test "scancel of the job step's tasks alone stops the run, too" {
	large
	begins tasks
	local step
	step=$(squeue -h -s -j "$id" -o '%i %j' | awk '$2 ~ /^muster-1-/ { print $1 }')
	scancel --signal=TERM "$step"
	ends_with 75
	nothing_left tasks
}

@test "the supervisor is killed: no agent, no helper and no job step remains" {
	large
	begins orphans
	kill -9 "$(processes "^$(realpath "$MUSTER") run")"
	wait_for 60 job_over
	wait_for 60 no_agent
	wait_for 60 no_helper
}

@test "srun is killed: the run continues with another job step" {
	large
	begins srunless
	kill -9 "$(pgrep -f -o "^srun .*--job-name=muster-1-.* helper$")"
	is_right srunless
	[[ $(event_field srunless done restarts) -eq 1 ]]
}

@test "two runs share their nodes" {
	large
	local first
	submit left job.steps=200 parallel.tp=1 parallel.pp=2 parallel.dp=1 slurm.nodes=2 slurm.gpus_per_node=1 slurm.nodelist=n1,n2
	first=$id
	submit right job.steps=200 parallel.tp=1 parallel.pp=2 parallel.dp=1 slurm.nodes=2 slurm.gpus_per_node=1 slurm.nodelist=n1,n2
	wait_for 60 step_reached right 1
	ends_with 0
	id=$first
	ends_with 0
	has_same_bits left right
	nothing_left left
	nothing_left right
}

@test "launch.pmix = slurm insists on the plugin: one start, exit status 1, and the remedy" {
	submit insists launch.pmix=slurm
	ends_with 1
	[[ $(fault_of insists) == pmix-missing ]]
	grep -q "remedy .*launch.pmix = auto" "$(run_folder insists)"/logs/slurm-*.out
	[[ -z $(event insists pmix) ]]
}

@test "agents that cannot be executed are reported with their node" {
	large
	printf 'not a program\n' >"$BATS_TEST_TMPDIR/agent"
	chmod +x "$BATS_TEST_TMPDIR/agent"
	run env MUSTER_AGENT="$BATS_TEST_TMPDIR/agent" salloc -Q -N4 --ntasks-per-node=2 --gpus-per-node=2 "$MUSTER" run "$tiny" job.name=damaged $words restart.max_restarts=0
	[[ $status -eq 1 || $status -eq 4 ]]
	[[ $output == *"program-missing"* || $output == *"cannot be executed"* ]]
	nothing_left damaged
}
