#!/usr/bin/env bats
# Ranks are killed at random moments under a real Slurm with four nodes, one or two at once, also while the run recovers. The agents
# of the other ranks live on, and the run ends with the bits of an undisturbed run. WARM=no measures cold restarts in the same way.

load ../helpers
load ../random_kills
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	common="checkpoint.every=5 optimizer.decay_steps=100000"
	words="$common slurm.nodes=4 slurm.gpus_per_node=2 slurm.cpus_per_task=1 job.steps=1000000"
	words+=" restart.backoff=0 restart.max_restarts=1000 restart.max_futile=1000 restart.exclude_after=0"
	[[ -z ${WARM-} ]] || words+=" restart.warm=$WARM"
	kills=3
	[[ -z ${MUSTER_LARGE-} ]] || kills=25
	export common words kills
}

teardown_file() {
	[[ -n ${lacking-} ]] || figure_of_recoveries
	stop_cluster
}

setup() { [[ -z $lacking ]] || skip "$lacking"; }

teardown() { end_jobs; }

survives() { # name word...
	local name=$1
	shift
	submit "$name" "$@"
	kill_many "$name" 8 "$kills" || return 1
	lived_on "$name"
	scancel "$id"
	wait_for 60 job_over
	wait_for 60 no_agent
	# shellcheck disable=SC2086 # a list of words
	run_tiny "calm-$name" $common job.steps="$(last_step "$name")" "$@"
	has_same_bits "$name" "calm-$name"
}

@test "tp 2 × pp 2 × dp 2" { survives tp2pp2dp2 parallel.tp=2 parallel.pp=2 parallel.dp=2; }
@test "tp 2 × dp 4, ZeRO 1" { survives zero1 parallel.tp=2 parallel.dp=4 parallel.zero=1; }
@test "pp 4 × dp 2, zb-h1" { survives zbh1 parallel.pp=4 parallel.dp=2 parallel.schedule=zb-h1; }
@test "cp 2 × dp 4" { survives cp2 parallel.cp=2 parallel.dp=4; }
