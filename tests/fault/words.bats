#!/usr/bin/env bats
# What muster says and does after a fault: whose it is, whether it tries again, and from which step it continues.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# begin NAME WORD...: starts a run that ends after many steps in the background, and sets $pid; $out is what it prints.
begin() {
	local name=$1
	shift
	out=$BATS_FILE_TMPDIR/$name.out
	"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=2 restart.backoff=0.1 "$@" </dev/null >"$out" 2>&1 3>&- &
	pid=$!
}

kill_rank() { kill "-$2" "$(agent_pid "$1" "$3")"; } # run signal rank

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
	[[ -z ${place-} ]] || rm -rf "$place"
	rm -f "/dev/shm/muster-test-$$"
}

@test "a killed agent: its signal by name, and the step from which the run continues" {
	begin killed job.steps=300 checkpoint.every=10
	wait_for 60 checkpoint_reached killed 10
	kill_rank killed KILL 1
	wait "$pid"
	cat "$out"
	grep -qE "lost +rank 1 on .*: killed by SIGKILL; a signal from outside ended the agent" "$out"
	[[ $(event killed rank-lost) == *'"owner":"unknown"'* ]]
	[[ $(event_field killed fault fault) == agent-killed && $(event_field killed fault signal) == 9 ]]
	from=$(event_field killed ready step)
	grep -qE "resume +continuing from step $from" "$out"
	[[ $from -ge 10 ]]
}

@test "an agent that crashes is not called killed" {
	large
	begin crashed job.steps=300 checkpoint.every=10
	wait_for 60 step_reached crashed 5
	kill_rank crashed SEGV 0
	wait "$pid"
	grep -qE "lost +rank 0 on .*: killed by SIGSEGV; the agent crashed" "$out"
	[[ $(event_field crashed fault fault) == agent-crashed ]]
}

@test "a kill after ckpt/ was deleted: the run starts from the beginning, says so, and makes the folder again" {
	begin emptied job.steps=300 checkpoint.every=10
	wait_for 60 event emptied ckpt
	kill -STOP "$pid" # it must not hear of the loss before the folder is gone
	wait_for 60 rm -rf "$(run_folder emptied)/ckpt" # the agents may be writing there
	kill_rank emptied KILL 1
	kill_rank emptied KILL 0
	kill -CONT "$pid"
	wait "$pid"
	cat "$out"
	grep -qE "resume +starting from the beginning; [0-9]+ steps (is|are) repeated, because the checkpoint of step [0-9]+ is gone or damaged" "$out"
	[[ $(event_field emptied ready step) == 0 ]]
	"$MUSTER" ckpt verify "$(run_folder emptied)/ckpt"
}

@test "ckpt/ deleted while the run trains: the next checkpoint makes it again, without a restart" {
	large
	begin deleted job.steps=400 checkpoint.every=20
	wait_for 60 event deleted ckpt
	wait_for 60 rm -rf "$(run_folder deleted)/ckpt"
	wait "$pid"
	cat "$out"
	grep -q "the folder was deleted, with the checkpoints in it" "$out"
	[[ $(event deleted generation-start | wc -l) -eq 1 ]]
	"$MUSTER" ckpt verify "$(run_folder deleted)/ckpt"
}

@test "a checkpoint folder that may not be written to: one start, exit status 1" {
	[[ $(id -u) -ne 0 ]] || command -v setpriv >/dev/null || skip "needs setpriv"
	# The test's own folder may be closed to other users.
	place=$(mktemp -d /tmp/muster-denied.XXXXXX)
	local folder=$place/ckpt
	cp "$data".* "$tiny" "$place"
	chmod 755 "$place"
	chmod 644 "$place"/*
	mkdir -m 755 "$place/theirs"
	mkdir -m 555 "$folder"
	chown nobody "$place/theirs" 2>/dev/null || true
	run as_nobody "$MUSTER" run "$place/${tiny##*/}" job.name=denied job.run_dir="$place/theirs" data.path="$place/${data##*/}" parallel.dp=2 \
		checkpoint.dir="$folder"
	echo "$output"
	[[ $status -eq 1 ]]
	[[ $output == *"$folder: checkpoints cannot be written here; correct its owner and permissions"*"Permission denied"* ]]
	[[ $(grep -c generation-start "$place/theirs/denied/events.jsonl") -eq 1 ]]
	grep -q '"event":"fault".*"fault":"not-permitted","owner":"job","retry":"never"' "$place/theirs/denied/events.jsonl"
}

# Root may write anywhere, so the command runs as another user.
as_nobody() {
	if [[ $(id -u) -eq 0 ]]; then
		env HOME="$place/theirs" setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"
	else
		"$@"
	fi
}

@test "a program that is missing: one start, exit status 1, and the remedy" {
	printf '#!/no/such/shell\n' >"$BATS_TEST_TMPDIR/agent"
	chmod +x "$BATS_TEST_TMPDIR/agent"
	MUSTER_AGENT=$BATS_TEST_TMPDIR/agent run "$MUSTER" run "$tiny" job.name=missing parallel.dp=2
	echo "$output"
	[[ $status -eq 1 && $output == *"the agent, or a library that it needs, cannot be executed"*"remedy"*"ldd"* ]]
	[[ $(event missing generation-start | wc -l) -eq 1 ]]
}

