#!/usr/bin/env bats
# Ranks that hang: the one that hung first is named, with what its threads do, before the run restarts. What is only slow, or stood
# still with its whole host, is not taken for a hang.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

teardown() {
	# shellcheck disable=SC2086 # a list of pids
	[[ -z ${pid-} ]] || kill -9 $pid ${stopped-} 2>/dev/null || true
}

# begin NAME WORD...: starts a run of 4 ranks in the background, and sets $pid; $out is what it prints.
begin() {
	local name=$1
	shift
	out=$BATS_FILE_TMPDIR/$name.out
	"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=4 job.steps=90000 checkpoint.every=20 restart.backoff=0.1 "$@" \
		</dev/null >"$out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 25
}

# drill NAME KIND: a run of 4 ranks in which the agent of rank 2 causes a fault of agent/drill.h after step 12.
drill() {
	out=$BATS_FILE_TMPDIR/$1.out
	DRILL_MARK=hang DRILL_FAULT="$2 2 12 0" timeout 300 "$MUSTER" run "$tiny" "job.name=$1" parallel.dp=4 job.steps=30 checkpoint.every=5 \
		restart.hang_timeout=10 restart.stacks_timeout=20 restart.backoff=0.1 </dev/null >"$out" 2>&1 3>&-
	cat "$out"
}

rank_pid() { agent_pid "$1" "$2"; }
agent_pids() { event "$1" hello | grep -o '"pid":[0-9]*' | cut -d : -f 2; }

end_run() {
	kill -TERM "$pid"
	wait "$pid" || [[ $? -eq 75 ]]
	pid=""
}

# names RUN RANK KIND: the event hang names this rank and kind, the loss is that rank's, and its report exists for its user only.
names() {
	local file
	file=$(run_folder "$1")/trace/gen-1/stacks-$2.txt
	event "$1" hang | grep -q "\"rank\":$2,.*\"kind\":\"$3\""
	[[ $(event_field "$1" fault rank) -eq $2 ]]
	grep -E "hang +rank $2 on .*, hung first: .*; the stacks of its threads are in $file" "$out"
	[[ $(stat -c %a "$file") == 600 ]]
	head -n 1 "$file" | grep -E "^rank $2, process [0-9]+: "
}

@test "a thread that is stuck in a system call: the rank, the call and its file are named, and the run goes on" {
	drill stuck stuck
	names stuck 2 call
	grep -E "lost +rank 2 on .*: no rank made progress for .*; its training thread is in the system call read of pipe:\[[0-9]+\]" "$out"
	grep -q "never reached all_reduce" "$(run_folder stuck)/events.jsonl"
	if command -v gdb >/dev/null; then
		grep -q "in cause_stuck()" "$out"
		grep -qE "^#[0-9]+ .*cause_stuck \(" "$(run_folder stuck)/trace/gen-1/stacks-2.txt" # it is whole when the agent is ended
	fi
	run "$MUSTER" trace "$(run_folder stuck)/trace/gen-1"
	[[ $output == *"rank 2, process "*": its training thread is in the system call read"*"/stacks-2.txt"* ]]
	[[ $("$MUSTER" trace "$(run_folder stuck)" --json | grep -c '"file": .*stacks-2.txt') -eq 1 ]]
}

@test "a rank that computes for ever is named with its function, although other ranks look further behind" {
	drill spin spin
	names spin 2 computing
	grep -E "its training thread computes \([0-9]+ % of a core\)" "$out"
	! command -v gdb >/dev/null || grep -q "in cause_spin()" "$out"
}

@test "ranks in different collectives: the one that is alone in its own is named, and no node is blamed" {
	drill crossed collectives
	names crossed 2 collectives
	grep -E "verdict +ranks wait for each other: .* in barrier number [0-9]+ of group world for rank 0; rank 2 \(.*\) alone is in barrier" "$out"
	[[ $(event_field crossed fault fault) == deadlock ]]
	[[ -z $(event crossed node-suspected) ]]
}

@test "a stopped agent: an agent of the same host examines it" {
	begin stopped restart.silent_timeout=6 restart.stacks_timeout=20
	kill -STOP "$(rank_pid stopped 1)"
	wait_for 60 event stopped restart
	end_run
	cat "$out"
	names stopped 1 stopped
	grep -E "lost +rank 1 on .*: the agent sent no message for .*; its process is stopped by a signal" "$out"
	[[ $(event_field stopped fault fault) == agent-stopped ]]
	[[ -z $(event stopped node-suspected) ]] # a signal says nothing about the node
}

