#!/usr/bin/env bats
# Ranks that slow down a run, or stand still for a while, are named with the likely reason. The run itself goes on.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
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

rank_pid() { event_field "$1" hello pid "$2"; }

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
		[[ -z $(event_field "$2" slow-rank rank "$3") ]] || return 0
	done
	return 1
}

@test "a rank that is stopped for most of the time is slow: its rank, node and reason are said, and the run goes on" {
	begin held health.slow_window=2
	hold_back "$(rank_pid held 2)" held 2
	event held slow-rank | grep -q "\"rank\":2,"
	grep -E "slow +rank 2 on [^ ]+ is slow: .* times as long per step as its peers, for .*; its process did not run at all for [0-9]+ %" "$out"
	wait_for 60 eval '[[ $(event held slow-rank | grep "\"rank\":2," | tail -n 1) == *"\"slow\":false"* ]]' # it recovers
	end_run
	[[ -z $(event held rank-lost) ]]
}

@test "a rank that was stopped and continues is named" {
	begin paused health.slow_factor=0
	kill -STOP "$(rank_pid paused 1)"
	sleep 3
	kill -CONT "$(rank_pid paused 1)"
	wait_for 10 event paused rank-paused
	[[ $(event_field paused rank-paused rank) -eq 1 ]]
	grep -E "paused +rank 1 on [^ ]+ sent nothing for [3-9]\.[0-9] s and goes on" "$out"
	end_run
	[[ -z $(event paused rank-lost) && -z $(event paused slow-rank) ]]
}
