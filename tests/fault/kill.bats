#!/usr/bin/env bats
# Each rank in turn is killed by kill -9 while it trains. The run ends by itself, with the same bits as an undisturbed run.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	words="job.steps=200 parallel.tp=2 parallel.pp=2 parallel.dp=2 checkpoint.every=5 restart.backoff=0.1"
	export words
	# shellcheck disable=SC2086 # a list of words
	run_tiny undisturbed $words
}

# survive_kills RANK...: the run must restart by itself after each kill, and end with the same bits.
survive_kills() {
	local name=kill-$1 pid
	# shellcheck disable=SC2086
	"$MUSTER" run "$tiny" job.name="$name" $words </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	kill_ranks "$name" "$@"
	wait $pid
	has_same_bits "$name" undisturbed
}

@test "ranks 0 to 3 of 8 are killed in turn: the run restarts each time and ends with the same bits" { survive_kills 0 1 2 3; }
@test "ranks 4 to 7 of 8 are killed in turn: the run restarts each time and ends with the same bits" { survive_kills 4 5 6 7; }

@test "the launcher is killed: no agent stays behind" {
	# shellcheck disable=SC2086
	"$MUSTER" run "$tiny" job.name=orphans $words job.steps=100000 </dev/null >/dev/null 2>&1 3>&- &
	local pid=$! agents
	wait_for 60 step_reached orphans 2
	agents=$(pgrep -P $pid -x muster-agent)
	[[ $(wc -w <<<"$agents") -eq 8 ]]
	kill -9 $pid
	for agent in $agents; do
		# A dead process that nobody has waited for yet has no command line any more.
		wait_for 2 bash -c "! grep -qs . /proc/$agent/cmdline"
	done
}