# relay_sockets PID: how many sockets the process has as the relay of its node: one that listens, and one for each rank that reports
# to it.
relay_sockets() {
	local inodes
	inodes=$(for fd in "/proc/$1/fd"/*; do readlink "$fd"; done | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
	awk -v all=" ${inodes//$'\n'/ } " 'index(all, " " $7 " ") && $8 ~ /^@muster-node-/' /proc/net/unix | wc -l
}

relays_for() { [[ $(relay_sockets "$1") -eq $(($2 + 1)) ]]; }

# The ranks that stand out because they have sent nothing for some seconds.
silent_ranks() { "$MUSTER" status "$(run_folder "$1")" | grep "sent nothing for" | grep -oP "rank \K[0-9]+"; }
someone_is_silent() { [[ -n $(silent_ranks "$1") ]]; }

@test "the first rank of a node, which reports for the others, is stopped: it is lost, and no other one" {
	begin first restart.silent_timeout=8 restart.stacks_timeout=20
	wait_for 60 relays_for "$(rank_pid first 0)" 3
	kill -STOP "$(rank_pid first 0)"
	wait_for 60 someone_is_silent first
	[[ $(silent_ranks first) == 0 ]]
	wait_for 60 event first restart
	end_run
	cat "$out"
	names first 0 stopped
	[[ $(event first rank-lost | wc -l) -eq 1 ]]
	[[ -z $(event first rank-paused) ]]
	[[ $(event_field first fault fault) == agent-stopped ]]
}

is_ready_again() { [[ $(event "$1" ready | wc -l) -eq 2 ]]; }

@test "the first rank of a node is killed: it is lost, and the one that takes its place reports for the others" {
	begin killed
	kill -KILL "$(rank_pid killed 0)"
	wait_for 60 is_ready_again killed
	wait_for 60 relays_for "$(rank_pid killed 0)" 3
	end_run
	[[ $(event killed rank-lost | wc -l) -eq 1 ]]
	[[ $(event_field killed rank-lost rank) -eq 0 ]]
}

@test "the report is whole when the last answer comes, after which the agent ends the examination" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\nseq 100000\necho the last line\n' >"$BATS_TEST_TMPDIR/bin/gdb"
	chmod +x "$BATS_TEST_TMPDIR/bin/gdb"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH timeout 120 python3 - "$(dirname "$MUSTER")/muster-agent" "$BATS_TEST_TMPDIR/report" <<-'END'
		import json, os, subprocess, sys
		agent, file = sys.argv[1:]
		sleeper = subprocess.Popen(["sleep", "600"])
		stat = open(f"/proc/{sleeper.pid}/stat").read().rsplit(")", 1)[1].split()
		request = {"rank": 0, "pid": sleeper.pid, "start": int(stat[19]), "pid_space": os.stat("/proc/self/ns/pid").st_ino,
		           "boot": open("/proc/sys/kernel/random/boot_id").read().strip(), "seconds": 50, "file": file}
		tool = subprocess.Popen([agent, "stacks", json.dumps(request)], stdout=subprocess.PIPE)
		answers = 0
		for line in tool.stdout:
		    answers += 1
		    if json.loads(line)["last"]:
		        tool.kill()
		        whole = open(file).read().endswith("the last line\n")
		sleeper.kill()
		assert answers == 2 and whole, (answers, whole)
	END
}

@test "all agents are stopped: muster examines one itself" {
	large
	begin all-stopped restart.silent_timeout=3 restart.stacks_timeout=20
	# shellcheck disable=SC2046 # a list of pids
	kill -STOP $(agent_pids all-stopped)
	wait_for 60 event all-stopped restart
	end_run
	event all-stopped hang | grep -q '"kind":"stopped"'
}

@test "nothing is examined if the job says so" {
	large
	begin unexamined restart.silent_timeout=2 restart.stacks_timeout=0
	kill -STOP "$(rank_pid unexamined 1)"
	wait_for 60 event unexamined restart
	end_run
	[[ -z $(event unexamined hang) && ! -e $(run_folder unexamined)/trace/gen-1/stacks-1.txt ]]
}

@test "the whole host stands still for longer than restart.silent_timeout: no rank is lost" {
	begin paused restart.silent_timeout=6 restart.hang_timeout=8 checkpoint.every=0 checkpoint.memory_every=0
	stopped=$(agent_pids paused)
	# shellcheck disable=SC2086 # a list of pids
	kill -STOP "$pid" $stopped
	sleep 12
	# shellcheck disable=SC2086
	kill -CONT "$pid" $stopped
	local step
	step=$(($(last_step paused) + 20))
	wait_for 60 step_reached paused $step
	end_run
	[[ -z $(event paused rank-lost) ]]
}

@test "an agent that stands still for less than restart.silent_timeout is not lost" {
	large
	begin short restart.silent_timeout=12
	stopped=$(rank_pid short 1)
	kill -STOP "$stopped"
	sleep 4
	kill -CONT "$stopped"
	wait_for 60 event short rank-paused
	end_run
	[[ -z $(event short rank-lost) ]]
}

@test "a slow checkpoint folder: a checkpoint that takes longer than restart.hang_timeout is no hang" {
	cc -shared -fPIC -o "$BATS_FILE_TMPDIR/slow.so" "$BATS_TEST_DIRNAME/slow_writes.c" -ldl || skip "needs a compiler"
	out=$BATS_FILE_TMPDIR/slow.out
	LD_PRELOAD=$BATS_FILE_TMPDIR/slow.so SLOW_MS=8000 timeout 400 "$MUSTER" run "$tiny" job.name=slow job.steps=20 parallel.dp=4 checkpoint.every=20 \
		restart.hang_timeout=12 restart.silent_timeout=10 </dev/null >"$out" 2>&1 3>&-
	cat "$out"
	[[ -z $(event slow rank-lost) ]]
	event slow ckpt | grep -oE '"seconds":[0-9]+' | cut -d : -f 2 | sort -n | tail -n 1 | awk '{ exit !($1 >= 12) }' # slow indeed
}
