#!/usr/bin/env bats
# `muster nodes`: what runs have seen of nodes is kept, listed, used and cleared.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# note NODE KIND EVIDENCE: adds a line of a run on the cluster alpha to the list.
note() {
	mkdir -p "$MUSTER_NODES_DIR"
	printf '{"time":%s,"cluster":"alpha","node":"%s","kind":"%s","evidence":"%s","did":"","run":"/runs/a"}\n' \
		"$(date +%s)" "$1" "$2" "$3" >>"$MUSTER_NODES_DIR/$(id -u).jsonl"
}

@test "an empty list says so" {
	run "$MUSTER" nodes
	echo "$output"
	[[ $status -eq 0 && $output == "nothing speaks against any node ($MUSTER_NODES_DIR)" ]]
}

@test "suspects are listed with their evidence, and with what people can do" {
	note n3 device "Xid 79: the GPU's link is gone"
	note n4 paused "rank 7 stood still"
	run "$MUSTER" nodes
	echo "$output"
	[[ $status -eq 0 ]]
	grep -E "^n3 +80 % +1 .* device +Xid 79" <<<"$output"
	grep -E "^n4 +10 % +1 .* paused +rank 7" <<<"$output"
	grep -F "sbatch --exclude=n3 " <<<"$output"
	grep -F "scontrol update NodeName=n3 State=DRAIN Reason='muster: Xid 79: the GPU s link is gone'" <<<"$output"
	"$MUSTER" nodes --json | python3 -c '
import json, sys
nodes = json.load(sys.stdin)
assert [(n["node"], n["suspect"], n["kind"]) for n in nodes] == [("n3", True, "device"), ("n4", False, "paused")], nodes'
}

@test "a node that a person clears is no suspect any more, and its evidence stays" {
	note n3 device "Xid 79"
	"$MUSTER" nodes clear n3
	run "$MUSTER" nodes
	[[ $output == "nothing speaks against any node"* ]]
	run "$MUSTER" nodes show n3
	echo "$output"
	grep -E "device +Xid 79 \[does not count\]" <<<"$output"
	grep -E "cleared +cleared by a person$" <<<"$output"
	grep -Fx "n3: 0 % sure, nothing speaks against it" <<<"$output"
	run "$MUSTER" nodes clear n3
	[[ $status -eq 2 && $output == *"n3: nothing speaks against this node"* ]]
}

@test "clear says that it does not void what the runs of other users have seen" {
	[[ $(id -u) -eq 0 ]] && command -v setpriv >/dev/null || skip "needs root, to be two other users"
	setpriv --reuid 12346 --clear-groups "$MUSTER" --version || skip "other users cannot execute $MUSTER"
	local folder
	folder=$(mktemp -d /tmp/muster-nodes.XXXXXX)
	chmod 1777 "$folder"
	MUSTER_NODES_DIR=$folder note n3 device "Xid 79"
	mv "$folder/0.jsonl" "$folder/12345.jsonl"
	chown 12345 "$folder/12345.jsonl"
	chmod 644 "$folder/12345.jsonl"
	run setpriv --reuid 12346 --clear-groups "$MUSTER" nodes clear n3 --dir "$folder"
	echo "$output"
	local said=$output
	run "$MUSTER" nodes clear n3 --dir "$folder"
	rm -r "$folder"
	[[ $said == "cleared n3, but only what your runs have seen; root can clear the rest" && $output == "cleared n3" ]]
}

@test "evidence cannot control the terminal" {
	note n3 device '\u001b[2Jgone'
	run "$MUSTER" nodes
	[[ $output != *$'\e'* && $output == *"[2Jgone"* ]]
}

@test "a name that means something to a shell is listed, but is not part of the advice" {
	note 'n1;reboot' device "Xid 79"
	run "$MUSTER" nodes
	[[ $output == *"n1;reboot "*"Xid 79"* && $output != *sbatch* ]]
	note n3 device "Xid 79"
	run "$MUSTER" nodes
	echo "$output"
	grep -F "sbatch --exclude=n3 " <<<"$output"
	[[ $(grep -c "scontrol update" <<<"$output") -eq 1 ]]
}

@test "mistakes are refused with the reason" {
	run "$MUSTER" nodes show
	[[ $status -eq 2 && $output == *"show needs the name of a node"* ]]
	run "$MUSTER" nodes clear n3 --json
	[[ $status -eq 2 && $output == *'"--json" is not an option of muster nodes clear'* ]]
	run "$MUSTER" nodes --dir
	[[ $status -eq 2 && $output == *"--dir needs a value"* ]]
	touch "$BATS_TEST_TMPDIR/file"
	note n3 device x
	"$MUSTER" nodes --dir "$BATS_TEST_TMPDIR/file" # it has no list
}

# lose_rank NAME WORD...: a run of two ranks ends because one is stopped for longer than its limit. Nobody examines it: a process that is
# found to be stopped says nothing about its node.
lose_rank() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=2 job.steps=90000 restart.silent_timeout=6 restart.stacks_timeout=0 \
		restart.max_restarts=0 "$@" \
		</dev/null >"$BATS_TEST_TMPDIR/$name.out" 2>&1 3>&- &
	local pid=$!
	wait_for 60 step_reached "$name" 5
	kill -STOP "$(agent_pid "$name" 1)"
	wait $pid || [[ $? -eq 1 ]]
}

@test "a run whose agent falls silent leaves a line about its node" {
	lose_rank silent
	[[ $(event_field silent node-suspected kind) == silent ]]
	run "$MUSTER" nodes --cluster local
	echo "$output"
	grep -E "^[^ ]+ +40 % +1 .* silent +the agent sent no message for [0-9.]+ s$" <<<"$output"
	run "$MUSTER" nodes --cluster alpha
	[[ $output == "nothing speaks against any node"* ]]
}

@test "a job may ignore the list" {
	lose_rank ignoring health.suspects=ignore
	[[ $(event_field ignoring node-suspected kind) == silent && ! -e $MUSTER_NODES_DIR ]]
}