# Writes an agent of which the rank 1 sees another, empty folder in place of $1: what a folder on each node's own disk looks like.
write_agent_elsewhere() {
	cat >"$BATS_TEST_TMPDIR/agent" <<-END
		#!/bin/bash
		agent=$(dirname "$(realpath "$MUSTER")")/muster-agent
		[[ \${PMIX_RANK-} == 1 && \$# -eq 0 ]] || exec "\$agent" "\$@"
		export agent
		exec unshare -m bash -c 'mount -t tmpfs none "$1" && exec "\$agent"'
	END
	chmod +x "$BATS_TEST_TMPDIR/agent"
}

@test "a checkpoint folder that the nodes do not share: the rank that does not see it is named, and nothing is tried again" {
	unshare -m true 2>/dev/null || skip "needs the right to mount"
	mkdir "$BATS_FILE_TMPDIR/local"
	write_agent_elsewhere "$BATS_FILE_TMPDIR/local"
	MUSTER_AGENT=$BATS_TEST_TMPDIR/agent run "$MUSTER" run "$tiny" job.name=unshared parallel.dp=2 checkpoint.dir="$BATS_FILE_TMPDIR/local" checkpoint.every=5
	echo "$output"
	[[ $status -eq 1 ]]
	[[ $output =~ "lost".*"rank 1 on ".*"local: the nodes do not share this folder: rank 1 on ".*"set checkpoint.dir to a folder on a file system that all nodes share" ]]
	[[ $(event_field unshared rank-lost rank) == 1 && $(event_field unshared rank-lost fault) == file-missing ]]
	[[ $(event unshared generation-start | wc -l) -eq 1 ]]
	[[ -z $(ls -A "$BATS_FILE_TMPDIR/local" | grep -v RUN) ]]
}

# Fills a file in memory, charged to the cgroup $1, until the OOM killer has struck there. No process holds that memory, so an agent
# is chosen.
eat_memory() {
	local file=/dev/shm/muster-test-$$
	(
		echo "$BASHPID" >"$1/cgroup.procs"
		while grep -q "oom_kill 0" "$1/memory.oom_control"; do head -c 4M /dev/zero; done >"$file"
	) || true # it may be chosen too, while the agent's memory is being freed
	rm -f "$file"
}

@test "the OOM killer is named as what killed the agent" {
	local group=/sys/fs/cgroup/memory/muster-test-$$
	mkdir "$group" 2>/dev/null || skip "needs the right to make a cgroup (v1)"
	[[ $(wc -l </proc/swaps) -eq 1 ]] || skip "this host swaps"
	out=$BATS_FILE_TMPDIR/oom.out
	bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" "$MUSTER" run "$tiny" job.name=oom job.steps=100000 \
		parallel.dp=2 restart.backoff=0.1 </dev/null >"$out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached oom 5
	echo $((400 << 20)) >"$group/memory.limit_in_bytes"
	echo 1000 >"/proc/$(agent_pid oom 1)/oom_score_adj" # chosen first
	eat_memory "$group"
	wait_for 60 grep -q "continuing from step\|starting from the beginning" "$out"
	kill -TERM "$pid"
	wait "$pid" || [[ $? -eq 75 ]]
	cat "$out" "$group/memory.oom_control"
	wait_for 60 rmdir "$group"
	grep -qE "lost +rank [01] on .*: killed by SIGKILL; the kernel's OOM killer ended the agent" "$out"
	grep -q "remedy.*muster plan" "$out"
	[[ $(event_field oom fault fault) == out-of-memory ]]
}

@test "deleted files of the run folder are named at once, begun again, and nothing ends" {
	begin swept job.steps=100000 checkpoint.memory_every=0
	wait_for 60 step_reached swept 5
	rm -r "$(run_folder swept)"/{metrics.jsonl,events.jsonl,logs}
	wait_for 60 grep -q "swept/metrics.jsonl was deleted; a new file begins" "$out"
	kill_rank_of swept
	wait_for 60 grep -q "swept/events.jsonl was deleted; a new file begins" "$out"
	wait_for 60 grep -q "starting from the beginning" "$out"
	[[ -d $(run_folder swept)/logs ]]
	kill -TERM "$pid"
	wait "$pid" || [[ $? -eq 75 ]]
}

# Kills an agent of the run; its events may be gone.
kill_rank_of() { kill -9 "$(pgrep -P "$pid" -x muster-agent | tail -n 1)"; }

@test "a deleted run folder is named at once, and a loss after that ends the run with that cause" {
	begin erased job.steps=100000
	wait_for 60 step_reached erased 5
	# The agents may write a file meanwhile.
	wait_for 60 rm -rf "$(run_folder erased)" 2>/dev/null
	wait_for 60 grep -q "erased: the run folder was deleted or moved; events, metrics and checkpoints cannot be kept" "$out"
	kill_rank_of erased
	local rc=0
	wait "$pid" || rc=$?
	cat "$out"
	[[ $rc -ne 0 && $rc -ne 75 ]]
	grep -q "the run folder was deleted or moved while the run used it" "$out"
}
