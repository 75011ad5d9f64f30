#!/usr/bin/env bats
# With launch.preflight a run checks (quick) or also measures (full) its nodes before the first start, on a real Slurm with four nodes
# on the loopback address.
# The epilog for sites, on the same cluster.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="launch.preflight=quick slurm.gpus_per_node=2 slurm.cpus_per_task=1 batch.global=24 job.steps=20"
	export words
	# Driver doubles: node n2 has a GPU with broken memory, the others have none.
	export LD_LIBRARY_PATH=$doubles NVML_DOUBLE=none NVML_DOUBLE_n2=dgx-h100,remap-failed=1
}

teardown_file() { stop_cluster; }
setup() {
	[[ -z $lacking ]] || skip "$lacking"
	export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/cache # a suspect node of one test is none in the next
}
teardown() { end_jobs; }

# Prints what the last decision was.
decision() { event "$1" decision | tail -n 1 | grep -oP '"how":"\K[^"]+' | head -n 1; } # run

check_figure() { # run
	figure "$1: $(event_field "$1" nodes-checked passed) passed, $(event_field "$1" nodes-checked failed) failed; the check took" \
		"$(event_field "$1" nodes-checked seconds | cut -c 1-4) s"
}

@test "a node that fails its check is replaced by a spare before the first start" {
	submit spare parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3 slurm.spares=1
	ends_with 0
	check_figure spare
	[[ $(event spare nodes-checked) == *'"passed":3,"failed":1'* ]]
	[[ $(event_field spare node-check node) == n2 && $(event spare node-check) == *'"passed":false'*memory* ]]
	[[ $(nodes_of spare 1) == "n1 n3 n4 " ]]
	[[ $(event spare node-suspected) == *'"node":"n2","kind":"check","evidence":"GPU'* ]]
	[[ $(decision spare) == spare ]]
	[[ $(event_field spare generation-start restarts) == 0 ]]
	grep -q 'n2 is not used: GPU' "$(run_folder spare)"/logs/slurm-*.out
}

@test "without a spare the layout becomes smaller" {
	large
	submit smaller parallel.tp=2 parallel.pp=1 parallel.dp=4 slurm.nodes=4 restart.shrink=dp
	ends_with 0
	check_figure smaller
	[[ $(nodes_of smaller 1) == "n1 n3 n4 " && $(decision smaller) == dp ]]
}

@test "a layout that must stay is requeued without the node" {
	submit requeued parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3 restart.shrink=keep batch.global=24
	ends_with 0
	[[ $(decision requeued) == requeue ]]
	[[ $(job_field ExcNodeList) == n2 && $(job_field Restarts) == 1 ]]
	[[ $(nodes_of requeued) == "n1 n3 n4 " ]]
}

@test "a layout that must stay and cannot be requeued ends with the reason, before anything has started" {
	submit ends parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3 slurm.requeue=no restart.shrink=keep
	ends_with 3
	! event ends generation-start || return 1
	grep -q 'n2 is not used: GPU' "$(run_folder ends)"/logs/slurm-*.out
	grep -q 'the nodes that are left cannot run the job' "$(run_folder ends)"/logs/slurm-*.out
}

@test "nodes that pass cost only the time of the check" {
	NVML_DOUBLE_n2=none submit passes parallel.tp=2 parallel.pp=1 parallel.dp=3 slurm.nodes=3
	ends_with 0
	check_figure passes
	[[ $(event passes nodes-checked) == *'"passed":3,"failed":0'* ]]
	! event passes node-check || return 1
	! event passes decision || return 1
}

# --- preflight = full ---------------------------------------------------------------------------------------------

# Submits a run with three nodes and a spare. $1: its name; $2: what the burn-in on n2 does: nothing, or it stands still for 9/10 of the
# time, or for ever.
submit_full() { # name how word...
	local name=$1 how=$2 agent
	shift 2
	agent=$(realpath "$(dirname "$MUSTER")")/muster-agent
	cat >"$BATS_FILE_TMPDIR/agent" <<-END
		#!/bin/bash
		if [[ \${SLURMD_NODENAME-} == n2 && \$* == "bench node"* ]]; then
			[[ $how != hang ]] || exec sleep 600
			pid=\$\$
			[[ $how != slow ]] || while sleep 0.02 && kill -STOP \$pid && sleep 0.18 && kill -CONT \$pid; do :; done &>/dev/null </dev/null &
		fi
		exec $agent "\$@"
	END
	chmod +x "$BATS_FILE_TMPDIR/agent"
	NVML_DOUBLE_n2=none MUSTER_AGENT=$BATS_FILE_TMPDIR/agent submit "$name" launch.preflight=full parallel.tp=2 parallel.pp=1 \
		parallel.dp=3 slurm.nodes=3 slurm.spares=1 "$@"
}

