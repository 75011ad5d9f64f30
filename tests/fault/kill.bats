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

# Ends the decoys of a failed test, too. Those that muster has ended stay zombies until bats ends, so their pids are not used again.
teardown() {
	# shellcheck disable=SC2086 # a list of pids
	[[ -z ${decoys-} ]] || kill -9 $decoys 2>/dev/null || true
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
		wait_for 60 bash -c "! grep -qs . /proc/$agent/cmdline"
	done
}

# start_decoy NAME: starts a program of that name, which ignores SIGTERM, and sets $decoy to its pid.
start_decoy() {
	local ready=$BATS_TEST_TMPDIR/ready
	cp -n "$(command -v bash)" "$BATS_TEST_TMPDIR/$1"
	mkfifo "$ready"
	"$BATS_TEST_TMPDIR/$1" -c 'trap "" TERM; echo >"$0"; read -r' "$ready" <>"$BATS_TEST_TMPDIR/$1.stdin" 3>&- &
	decoy=$!
	decoys+=" $decoy"
	disown
	read -r <"$ready"
	rm "$ready"
}

still_runs() { ! has_ended "$1"; }

# Prints the start time of a process.
start_of() { sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20; }

# note_agent NAME PID START: adds an agent of generation 1 to the events of the run.
note_agent() {
	sed -n '0,/"hello"/{/"hello"/p}' "$(run_folder "$1")/events.jsonl" |
		sed -E "s/\"pid\":[0-9]+/\"pid\":$2/; s/\"start\":[0-9]+/\"start\":$3/" >"$BATS_TEST_TMPDIR/line"
	cat "$BATS_TEST_TMPDIR/line" >>"$(run_folder "$1")/events.jsonl"
}

@test "a later run ends the agents that an earlier one left, and no other process" {
	local agent recycled stranger
	run_tiny left job.steps=6
	mkfifo "$BATS_TEST_TMPDIR"/{muster-agent,sleeper}.stdin
	start_decoy muster-agent
	agent=$decoy
	start_decoy muster-agent
	recycled=$decoy
	start_decoy sleeper
	stranger=$decoy
	note_agent left "$agent" "$(start_of "$agent")"
	note_agent left "$recycled" "$(($(start_of "$recycled") - 1))"
	note_agent left "$stranger" "$(start_of "$stranger")"
	printf '{"event":"hello","generation":1,"ra' >>"$(run_folder left)/events.jsonl"
	run_tiny left job.steps=12
	has_ended "$agent"
	grep -F "agents of earlier generations still ran and were killed: processes $agent (generation 1)" "$BATS_FILE_TMPDIR/left.out"
	still_runs "$recycled"
	still_runs "$stranger"
}
