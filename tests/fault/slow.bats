#!/usr/bin/env bats
# Ranks that slow down a run, or stand still for a while, are named with the likely reason. The run itself goes on.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
	[[ -z ${burner-} ]] || kill -9 "$burner" 2>/dev/null || true
	leave_group
}

# begin NAME WORD...: starts a run of 4 ranks in the background, and sets $pid; $out is what it prints.
begin() {
	local name=$1
	shift
	out=$BATS_FILE_TMPDIR/$name.out
	"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=4 job.steps=90000 model.hidden=64 "$@" </dev/null >"$out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 20
}

rank_pid() { agent_pid "$1" "$2"; }

end_run() {
	kill -TERM "$pid"
	wait "$pid" || [[ $? -eq 75 ]]
	pid=""
}

# Stops a process for three quarters of each 0.8 s until its rank is called slow, for 90 s at most.
hold_back() { # process run rank
	local i
	for ((i = 0; i < 112; i++)); do
		kill -STOP "$1"
		sleep 0.6
		kill -CONT "$1"
		sleep 0.2
		! grep -qE "slow +rank $3 on .*its process did not run at all" "$out" || return 0
	done
	return 1
}

# make_group CONTROLLER NAME: creates a cgroup, sets $group to its folder and $version. It skips the test if that is not permitted here.
make_group() {
	local top=/sys/fs/cgroup
	version=1
	[[ ! -e $top/cgroup.controllers ]] || version=2
	[[ $version -eq 2 ]] || top=$top/$1
	group=$top/muster-test-$$-$2
	mkdir "$group" 2>/dev/null || { group="" && skip "a cgroup for $1 cannot be made here"; }
	[[ $version -eq 1 || " $(<"$group/cgroup.controllers") " == *" $1 "* ]] ||
		skip "the controller $1 is not delegated here"
}

leave_group() {
	local id
	[[ -n ${group-} && -d $group ]] || return 0
	while read -r id; do
		echo "$id" >"${group%/*}/cgroup.procs" || true
	done <"$group/cgroup.procs"
	wait_for 60 rmdir "$group" || true
}

# The last line that names the rank as slow, in events.jsonl.
slow_line() { event "$1" slow-rank | grep "\"rank\":$2,\"" | grep '"slow":true'; }

# put_first PROCESS NICE: lets a process go before those with a higher nice value. With sched_autogroup nice values count inside a session
# only, so the session gets one, too. A thread may end meanwhile.
put_first() {
	local task
	for task in "/proc/$1/task"/*; do renice -n "$2" -p "${task##*/}" >/dev/null || [[ ! -d $task ]]; done
	[[ ! -w /proc/$1/autogroup ]] || echo "$2" >"/proc/$1/autogroup"
}

# Ranks 0 and 1 of a run get cores 0 and 1. Rank 0 goes before all others, so that it stays fast on a busy host.
bind_ranks() { # run
	[[ $(nproc) -ge 2 && $EUID -eq 0 ]] || skip "needs two cores, and root to put processes in front of others"
	taskset -a -p -c 0 "$(rank_pid "$1" 0)" >/dev/null
	taskset -a -p -c 1 "$(rank_pid "$1" 1)" >/dev/null
	put_first "$(rank_pid "$1" 0)" -19
}

# Uses core 1 before most others.
burn_core_1() {
	setsid taskset -c 1 bash -c 'while :; do :; done' 3>&- &
	burner=$!
	put_first "$burner" -10
}

@test "a rank that is stopped for most of the time is slow: its rank, node and reason are said, and the run goes on" {
	begin held health.slow_window=2
	hold_back "$(rank_pid held 2)" held 2
	event held slow-rank | grep -q "\"rank\":2,"
	grep -E "slow +rank 2 on [^ ]+ is slow: .* times as long per step as its peers, for .*; its process did not run at all for [0-9]+ %" "$out"
	wait_for 120 eval '[[ $(event held slow-rank | grep "\"rank\":2," | tail -n 1) == *"\"slow\":false"* ]]' # it recovers
	end_run
	[[ -z $(event held rank-lost) ]]
}

