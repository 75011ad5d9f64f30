#!/usr/bin/env bats
# Slurm's own services fail: what passes by itself is waited out without counting, what does not is not tried again.

load ../helpers
load jobs

setup_file() {
	# The controller must not give up the nodes while it is away.
	CLUSTER_TIMEOUT=300 start_cluster 2
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="parallel.dp=2 slurm.nodes=2 slurm.gpus_per_node=1 slurm.cpus_per_task=1 restart.backoff=0.1 restart.max_restarts=1"
	export words
}

teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
}

# begin NAME WORD...: runs the tiny job in an allocation in the background, and sets $pid to salloc's and $out to what it prints.
begin() {
	local name=$1
	shift
	out=$BATS_FILE_TMPDIR/$name.out
	# shellcheck disable=SC2086 # a list of words
	salloc -Q -N2 --ntasks-per-node=1 "$MUSTER" run "$tiny" "job.name=$name" $words "$@" </dev/null >"$out" 2>&1 3>&- &
	pid=$!
}

ended() { # expected exit status of $pid
	local rc=0
	wait "$pid" || rc=$?
	cat "$out"
	echo "exit status $rc"
	[[ $rc -eq $1 ]]
}

# Succeeds if muster has said that it waits for a service of Slurm: it found out when it asked for the nodes, or when it started a
# step.
waits() { grep -qE "their manager does not answer|(slurmctld\)|munged) does not answer" "$out"; }

# waited_out NAME: the run waited, without counting more than the one restart for the killed agent, blamed no node, and computed the
# same bits as a run without the outage.
waited_out() {
	ended 0
	[[ $(event_field "$1" done restarts) -le 1 ]]
	! grep "cannot be reached" "$out"
	[[ -e $(run_folder undisturbed) ]] || run_tiny undisturbed job.steps=400 checkpoint.every=20 parallel.dp=2 launch.launcher=local
	has_same_bits "$1" undisturbed
}

pid_of() { awk -v name="$1" '$2 == name { pid = $1 } END { print pid }' "$cluster/pids"; }

# Starts munged again as tests/slurm/cluster does.
start_munged() {
	setsid munged --foreground --force --key-file="$cluster/munge.key" --socket="$cluster/munge.socket" \
		--pid-file="$cluster/munged.pid" --log-file="$cluster/log/munged" --seed-file="$cluster/munged.seed" \
		</dev/null >>"$cluster/log/munged.out" 2>&1 3>&- &
	echo "$! munged" >>"$cluster/pids"
}

# outage NAME SERVICE SECONDS: an agent of a run dies while a service is away, which returns this long after muster has noticed it.
outage() {
	begin "$1" job.steps=400 checkpoint.every=20
	wait_for 60 step_reached "$1" 25
	local agent service
	agent=$(agent_pid "$1" 1) service=$(pid_of "$2")
	kill -STOP "$agent" # the run waits for it
	kill "$service"     # slurmctld saves its state: without it, it would not know the job
	wait_for 12 has_ended "$service"
	kill -9 "$agent"
	wait_for 60 waits || { cat "$out"; return 1; }
	sleep "$3"
	if [[ $2 == munged ]]; then start_munged; else start_controller; fi
	waited_out "$1"
}

@test "an agent is killed while slurmctld is away for 5 s: muster waits, and the run continues with the same bits" {
	outage controller slurmctld 5
}

@test "an agent is killed while munged is away for 20 s: muster waits, and the run continues with the same bits" {
	large
	outage munge munged 20
}

@test "an agent is killed while munged is stopped for 20 s: muster waits, and the run continues with the same bits" {
	large
	begin stopped job.steps=400 checkpoint.every=20
	wait_for 60 step_reached stopped 25
	kill -STOP "$(pid_of munged)"
	kill -9 "$(agent_pid stopped 1)"
	wait_for 60 waits || { kill -CONT "$(pid_of munged)"; cat "$out"; return 1; }
	sleep 20
	kill -CONT "$(pid_of munged)"
	waited_out stopped
}

@test "slurmctld and munged may be away for a minute" {
	large
	outage controller-minute slurmctld 60
	outage munge-minute munged 60
}

@test "without the plugin for PMIx there is one start, exit status 1, and the remedy" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/bash\nexec %s "${@/--mpi=pmix/--mpi=pmix_v9}"\n' "$(command -v srun)" >"$BATS_TEST_TMPDIR/bin/srun"
	chmod +x "$BATS_TEST_TMPDIR/bin/srun"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH begin pluginless launch.pmix=slurm
	ended 1
	grep -q "Slurm has no plugin for PMIx" "$out"
	grep -q "remedy .*srun --mpi=list" "$out"
	[[ $(event pluginless generation-start | wc -l) -eq 1 ]]
}

@test "if agents cannot use Slurm's PMIx server, the next generation gets muster's own" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/bash\nexec %s "${@/--mpi=pmix/--mpi=pmix_v9}"\n' "$(command -v srun)" >"$BATS_TEST_TMPDIR/bin/srun"
	chmod +x "$BATS_TEST_TMPDIR/bin/srun"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH begin fallback
	ended 0
	[[ $(event fallback fault) == *'"generation":1,'*'"fault":"pmix-refused"'* ]]
	[[ $(event fallback pmix | grep -oP '"what":"\K[^"]+' | xargs) == "refused own" ]]
	[[ $(event_field fallback first-step generation) -eq 2 ]]
}

@test "a killed agent's signal is known from Slurm's words" {
	begin signal job.steps=400 checkpoint.every=20
	wait_for 60 step_reached signal 25
	# The supervisor waits for these words for a fraction of a second only.
	local supervisor
	supervisor=$(<"$(run_folder signal)/lock")
	kill -STOP "$supervisor"
	kill -SEGV "$(agent_pid signal 1)"
	wait_for 60 grep -q "task 1: Segmentation fault" "$(run_folder signal)/logs/launch-1.log"
	kill -CONT "$supervisor"
	ended 0
	grep -qE "lost +rank 1 on n2, .*: killed by SIGSEGV; the agent crashed" "$out"
}
