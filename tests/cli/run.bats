#!/usr/bin/env bats
# The command line: help, refusals, stops, and what muster prints.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# long NAME WORD...: starts a run that does not end by itself in the background, and sets $pid to the launcher's.
long() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" job.steps=1000000 parallel.tp=2 parallel.dp=2 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 1
}

ended() { # expected exit status of $pid
	local rc=0
	wait "$pid" || rc=$?
	echo "exit status $rc"
	[[ $rc -eq $1 ]]
}

@test "muster alone shows its commands and exits 2" {
	run "$MUSTER"
	[[ $status -eq 2 && $output == *COMMANDS*run*submit*plan* ]]
}

@test "--help of each command reads like a man page" {
	for command in run ls status stop checkpoint plan topo submit trace; do
		run "$MUSTER" $command --help
		[[ $status -eq 0 && $output == "muster $command"*SYNOPSIS*"EXIT STATUS"* ]]
		run "$MUSTER" help $command
		[[ $status -eq 0 && $output == "muster $command"* ]]
	done
}

@test "run --help ends with every key of the job file" {
	run "$MUSTER" run --help
	[[ $status -eq 0 && $output == *"[job]"*"max_restarts"*"[log]"* ]]
}

@test "an unknown command is refused, and the nearest one is named" {
	run "$MUSTER" rum
	[[ $status -eq 2 && $output == *'did you mean "run"'* ]]
	run "$MUSTER" xyzzy
	[[ $status -eq 2 && $output == *"muster help"* ]]
}

@test "topo prints the same as text and as JSON" {
	run "$MUSTER" topo --cluster h200:1
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == "h200:1: 1 node, 1 device"* && $output == *"memory 128 GiB"* && $output == *" GB/s"* ]]
	"$MUSTER" topo --cluster dgx-h100:4 --json | python3 -c '
import json, sys
c = json.load(sys.stdin)
assert c["devices"] == 32 and c["nodes"][0]["names"] == "node[0-3]", c
assert c["kinds"][0]["nodes"] == 4 and c["kinds"][0]["device_memory"] == 80 << 30, c'
}