@test "a rank that was stopped and continues is named" {
	begin paused health.slow_factor=0
	kill -STOP "$(rank_pid paused 1)"
	sleep 3
	kill -CONT "$(rank_pid paused 1)"
	wait_for 60 event paused rank-paused
	[[ $(event_field paused rank-paused rank) -eq 1 ]]
	grep -E "paused +rank 1 on [^ ]+ sent nothing for [3-9]\.[0-9] s and goes on" "$out"
	end_run
	[[ -z $(event paused rank-lost) && -z $(event paused slow-rank) ]]
}

committed() { [[ $(event "$1" ckpt | wc -l) -ge $2 ]]; } # run count

@test "a folder of checkpoints that becomes slow is named" {
	local slow=$BATS_FILE_TMPDIR/slow-now
	cc -shared -fPIC -o "$BATS_FILE_TMPDIR/slow.so" "$BATS_TEST_DIRNAME/slow_writes.c" -ldl || skip "needs a compiler"
	export LD_PRELOAD=$BATS_FILE_TMPDIR/slow.so SLOW_MS=4000 SLOW_WHILE=$slow
	begin folder parallel.dp=2 checkpoint.every=200
	unset LD_PRELOAD
	wait_for 120 committed folder 4
	touch "$slow"
	wait_for 120 event folder slow-ckpt
	event folder slow-ckpt | grep -E '"slow":true,.*the checkpoint of step [0-9]+ took [0-9.]+ s, and .* is usual: its folder is slow; '
	grep -E "slow +the checkpoint of step [0-9]+ took" "$out"
	rm "$slow"
	end_run
}

@test "a rank whose cgroup allows a tenth of a core is slow because of its cgroup" {
	begin limited health.slow_window=4 parallel.dp=2
	bind_ranks limited
	make_group cpu tenth
	# The group goes before all others, so that nothing else makes it slow: nice values count inside a group only.
	if [[ $version -eq 2 ]]; then
		echo "10000 100000" >"$group/cpu.max"
		echo 10000 >"$group/cpu.weight"
	else
		echo 100000 >"$group/cpu.cfs_period_us"
		echo 10000 >"$group/cpu.cfs_quota_us"
		echo 262144 >"$group/cpu.shares"
	fi
	rank_pid limited 1 >"$group/cgroup.procs"
	wait_for 120 slow_line limited 1
	slow_line limited 1 | grep -E "its cgroup /muster-test-[0-9]+-tenth limits it to 0.1 cores: it was throttled for [0-9]+ % of the time"
	grep -q '"kind":"throttled"' "$(run_folder limited)/health.jsonl"
	end_run
}

@test "a rank whose core a busy process shares is slow because of that process" {
	begin shared health.slow_window=2 parallel.dp=2
	bind_ranks shared
	burn_core_1
	wait_for 120 slow_line shared 1
	# The run has the nice value of this test. With one above 0 that value is the reason.
	reason="it waited for a core for [0-9]+ % of the time; process bash, pid $burner, uses [0-9]+ % of core 1"
	[[ $(nice) -le 0 ]] || reason="its nice value is $(nice), so other processes go first: it waited for a core for [0-9]+ % of the time"
	slow_line shared 1 | grep -E "$reason"
	end_run
}

@test "a rank that was niced is slow because of its nice value" {
	begin niced health.slow_window=2 parallel.dp=2
	bind_ranks niced
	burn_core_1
	for task in /proc/"$(rank_pid niced 1)"/task/*; do renice -n 15 -p "${task##*/}"; done
	wait_for 120 slow_line niced 1
	slow_line niced 1 | grep -E "its nice value is 15, so other processes go first"
	end_run
}