burn_in_figure() { # run
	figure "$1: $(event "$1" burn-in | grep -oP '"failed":\d+|"repeated":\w+' | tr '\n' ' ')the burn-in took" \
		"$(event_field "$1" burn-in seconds | cut -c 1-4) s"
}

# The nodes share two cores, whose other users this test does not know, so only large differences count.
@test "full: nodes that are alike start, and the figures of all of them are kept" {
	submit_full alike as-it-is health.preflight_factor=4
	ends_with 0
	burn_in_figure alike
	[[ $(event alike burn-in) == *'"nodes":4,"failed":0'* ]]
	[[ $(nodes_of alike 1) == "n1 n2 n3 " ]]
	grep -q '4 of 4 passed the burn-in, which took .*product rate .*memory bandwidth .*rate of sending' "$(run_folder alike)"/logs/slurm-*.out
	local kept
	kept=$(tr -d ' \n' <"$(run_folder alike)/preflight.json")
	for what in product memory disk-write disk-read disk-sync send receive; do
		grep -q "\"what\":\"$what\"" <<<"$kept"
	done
	for node in n1 n2 n3 n4; do
		[[ $kept == *"{\"node\":\"$node\",\"kind\":0,\"failed\":\"\""* ]]
		[[ $kept == *"\"peer\":\"$node\""* ]]
	done
}

@test "full: a slow node is named with its figures and replaced by a spare" {
	submit_full slow slow health.preflight_factor=4 health.preflight_timeout=60
	ends_with 0
	burn_in_figure slow
	grep 'is not used: ' "$(run_folder slow)"/logs/slurm-*.out # of each node that failed
	grep -qP 'n2 is not used: .* the median of its peers is ' "$(run_folder slow)"/logs/slurm-*.out
	[[ $(event slow burn-in) == *'"nodes":4,"failed":1'* ]]
	[[ $(event slow node-suspected) == *'"node":"n2","kind":"check"'* ]]
	[[ $(nodes_of slow 1) == "n1 n3 n4 " && $(decision slow) == spare ]]
}

@test "full: a node whose burn-in hangs is replaced by a spare, within 20 s" {
	large
	submit_full hangs hang
	ends_with 0
	burn_in_figure hangs
	grep 'n2 is not used: its burn-in has not started' "$(run_folder hangs)"/logs/slurm-*.out
	[[ $(nodes_of hangs 1) == "n1 n3 n4 " ]]
	[[ $(event_field hangs burn-in seconds | cut -d . -f 1) -le 25 ]] # with its start
	wait_for 60 eval '[[ -z $(processes "^sleep 600" n2) ]]'
}

# --- The epilog of templates/site ---------------------------------------------------------------------------------

run_epilog() { "$top/templates/site/epilog.sh" "$cluster/spool/$1" "$cluster/tmp/$1"; } # node
has_socket() { compgen -G "$cluster/spool/$1/stepd.slurm.pmix.*" >/dev/null; } # node

@test "the epilog leaves the sockets of a step that runs, and removes those of a step whose manager was killed" {
	srun --nodes=1 --nodelist=n4 --mpi=pmix sleep 600 &
	wait_for 60 has_socket n4
	run_epilog n4
	has_socket n4
	[[ -n $(ls "$cluster/tmp/n4") ]]
	manager=$(daemons_of n4 | xargs -I{} grep -lx slurmstepd /proc/{}/comm | cut -d / -f 3)
	# shellcheck disable=SC2086 # a list of pids
	kill -9 $manager
	scancel --user=root
	wait_for 60 no_jobs
	figure "left by a step manager that was killed: $(ls "$cluster/spool/n4" "$cluster/tmp/n4" | grep -c pmix)"
	run_epilog n4
	! has_socket n4 || return 1
	! ls "$cluster/spool/n4" "$cluster/tmp/n4" | grep pmix || return 1
	processes "sleep 600" n4 | xargs -r kill -9 # the task may outlive its manager
	wait || true
}