@test "wrong command lines exit 2" {
	for words in "run" "run --frobnicate $tiny" "plan --cluster" "run /nonexistent.ini" "run $tiny other.ini" "topo here"; do
		# shellcheck disable=SC2086 # a list of words
		run "$MUSTER" $words
		echo "$words: $status $output"
		[[ $status -eq 2 && ${#lines[@]} -eq 1 ]]
	done
}

@test "errors name the option or the path, and the remedy" {
	run "$MUSTER" run "$tiny" other.ini
	echo "$output"
	[[ $output == *'"other.ini" is neither an option nor section.key=value, and the job file is '"$tiny already; see muster run --help" ]]
	run "$MUSTER" run "$tiny" job.run_dir="$tiny"
	echo "$output"
	[[ $status -eq 3 && $output == *": cannot make the folder: Not a directory; choose another [job] run_dir or name" ]]
	run "$MUSTER" plan "$tiny" --cluster /no/such
	echo "$output"
	[[ $status -eq 3 && $output == "muster: --cluster: /no/such: cannot open: No such file or directory" ]]
	run "$MUSTER" topo --svg /no/such/x.svg --cluster nothing
	echo "$output"
	[[ $status -eq 3 && $output == "muster: /no/such/x.svg: cannot create a file in its folder: "* ]]
}

@test "a broken job exits 2 with one line, and no run folder is made" {
	run "$MUSTER" run "$tiny" job.name=broken job.stepz=1
	echo "$output"
	[[ $status -eq 2 && ${#lines[@]} -eq 1 && $output == *"job.stepz"* ]]
	[[ ! -e $(run_folder broken) ]]
}

@test "plan starts nothing" {
	run "$MUSTER" plan "$tiny" job.name=planned parallel.tp=2
	[[ $status -eq 0 && ! -e $(run_folder planned) ]]
}

@test "without its agent muster exits 3 and reports where it looked" {
	MUSTER_AGENT=/nonexistent run "$MUSTER" run "$tiny" job.name=agentless
	[[ $status -eq 3 && $output == *"/nonexistent"* ]]
}

@test "an agent that cannot be executed ends the run at once, with its log line" {
	echo "no program" >"$BATS_TEST_TMPDIR/agent"
	chmod +x "$BATS_TEST_TMPDIR/agent"
	MUSTER_AGENT=$BATS_TEST_TMPDIR/agent run "$MUSTER" run "$tiny" job.name=junk
	echo "$output"
	[[ $status -eq 1 && $output == *"muster: $BATS_TEST_TMPDIR/agent: cannot execute: Exec format error"* ]]
	[[ $(event junk generation-start | wc -l) -eq 1 ]]
}

@test "too few open files for the agents: the soft limit is raised, the hard one refused at once" {
	(ulimit -Sn 20 && run_tiny soft job.steps=5 parallel.dp=8)
	(ulimit -n 20 && run "$MUSTER" run "$tiny" job.name=hard parallel.dp=8 && [[ $status -eq 3 && $output == *"ulimit -n 48"* ]])
	[[ ! -e $(run_folder hard) ]]
}

@test "a pipe gets plain lines, the plan first and a summary last" {
	run "$MUSTER" run "$tiny" job.name=piped job.steps=5
	[[ $status -eq 0 && $output != *$'\033'* && ${lines[0]} == "Plan for piped"* && ${lines[-1]} == *"$(run_folder piped)" ]]
	[[ $(stat -c %a "$(run_folder piped)") == 700 && $(stat -c %a "$(run_folder piped)/events.jsonl") == 600 ]]
	[[ ! -e $(run_folder piped)/.pmix ]]
}

@test "started without descriptors 0, 1 and 2, it writes no foreign text into its files" {
	"$MUSTER" run "$tiny" job.name=bare job.steps=5 <&- >&- 2>&-
	[[ -z $(grep -v '^{' "$(run_folder bare)"/{events,metrics}.jsonl) ]]
	[[ $(cat "$(run_folder bare)/lock") =~ ^[0-9]+$ ]]
}

@test "a person's files in the run folder are kept" {
	mkdir -p "$(run_folder kept)/pmix"
	touch "$(run_folder kept)/pmix/notes"
	run_tiny kept job.steps=5
	[[ -e $(run_folder kept)/pmix/notes ]]
}

@test "a person's own job.ini in the run folder is not replaced" {
	mkdir -p -m 700 "$(run_folder own)"
	cp "$tiny" "$(run_folder own)/job.ini"
	run "$MUSTER" run "$(run_folder own)/job.ini" job.name=own job.steps=5
	echo "$output"
	[[ $status -eq 3 && $output == *"move it elsewhere"* ]]
	cmp "$tiny" "$(run_folder own)/job.ini"
}

@test "a run folder that others may write to is refused, with the remedy" {
	mkdir -p -m 770 "$(run_folder shared)"
	run "$MUSTER" run "$tiny" job.name=shared job.steps=5
	[[ $status -eq 3 && $output == *"chmod go-w"* ]]
}

@test "a second muster on the same run is refused with the first one's pid" {
	long twice
	run "$MUSTER" run "$tiny" job.name=twice
	echo "$output"
	[[ $status -eq 3 && $output == *"process $pid"* ]]
	kill -TERM "$pid"
	ended 75
	[[ $(event twice stopped | wc -l) -eq 1 ]]
}

@test "a second Ctrl-C does not wait" {
	long hasty
	agents=$(pgrep -P "$pid" -x muster-agent)
	for agent in $agents; do kill -STOP "$agent"; done
	kill -INT "$pid"
	wait_for 60 event hasty stop
	kill -INT "$pid"
	ended 75
	for agent in $agents; do
		[[ ! -e /proc/$agent ]]
	done
}

@test "a rank that hangs is named, and the run continues" {
	long hung restart.hang_timeout=10 checkpoint.every=20
	wait_for 60 event hung ckpt
	kill -STOP "$(agent_pid hung 2)"
	wait_for 60 event hung restart
	event hung rank-lost
	[[ $(event hung rank-lost) == *'"rank":2,'*'"how":"hung"'* ]]
	# The stopped rank could not write its flight recorder; those of the others name the rank that they wait for.
	event hung verdict
	[[ $(event hung verdict) == *'"generation":1,'*'"finding":"missing"'*" for rank 2, of which there is no dump"*'"ranks":[2]'* ]]
	grep -q "verdict.* for rank 2" "$BATS_FILE_TMPDIR/hung.out"
	run "$MUSTER" trace "$(run_folder hung)"
	echo "$output"
	[[ $status -eq 1 && ${lines[0]} == *" for rank 2, of which there is no dump" ]]
	[[ $output == *"rank 2, process "*": its process is stopped by a signal"*"stacks-2.txt"* ]]
	[[ $(stat -c %a "$(run_folder hung)/trace/gen-1") == 700 ]]
	wait_for 60 bash -c "grep '\"generation\":2' '$(run_folder hung)/metrics.jsonl'"
	kill -TERM "$pid"
	ended 75
}

@test "connections from strangers do not disturb the run" {
	long strangers
	ports=$(ss -Hltnp | grep "pid=$pid," | grep -oE '127\.0\.0\.1:[0-9]+' | cut -d: -f2)
	[[ -n $ports ]]
	for port in $ports; do
		for _ in 1 2 3; do
			# It stays until it is refused: what it has sent may be lost when it leaves first.
			(exec 9<>"/dev/tcp/127.0.0.1/$port" && head -c 4096 /dev/urandom >&9 && timeout 60 cat <&9) &>/dev/null || true
		done
	done
	wait_for 60 event strangers refused
	kill -TERM "$pid"
	ended 75
	[[ $(event strangers generation-start | wc -l) -eq 1 ]]
}

@test "the secret is on no command line and in no file of the run" {
	long secret
	for agent in $(pgrep -P "$pid" -x muster-agent); do
		[[ -z $(tr '\0' '\n' <"/proc/$agent/cmdline" | grep -E '[0-9a-f]{64}') ]]
	done
	kill -TERM "$pid"
	ended 75
	[[ -z $(grep -rE 'MUSTER_SECRET|"(group_)?secret":' "$(run_folder secret)" --exclude-dir=ckpt) ]]
}
