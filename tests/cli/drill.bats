#!/usr/bin/env bats
# muster drill causes faults in runs of its own, times the recovery, and says whether the result is right.

bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# drill NAME WORD...: drills the tiny job as NAME on two ranks; $output is the table or the JSON.
drill() {
	local name=$1
	shift
	run --separate-stderr "$MUSTER" drill "$tiny" "job.name=$name" parallel.dp=2 restart.backoff=0.1 "$@"
	echo "$output"
	echo "$stderr"
}

# Prints a Python expression about the JSON in $output; d is the list of drills, by name.
ask() {
	python3 -c 'import json, sys
o = json.load(sys.stdin)
d = {r["drill"]: r for r in o["drills"]}
print(eval(sys.argv[1]))' "$1" <<<"$output"
}

# Prints the processes that the runs of a drill, whose pid is $1, have started.
started_by() {
	local env
	for env in /proc/[0-9]*/environ; do
		grep -qz "^DRILL_MARK=$1-" "$env" 2>/dev/null && echo "${env//[!0-9]/}"
	done
	true
}
some_started_by() { [[ $(started_by "$1" | wc -l) -ge 4 ]]; }
none_started_by() { [[ -z $(started_by "$1") ]]; }

@test "the faults of one host: every result is right, and each phase is timed" {
	large
	drill host --json --steps 240 \
		--fault agent-killed,agent-crashed,bus-error,cpu-limit,pmix-server-killed,checkpoint-deleted,checkpoint-corrupted,disk-full,supervisor-killed,supervisor-ended,job-wrong
	[[ $status -eq 0 ]]
	[[ $(ask '[r["why"] for r in o["drills"] if r["outcome"] != "right"]') == "[]" ]]
	[[ $(ask 'len(d), o["steps"]') == "(11, 240)" ]]
	[[ $(ask 'all(d["agent-killed"]["phases"][k] >= 0 for k in d["agent-killed"]["phases"])') == True ]]
	[[ $(ask 'd["agent-killed"]["redone"] >= 1 and d["checkpoint-deleted"]["redone"] > d["agent-killed"]["redone"]') == True ]]
	[[ $(ask 'd["checkpoint-corrupted"]["redone"] >= 40, d["supervisor-ended"]["redone"]') == "(True, 0)" ]]
	[[ $(ask 'd["agent-killed"]["how"], d["job-wrong"]["status"]') == "('closed, signal 9', 1)" ]]
	[[ ! -e $(run_folder drill-host) ]]
	figure "agent killed: $(ask 'd["agent-killed"]["phases"]')"
}

@test "the faults that an agent causes in itself" {
	drill inside --json --steps 60 --fault agent-exited,device-lost,numeric restart.shrink=dp
	[[ $status -eq 0 ]]
	[[ $(ask 'd["agent-exited"]["how"], d["device-lost"]["how"], d["numeric"]["how"]') == "('closed, exit 7', 'failed', 'failed')" ]]
	[[ $(ask '[d[k]["fault"] for k in d]') == "['agent-exited', 'device-lost', 'wrong-results']" ]]
	[[ $(ask '[d[k]["phases"]["detect_s"] is not None for k in d]') == "[True, True, True]" ]]
	drill unasked --json --steps 60 --fault numeric parallel.sync=server
	[[ $status -eq 1 ]]
	[[ $(ask 'd["numeric"]["why"]') == *"parameter server"* ]]
}

@test "the OOM killer ends an agent in a cgroup of the run's own, which is removed" {
	drill memory --json --steps 60 --fault out-of-memory
	[[ $(ask 'd["out-of-memory"]["outcome"]') == skipped ]] && skip "$(ask 'd["out-of-memory"]["why"]')"
	[[ $status -eq 0 && $(ask 'd["out-of-memory"]["fault"]') == out-of-memory ]]
	[[ -z $(find /sys/fs/cgroup -maxdepth 2 -name 'muster-drill-*') ]]
}

@test "a fault that does not happen is wrong" {
	# An agent that ignores what the drill asks for.
	printf '#!/bin/sh\nunset DRILL_FAULT\nexec "%s" "$@"\n' "$(realpath "$(dirname "$MUSTER")/muster-agent")" >"$BATS_TEST_TMPDIR/agent"
	chmod +x "$BATS_TEST_TMPDIR/agent"
	MUSTER_AGENT=$BATS_TEST_TMPDIR/agent drill deaf --json --steps 60 --fault agent-exited,numeric
	[[ $status -eq 1 ]]
	[[ $(ask '[d[k]["outcome"] for k in d]') == "['wrong', 'wrong']" ]]
	[[ $(ask 'd["numeric"]["why"]') == "muster named no fault: it did not happen, or was not noticed" ]]
}

@test "a run is not disturbed by variables that a drill has left" {
	DRILL_FAULT="exit 0 5 0" run_tiny left parallel.dp=2
	[[ $(event left generation-start | wc -l) -eq 1 ]]
	DRILL_FAULT="melt" drill left-drill --steps 600 --fault agent-killed
	[[ $status -eq 0 ]]
}

