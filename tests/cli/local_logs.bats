#!/usr/bin/env bats
# Logs that stay on the nodes (log.local): what is read there, and what moves to the run folder.

bats_require_minimum_version 1.5.0

load ../helpers
load long_run

# The ranks whose logs the run folder has, and the node.
shared() { find "$(run_folder "$1")/logs" -name '*.log' ! -name 'launch-*' | grep -oP -- '-\K[0-9]+(?=\.log)' | sort -n | uniq | tr '\n' ' '; }
local_ranks() { find "$BATS_FILE_TMPDIR/nodes" -path "*/$1-*" -name '*.log' | grep -oP -- '-\K[0-9]+(?=(\.[0-9]+)?\.log)' | sort -n | uniq | tr '\n' ' '; }

words() { echo "log.local=$BATS_FILE_TMPDIR/nodes/%N parallel.dp=4"; }

@test "only the log of rank 0 is in the run folder, and this node's logs are read where they are" {
	run_tiny calm $(words)
	[[ $(shared calm) == "0 " && $(local_ranks calm) == "1 2 3 " ]]
	[[ $(find "$BATS_FILE_TMPDIR/nodes" -path "*/$(hostname -s)/calm-*" -name '*.log' -perm 600 | wc -l) -eq 3 ]]
	[[ $(find "$BATS_FILE_TMPDIR/nodes" -name 'calm-*' -perm 700 | wc -l) -eq 1 ]]
	run --separate-stderr "$MUSTER" logs calm
	echo "$output"
	[[ $status -eq 0 && -z $stderr ]]
	for rank in 0 1 2 3; do [[ $(grep -c "rank $rank of 4" <<<"$output") -eq 1 ]]; done
}

@test "muster logs says which logs it cannot read, once the run is over" {
	run_tiny gone $(words)
	rm -r "$BATS_FILE_TMPDIR/nodes/$(hostname -s)"/gone-*
	run --separate-stderr "$MUSTER" logs gone
	echo "$output $stderr"
	[[ $status -eq 0 && $output == *"rank 0 of 4"* && $stderr == *"the logs of 3 ranks stay on the nodes"* ]]
	run --separate-stderr "$MUSTER" logs gone --rank 2
	echo "$stderr"
	[[ $status -eq 3 && $stderr == *"logs of ranks 0 to 0"*"the others stay on their nodes"* ]]
}

