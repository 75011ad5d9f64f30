#!/usr/bin/env bats
# A slow link between two ranks is named. Each run is in a network namespace of its own, where the kernel slows down the connections
# between two ranks.

load ../helpers
load namespace

setup_file() {
	make_data
	make_tiny_job
	# run WORD...: trains over TCP in this namespace, slows down what rank 1 sends to rank 2 once the run trains, and waits for the
	# event slow-link for 60 s.
	cat >"$BATS_FILE_TMPDIR/run" <<-'BASH'
		set -eu
		. "$namespace"
		ip link set lo up
		"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=4 network.backend=tcp job.steps=90000 model.hidden=128 batch.global=4 \
			health.slow_window=2 </dev/null >"$folder/$name.out" 2>&1 3>&- &
		pid=$!
		trap 'kill -TERM $pid; wait $pid || true' EXIT
		events=$folder/$name/events.jsonl
		# Prints the connections of a rank, each with the two ends in an order that both ranks agree on.
		connections() { ss -Htnp state established | grep "pid=$(pid_of "$events" "$1")," | awk -v own=$2 '{ print $(own), $(7 - own) }' | sort; }
		wait_until 90 '[[ $(wc -l 2>/dev/null <"$folder/$name/metrics.jsonl") -ge 30 ]]'
		add_slow_class 4mbit 16k
		comm -12 <(connections 1 3) <(connections 2 4) >"$folder/$name.connections"
		[[ -s $folder/$name.connections ]]
		while read -r from to; do
			slow_down match ip sport "${from##*:}" 0xffff match ip dport "${to##*:}" 0xffff
		done <"$folder/$name.connections"
		wait_until 60 "grep -q '\"event\":\"slow-link\".*\"rank\":1,.*\"peer\":2,' $events"
	BASH
}

setup() {
	need_namespace
	export MUSTER tiny folder=$BATS_FILE_TMPDIR namespace=$BATS_TEST_DIRNAME/namespace.bash
}

# Runs as NAME in a namespace, and shows what went wrong.
run_slowed() { # name
	name=$1 unshare -n bash "$BATS_FILE_TMPDIR/run" || {
		tail -n 20 "$BATS_FILE_TMPDIR/$1.out"
		return 1
	}
}

@test "a link that is slower than the others is named with both ranks, and the run goes on" {
	run_slowed slowed
	grep -E "slow +the link from rank (1 on [^ ]+ to rank 2|2 on [^ ]+ to rank 1) on [^ ]+ \(group dp\) is slow: .*B/s, the others' median is" \
		"$BATS_FILE_TMPDIR/slowed.out"
	event slowed slow-link | grep '"rank":1,' | grep '"group":"dp","slow":true'
	# No other link, and no rank, is to blame.
	[[ -z $(event slowed slow-link | grep -v -e '"rank":1,.*"peer":2,' -e '"rank":2,.*"peer":1,') ]]
	[[ -z $(event slowed rank-lost) ]]
}