@test "a stopped agent and a stopped supervisor" {
	large
	drill stopped --json --steps 240 --fault agent-stopped,supervisor-stopped
	[[ $status -eq 0 ]]
	[[ $(ask 'd["agent-stopped"]["phases"]["detect_s"] >= 2 and d["agent-stopped"]["redone"] >= 1') == True ]]
	[[ $(ask 'd["supervisor-stopped"]["redone"]') == 0 ]]
}

@test "the drill of a run folder does not touch the run" {
	run_tiny mine parallel.dp=2 checkpoint.every=10
	before=$(cd "$(run_folder mine)" && find . -type f -exec sha256sum {} + | sort)
	run --separate-stderr "$MUSTER" drill "$(run_folder mine)" --steps 600 --fault agent-killed
	echo "$output"
	[[ $status -eq 0 ]]
	[[ ${lines[0]} == fault*said*detect*fence*plan*start*load*step*redone*result ]]
	[[ ${lines[1]} == agent-killed*right ]]
	[[ ${lines[2]} == "1 drilled, 1 right, 0 skipped" ]]
	[[ $(cd "$(run_folder mine)" && find . -type f -exec sha256sum {} + | sort) == "$before" ]]
}

@test "steps that are too fast get more of them, and the learning rate's keys follow" {
	large
	drill more --json --fault agent-killed job.steps=100000 optimizer.warmup=2000 optimizer.decay_steps=50000
	[[ $status -eq 0 ]]
	[[ $(ask 'o["steps"] >= 60') == True ]]
}

@test "a job that does not recover is reported as wrong, and its run remains" {
	drill hopeless --steps 600 --fault agent-killed restart.max_restarts=0
	[[ $status -eq 1 ]]
	[[ $output == *"agent-killed"*" wrong"*"wrong: agent-killed: the exit status is "* ]]
	[[ $output == *"the runs that remain are in $(run_folder drill-hopeless)"*"1 drilled, 0 right, 0 skipped" ]]
	[[ -s $(run_folder drill-hopeless)/agent-killed/drill.out ]]
	[[ ! -e $(run_folder drill-hopeless)/undisturbed ]]
}

@test "a fault that is not possible here is skipped with its reason, and proves nothing" {
	drill skipped --steps 240 --fault node-down,slurmstepd-killed
	[[ $status -eq 1 ]]
	[[ $output == *"node-down            skipped: it needs a Slurm allocation"* ]]
	[[ $output == *"0 drilled, 0 right, 2 skipped" ]]
}

@test "Ctrl-C ends the runs of a drill and removes them" {
	"$MUSTER" drill "$tiny" job.name=stop parallel.dp=2 --steps 100000 </dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 some_started_by $pid
	kill -INT $pid
	rc=0
	wait $pid || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	[[ $rc -eq 75 ]]
	none_started_by $pid
	[[ ! -e $(run_folder drill-stop) ]]
}

@test "a drill that is killed leaves no process, and the next one removes its folder" {
	large
	"$MUSTER" drill "$tiny" job.name=dead parallel.dp=2 --steps 100000 </dev/null >/dev/null 2>&1 3>&- &
	pid=$!
	wait_for 60 some_started_by $pid
	kill -9 $pid
	wait_for 60 none_started_by $pid
	[[ -d $(run_folder drill-dead)/undisturbed ]]
	drill dead --steps 240 --fault agent-killed
	[[ $status -eq 0 ]]
	[[ ! -e $(run_folder drill-dead) ]]
}

@test "a folder that belongs to no drill is refused and stays" {
	mkdir -p "$(run_folder drill-taken)/precious"
	drill taken --steps 240
	[[ $status -eq 2 ]]
	[[ $stderr == *'belongs to no drill; move it elsewhere'* ]]
	[[ -d $(run_folder drill-taken)/precious ]]
}

@test "wrong words are usage errors, and nothing starts" {
	drill usage --fault agent-kiled
	[[ $status -eq 2 && $stderr == *'there is no fault "agent-kiled"; muster drill --help lists them'* ]]
	drill usage --fault ""
	[[ $status -eq 2 && $stderr == *'--fault has no name'* ]]
	drill usage --steps 5
	[[ $status -eq 2 && $stderr == *'--steps "5": a whole number from 12 to 1000000'* ]]
	drill usage --steps
	[[ $status -eq 2 ]]
	drill usage parallel.dp=none
	[[ $status -eq 2 ]]
	run "$MUSTER" drill
	[[ $status -eq 2 ]]
	[[ ! -e $(run_folder drill-usage) ]]
}

@test "a job that cannot run undisturbed is reported, and exits 3" {
	drill broken --steps 240 data.path=/nonexistent
	[[ $status -eq 3 ]]
	[[ $stderr == *"the undisturbed run ended with exit status 1: "*"/drill.out"* ]]
}