@test "a log that is asked for moves to the run folder and goes on there" {
	long asked $(words) log.level=debug
	run --separate-stderr "$MUSTER" logs asked --rank 2
	echo "$output $stderr"
	[[ $status -eq 0 && -z ${stderr/#muster: waiting for*folder/} && $output == *"rank 2 of 4"* ]]
	[[ $(shared asked) == "0 2 " && $(local_ranks asked) == "1 3 " ]]
	"$MUSTER" logs asked --node "$(hostname -s)" >"$BATS_TEST_TMPDIR/all"
	[[ $(shared asked) == "0 1 2 3 " && -z $(local_ranks asked) ]]
	# Nothing is left to collect; the next generation goes on in the run folder, too.
	run "$MUSTER" logs asked --rank 1
	[[ $status -eq 0 ]]
	kill -9 "$(agent_pid asked 3)"
	wait_for 60 generation_steps asked 2
	[[ -z $(local_ranks asked) ]]
	"$MUSTER" stop asked
	ended 75
	run "$MUSTER" logs asked --rank 3
	[[ $(grep -c "rank 3 of 4.*generation [12]" <<<"$output") -eq 2 ]]
}

@test "a node that does not answer at once is waited for, and muster logs says so" {
	local asking agent
	long waits $(words)
	agent=$(agent_pid waits 2)
	kill -STOP "$agent"
	"$MUSTER" logs waits --rank 2 >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" 3>&- & asking=$!
	wait_for 30 grep -q 'muster: waiting for the nodes to move the logs to the run folder' "$BATS_TEST_TMPDIR/err" || { kill -CONT "$agent"; return 1; }
	kill -CONT "$agent"
	wait "$asking"
	grep "rank 2 of 4" "$BATS_TEST_TMPDIR/out"
	[[ $(wc -l <"$BATS_TEST_TMPDIR/err") -eq 1 ]]
	"$MUSTER" stop waits --now
	ended 75
}

@test "two who ask at the same time both get the log" {
	local i
	long twice $(words)
	for i in 1 2 3; do "$MUSTER" logs twice --rank 1-3 >"$BATS_TEST_TMPDIR/$i" 2>&1 3>&- & asking[i]=$!; done
	for i in 1 2 3; do wait "${asking[i]}"; [[ $(grep -c "rank [123] of 4" "$BATS_TEST_TMPDIR/$i") -eq 3 ]]; done
	"$MUSTER" stop twice --now
	ended 75
}

@test "the log of a rank that is killed moves, in a warm and in a cold restart" {
	local warm
	for warm in yes no; do
		long $warm $(words) restart.warm=$warm
		kill -9 "$(agent_pid $warm 2)"
		wait_for 60 generation_steps $warm 2
		wait_for 60 eval '[[ $(shared $warm) == "0 2 " ]]'
		"$MUSTER" stop $warm
		ended 75
		cat "$(run_folder $warm)"/logs/*-2*.log | grep "rank 2 of 4.*generation 1"
	done
}

@test "without another generation the end of the run says where the log is" {
	long last $(words) restart.max_restarts=0
	kill -9 "$(agent_pid last 2)"
	ended 1
	cat "$BATS_FILE_TMPDIR/last.out"
	[[ $(shared last) == "0 " ]]
	at=$(grep -oP 'rank 2 was lost, and its log is still on .*: \K.*' "$BATS_FILE_TMPDIR/last.out")
	grep "rank 2 of 4" "$at"
}

@test "a rank that is killed again and again keeps one log, in the run folder" {
	local i
	long again $(words)
	for i in 2 3; do
		kill -9 "$(agent_pid again 2)"
		wait_for 60 generation_steps again $i
		wait_for 60 eval '[[ $(shared again) == "0 2 " ]]'
	done
	"$MUSTER" stop again
	ended 75
	cat "$BATS_FILE_TMPDIR/again.out"
	! grep -E "was lost, and its log|its log" "$BATS_FILE_TMPDIR/again.out"
	[[ -z $(event again log) ]]
	[[ $("$MUSTER" logs again --rank 2 | grep -c "rank 2 of 4") -eq 3 ]]
}

@test "a run that begins anew in the folder of another does not show that one's logs" {
	run_tiny anew $(words)
	rm -r "$(run_folder anew)"
	run_tiny anew $(words)
	[[ $("$MUSTER" logs anew | grep -c "rank 3 of 4") -eq 1 ]]
}

# Prints the lines that are missing, doubled or out of order among those of a rank, from a program that numbers them.
count_wrong() { awk -v rank="$1" '$0 ~ "of " rank "$" { if ($(NF - 2) != next_one + 0) wrong++; next_one = $(NF - 2) + 1 } END { print wrong + 0, next_one + 0 }'; }

@test "a reader sees each line once while the log splits, moves and splits again" {
	cat >"$BATS_TEST_TMPDIR/task" <<-'PY'
		import os, sys, time
		rank = os.environ["RANK"]
		for i in range(60000):
		    print("line", i, "of", rank, flush=i % 500 == 0)
		    if i % 20000 == 0:
		        time.sleep(0.3)
		open(os.path.join(sys.argv[1], rank), "w").close()
		while not os.path.exists(os.path.join(sys.argv[1], "end")):
		    time.sleep(0.05)
	PY
	"$MUSTER" run job.name=lines "job.run_dir=$BATS_FILE_TMPDIR" $(words) log.keep=40 program.show=none -- \
		python3 "$BATS_TEST_TMPDIR/task" "$BATS_TEST_TMPDIR" </dev/null >"$BATS_FILE_TMPDIR/lines.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 eval '[[ $(local_ranks lines) == "1 2 3 " ]]'
	"$MUSTER" logs lines --follow >"$BATS_TEST_TMPDIR/follower" 2>&1 3>&- &
	local follower=$!
	"$MUSTER" logs lines --rank 1-2 >/dev/null
	[[ $(shared lines) == "0 1 2 " && $(local_ranks lines) == "3 " ]]
	wait_for 60 eval '[[ -e $BATS_TEST_TMPDIR/0 && -e $BATS_TEST_TMPDIR/1 && -e $BATS_TEST_TMPDIR/2 && -e $BATS_TEST_TMPDIR/3 ]]'
	wait_for 60 eval '[[ $(grep -c "line 59999 of" "$BATS_TEST_TMPDIR/follower") -eq 4 ]]'
	kill "$follower"
	: >"$BATS_TEST_TMPDIR/end"
	ended 0
	for rank in 0 1 2 3; do
		[[ $(count_wrong $rank <"$BATS_TEST_TMPDIR/follower") == "0 60000" ]]
		[[ $("$MUSTER" logs lines | count_wrong $rank) == "0 60000" ]]
	done
}

@test "the log of a rank that fails by an error of its own moves" {
	printf '%s\n' 'echo own-words' '[ $RANK != 3 ] || exit 9' 'sleep 100' >"$BATS_TEST_TMPDIR/task"
	run "$MUSTER" run job.name=failing "job.run_dir=$BATS_FILE_TMPDIR" $(words) restart.max_restarts=0 -- sh "$BATS_TEST_TMPDIR/task"
	echo "$output"
	[[ $status -ne 0 ]]
	[[ $(shared failing) == "0 3 " ]]
	grep own-words "$(run_folder failing)"/logs/*-3*.log
}

@test "a folder that cannot be used is a warning, and the logs are in the run folder" {
	mkdir -p "$BATS_FILE_TMPDIR/file"
	: >"$BATS_FILE_TMPDIR/file/a"
	run_tiny refused log.local="$BATS_FILE_TMPDIR/file/a/b" parallel.dp=2
	[[ $(shared refused) == "0 1 " ]]
	event refused log | grep "file/a.*the logs of this node are in the run folder"
	# Others may write to the run's folder on the node.
	run_tiny open log.local="$BATS_FILE_TMPDIR/open" parallel.dp=2
	chmod 777 "$BATS_FILE_TMPDIR"/open/open-*
	run_tiny open log.local="$BATS_FILE_TMPDIR/open" parallel.dp=2 job.steps=25
	event open log | grep "open-.*nobody else may write"
	[[ $(shared open) == "0 1 " ]]
}

@test "what is no folder of each node is refused" {
	local value
	for value in here s3://bucket/logs "/a/%h"; do
		run "$MUSTER" plan "$tiny" "log.local=$value"
		echo "$output"
		[[ $status -eq 2 && $output == *"log.local"* && $output == *"$value"* ]]
	done
	run_tiny none log.local=none parallel.dp=2
	[[ $(shared none) == "0 1 " ]]
}
